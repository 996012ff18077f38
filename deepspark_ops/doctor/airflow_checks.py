"""Checks from the facts about Airflow. Imports no Airflow."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from deepspark_ops.doctor.check import Check

_TRAIN_DAG = "deepspark_train.py"


def airflow_home(environment: Mapping[str, str]) -> Path:
    """Return the folder of Airflow's configuration."""
    return Path(environment.get("AIRFLOW_HOME") or Path(environment.get("HOME", "/"), "airflow"))


def absent_check(environment: Mapping[str, str], connection: str | None) -> Check | None:
    """Return the check of a missing Airflow; None if Airflow exists."""
    home, is_wanted = airflow_home(environment), connection is not None
    if find_spec("airflow") is None:
        remedy = 'pip install "deepspark[airflow]"' if is_wanted else ""
        return Check("airflow", not is_wanted, "not installed: every stage runs by command", remedy)
    if (home / "airflow.cfg").is_file() or "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN" in environment:
        return None
    remedy = "name the folder of your Airflow's configuration in AIRFLOW_HOME" if is_wanted else ""
    return Check("airflow", not is_wanted, f"installed, and not set up in {home}: every stage runs by command", remedy)


def airflow_checks(facts: Mapping[str, Any], connection: str | None) -> list[Check]:
    """Return the checks of an Airflow.

    Args:
        facts: Facts of ``operators/provider/airflow_facts``.
        connection: Name of the requested Spark connection.
    """
    checks = [
        Check("airflow", True, f"Airflow {facts['version']}, {facts['executor']}"),
        _database(facts),
        _dags(facts),
        Check("airflow plugin", True, "found: runs have their pages")
        if facts["has_plugin"]
        else Check(
            "airflow plugin",
            True,
            f"not found, neither installed nor in {facts['plugins_folder']}",
            "install this project in Airflow's environment: without it runs have no pages",
        ),
    ]
    if connection is not None and not facts["database_error"]:
        checks.append(_connection(facts, connection))
    return checks


def _database(facts: Mapping[str, Any]) -> Check:
    if not facts["database_error"]:
        return Check("airflow database", True, "answers, and has Airflow's tables")
    remedy = "start the database, correct [database] sql_alchemy_conn, or run airflow db migrate"
    return Check("airflow database", False, facts["database_error"], remedy)


def _dags(facts: Mapping[str, Any]) -> Check:
    folder, name = facts["dags_folder"], "airflow DAGs"
    install = f"deepspark dags install {folder}"
    if not facts["has_dags_folder"]:
        return Check(name, False, f"{folder} is not there", f"correct [core] dags_folder, or: mkdir and {install}")
    if _TRAIN_DAG not in facts["dags"]:
        return Check(name, False, f"{folder} has no {_TRAIN_DAG}", install)
    return Check(name, True, f"{folder}: {', '.join(facts['dags'])}")


def _connection(facts: Mapping[str, Any], connection: str) -> Check:
    settings, name = facts["connection"], f"connection {connection}"
    if settings is None:
        remedy = f"airflow connections add {connection} --conn-type spark --conn-host spark://HOST --conn-port 7077"
        return Check(name, True, "does not exist: Spark stages run with local[*] on Airflow's worker", remedy)
    return Check(name, True, f"master={settings['master']}")
