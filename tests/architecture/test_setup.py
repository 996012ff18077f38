"""``.ci/setup.sh``: which kinds look for Java, tested with everything else installed."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with an environment whose stamps say "up to date"."""
    for name in (".ci/setup.sh", "pyproject.toml", "requirements.txt", "requirements-dev.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / ".venv" / "bin" / "activate").write_text(f"VIRTUAL_ENV={tmp_path}/.venv\n")
    for lock in ("requirements.txt", "requirements-dev.txt"):
        content = (tmp_path / lock).read_bytes() + (tmp_path / "pyproject.toml").read_bytes()
        stamp = f"{hashlib.sha256(content).hexdigest()}  -\n"
        (tmp_path / ".venv" / f".installed-{lock}").write_text(stamp)
    return tmp_path


def set_up(clone: Path, kind: str) -> subprocess.CompletedProcess[str]:
    # A missing Java: a search for Java ends with a message instead of an installation.
    environment = {"PATH": "/usr/bin:/bin", "JAVA_HOME": str(clone / "no-java")}
    return subprocess.run(
        ["bash", ".ci/setup.sh", kind], cwd=clone, env=environment, capture_output=True, text=True, check=False
    )


def test_tools_need_no_java(clone: Path) -> None:
    completed = set_up(clone, "tools")
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")


@pytest.mark.parametrize("kind", ["run", "test"])
def test_what_runs_spark_needs_java(clone: Path, kind: str) -> None:
    completed = set_up(clone, kind)
    assert completed.returncode == 1
    assert "no-java is Java of unknown version; Spark needs 17 or newer" in completed.stderr


def test_unknown_kind_is_refused_by_name(clone: Path) -> None:
    completed = set_up(clone, "dev")
    assert (completed.returncode, completed.stderr) == (2, 'setup: found "dev"; give run, tools or test\n')


FAKE_UV = """#!/bin/bash
if [ "$1" = --version ]; then echo "uv {version}"; exit; fi
case "$*" in *--editable*) exit ;; esac
mkdir -p .venv/lib/python3.11/site-packages/numpy-2.dist-info
if [ -t 2 ]; then echo "bars on a terminal" >&2; else echo "Resolved 160 packages" >&2; fi
echo " + numpy==2.4.6" >&2
until [ -e go-on ]; do read -r -t 0.05 <> <(:); done
exit {code}
"""


def needs_packages(clone: Path, *, code: int = 0) -> None:
    """Have the set-up install requirements-dev.txt by a uv that waits for the file ``go-on``."""
    (clone / ".venv" / ".installed-requirements-dev.txt").unlink()
    version = re.search(r"^UV_VERSION=(.*)$", (clone / ".ci" / "setup.sh").read_text(), re.MULTILINE)
    assert version is not None
    uv = clone / ".venv" / "bin" / "uv"
    uv.write_text(FAKE_UV.format(version=version[1], code=code))
    uv.chmod(0o755)


def begin(clone: Path, **where: int) -> subprocess.Popen[str]:
    environment = {"PATH": "/usr/bin:/bin", "DEEPSPARK_SETUP_REPORT_S": "0.1", "PIP_INDEX_URL": "http://none"}
    command = ["bash", ".ci/setup.sh", "tools"]
    return subprocess.Popen(command, cwd=clone, env=environment, stdout=subprocess.PIPE, text=True, **where)


def test_in_a_log_lines_say_at_intervals_how_far_the_installation_is(clone: Path) -> None:
    needs_packages(clone)
    with begin(clone, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        lines = [process.stdout.readline() for _ in range(3)]
        (clone / "go-on").touch()
        lines += process.stdout.readlines()
    assert process.returncode == 0
    assert "less than a minute" not in first
    assert {re.sub(r"\d+ s: \d", "N s: N", line) for line in lines} == {
        "Resolved 160 packages\n",
        "setup: still installing after N s: N packages are unpacked\n",
    }
    assert (clone / ".venv" / ".installed-requirements-dev.txt").exists()


def test_a_terminal_shows_uvs_own_progress(clone: Path) -> None:
    needs_packages(clone)
    (clone / "go-on").touch()
    terminal, stderr = os.openpty()
    with begin(clone, stderr=stderr) as process:
        output, _ = process.communicate(timeout=60)
    os.close(stderr)
    assert process.returncode == 0
    assert "bars on a terminal" in os.read(terminal, 10_000).decode()
    os.close(terminal)
    assert "still installing" not in output


def test_an_installation_that_fails_ends_the_set_up_and_leaves_no_stamp(clone: Path) -> None:
    needs_packages(clone, code=3)
    (clone / "go-on").touch()
    with begin(clone, stderr=subprocess.STDOUT) as process:
        process.communicate(timeout=60)
    assert process.returncode == 3
    assert not (clone / ".venv" / ".installed-requirements-dev.txt").exists()


@pytest.mark.parametrize("target", ["lint", "types", "docs", "docs-serve", "docs-check", "format"])
def test_targets_that_run_no_spark_ask_for_tools_alone(target: str) -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    rule = re.search(rf"^{target}:([^#\n]*)##.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    assert rule is not None
    assert rule[1].strip() == "", "a prerequisite would bring Java"
    assert "setup.sh tools" in rule[2].splitlines()[0]
