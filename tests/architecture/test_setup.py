"""``.ci/setup.sh``: which of its kinds look for Java, seen where everything else is there already."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with an environment that its stamps call up to date."""
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
    # A Java that is not there: whoever looks for it ends with a message instead of installing one.
    environment = {"PATH": "/usr/bin:/bin", "JAVA_HOME": str(clone / "no-java")}
    return subprocess.run(
        ["bash", ".ci/setup.sh", kind], cwd=clone, env=environment, capture_output=True, text=True, check=False
    )


def test_tools_need_no_java(clone: Path) -> None:
    done = set_up(clone, "tools")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("kind", ["run", "test"])
def test_what_runs_spark_needs_java(clone: Path, kind: str) -> None:
    done = set_up(clone, kind)
    assert done.returncode == 1
    assert "no-java is Java of unknown version; Spark needs 17 or newer" in done.stderr


def test_unknown_kind_is_refused_by_name(clone: Path) -> None:
    done = set_up(clone, "dev")
    assert (done.returncode, done.stderr) == (2, 'setup: found "dev"; give run, tools or test\n')


@pytest.mark.parametrize("target", ["lint", "types", "docs", "format"])
def test_targets_that_run_no_spark_ask_for_tools_alone(target: str) -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    rule = re.search(rf"^{target}:([^#\n]*)##.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    assert rule is not None
    assert rule[1].strip() == "", "a prerequisite would bring Java"
    assert "setup.sh tools" in rule[2].splitlines()[0]
