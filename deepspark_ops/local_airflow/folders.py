"""Folders of the local Airflow, and the environment of Airflow's processes: in a checkout or in the user's folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from caffe_import.file_access.regular_file import regular_text

HOST = "127.0.0.1"
USER = "admin"
"""The administrator, the user of ``deepspark ui`` and ``deepspark demo``."""
OUTAGE_SETTINGS: Mapping[str, str] = {
    # A request (start of a task, heartbeat, end) is retried for 6 to 9 minutes. A task is ended only after three failed
    # heartbeats (max_failed_heartbeats).
    "WORKERS__EXECUTION_API_RETRIES": "90",
    "WORKERS__EXECUTION_API_RETRY_WAIT_MIN": "4",
    "WORKERS__EXECUTION_API_RETRY_WAIT_MAX": "6",
    # The scheduler fails a task without heartbeat for this time; the scheduler runs during an outage of the API server.
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "900",
    # A running task's token is renewed only in the last fifth of its time, which must outlast the outage.
    "EXECUTION_API__JWT_EXPIRATION_TIME": "3600",
    # A waiting task's token is valid for this time, too.
    "SCHEDULER__TASK_QUEUED_TIMEOUT": "1800",
}
"""Settings of Airflow with which tasks bear that its API server is away for five minutes; docs/evidence/reliability.md
has them for other installations."""
_USERS = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"
_CHECKOUT = Path(__file__).resolve().parents[2]
_CHECKOUT_MARKS = ("pyproject.toml", "dags", "plugins", "examples")


def host_of_tasks() -> str:
    """Return the host that Airflow stores for a task; Airflow's configuration names this function."""
    return HOST


@dataclass(frozen=True)
class LocalFolders:
    """Folders of the local Airflow.

    Attributes:
        root: Base of relative paths in a run's parameters, and folder of runs, datasets and models unless
            ``DEEPSPARK_HOME`` is set.
        airflow_home: Folder of Airflow's database, logs and passwords.
        dags: Airflow's DAGs folder.
        plugins: Airflow's plugins folder.
    """

    root: Path
    airflow_home: Path
    dags: Path
    plugins: Path

    @classmethod
    def find(cls, environment: Mapping[str, str], cwd: Path, checkout: Path = _CHECKOUT) -> LocalFolders:
        """Return a checkout's folders, else folders below ``DEEPSPARK_HOME`` or the present folder.

        Args:
            environment: Environment; ``DEEPSPARK_AIRFLOW_HOME`` sets Airflow's folder.
            cwd: The present folder.
            checkout: Folder above the packages; a checkout if it holds the project's files.
        """
        if all((checkout / mark).exists() for mark in _CHECKOUT_MARKS):
            home = Path(environment.get("DEEPSPARK_AIRFLOW_HOME", checkout / ".airflow")).absolute()
            return cls(checkout, home, checkout / "dags", checkout / "plugins")
        root = Path(environment.get("DEEPSPARK_HOME", cwd)).absolute()
        home = Path(environment.get("DEEPSPARK_AIRFLOW_HOME", root / ".airflow")).absolute()
        return cls(root, home, home / "dags", home / "plugins")

    @property
    def is_checkout(self) -> bool:
        """Whether the DAG files are a checkout's own."""
        return self.dags.parent == self.root

    @property
    def ui_command(self) -> str:
        """Command for the start of this Airflow's UI; the ``deepspark`` of a checkout is not on the PATH."""
        return "make ui" if self.is_checkout else "deepspark ui"

    @property
    def logs(self) -> Path:
        """Logs of tasks; the services' logs are in ``services/``."""
        return self.airflow_home / "logs"

    @property
    def passwords(self) -> Path:
        """File of Airflow's generated passwords."""
        return self.airflow_home / "passwords.json"

    def write_settings(self) -> None:
        """Write the folders into Airflow's new configuration, for ``airflow`` commands in a shell of the user.

        Without them ``airflow dags reserialize`` and others read another folder and Airflow's many example DAGs.
        """
        path = self.airflow_home / "airflow.cfg"
        if not path.is_file():  # AIRFLOW_CONFIG names another file, which the user edits
            return
        settings = {"dags_folder": self.dags, "plugins_folder": self.plugins, "load_examples": False}
        lines = regular_text(path).split("\n")
        path.write_text("\n".join(_setting(line, settings) for line in lines))

    def environment_if_used(self, inherited: Mapping[str, str]) -> dict[str, str] | None:
        """Return the environment of Airflow's processes; None if another Airflow is configured or no Airflow exists."""
        if "AIRFLOW_HOME" in inherited or not (self.airflow_home / "airflow.cfg").is_file():
            return None
        return self.environment(0, inherited, log_port=0)

    def environment(self, port: int, inherited: Mapping[str, str], *, log_port: int) -> dict[str, str]:
        """Return the environment of every Airflow process.

        Args:
            port: Port of UI and API.
            log_port: Port of the service that serves the logs of running tasks.
            inherited: Base environment. Its settings of Airflow take precedence, except Airflow's folder and address;
                our administrator is added to its users.
        """
        settings = {
            "CORE__DAGS_FOLDER": self.dags,
            "CORE__PLUGINS_FOLDER": self.plugins,
            "CORE__LOAD_EXAMPLES": False,
            "CORE__PARALLELISM": 4,
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": self.passwords,
            "DAG_PROCESSOR__REFRESH_INTERVAL": 15,
            # The next task of a DAG waits for this time at most; Airflow's own second is for many schedulers.
            "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": 0.25,
            "LOGGING__BASE_LOG_FOLDER": self.logs,
            "USAGE_DATA_COLLECTION__ENABLED": False,
            **OUTAGE_SETTINGS,
        }
        address = {
            "CORE__EXECUTION_API_SERVER_URL": f"http://{HOST}:{port}/execution/",
            "API__HOST": HOST,
            "API__PORT": port,
            "API__BASE_URL": f"http://{HOST}:{port}",
            # The UI requests a running task's log from the task's host at this port; all are on this machine.
            "CORE__HOSTNAME_CALLABLE": "deepspark_ops.local_airflow.folders.host_of_tasks",
            "LOGGING__WORKER_LOG_SERVER_PORT": log_port,
        }
        inherited_settings = {name: value for name, value in inherited.items() if name != "PYTHONDONTWRITEBYTECODE"}
        if users := inherited_settings.get(_USERS):
            inherited_settings[_USERS] = _with_administrator(users)
        return {
            "DEEPSPARK_ROOT": str(self.root),
            "DEEPSPARK_HOME": str(self.root),
            **{f"AIRFLOW__{name}": str(value) for name, value in settings.items()},
            **inherited_settings,
            **{f"AIRFLOW__{name}": str(value) for name, value in address.items()},
            "AIRFLOW_HOME": str(self.airflow_home),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), inherited_settings.get("PATH", os.defpath)]),
        }


def _setting(line: str, settings: Mapping[str, object]) -> str:
    name = line.partition(" = ")[0]
    return f"{name} = {settings[name]}" if name in settings else line


def _with_administrator(users: str) -> str:
    """Return Airflow's list of users, comma-separated ``name:role``, with our administrator."""
    other_users = [user for user in users.replace(" ", "").split(",") if user and user.partition(":")[0] != USER]
    return ",".join([f"{USER}:admin", *other_users])
