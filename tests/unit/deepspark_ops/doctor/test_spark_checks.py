from __future__ import annotations

from typing import Any

import pytest

from deepspark_ops.doctor.check import Check
from deepspark_ops.doctor.spark_checks import spark_checks

VERSIONS = {"pyspark": "4.2.0", "tensorflow": "2.21.0"}
ENCRYPTED = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
}
EXECUTOR = {
    "host": "b",
    "python": "3.11.7",
    "versions": VERSIONS,
    "memory_bytes": 2**33,
    "cores": 4,
    "gpus": [],
    "home": "",
    "unreachable": "",
    "offset_s": 0.2,
    "offset_error_s": 0.01,
}
FACTS = {
    "spark": "4.2.0",
    "encryption": ENCRYPTED,
    "n_executors": 2,
    "slots": 2,
    "executors": [EXECUTOR, {**EXECUTOR, "host": "c"}],
    "jvms": [{"java": "17.0.1", "spark": "4.2.0"}],
    "error": "",
}


def looked_at(master: str = "spark://a:7077", n_workers: int = 2, **changes: Any) -> dict[str, Check]:
    facts = {**FACTS, **changes}
    where = {"home": "/data", "package": "/opt/deepspark", "python": "3.11.9", "versions": VERSIONS}
    checks = spark_checks(facts, master=master, n_workers=n_workers, **where)
    assert len({check.name for check in checks}) == len(checks)
    return {check.name: check for check in checks}


def one_with(**changes: Any) -> list[dict[str, Any]]:
    return [EXECUTOR, {**EXECUTOR, "host": "c", **changes}]


def test_a_cluster_that_is_fit_has_nothing_to_be_done() -> None:
    checks = looked_at()
    assert len(checks) == 9
    assert all(check.ok and not check.remedy for check in checks.values()), checks


@pytest.mark.parametrize(
    ("name", "changes", "detail", "remedy"),
    [
        ("exchange", {"unreachable": "Connection refused"}, "c: Connection refused", "--listen-port"),
        ("common folder", {"home": "is not there"}, "c: is not there", "mount one file system under /data"),
        ("executors' Python", {"python": "3.12.1"}, "c: Python 3.12.1", "use Python 3.11"),
        ("executors' packages", {"versions": {"pyspark": "4.2.0"}}, "c: no TensorFlow", "pip install"),
    ],
)
def test_what_one_executor_lacks_fails_a_run(name: str, changes: dict[str, Any], detail: str, remedy: str) -> None:
    check = looked_at(executors=one_with(**changes))[name]
    assert (check.ok, check.detail) == (False, detail)
    assert remedy in check.remedy


def test_executors_without_this_project_are_told_where_it_is_on_the_driver() -> None:
    lacking = {"host": "c", "python": "3.11.7", "missing": "No module named 'deepspark_ops'"}
    check = looked_at(executors=[EXECUTOR, lacking])["executors' packages"]
    assert (check.ok, check.detail) == (False, "c: No module named 'deepspark_ops'")
    assert "/opt/deepspark" in check.remedy


def test_a_clock_that_is_off_warns_beyond_what_was_measured() -> None:
    assert looked_at(executors=one_with(offset_s=-1.05, offset_error_s=0.1))["clocks"].remedy == ""
    check = looked_at(executors=one_with(offset_s=-3.0, offset_error_s=0.1))["clocks"]
    assert check.is_warning
    assert check.detail.startswith("at most 3.000 s off")


def test_no_executor_fails_and_too_few_slots_warn() -> None:
    none = looked_at(n_executors=0, slots=0, executors=[], jvms=[])["slots"]
    assert (none.ok, none.detail) == (False, "Spark 4.2.0: no executor has started")
    few = looked_at(n_workers=3)["slots"]
    assert few.is_warning
    assert "--n-workers 2" in few.remedy
    assert looked_at(master="local[1]", n_workers=3, n_executors=0)["slots"].remedy == ""


def test_a_cluster_that_sends_the_secret_in_clear_is_told_of() -> None:
    clear = {**ENCRYPTED, "spark.network.crypto.enabled": ""}
    assert looked_at(encryption=clear)["encryption"].is_warning
    assert looked_at(master="local[2]", encryption=clear)["encryption"].remedy == ""
    changeable = looked_at(encryption={**ENCRYPTED, "spark.network.crypto.cipher": ""})["encryption"]
    assert changeable.is_warning
    assert changeable.detail.endswith("spark.network.crypto.cipher=AES/CTR/NoPadding")


def test_another_spark_on_the_executors_and_a_job_that_failed() -> None:
    other = looked_at(jvms=[{"java": "17.0.1", "spark": "4.1.0"}])["executors' Java"]
    assert (other.ok, "the driver's is 4.2.0" in other.remedy) == (False, True)
    job = looked_at(error="no Python there")["spark job"]
    assert (job.ok, job.detail) == (False, "no Python there")


def test_other_versions_of_packages_warn() -> None:
    other = one_with(versions={**VERSIONS, "tensorflow": "2.18.0"})
    check = looked_at(executors=other)["executors' packages"]
    assert check.is_warning
    assert check.detail.startswith("tensorflow 2.18.0")


def test_gpus_of_executors_are_named() -> None:
    checks = looked_at(executors=one_with(gpus=["NVIDIA H200, 143771 MiB"] * 2))
    assert checks["executors' hosts"].detail == "b 4 cores, 8.0 GiB; c 4 cores, 8.0 GiB, 2 x NVIDIA H200, 143771 MiB"
