"""mypy keeps addresses of a store out of functions that look for them on the disk."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT

USES = """\
import os
import shutil
from pathlib import Path
from deepspark_ops.stores.store_path import DataPath, StorePath, data_path

def uses(address: StorePath, path: DataPath, folder: Path) -> None:
    open(address)  # refused
    open(path)  # refused
    Path(address)  # refused
    Path(path)  # refused
    os.path.join(address)  # refused
    os.fspath(path)  # refused
    shutil.copyfile(path, folder)  # refused
    folder.joinpath(address)  # refused
    path.rename(folder)  # refused
    of_a_local_path: Path = data_path("s3://bucket/key")  # refused
    with path.open("rb") as stream:
        stream.read()
    of_data: DataPath = folder / address
    if isinstance(path, Path):
        open(path)
"""


def test_a_use_of_an_address_as_a_local_path_is_an_error_of_types(tmp_path: Path) -> None:
    file = tmp_path / "uses.py"
    file.write_text(USES)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    refused = {int(number) for number in re.findall(r"uses\.py:(\d+): error", done.stdout)}
    lines = {number for number, line in enumerate(USES.splitlines(), 1) if line.endswith("# refused")}
    assert refused == lines, done.stdout + done.stderr
