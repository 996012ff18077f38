"""Dockerfile, compose.yaml and the services' script fit each other; no builder is needed to see it."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from tests.paths import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
SCRIPT = ROOT / ".ci" / "container.sh"
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
VOLUMES = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["volumes"]
COPIED = [source for line in re.findall(r"^COPY (.*)$", DOCKERFILE, re.MULTILINE) for source in line.split()[:-1]]


def roles() -> set[str]:
    """Return the services that the script can be."""
    return set(re.findall(r"^  ([a-z]+)\)", SCRIPT.read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("source", COPIED)
def test_what_the_image_copies_is_there_and_not_left_out_of_the_context(source: str) -> None:
    assert (ROOT / source).exists()
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in lines
    assert any(fnmatch.fnmatch(source, line.removeprefix("!")) for line in lines if line.startswith("!"))


def test_links_of_the_packages_lead_to_what_is_copied() -> None:
    links = [
        path
        for package in ("caffe_import", "deepspark_ops")
        for path in (ROOT / package).rglob("*")
        if path.is_symlink()
    ]
    assert links
    for link in links:
        target = link.resolve().relative_to(ROOT)
        assert any(target == Path(source) or Path(source) in target.parents for source in COPIED), link


def test_the_image_s_python_is_one_that_the_package_takes() -> None:
    (version,) = re.findall(r"^FROM python:([\d.]+)-", DOCKERFILE, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert SpecifierSet(project["requires-python"]).contains(version)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_a_role_of_the_script_with_volumes_and_services_that_exist(name: str) -> None:
    service = SERVICES[name]
    assert service["command"][0] in roles()
    assert set(service["depends_on"] if "depends_on" in service else ()) <= set(SERVICES)
    assert {volume.partition(":")[0] for volume in service["volumes"]} <= set(VOLUMES)
    text = SCRIPT.read_text(encoding="utf-8")
    for variable in service.get("environment", {}):
        assert re.search(rf"\$\{{?{variable}\b", text), variable


def test_the_cluster_of_the_services_is_one() -> None:
    (master,) = {
        service["environment"]["SPARK_MASTER"]
        for service in SERVICES.values()
        if "SPARK_MASTER" in service.get("environment", {})
    }
    assert master == f"spark://{SERVICES['spark-master']['environment']['SPARK_HOST']}:7077"
    assert "spark-master" in SERVICES
    assert all(port.startswith("127.0.0.1:") for service in SERVICES.values() for port in service.get("ports", ()))


def run_script(role: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DATA": str(folder)}
    return subprocess.run([SCRIPT, role], env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_settings_are_those_of_the_cluster_page_with_a_secret_that_stays(tmp_path: Path) -> None:
    done = run_script("settings", tmp_path)
    assert done.returncode == 0, done.stderr
    file = tmp_path / "spark-conf" / "spark-defaults.conf"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    page = (ROOT / "docs" / "guides" / "cluster.md").read_text(encoding="utf-8").partition("\n## Encryption\n")[2]
    wanted = dict(re.findall(r"^    (spark\.\S+) (.*)$", page, re.MULTILINE))
    settings = dict(line.split(" ", 1) for line in file.read_text().splitlines())
    secret = settings.pop("spark.authenticate.secret")
    wanted.pop("spark.authenticate.secret")
    assert re.fullmatch("[0-9a-f]{64}", secret)
    assert settings == wanted
    before = file.read_text()
    run_script("settings", tmp_path)
    assert file.read_text() == before


def test_an_unknown_role_is_refused(tmp_path: Path) -> None:
    done = run_script("wrong", tmp_path)
    assert done.returncode == 2
    assert 'found "wrong"; give settings, master, worker or airflow' in done.stderr
