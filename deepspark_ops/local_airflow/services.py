"""Airflow as several supervised processes on this machine.

``airflow standalone`` leaves orphans after SIGTERM (Airflow 3.3.2). So its parts are started here, each as a child that
the kernel ends with this process; orphans of the parts are found and ended, too. All listen on 127.0.0.1 alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, TextIO

from caffe_import.file_access.regular_file import LIST_BYTES, regular_text
from deepspark_ops.errors import ConfigError
from deepspark_ops.local_airflow.api import AirflowFailed, prepare_for_tasks, read_health
from deepspark_ops.local_airflow.dag_files import install_dags
from deepspark_ops.local_airflow.descendants import adopt_orphans, end_descendants
from deepspark_ops.local_airflow.folders import HOST, LocalFolders
from deepspark_ops.processes.parent_death import end_with_parent_thread

API_SERVER: Final = "api-server"
LOG_SERVER: Final = "log-server"
SERVICES: Final[Mapping[str, tuple[str, ...]]] = {
    API_SERVER: ("airflow", API_SERVER),
    "dag-processor": ("airflow", "dag-processor"),
    # Airflow requests the log of a running task from a server, even on the same host. Scheduler and triggerer would
    # serve the logs on every address of the machine; this server listens on 127.0.0.1.
    LOG_SERVER: ("uvicorn", "airflow.utils.serve_logs.log_server:get_app", "--factory", "--no-access-log"),
    "triggerer": ("airflow", "triggerer", "--skip-serve-logs"),
    "scheduler": ("airflow", "scheduler", "--skip-serve-logs"),
}
"""Name of a service -> module and arguments."""
_HEALTH_NAMES: Final = {API_SERVER: "metadatabase", "dag-processor": "dag_processor", "scheduler": "scheduler"}
"""Services on Airflow's health page -> names on the page."""
STARTED_AGAIN: Final = frozenset({API_SERVER, "dag-processor", LOG_SERVER, "triggerer"})
"""Services that are restarted, because their end ends no task. Running tasks end with the scheduler."""
MAX_RESTARTS = 3
RESTART_WINDOW_S = 600.0
"""A service that ends more than ``MAX_RESTARTS`` times within this time is given up."""
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 8.0
_POLL_S = 0.3
_LOG_LINES_SHOWN = 15

Report = Callable[[str], None]
"""Takes a line of progress."""


class Process(Protocol):
    """The used methods of ``subprocess.Popen``."""

    returncode: int | None

    def poll(self) -> int | None:
        """Return the exit code, None while the process runs."""

    def terminate(self) -> None:
        """Ask the process to end."""

    def wait(self) -> int:
        """Wait for the end of the process."""


