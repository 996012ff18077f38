"""Checks from the facts of the Spark job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deepspark_ops.doctor.check import Check
from deepspark_ops.doctor.host import gpus_text
from deepspark_ops.processes.cluster_network import AUTHENTICATED_CIPHER, ENCRYPTION, stays_on_host
from deepspark_ops.processes.versions import differing_names
from deepspark_ops.sizes import size_text

MOST_SKEW_S = 1.0
"""With a larger offset, times of events and certificates of different hosts do not match."""
Facts = Mapping[str, Any]


def spark_checks(
    facts: Facts, *, master: str, n_workers: int, home: str, package: str, python: str, versions: Mapping[str, str]
) -> list[Check]:
    """Return the checks of a cluster.

    Args:
        facts: Facts of ``spark_job``.
        master: Spark master.
        n_workers: Workers of a run.
        home: Folder that executors must see.
        package: Folder of this project's packages on the driver.
        python: Version of the driver's Python.
        versions: Versions of the driver's pyspark, tensorflow and numpy.
    """
    checks = [_encryption(facts, master), _slots(facts, master, n_workers)]
    if facts["error"]:
        remedy = "Spark's own lines on stderr say more; with --master local[2] this host alone is looked at"
        return [*checks, Check("spark job", False, facts["error"], remedy)]
    executors: Sequence[Facts] = facts["executors"]
    if not executors:
        return checks
    lacking = [executor for executor in executors if "missing" in executor]
    if lacking:
        remedy = f"install this project's environment under the same path on every host ({package}), or set PYTHONPATH"
        return [*checks, Check("executors' packages", False, f"{_hosts(lacking)}: {lacking[0]['missing']}", remedy)]
    return [
        *checks,
        _jvms(facts),
        _same_python(executors, python),
        _packages(executors, versions),
        _reach(executors),
        _home(executors, home),
        _clocks(executors),
        _sizes(executors),
    ]


def _encryption(facts: Facts, master: str) -> Check:
    name = "encryption"
    if stays_on_host(master):
        return Check(name, True, "driver and executors are on this host: nothing leaves it")
    settings = facts["encryption"]
    text = ", ".join(f"{setting}={settings.get(setting) or 'not set'}" for setting in ENCRYPTION)
    if all(settings.get(setting) == value for setting, value in ENCRYPTION.items()):
        cipher = next(iter(AUTHENTICATED_CIPHER))
        text = f"{text}, {cipher}={settings.get(cipher) or 'AES/CTR/NoPadding'}"
        is_plain = "CTR" in text
        remedy = f"changed bytes are not noticed: set {cipher} {AUTHENTICATED_CIPHER[cipher]} (docs/guides/cluster.md)"
        return Check(name, True, text, remedy if is_plain else "")
    remedy = "the exchange's secret crosses the network in clear: give the cluster a secret (docs/guides/cluster.md)"
    return Check(name, True, f"{text}, as --insecure-network allows", remedy)


def _slots(facts: Facts, master: str, n_workers: int) -> Check:
    name = "slots"
    if master.startswith("local") and not master.startswith("local-cluster"):
        return Check(name, True, f"Spark {facts['spark']}; a local master gets a slot for each worker")
    n_executors, slots = facts["n_executors"], facts["slots"]
    if not n_executors:
        remedy = (
            "the master's page and the workers' logs say why: no free cores or memory, another"
            " spark.authenticate.secret, or executors that cannot connect to this host"
        )
        return Check(name, False, f"Spark {facts['spark']}: no executor has started", remedy)
    text = f"Spark {facts['spark']}: slots {slots}, executors {n_executors}"
    if slots >= n_workers:
        return Check(name, True, text)
    return Check(name, True, text, f"{n_workers} workers need {n_workers}: give --n-workers {slots}, or more cores")


def _jvms(facts: Facts) -> Check:
    descriptions = [f"Java {jvm['java']}, Spark {jvm['spark']}" for jvm in facts["jvms"]]
    text = "; ".join(descriptions) or "not told"
    other_versions = {jvm["spark"] for jvm in facts["jvms"]} - {facts["spark"]}
    if other_versions:
        remedy = f"install one version of Spark everywhere; the driver's is {facts['spark']}"
        return Check("executors' Java", False, text, remedy)
    return Check("executors' Java", True, text)


def _same_python(executors: Sequence[Facts], python: str) -> Check:
    name, minor = "executors' Python", _minor(python)
    return _each(
        name,
        executors,
        lambda executor: "" if _minor(executor["python"]) == minor else f"Python {executor['python']}",
        fine=f"Python {', '.join(sorted({executor['python'] for executor in executors}))}",
        remedy=f"use Python {minor} on every host, as the driver does",
    )


def _packages(executors: Sequence[Facts], versions: Mapping[str, str]) -> Check:
    name = "executors' packages"
    missing = _each(
        name,
        executors,
        lambda executor: "" if "tensorflow" in executor["versions"] else "no TensorFlow",
        fine="",
        remedy='pip install "deepspark[train]" there',
    )
    if not missing.ok:
        return missing
    other_packages = sorted(
        {
            f"{package} {executor['versions'][package]}"
            for executor in executors
            for package in differing_names(executor["versions"], versions)
        }
    )
    text = ", ".join(f"{package} {number}" for package, number in sorted(executors[0]["versions"].items()))
    if not other_packages:
        return Check(name, True, text)
    return Check(
        name, True, f"{', '.join(other_packages)} elsewhere than on the driver", "install the same versions everywhere"
    )


def _reach(executors: Sequence[Facts]) -> Check:
    return _each(
        "exchange",
        executors,
        lambda executor: executor["unreachable"],
        fine=f"{len(executors)} tasks on {_hosts(executors)} reach the driver's address",
        remedy="open the driver's port to the executors (give --listen-port one that the firewall lets by), or give"
        " --listen-address the driver's address on the cluster's network",
    )


def _home(executors: Sequence[Facts], home: str) -> Check:
    return _each(
        "common folder",
        executors,
        lambda executor: executor["home"],
        fine=f"{home} is seen and written by {_hosts(executors)}",
        remedy=f"mount one file system under {home} on every host, or give --home a folder that all of them see; a"
        " training with --dataset needs none",
    )


def _clocks(executors: Sequence[Facts]) -> Check:
    worst = max(executors, key=lambda executor: abs(executor["offset_s"]))
    text = f"at most {abs(worst['offset_s']):.3f} s off (+- {worst['offset_error_s']:.3f}), {worst['host']}"
    late = abs(worst["offset_s"]) - worst["offset_error_s"] > MOST_SKEW_S
    return Check(
        "clocks", True, text, "set the hosts' clocks by NTP: times of events do not fit together" if late else ""
    )


def _sizes(executors: Sequence[Facts]) -> Check:
    of_host = {}
    for executor in executors:
        gpus = f", {gpus_text(executor['gpus'])}" if executor["gpus"] else ""
        of_host[executor["host"]] = (
            f"{executor['host']} {executor['cores']} cores, {size_text(executor['memory_bytes'])}{gpus}"
        )
    return Check("executors' hosts", True, "; ".join(of_host.values()))


def _each(name: str, executors: Sequence[Facts], problem: Callable[[Facts], str], *, fine: str, remedy: str) -> Check:
    """Return the check of a problem that no executor may have."""
    problems = {executor["host"]: text for executor in executors if (text := problem(executor))}
    if not problems:
        return Check(name, True, fine)
    return Check(name, False, "; ".join(f"{host}: {text}" for host, text in problems.items()), remedy)


def _hosts(executors: Sequence[Facts]) -> str:
    hosts = list(dict.fromkeys(str(executor["host"]) for executor in executors))
    return ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more" if len(hosts) > 4 else "")


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
