"""Dockerfile, compose.yaml and the services' script fit each other; no builder is needed to see it."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.train import TrainConfig
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
    completed = run_script("settings", tmp_path)
    assert completed.returncode == 0, completed.stderr
    file = tmp_path / "spark-conf" / "spark-defaults.conf"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    page = (ROOT / "docs" / "guides" / "cluster.md").read_text(encoding="utf-8").partition("\n## Encryption\n")[2]
    expected = dict(re.findall(r"^    (spark\.\S+) (.*)$", page, re.MULTILINE))
    settings = dict(line.split(" ", 1) for line in file.read_text().splitlines())
    secret = settings.pop("spark.authenticate.secret")
    expected.pop("spark.authenticate.secret")
    assert re.fullmatch("[0-9a-f]{64}", secret)
    assert settings == expected
    old_settings = file.read_text()
    run_script("settings", tmp_path)
    assert file.read_text() == old_settings


def test_an_unknown_role_is_refused(tmp_path: Path) -> None:
    completed = run_script("wrong", tmp_path)
    assert completed.returncode == 2
    assert 'found "wrong"; give settings, master, worker, airflow or executor' in completed.stderr


def test_an_executor_of_kubernetes_starts_with_what_the_driver_says(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o700)
    variables = {
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078", "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "1", "SPARK_EXECUTOR_MEMORY": "1g", "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.2", "SPARK_EXECUTOR_POD_NAME": "pod-3", "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_JAVA_OPT_10": "-Dlast=1", "SPARK_JAVA_OPT_9": "-Dspark.authenticate=true", "SPARK_JAVA_OPT_0": "-Da=b c",
    }  # fmt: skip
    environment = {
        **os.environ,
        **variables,
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    started = subprocess.run([SCRIPT, "executor"], env=environment, capture_output=True, text=True, check=False)
    words = started.stdout.splitlines()
    assert words[:5] == ["-Da=b c", "-Dspark.authenticate=true", "-Dlast=1", "-Xms1g", "-Xmx1g"], started.stderr
    (jars,) = [word for word in words if word.endswith("/jars/*")]
    backend = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    (archive,) = Path(jars).parent.glob("spark-kubernetes_*.jar")
    assert f"{backend.replace('.', '/')}.class" in zipfile.ZipFile(archive).namelist()
    arguments = words[words.index(backend) + 1 :]
    assert dict(zip(arguments[::2], arguments[1::2], strict=True)) == {
        "--driver-url": variables["SPARK_DRIVER_URL"], "--executor-id": "3", "--cores": "1", "--app-id": "spark-1",
        "--hostname": "10.0.0.2", "--resourceProfileId": "0", "--podName": "pod-3",
    }  # fmt: skip


def test_the_manifest_of_the_cluster_page_fits_together_and_its_command_exists() -> None:
    page = (ROOT / "docs" / "guides" / "cluster.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    parts = {part["kind"]: part for part in yaml.safe_load_all(block)}
    settings = dict(
        line.split(" ", 1) for line in parts["ConfigMap"]["data"]["spark-defaults.conf"].strip().splitlines()
    )
    pod = parts["Pod"]["spec"]
    (driver,) = pod["containers"]
    claim = "spark.kubernetes.executor.volumes.persistentVolumeClaim.data"
    mounts = {mount["name"]: mount["mountPath"] for mount in driver["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert settings["spark.kubernetes.driver.pod.name"] == parts["Pod"]["metadata"]["name"]
    assert settings["spark.kubernetes.container.image"] == driver["image"]
    assert settings[f"{claim}.mount.path"] == mounts["data"], "each path is the same for driver and executors"
    assert settings[f"{claim}.options.claimName"] == volumes["data"]["persistentVolumeClaim"]["claimName"]
    assert settings[f"{claim}.options.claimName"] == parts["PersistentVolumeClaim"]["metadata"]["name"]
    assert volumes["conf"]["configMap"]["name"] == parts["ConfigMap"]["metadata"]["name"]
    assert driver["env"] == [{"name": "SPARK_CONF_DIR", "value": mounts["conf"]}]
    account = parts["ServiceAccount"]["metadata"]["name"]
    assert pod["serviceAccountName"] == account == parts["RoleBinding"]["subjects"][0]["name"]
    assert parts["RoleBinding"]["roleRef"]["name"] == parts["Role"]["metadata"]["name"]
    options = dict(zip(driver["command"][3::2], driver["command"][4::2], strict=True))
    fields = {name.removeprefix("--").replace("-", "_"): value for name, value in options.items()}
    config = parse_config(TrainConfig, {"solver": driver["command"][2], **fields})
    assert config.n_workers * int(settings["spark.executor.cores"]) == int(settings["spark.executor.instances"])
    (user,) = re.findall(r"useradd --uid (\d+)", DOCKERFILE)
    assert pod["securityContext"]["fsGroup"] == int(user)
