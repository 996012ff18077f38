"""``deepspark ui``: run Airflow until Ctrl-C or SIGTERM."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import time
from pathlib import Path

from deepspark_ops.config.example_conf import example_conf
from deepspark_ops.local_airflow.api import Api
from deepspark_ops.local_airflow.folders import HOST, USER, LocalFolders
from deepspark_ops.local_airflow.services import Report, running_services

_CHECK_EVERY_S = 1.0


def run_ui(folders: LocalFolders, port: int, report: Report) -> None:
    """Start Airflow, report the address and the login, and watch Airflow; returns after Ctrl-C or SIGTERM.

    Call from the main thread, because only the main thread handles signals.

    Raises:
        ConfigError: Another Airflow uses these folders, or the port is taken.
        AirflowFailed: A service ended.
    """
    interrupt_on_signals()
    try:
        with running_services(folders, port, lambda text: report(f"ui: {text}")) as services:
            report(welcome(folders, port))
            while True:
                services.keep()
                time.sleep(_CHECK_EVERY_S)
    except KeyboardInterrupt:
        report("ui: ended")


def interrupt_on_signals() -> None:
    """Have SIGTERM end this process as Ctrl-C does; a shell starts background jobs with SIGINT ignored."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)


def welcome(folders: LocalFolders, port: int) -> str:
    """Return address, login and a first command of a started Airflow."""
    airflow = Path(sys.executable).with_name("airflow")
    conf = json.dumps(example_conf("deepspark_train", folders.root))
    trigger = f"AIRFLOW_HOME={folders.airflow_home} {airflow} dags trigger deepspark_train --conf {shlex.quote(conf)}"
    login = "  login         none: everyone is an administrator ([core] simple_auth_manager_all_admins)\n"
    if folders.passwords.is_file():
        login = f"  user          {USER}\n  password      {Api(port, folders.passwords).password}\n"
    return (
        f"\nAirflow is up.\n  address       http://{HOST}:{port}\n{login}  from a shell  {trigger}\n\nCtrl-C ends it."
    )
