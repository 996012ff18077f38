"""GPUs of a host with a stand-in for nvidia-smi, seen by the driver and by the script that Spark runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from deepspark_ops.devices.host_gpus import DISCOVERY_SCRIPT, host_gpus
from tests.fake_smi import smi_folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {"PATH": f"{folder}:{os.environ['PATH']}", **more}


def discovered(env: dict[str, str]) -> dict[str, object]:
    completed = subprocess.run([DISCOVERY_SCRIPT], env=env, capture_output=True, text=True, check=True)
    return json.loads(completed.stdout)


@pytest.mark.parametrize(
    ("listed", "setting", "expected"),
    [
        ("0\n1\n2", None, ["0", "1", "2"]),
        ("0", None, ["0"]),
        ("", None, []),
        ("0\n1\n2", "2,0", ["2", "0"]),
        ("0\n1\n2", " 1 ", ["1"]),
        ("0\n1\n2", "GPU-8932f937-d72c", ["GPU-8932f937-d72c"]),
        ("0\n1\n2", "", []),
        ("0\n1\n2", "-1", []),
        ("0\n1\n2", "1,-1,2", ["1"]),
    ],
)
def test_driver_and_discovery_script_find_the_same_gpus(
    listed: str, setting: str | None, expected: list[str], tmp_path: Path
) -> None:
    env = environment(smi_folder(tmp_path, listed), **({} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}))
    assert list(host_gpus(env).addresses) == expected
    assert discovered(env) == {"name": "gpu", "addresses": expected}
    assert bool(host_gpus(env).reason) == (not expected)


def test_a_host_without_a_driver_says_so() -> None:
    gpus = host_gpus({"PATH": "/nowhere"})
    assert gpus.addresses == ()
    assert gpus.reason == "this host has no nvidia-smi on PATH, which comes with NVIDIA's driver"


def test_a_failed_nvidia_smi_is_named_with_its_message(tmp_path: Path) -> None:
    text = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\nMake sure"
    env = environment(smi_folder(tmp_path, text, code=9))
    assert host_gpus(env).reason == (
        "nvidia-smi ended with code 9 on this host and said: NVIDIA-SMI has failed because it couldn't communicate"
        " with the NVIDIA driver."
    )
    completed = subprocess.run([DISCOVERY_SCRIPT], env=env, capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stdout) == (1, "")
    assert re.match(r"gpu_discovery\.sh: nvidia-smi failed on \S+: NVIDIA-SMI has failed", completed.stderr)


def test_the_script_can_be_run_by_anyone() -> None:
    assert DISCOVERY_SCRIPT.stat().st_mode & 0o111 == 0o111
