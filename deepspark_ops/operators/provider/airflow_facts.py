"""Facts of this host's Airflow for ``deepspark doctor``, as a line of JSON. The module neither writes nor migrates.

Started as ``python -m deepspark_ops.operators.provider.airflow_facts [CONNECTION]`` where Airflow has a configuration.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any


def main(connection: str | None) -> None:
    """Print the facts."""
    from airflow.configuration import conf

    dags, plugins = (Path(conf.get_mandatory_value("core", key)) for key in ("dags_folder", "plugins_folder"))
    facts: dict[str, Any] = {
        "version": version("apache-airflow-core"),
        "dags_folder": str(dags),
        "has_dags_folder": dags.is_dir(),
        "dags": sorted(path.name for path in dags.glob("**/deepspark_*.py")) if dags.is_dir() else [],
        "has_plugin": any(entry_point.name == "deepspark" for entry_point in entry_points(group="airflow.plugins"))
        or any(plugins.glob("**/deepspark_plugin.py")),
        "plugins_folder": str(plugins),
        "executor": conf.get("core", "executor", fallback=""),
        "database_error": _database_error(conf.get_mandatory_value("database", "sql_alchemy_conn")),
        "connection": None,
    }
    if connection is not None and not facts["database_error"]:
        facts["connection"] = _connection(connection)
    sys.stdout.write(json.dumps(facts) + "\n")


def _database_error(address: str) -> str:
    """Return the problem of Airflow's database; empty for a usable database."""
    from sqlalchemy import create_engine, inspect
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    url = make_url(address)
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).is_file():
        return f"{url.database} is not there"  # to connect would make it
    try:
        engine = create_engine(url)
        try:
            return "" if inspect(engine).has_table("dag_run") else "it has no tables of Airflow"
        finally:
            engine.dispose()
    except SQLAlchemyError as error:
        return f"{url.render_as_string(hide_password=True)}: {str(error).splitlines()[0]}"


def _connection(name: str) -> dict[str, str] | None:
    """Return the Spark master of a connection, without the password; None without the connection."""
    from airflow.models.connection import Connection

    from deepspark_ops.operators.provider.airflow_names import AirflowNotFoundException

    try:
        connection = Connection.get_connection_from_secrets(name)
    except AirflowNotFoundException:
        return None
    return {"master": f"{connection.host}:{connection.port}" if connection.port else str(connection.host or "")}


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
