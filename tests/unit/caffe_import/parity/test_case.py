from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from caffe_import.parity.__main__ import main
from caffe_import.parity.case import Case, Outcome, load_cases, run_case
from caffe_import.parity.setting import Setting
from tests.paths import FIXTURES

pytestmark = pytest.mark.tf

FIXTURES = FIXTURES / "caffe"


def copied(folder: Path, *names: str) -> Path:
    """Make a folder with some of the recorded cases."""
    index = json.loads((FIXTURES / "index.json").read_text())
    cases = [case for case in index["cases"] if case["name"] in names]
    assert len(cases) == len(names)
    for name in {name for case in cases for name in case["files"]}:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(FIXTURES / name, folder / name)
    (folder / "index.json").write_text(json.dumps({"cases": cases}))
    return folder


def changed(path: Path, member: str, by: float) -> None:
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays[member] = arrays[member] + np.float32(by)
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("name", "file", "member"),
    [
        ("ip_2d", "layers/ip_2d.npz", "top/y"),
        ("ip_2d", "layers/ip_2d.npz", "bottom_diff/x"),
        ("ip_2d", "layers/ip_2d.npz", "param_diff/l/0"),
        ("softmax_loss_default", "layers/softmax_loss_default.npz", "loss"),
        ("bn_train_fresh", "layers/bn_train_fresh.npz", "fwd3/top/y"),
        ("bn_train_fresh", "layers/bn_train_fresh.npz", "param_after/l/2"),
        ("quick_mini", "nets/quick_mini.npz", "blob_diff/conv1"),
        ("sgd_mlp", "solvers/sgd_mlp/trajectory.npz", "iter_0020/ip2/1"),
        ("sgd_mlp", "solvers/sgd_mlp/trajectory.npz", "lr"),
        ("sgd_mlp", "solvers/sgd_mlp/trajectory.npz", "grad_norm"),
        ("snap_sgd", "solvers/snap_sgd/trajectory.npz", "resumed/iter_0020/ip1/0"),
    ],
)
def test_a_planted_fault_fails_the_case_and_is_named(tmp_path: Path, name: str, file: str, member: str) -> None:
    folder = copied(tmp_path, name)
    (case,) = load_cases(folder)
    changed(folder / file, member, by=0.1)
    outcome = run_case(case)
    assert outcome.status == "failed"
    assert outcome.worst > 1e-3
    assert any(fault.startswith(f"{member}: relative error") for fault in outcome.faults)


def test_a_missing_gradient_must_be_missing_here_too(tmp_path: Path) -> None:
    folder = copied(tmp_path, "ip_2d")
    path = folder / "layers/ip_2d.npz"
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files if name != "bottom_diff/x"}
    np.savez(path, **arrays)
    assert run_case(load_cases(folder)[0]).faults == ("blob x gets a gradient; Caffe gives it none",)


def test_what_the_importer_refuses_is_unsupported_with_its_message(tmp_path: Path) -> None:
    folder = copied(tmp_path, "ip_2d")
    path = folder / "layers/ip_2d.prototxt"
    path.write_text(path.read_text().replace('"InnerProduct"', '"Mystery"'))
    outcome = run_case(load_cases(folder)[0])
    assert outcome.status == "unsupported"
    assert 'no importer for layer type "Mystery"' in outcome.faults[0]


def test_unknown_kind_is_unsupported(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text(json.dumps({"cases": [{"name": "a", "kind": "riddle", "files": []}]}))
    outcome = run_case(load_cases(tmp_path)[0])
    assert (outcome.status, outcome.faults[0].split(";")[0]) == ("unsupported", 'no comparison for kind "riddle"')


def test_command_reports_json_and_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copied(tmp_path, "ip_2d", "relu")
    assert main([str(folder), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["passed"], report["failed"], report["unsupported"]) == (2, 0, 0)
    assert [case["name"] for case in report["cases"]] == ["ip_2d", "relu"]
    changed(folder / "layers/ip_2d.npz", "top/y", by=1.0)
    assert main([str(folder)]) == 1
    assert "2 cases: 1 passed, 1 failed, 0 unsupported" in capsys.readouterr().out
    assert main([str(folder), "--only", "relu"]) == 0


def test_with_json_each_ended_case_is_a_line_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr_texts: list[str] = []

    def watched(case: Case, setting: Setting) -> Outcome:
        stderr_texts.append(capsys.readouterr().err)
        return run_case(case, setting)

    monkeypatch.setattr("caffe_import.parity.__main__.run_case", watched)
    assert main([str(copied(tmp_path, "ip_2d", "relu")), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["passed"] == 2
    assert [text.split()[:4] for text in stderr_texts] == [[], ["1/2", "passed", "layer", "ip_2d"]]
    last, summary = err.splitlines()
    assert last.split()[:4] == ["2/2", "passed", "layer", "relu"]
    assert summary.startswith("2 cases: 2 passed")


def test_a_broken_case_does_not_hide_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copied(tmp_path, "ip_2d", "relu")
    (folder / "layers/ip_2d.npz").write_bytes(b"no archive")
    assert main([str(folder), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [case["status"] for case in report["cases"]] == ["failed", "passed"]


@pytest.mark.parametrize("arguments", [["--only", "nothing"], []])
def test_wrong_calls_exit_with_two(tmp_path: Path, arguments: list[str]) -> None:
    folder = copied(tmp_path, "relu") if arguments else tmp_path / "missing"
    with pytest.raises(SystemExit) as caught:
        main([str(folder), *arguments])
    assert caught.value.code == 2


def test_the_command_writes_its_own_lines_only() -> None:
    names = ["absval", "conv_3d_s_p", "relu", "elu", "bnll", "clip", "exp", "log", "sgd_mlp"]
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-m", "caffe_import.parity", str(FIXTURES), "--only", *names]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    lines = completed.stderr.splitlines()
    if version("tensorflow").startswith("2.18."):  # TensorFlow writes about CUDA at every log level
        lines = [line for line in lines if not re.match(r"[EW]0000 |\S+ \S+: E |WARNING: All log messages", line)]
    assert lines == []
    assert [line.split()[0] for line in completed.stdout.splitlines()] == ["passed"] * len(names) + [str(len(names))]
