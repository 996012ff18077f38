"""Airflow of this clone as a handful of supervised processes: ``make ui`` and ``make demo`` stand on it.

``airflow standalone`` leaves orphans when it is ended by SIGTERM (Airflow 3.3.2), so its parts are started here, each
as a child that the kernel ends with this process; whatever they leave behind is found and ended too. Everything lives
in ``.airflow/`` inside the clone and listens on 127.0.0.1 alone.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parents[1]
HOST = "127.0.0.1"
USER = "admin"
SERVICES = {
    "api-server": ["api-server"],
    # The UI reads the log files themselves, so no process needs to serve them on a port of its own.
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
}
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 8.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_ALIVE = {"api-server": "metadatabase", "scheduler": "scheduler", "dag-processor": "dag_processor"}


class ServicesFailed(Exception):
    """Airflow could not be started or went away; the message is for the user."""


def airflow_home() -> Path:
    """Return the folder of everything that Airflow writes."""
    return Path(os.environ.get("DEEPSPARK_AIRFLOW_HOME", ROOT / ".airflow"))


def airflow_environment(port: int) -> dict[str, str]:
    """Return the environment of every Airflow process of this clone."""
    home = airflow_home()
    environment = {**os.environ, "AIRFLOW_HOME": str(home), "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    settings = {
        "CORE__DAGS_FOLDER": ROOT / "dags",
        "CORE__PLUGINS_FOLDER": ROOT / "plugins",
        "CORE__LOAD_EXAMPLES": False,
        "CORE__PARALLELISM": 4,
        "CORE__EXECUTION_API_SERVER_URL": f"http://{HOST}:{port}/execution/",
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": home / "passwords.json",
        "API__HOST": HOST,
        "API__PORT": port,
        "API__BASE_URL": f"http://{HOST}:{port}",
        "DAG_PROCESSOR__REFRESH_INTERVAL": 15,
        "LOGGING__BASE_LOG_FOLDER": home / "logs",
        "USAGE_DATA_COLLECTION__ENABLED": False,
    }
    given = {f"AIRFLOW__{name}": str(value) for name, value in settings.items()}
    return {
        **given,
        **environment,
        **{name: given[name] for name in given if "__API__" in name or "SERVER_URL" in name},
    }


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def require_free(port: int) -> None:
    """Refuse a port that something listens on.

    Raises:
        ServicesFailed: The port is taken.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            msg = f"port {port} on {HOST} cannot be used ({error.strerror}); choose another: make ui PORT={port + 1}"
            raise ServicesFailed(msg) from error


