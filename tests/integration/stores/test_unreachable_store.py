"""An object store without an answer: every command with such an address says so in one message."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.small_run import NET, SOLVER
from tests.paths import ROOT

ADDRESS = "s3://bucket/pets"
COMMANDS = {
    "ingest's source": (["ingest", ADDRESS, "--output", "dataset"], 2, f"source={ADDRESS}: "),
    "train's dataset": (["train", "solver.prototxt", "--dataset", ADDRESS, "--run-dir", "run"], 1, ADDRESS),
    "data show": (["data", "show", ADDRESS], 1, ADDRESS),
}
OTHER_COMMANDS = {
    "ingest's archive": (["ingest", f"{ADDRESS}.tar::list.txt", "--output", "dataset"], 2, f"source={ADDRESS}.tar"),
    "ingest's output": (["ingest", "photos", "--output", ADDRESS], 1, f"{ADDRESS}/"),
    "data prune": (["data", "prune", ADDRESS, "--keep", "0"], 1, ADDRESS),
}


@pytest.mark.parametrize("commands", [COMMANDS, pytest.param(OTHER_COMMANDS, marks=pytest.mark.long)], ids=", ".join)
def test_each_command_says_in_one_message_that_the_store_cannot_be_reached(
    commands: dict[str, tuple[list[str], int, str]], tmp_path: Path
) -> None:
    (tmp_path / "net.prototxt").write_text(NET.replace('mean_file: "mean"', ""))
    (tmp_path / "solver.prototxt").write_text(SOLVER.format(net="net.prototxt"))
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "1.png").write_bytes(b"the store is asked before a picture is read")
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "not-to-be-seen", "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    started = {
        name: subprocess.Popen(
            [sys.executable, "-m", "deepspark_ops.command.cli", *arguments],
            cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for name, (arguments, _, _) in commands.items()
    }  # fmt: skip
    try:
        outputs = {name: process.communicate(timeout=240)[0] for name, process in started.items()}
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    for name, (_, exit_code, subject) in commands.items():
        output = outputs[name]
        errors = [line for line in output.splitlines() if line.startswith("error: ")]
        assert started[name].returncode == exit_code, f"{name}: {output}"
        assert len(errors) == 1, f"{name}: {output}"
        assert errors[0].startswith(f"error: {subject}"), f"{name}: {output}"
        assert "the store cannot be reached: Failed to connect to 127.0.0.1:9" in errors[0], f"{name}: {output}"
        assert "Traceback" not in output, f"{name}: {output}"
        assert "not-to-be-seen" not in output, name