class Services:
    """The running services. Used by one thread."""

    def __init__(
        self,
        launch: Callable[[str], Process],
        health: Callable[[], Mapping[str, str]],
        logs: Path,
        report: Report,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """Create the object without starting services.

        Args:
            launch: Starts a service by its name.
            health: Returns the status of each part, by the health page's names; empty without an answer.
            logs: Folder of the services' logs.
            report: Takes progress.
            prepare: Prepares the API server for tasks; called once, while the scheduler starts.
        """
        self._launch = launch
        self._prepare = prepare
        self._health = health
        self._logs = logs
        self._report = report
        self._children: dict[str, Process] = {}
        self._restarts: dict[str, list[float]] = {}

    def start(self, timeout_s: float = START_TIMEOUT_S, poll_s: float = _POLL_S) -> None:
        """Start all services and return when all are healthy.

        The scheduler starts last, after the API server answers: the scheduler immediately starts unfinished tasks of an
        earlier Airflow, and tasks without API server fail, try after try.

        Raises:
            AirflowFailed: A service ended, or is not healthy in time.
        """
        deadline = time.monotonic() + timeout_s
        first = [name for name in SERVICES if name != "scheduler"]
        self._start_and_wait(first, until=[API_SERVER], deadline=deadline, poll_s=poll_s)
        with ThreadPoolExecutor(max_workers=1) as pool:
            pool.submit(self._prepare)
            self._start_and_wait(["scheduler"], until=[*_HEALTH_NAMES], deadline=deadline, poll_s=poll_s)

    def _start_and_wait(self, names: list[str], *, until: list[str], deadline: float, poll_s: float) -> None:
        self._report(f"starting Airflow: {', '.join(names)}")
        for name in names:
            self._children[name] = self._launch(name)
        reported: list[str] = []
        while True:
            self.check()
            health = self._health()
            missing = [name for name in until if health.get(_HEALTH_NAMES[name]) != "healthy"]
            if not missing:
                return
            if time.monotonic() > deadline:
                msg = f"not healthy in time: {', '.join(missing)}; see {log_path(self._logs, missing[0])}"
                raise AirflowFailed(msg)
            if missing != reported:
                reported = missing
                self._report(f"waiting for {', '.join(missing)}")
            time.sleep(poll_s)

    def check(self) -> None:
        """Raise if a service has ended.

        Raises:
            AirflowFailed: Names it, with the end of its log.
        """
        for name, child in self._children.items():
            if child.poll() is not None:
                log = log_path(self._logs, name)
                msg = f"airflow {name} ended with exit code {child.returncode}; the end of {log}:\n{_tail(log)}"
                raise AirflowFailed(msg)

    def keep(self) -> None:
        """Restart an ended service, if running tasks outlive the service: tasks try to reach the server for minutes.

        Raises:
            AirflowFailed: The scheduler ended, or a service ends again and again; names it, with the end of its log.
        """
        now = time.monotonic()
        for name in STARTED_AGAIN:
            child = self._children[name]
            if child.poll() is None:
                continue
            recent = [moment for moment in self._restarts.get(name, []) if now - moment < RESTART_WINDOW_S]
            if len(recent) >= MAX_RESTARTS:
                break
            self._restarts[name] = [*recent, now]
            self._report(f"airflow {name} ended with exit code {child.returncode}; it is started again")
            self._children[name] = self._launch(name)
        self.check()

    def stop(self) -> None:
        """Ask every service to end."""
        for child in self._children.values():
            if child.poll() is None:
                child.terminate()

    def wait(self) -> None:
        """Wait until every service has ended."""
        for child in self._children.values():
            child.wait()


@contextmanager
def running_services(folders: LocalFolders, port: int, report: Report) -> Iterator[Services]:
    """Run Airflow for the length of a ``with`` block; no process is left afterwards, running tasks included.

    Raises:
        ConfigError: Another Airflow uses these folders, or the port is taken.
        AirflowFailed: A service could not be started.
    """
    folders.airflow_home.mkdir(mode=0o700, parents=True, exist_ok=True)  # holds the password and Airflow's secret keys
    logs = folders.logs / "services"
    logs.mkdir(parents=True, exist_ok=True)
    with _locked(folders.airflow_home / "services.lock") as lock:
        require_free(port)
        adopt_orphans()
        environment = folders.environment(port, os.environ, log_port=free_port())
        report(f"Airflow's files are in {folders.airflow_home}, runs in {environment['DEEPSPARK_HOME']}/runs")
        if not folders.is_checkout:
            install_dags(folders.dags)
        report("preparing Airflow's database")
        _migrate(folders, environment, logs)
        for name in SERVICES:
            log_path(logs, name).unlink(missing_ok=True)
        services = Services(
            launch=lambda name: _launch(name, folders, environment, logs),
            health=lambda: read_health(port),
            logs=logs,
            report=report,
            prepare=lambda: prepare_for_tasks(port),
        )
        try:
            services.start()
            _write_lock(lock, port)
            yield services
        finally:
            services.stop()
            end_descendants(STOP_TIMEOUT_S)
            services.wait()


def log_path(logs: Path, name: str) -> Path:
    """Return the log of a service."""
    return logs / f"{name}.log"


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def require_free(port: int) -> None:
    """Refuse a port in use.

    Raises:
        ConfigError: The port is taken.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            msg = (
                f"port {port} on {HOST} cannot be used ({error.strerror}); choose another: "
                f"deepspark ui --port {port + 1} (make ui PORT={port + 1})"
            )
            raise ConfigError(msg) from error


def running_port(folders: LocalFolders) -> int | None:
    """Return the port of a running Airflow with these folders; None without a running Airflow."""
    path = folders.airflow_home / "services.lock"
    if not path.exists():
        return None
    with path.open("r+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = handle.read()
            return int(json.loads(text)["port"]) if text.strip() else None
    return None


def _migrate(folders: LocalFolders, environment: Mapping[str, str], logs: Path) -> None:
    log = log_path(logs, "db-migrate")
    with log.open("wb") as output:
        done = subprocess.run(
            _command("airflow", "db", "migrate"),
            env=environment,
            cwd=folders.root,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        msg = f"airflow db migrate failed; the end of {log}:\n{_tail(log)}"
        raise AirflowFailed(msg)
    folders.write_settings()


def _launch(name: str, folders: LocalFolders, environment: Mapping[str, str], logs: Path) -> subprocess.Popen[bytes]:
    parent = os.getpid()
    with log_path(logs, name).open("ab") as output:  # one that is started again adds to its log
        return subprocess.Popen(
            _service_command(name, environment),
            env=environment,
            cwd=folders.root,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C on the terminal reaches this process alone, which then ends them in order.
            start_new_session=True,
            preexec_fn=lambda: end_with_parent_thread(parent),
        )


def _service_command(name: str, environment: Mapping[str, str]) -> list[str]:
    command = _command(*SERVICES[name])
    if name == LOG_SERVER:
        command += ["--host", HOST, "--port", environment["AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT"]]
    return command


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", *arguments]


@contextmanager
def _locked(path: Path) -> Iterator[TextIO]:
    path.touch()
    with path.open("r+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            text = handle.read().strip()
            where = f" on http://{HOST}:{json.loads(text)['port']}" if text else ""
            msg = f"the Airflow in {path.parent} is running already{where}; end it first (Ctrl-C there)"
            raise ConfigError(msg) from error
        try:
            yield handle
        finally:
            handle.truncate(0)


def _write_lock(handle: TextIO, port: int) -> None:
    handle.seek(0)
    handle.truncate()
    json.dump({"pid": os.getpid(), "port": port}, handle)
    handle.flush()


def _tail(path: Path) -> str:
    if not path.exists():
        return "  (no log)"
    return "\n".join(
        "  " + line
        for line in regular_text(path, errors="replace", max_bytes=LIST_BYTES).splitlines()[-_LOG_LINES_SHOWN:]
    )
