"""The blocks of the page *Python*, literally and in order, in one process with the files of the page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.reference.doc_blocks import python_blocks

pytestmark = [pytest.mark.spark, pytest.mark.tf, pytest.mark.long, pytest.mark.timeout(1_800)]

MODEL = """
import subprocess, sys
from pathlib import Path
promote = ["models", "promote", "digits", "runs/lenet", "--models", "models", "--reason", "for the page"]
subprocess.run([Path(sys.executable).with_name("deepspark"), *promote], check=True)
"""
NET = """
import shutil
import numpy as np
shutil.copy("runs/lenet/bundle/deploy.prototxt", ".")
shutil.copy(run.snapshots[-1], "weights.caffemodel")
image = np.zeros((1, 28, 28), np.float32)
"""
PREPARATIONS = {"import deepspark_ops as ds": "", "run.metrics": MODEL, "net = ds.Net": NET}
"""Start of a block -> files that its reader has."""


def test_the_blocks_of_the_page_run(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "examples" / "digits")
    solver = tmp_path / "examples" / "digits" / "lenet_solver.prototxt"
    solver.write_text(re.sub(r"max_iter: \d+", "max_iter: 40", solver.read_text()))  # four trainings and one
    blocks = list(python_blocks(ROOT / "docs" / "guides" / "python.md"))
    assert {start for start in PREPARATIONS for block in blocks if block.startswith(start)} == set(PREPARATIONS)
    assert next(python_blocks(ROOT / "README.md")) == blocks[0]
    parts = [
        part
        for block in blocks
        for start in PREPARATIONS
        if block.startswith(start)
        for part in (PREPARATIONS[start], block)
    ]
    other_blocks = [block for block in blocks if not block.startswith(tuple(PREPARATIONS))]
    script = tmp_path / "page.py"
    script.write_text("\n".join([*parts, *other_blocks, "print(comparison.frame.status.tolist(), dir(caffe), L, P)"]))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    completed = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False, timeout=1_700,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stdout[-6000:]
    assert "['finished', 'finished', 'finished', 'finished']" in completed.stdout
