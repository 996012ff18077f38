"""The layers agree with their references under TensorFlow's other kernels of the CPU, too.

TensorFlow computes by oneDNN on CPUs with AVX-512 VNNI, AVX-VNNI or AMX, and by kernels of its own on all others. The
choice is made when TensorFlow is imported, so the layers' tests run again in a process that has the other choice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tf

_REPOSITORY = Path(__file__).parents[4]
_LAYERS = Path(__file__).parents[1] / "layers"
_LIMIT_S = 550


def run_tests(arguments: list[str], *, uses_onednn: bool) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "tf and not long", *arguments],
        cwd=_REPOSITORY,
        env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": str(int(uses_onednn))},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )


def test_windows_agree_without_onednn() -> None:
    files = [str(_LAYERS / name) for name in ("test_lrn.py", "test_pooling.py", "test_spp.py")]
    ended = run_tests(files, uses_onednn=False)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.long
@pytest.mark.parametrize("uses_onednn", [False, True])
def test_all_layers_agree(uses_onednn: bool) -> None:
    ended = run_tests([str(_LAYERS)], uses_onednn=uses_onednn)
    assert ended.returncode == 0, ended.stdout