@dataclass
class Services:
    """The running processes; use as a context manager.

    Attributes:
        port: Port of UI and API.
        say: Takes progress messages.
    """

    port: int
    say: Callable[[str], None]
    _children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _lock: TextIO | None = None

    def __enter__(self) -> Services:
        """Start everything and return when it is healthy.

        Raises:
            ServicesFailed: Another Airflow of this clone runs, the port is taken, or a process ended.
        """
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        self.stop()

    def _start(self) -> None:
        home = airflow_home()
        home.mkdir(mode=0o700, parents=True, exist_ok=True)  # holds the password and Airflow's secret keys
        (home / "logs" / "services").mkdir(parents=True, exist_ok=True)
        self._lock = _lock(home / "services.lock")
        require_free(self.port)
        if sys.platform == "linux":
            # Orphans of the services become children of this process, which can then find and end them.
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self.say("preparing Airflow's database")
        self._run_once("db", "migrate")
        self.say("starting Airflow: " + ", ".join(SERVICES))
        for name, arguments in SERVICES.items():
            self._children[name] = self._spawn(name, arguments)
        self._wait_until_healthy()
        _write_lock(self._lock, self.port)

    def _run_once(self, *arguments: str) -> None:
        log = self._log_path("-".join(arguments))
        with log.open("wb") as output:
            done = subprocess.run(
                self._command(arguments),
                env=airflow_environment(self.port),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            msg = f"airflow {' '.join(arguments)} failed; the end of {log}:\n{_tail(log)}"
            raise ServicesFailed(msg)

    def _spawn(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        parent = os.getpid()
        with self._log_path(name).open("wb") as output:
            return subprocess.Popen(
                self._command(arguments),
                env=airflow_environment(self.port),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C on the terminal reaches this process alone, which then ends them in order.
                start_new_session=True,
                preexec_fn=lambda: _die_with(parent),
            )

    @staticmethod
    def _command(arguments: tuple[str, ...] | list[str]) -> list[str]:
        return [sys.executable, "-m", "airflow", *arguments]

    @staticmethod
    def _log_path(name: str) -> Path:
        return airflow_home() / "logs" / "services" / f"{name}.log"

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        told = time.monotonic()
        while True:
            self.check()
            missing = self._unhealthy()
            if not missing:
                return
            if time.monotonic() > deadline:
                msg = (
                    f"not healthy after {START_TIMEOUT_S:.0f} s: {', '.join(missing)}; see {self._log_path(missing[0])}"
                )
                raise ServicesFailed(msg)
            if time.monotonic() - told > 5:
                told = time.monotonic()
                self.say(f"waiting for {', '.join(missing)}")
            time.sleep(0.3)

    def _unhealthy(self) -> list[str]:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.port}/api/v2/monitor/health", timeout=5) as answer:
                health = json.load(answer)
        except (OSError, ValueError):
            return ["api-server"]
        return [name for name, key in _ALIVE.items() if (health.get(key) or {}).get("status") != "healthy"]

    def check(self) -> None:
        """Raise if a service has ended.

        Raises:
            ServicesFailed: Names it, with the end of its log.
        """
        for name, child in self._children.items():
            if child.poll() is not None:
                log = self._log_path(name)
                msg = f"airflow {name} ended with exit code {child.returncode}; the end of {log}:\n{_tail(log)}"
                raise ServicesFailed(msg)

    def stop(self) -> None:
        """End every process that was started from here, running tasks and their Spark applications included."""
        for child in self._children.values():
            if child.poll() is None:
                child.terminate()
        _end_descendants(STOP_TIMEOUT_S)
        for child in self._children.values():
            child.wait()
        self._children.clear()
        if self._lock is not None:
            self._lock.truncate(0)
            self._lock.close()
            self._lock = None


def running_port() -> int | None:
    """Return the port of this clone's Airflow if ``make ui`` or ``make demo`` has it running."""
    path = airflow_home() / "services.lock"
    if not path.exists():
        return None
    with path.open("r+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = handle.read()
            return int(json.loads(text)["port"]) if text.strip() else None
    return None


def _lock(path: Path) -> TextIO:
    path.touch()
    handle = path.open("r+")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        text = handle.read().strip()
        where = f" on http://{HOST}:{json.loads(text)['port']}" if text else ""
        msg = f"Airflow of this clone is running already{where}; end it first (Ctrl-C there)"
        raise ServicesFailed(msg) from error
    return handle


def _write_lock(handle: TextIO, port: int) -> None:
    handle.seek(0)
    handle.truncate()
    json.dump({"pid": os.getpid(), "port": port}, handle)
    handle.flush()


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)


def _tail(path: Path, lines: int = 15) -> str:
    return "\n".join("  " + line for line in path.read_text(errors="replace").splitlines()[-lines:])


def descendants(pid: int) -> list[int]:
    """Return the process ids below ``pid``, zombies left out. Linux; elsewhere none are known."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it ended meanwhile
            continue
        if state != "Z":
            parents[int(entry.parent.name)] = int(parent)
    found: list[int] = []
    layer = {pid}
    while layer:
        layer = {child for child, parent in parents.items() if parent in layer}
        found.extend(layer)
    return found


def _end_descendants(timeout_s: float) -> None:
    """Wait for what was told to end; then tell the rest, which a running task is part of; then kill."""
    for number, limit_s in ((0, timeout_s / 2), (signal.SIGTERM, timeout_s / 2), (signal.SIGKILL, None)):
        deadline = None if limit_s is None else time.monotonic() + limit_s
        if number != signal.SIGKILL:
            _signal_all(number)
        while descendants(os.getpid()):
            if deadline is not None and time.monotonic() > deadline:
                break
            if number == signal.SIGKILL:
                _signal_all(number)
            _reap()
            time.sleep(0.05)


def _signal_all(number: int) -> None:
    for pid in descendants(os.getpid()):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _reap() -> None:
    """Collect children, adopted ones too, that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return


@dataclass
class Api:
    """Airflow's REST API as the generated administrator.

    Attributes:
        port: Port of the API server on this machine.
    """

    port: int
    _token: str = ""

    @property
    def password(self) -> str:
        """The administrator's password, generated by Airflow at its first start."""
        passwords = json.loads((airflow_home() / "passwords.json").read_text())
        return str(passwords[USER])

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON answer of a call below ``/api/v2``.

        Raises:
            ServicesFailed: The API refused; its reason is the message.
        """
        if not self._token:
            login = {"username": USER, "password": self.password}
            self._token = str(self._request("POST", "/auth/token", login, {})["access_token"])
        return self._request(method, f"/api/v2{path}", body, {"Authorization": f"Bearer {self._token}"})

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None, headers: dict[str, str]) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{HOST}:{self.port}{path}", data, method=method)
        request.headers.update({**headers, "Content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            msg = f"{method} {path}: {error.code} {error.read().decode(errors='replace')}"
            raise ServicesFailed(msg) from error
        except OSError as error:
            msg = f"{method} {path}: {error}"
            raise ServicesFailed(msg) from error


def quoted(run_id: str) -> str:
    """Return a run id as a part of a URL."""
    return urllib.parse.quote(run_id, safe="")
