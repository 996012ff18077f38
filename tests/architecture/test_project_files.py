"""The top level is the agreed list, every dependency has a reason, and the lock files hold all requirements."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.paths import ROOT

PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TOP_LEVEL = {
    ".ci", ".dockerignore", ".github", ".gitignore", ".pre-commit-config.yaml", "CHANGELOG.md", "CITATION.cff",
    "CONTRIBUTING.md", "Dockerfile", "LICENSE", "MANIFEST.in", "Makefile", "NOTICE", "README.md", "SECURITY.md",
    "benchmarks", "caffe_import", "compose.yaml", "dags", "deepspark_ops", "docs", "examples", "mkdocs.yml", "plugins",
    "pyproject.toml", "requirements-dev.txt", "requirements-docs.txt", "requirements-lower.txt",
    "requirements-mlflow.txt", "requirements.txt", "tests",
}  # fmt: skip


def tracked_files() -> list[str]:
    if shutil.which("git") is None:
        pytest.skip("no git: what is tracked is unknown")
    completed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if completed.returncode:
        pytest.skip("not a git checkout: what is tracked is unknown")
    return completed.stdout.splitlines()


def test_top_level_is_the_agreed_one() -> None:
    assert {name.split("/")[0] for name in tracked_files()} <= TOP_LEVEL


def test_no_file_is_large_or_half_merged() -> None:
    for name in tracked_files():
        path = ROOT / name
        if not path.is_file():
            continue
        assert path.stat().st_size < 2_000_000, name
        assert not re.search(rb"^(<<<<<<< |>>>>>>> )", path.read_bytes(), re.MULTILINE), name


def test_changelog_has_the_version_once_and_a_short_list_of_unreleased_changes() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = tomllib.loads(PYPROJECT)["project"]["version"]
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", headings[1]), headings[1]
    assert len(headings) == len(set(headings))
    unreleased = text.partition("## Unreleased\n")[2].partition("\n## ")[0]
    remedy = "a merge has brought lines of a release back: take the file of main, and add your lines alone"
    assert len(unreleased.splitlines()) <= 80, remedy


IN_LOCK = {
    "requirements.txt": {"airflow", "notebook", "onnx", "serve", "spark", "tables", "train"},
    "requirements-dev.txt": {"airflow", "notebook", "onnx", "serve", "spark", "tables", "train", "dev"},
    "requirements-mlflow.txt": {"mlflow"},
}
"""Lock file -> extras that it has beside what every part needs."""


def test_contributing_says_when_each_target_that_make_test_leaves_out_is_run() -> None:
    left_out = tomllib.loads(PYPROJECT)["tool"]["pytest"]["ini_options"]["addopts"]
    markers = re.findall(r"\bnot (\w+)", left_out)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = dict(
        re.findall(r"^(test-[a-z-]+):[^\n]*\n(?:\t[^\n]*\n)*?\t[^\n]* -m pytest -m (\w+)", makefile, re.MULTILINE)
    )
    rows = dict(re.findall(r"^\| `make (test-[a-z-]+)` \| (.*) \|$", CONTRIBUTING, re.MULTILINE))
    assert {"browser", "cluster", "long"} <= set(markers)
    assert sorted(markers) == sorted(targets.values())
    assert set(rows) == set(targets)
    for path in re.findall(r"`([\w./]+)`", " ".join(rows.values())):
        assert (ROOT / path).exists(), path


def dependencies(extras: set[str] | None = None) -> list[str]:
    project = tomllib.loads(PYPROJECT)["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(line for extra in extras or optional for line in optional[extra])]


def group_dependencies() -> list[str]:
    return [line for group in tomllib.loads(PYPROJECT)["dependency-groups"].values() for line in group]


@pytest.mark.parametrize("dependency", [*dependencies(), *group_dependencies()])
def test_every_dependency_has_its_reason(dependency: str) -> None:
    (line,) = [line for line in PYPROJECT.splitlines() if line.strip().startswith(f'"{dependency}"')]
    assert re.search(r'", # \w.{8,}', line), line


@pytest.mark.parametrize("lock", [*IN_LOCK, "requirements-docs.txt"])
def test_lock_holds_every_dependency_in_the_range_asked_for(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    pins: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)(?:\[[^]]*\])?==([^ ;\\]+)", text, re.MULTILINE):
        pins.setdefault(canonicalize_name(name), set()).add(version)
    requirements = map(Requirement, dependencies(IN_LOCK[lock]) if lock in IN_LOCK else group_dependencies())
    for requirement in requirements:
        if requirement.name == "deepspark":  # an extra that is made of others
            continue
        versions = pins.get(canonicalize_name(requirement.name), set())
        assert versions, f"{requirement.name} is not in {lock}; run: make lock"
        assert all(requirement.specifier.contains(version) for version in versions), f"{requirement}: {versions}"
    assert text.count("--hash=sha256:") > len(pins)


def test_spark_and_its_client_are_one_version() -> None:
    # They ship the same files; two versions would overwrite each other's.
    pins = dict(re.findall(r"^(pyspark(?:-client)?)==([\d.]+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    assert pins["pyspark"] == pins["pyspark-client"]
    # pip takes the newest of both in a new environment. pyspark has patch releases that pyspark-client lacks.
    ranges = {
        requirement.name: requirement.specifier
        for requirement in map(Requirement, dependencies({"airflow"}))
        if requirement.name.startswith("pyspark")
    }
    assert ranges["pyspark"] == ranges["pyspark-client"]
    assert f"<={pins['pyspark']}" in map(str, ranges["pyspark"])
