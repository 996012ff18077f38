"""All checks in order; checks that depend on a failed check are left out."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from deepspark_ops.config.commands.doctor import DoctorConfig
from deepspark_ops.config.shared_options.worker_count import fewest_workers
from deepspark_ops.doctor.airflow_checks import absent_check, airflow_checks
from deepspark_ops.doctor.check import Check, failed
from deepspark_ops.doctor.children import Answer, ask_module, ask_spark, own_environment
from deepspark_ops.doctor.host import (
    disk_check,
    gpus_check,
    java_check,
    listen_checks,
    master_checks,
    memory_check,
    package_checks,
    python_check,
    shared_memory_check,
)
from deepspark_ops.doctor.spark_checks import spark_checks
from deepspark_ops.processes.cluster_network import endpoints
from deepspark_ops.processes.versions import installed_versions

LOCAL = "local[*]"
_AIRFLOW_TIMEOUT_S = 120.0
_TENSORFLOW_TIMEOUT_S = 120.0


def run_doctor(
    config: DoctorConfig, say: Callable[[str], None], *, airflow_environment: Mapping[str, str] | None = None
) -> list[Check]:
    """Run all checks. Takes half a minute, at most the sum of the parts' time limits.

    Args:
        config: Options of the checks.
        airflow_environment: Environment of Airflow's processes, if it differs from this process' environment.
        say: Called with a text before each step.
    """
    environment = own_environment()
    airflow, of_connection = _airflow(config, airflow_environment or environment, say)
    master = config.master or of_connection or LOCAL
    checks = [
        python_check(),
        *package_checks(environment),
        java := java_check(environment),
        memory_check(fewest_workers(config.n_workers), is_local=master.startswith("local")),
        disk_check("disk", config.home),
        disk_check("temporary files", Path(tempfile.gettempdir())),
        shared_memory_check(),
        gpus_check(environment),
    ]
    say(f"TensorFlow, at most {_TENSORFLOW_TIMEOUT_S:g} s ...")
    checks += _tensorflow(environment)
    checks += airflow
    reached = [] if master.startswith("local") else master_checks(endpoints(master))
    listening, address = listen_checks(master, config.listen_address, config.listen_port, config.n_servers)
    checks += [*reached, *listening]
    if not java.ok or address is None or find_spec("pyspark") is None or not all(check.ok for check in reached):
        return [*checks, Check("spark job", False, "not started", "correct what failed above")]
    say(f"a Spark job, master={master}, at most {config.timeout_s:g} s ...")
    return [*checks, *_spark(config, master, environment)]


def _spark(config: DoctorConfig, master: str, environment: Mapping[str, str]) -> list[Check]:
    home = config.home if config.home.is_dir() else config.home.parent
    answer = ask_spark(config.model_copy(update={"home": home.absolute()}), master, environment=environment)
    if answer.problem:
        return [_failed_job(answer)]
    return spark_checks(
        answer.facts,
        master=master,
        n_workers=fewest_workers(config.n_workers),
        home=str(home.absolute()),
        package=str(Path(__file__).resolve().parents[2]),
        python=platform.python_version(),
        versions=installed_versions("pyspark", "tensorflow", "numpy"),
    )


def _failed_job(answer: Answer) -> Check:
    remedy = f"is master or a firewall in the way? its last line: {answer.lines[-1].strip()}" if answer.lines else ""
    return failed("spark job", answer.problem, otherwise=remedy or "give --timeout-s more seconds")


def _tensorflow(environment: Mapping[str, str]) -> list[Check]:
    name = "tensorflow devices"
    if find_spec("tensorflow") is None:
        return []
    answer = ask_module("deepspark_ops.doctor.tf_look", timeout_s=_TENSORFLOW_TIMEOUT_S, environment=environment)
    if answer.problem:
        remedy = (
            'install it anew (pip install "deepspark[train]"); a signal 4 is a CPU without AVX, which its wheels need'
        )
        return [Check(name, False, answer.problem, remedy)]
    facts = answer.facts
    text = f"TensorFlow {facts['version']}: {facts['device']}"
    if not facts["is_right"]:
        return [
            Check(name, False, f"{text}; a product of matrices is wrong", "exclude this host: memory or GPU is faulty")
        ]
    has_driver = "driver" in facts["why_no_gpu"] and Path("/proc/driver/nvidia/version").exists()
    return [Check(name, True, text, facts["why_no_gpu"] if has_driver else "")]


def _airflow(
    config: DoctorConfig, environment: Mapping[str, str], say: Callable[[str], None]
) -> tuple[list[Check], str | None]:
    """Return the checks of Airflow, and the master of the named connection."""
    if (absent := absent_check(environment, config.connection)) is not None:
        return [absent], None
    say(f"Airflow, at most {_AIRFLOW_TIMEOUT_S:g} s ...")
    named = [] if config.connection is None else [config.connection]
    module = "deepspark_ops.operators.provider.airflow_facts"
    answer = ask_module(module, *named, timeout_s=_AIRFLOW_TIMEOUT_S, environment=environment)
    if answer.problem:
        return [Check("airflow", False, answer.problem, "does airflow info work in this shell?")], None
    of_connection = (answer.facts["connection"] or {}).get("master")
    return airflow_checks(answer.facts, config.connection), of_connection
