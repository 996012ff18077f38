"""The order in which services start, and the message of a failed start; with fake processes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.local_airflow import services as services_module
from deepspark_ops.local_airflow.api import AirflowFailed, prepare_for_tasks
from deepspark_ops.local_airflow.folders import LocalFolders
from deepspark_ops.local_airflow.services import (
    API_SERVER,
    MAX_RESTARTS,
    RESTART_WINDOW_S,
    SERVICES,
    Services,
    free_port,
    require_free,
    running_port,
)


class FakeProcess:
    def __init__(self) -> None:
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def terminate(self) -> None:
        self.returncode = -15

    def wait(self) -> int:
        assert self.returncode is not None, "nobody asked it to end"
        return self.returncode


class FakeAirflow:
    """Answers after some questions; remembers who had been started at each of them."""

    def __init__(self, silent_for: int = 3, **states: str) -> None:
        self.started: dict[str, FakeProcess] = {}
        self.started_when_asked: list[list[str]] = []
        self.silent_for = silent_for
        self.states = {"metadatabase": "healthy", "scheduler": "healthy", "dag_processor": "healthy"} | states

    def launch(self, name: str) -> FakeProcess:
        self.started[name] = FakeProcess()
        return self.started[name]

    def health(self) -> Mapping[str, str]:
        self.started_when_asked.append(list(self.started))
        return self.states if len(self.started_when_asked) > self.silent_for else {}


def services_of(airflow: FakeAirflow, logs: Path) -> Services:
    return Services(airflow.launch, airflow.health, logs, lambda line: None)


def test_the_scheduler_starts_after_the_api_server_answers(tmp_path: Path) -> None:
    airflow = FakeAirflow(silent_for=3)
    services_of(airflow, tmp_path).start(poll_s=0)
    unanswered = airflow.started_when_asked[: airflow.silent_for + 1]
    assert all("api-server" in started and "scheduler" not in started for started in unanswered)
    assert set(airflow.started) == set(SERVICES)


def test_the_api_server_is_prepared_for_tasks_while_the_scheduler_starts(tmp_path: Path) -> None:
    airflow, services_at_preparation = FakeAirflow(silent_for=2), []
    answered = threading.Event()

    def prepare() -> None:
        services_at_preparation.append(set(airflow.started))
        answered.wait(60)

    def health() -> Mapping[str, str]:
        if "scheduler" in airflow.started and services_at_preparation:
            answered.set()
        return airflow.health() if answered.is_set() or "scheduler" not in airflow.started else {}

    Services(airflow.launch, health, tmp_path, lambda line: None, prepare).start(poll_s=0)
    assert answered.is_set()
    assert len(services_at_preparation) == 1
    assert API_SERVER in services_at_preparation[0]


@pytest.mark.parametrize("status", [200, 404, None])
def test_the_first_call_of_a_tasks_path_prepares_the_api_server(status: int | None) -> None:
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            if status is not None:
                self.send_response(status)
                self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        prepare_for_tasks(server.server_port)
    assert paths == ["/execution/health"]


def test_the_awaited_service_is_logged_once_per_change(tmp_path: Path) -> None:
    airflow, lines = FakeAirflow(silent_for=20), []
    Services(airflow.launch, airflow.health, tmp_path, lines.append).start(poll_s=0)
    assert [line for line in lines if line.startswith("waiting")] == ["waiting for api-server"]
    changing = FakeAirflow(silent_for=5, scheduler="unhealthy", dag_processor="unhealthy")
    health = changing.health

    def recovering() -> Mapping[str, str]:
        n_asked = len(changing.started_when_asked)
        changing.states["dag_processor"] = "healthy" if n_asked > 12 else "unhealthy"
        changing.states["scheduler"] = "healthy" if n_asked > 18 else "unhealthy"
        return health()

    lines.clear()
    Services(changing.launch, recovering, tmp_path, lines.append).start(poll_s=0)
    assert [line for line in lines if line.startswith("waiting")] == [
        "waiting for api-server", "waiting for dag-processor, scheduler", "waiting for scheduler",
    ]  # fmt: skip


def test_start_waits_for_every_part_that_reports_its_health(tmp_path: Path) -> None:
    airflow = FakeAirflow(scheduler="unhealthy")
    with pytest.raises(AirflowFailed, match=r"not healthy in time: scheduler; see .*scheduler\.log"):
        services_of(airflow, tmp_path).start(timeout_s=0.05, poll_s=0)


def test_a_service_that_ends_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    airflow = FakeAirflow()
    services = services_of(airflow, tmp_path)
    services.start(poll_s=0)
    services.check()
    (tmp_path / "triggerer.log").write_text("\n".join(f"line {i}" for i in range(40)))
    airflow.started["triggerer"].returncode = 3
    with pytest.raises(AirflowFailed, match="airflow triggerer ended with exit code 3") as caught:
        services.check()
    assert "line 39" in str(caught.value)
    assert "line 9\n" not in str(caught.value)
    services.stop()
    services.wait()
    codes = {name: child.returncode for name, child in airflow.started.items()}
    assert codes == {name: 3 if name == "triggerer" else -15 for name in SERVICES}


def test_what_ends_is_started_again_a_few_times_but_not_the_scheduler(tmp_path: Path) -> None:
    airflow, lines = FakeAirflow(), []
    services = Services(airflow.launch, airflow.health, tmp_path, lines.append)
    services.start(poll_s=0)
    lines.clear()
    services.keep()
    assert lines == []
    for number in range(1, MAX_RESTARTS + 1):
        dead = airflow.started["api-server"]
        dead.returncode = -9
        services.keep()
        assert airflow.started["api-server"] is not dead
        assert lines == ["airflow api-server ended with exit code -9; it is started again"] * number
    airflow.started["triggerer"].returncode = 1
    services.keep()  # each is counted for itself
    airflow.started["api-server"].returncode = -9
    with pytest.raises(AirflowFailed, match="airflow api-server ended with exit code -9"):
        services.keep()
    services = Services(airflow.launch, airflow.health, tmp_path, lines.append)
    services.start(poll_s=0)
    airflow.started["scheduler"].returncode = -9
    with pytest.raises(AirflowFailed, match="airflow scheduler ended with exit code -9"):
        services.keep()


def test_a_service_that_ends_now_and_then_is_always_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow = FakeAirflow()
    services = services_of(airflow, tmp_path)
    services.start(poll_s=0)
    for number in range(3 * MAX_RESTARTS):
        monkeypatch.setattr(services_module.time, "monotonic", lambda now=number * RESTART_WINDOW_S / 2 + 1e9: now)
        airflow.started["api-server"].returncode = -9
        services.keep()


def test_a_taken_port_is_refused_with_a_remedy() -> None:
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        port = occupied.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} .* deepspark ui --port {port + 1}"):
            require_free(port)
    require_free(free_port())


def test_one_airflow_at_a_time_uses_a_folder_and_says_where_it_is(tmp_path: Path) -> None:
    folders = LocalFolders.find({}, tmp_path, checkout=tmp_path)
    folders.airflow_home.mkdir()
    path = folders.airflow_home / "services.lock"
    assert running_port(folders) is None
    with services_module._locked(path) as lock:
        assert running_port(folders) is None  # it starts just now
        services_module._write_lock(lock, 8123)
        assert json.loads(path.read_text())["port"] == 8123
        assert running_port(folders) == 8123
        with (
            pytest.raises(ConfigError, match=r"running already on http://127\.0\.0\.1:8123"),
            services_module._locked(path),
        ):
            pass
    assert running_port(folders) is None
