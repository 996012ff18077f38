"""What tests do with the one Airflow of the session: the fixture ``airflow``.

Airflow is shared: tests of other processes run DAGs at the same time. So each test

- trains from an example of its own (fixture ``example``; the data are a copy, so the dataset is separate, too),
- names a model of its own (``model="..."`` in the conf of deepspark_retrain),
- looks at its own runs: ``airflow.trigger`` returns a run, ``airflow.await_run`` finds a run that Airflow made.

``deepspark_retrain`` has one active run at a time and starts paused, as every DAG with a schedule. Scheduled and
asset-triggered runs train the model ``retrained`` (keep_airflow.py), belong to test_retrain_dag.py, and wait for
approval. A run that another test triggers with its own conf waits for its turn. Unpause with ``airflow.unpause`` and
leave it so. ``airflow.notices()`` lists the events of notifiers.

Runs cost most of the suite's time: what a test only reads comes from ``finished_runs.py``, made once for all processes
by ``airflow.once``. Airflow has three users, ``admin``, ``user``, who may trigger, and ``viewer``, who may only read:
``airflow.api("viewer")`` calls the REST API as one, ``log_in(page, airflow, url, user="viewer")`` logs a page of
tests/browser.py in.

    def test_something(airflow: AirflowInstance, example: SmallExample) -> None:
        run = airflow.trigger("deepspark_train", example.conf(overrides="max_iter: 40"))
        run.wait()  # for success; on failure the message has the states and the log of what failed
        assert run.task_states()["export"] == "success"
        assert "loss clock=" in run.log_text("train")
        assert (run.folder / "bundle").is_dir()

A browser test (marker ``browser``, file ``test_..._in_browser.py``) uses the same: ``promoted_model`` is a model to
roll back, ``run.wait_task("approve", "deferred", "awaiting_input")`` waits until somebody has to decide, ``page.click``
and ``page.fill`` do it, ``assert_looks`` (looks.py) sees light, dark and 390 px, and ``page.troubles`` must stay empty.
To look at the pictures: ``DEEPSPARK_TEST_SHOTS=/tmp/shots python -m pytest -m browser tests/e2e``.

The session ends Airflow by SIGTERM and fails if a process is left or the port not free (keep_airflow.py). A failed
session keeps its logs and runs, and its last lines name the folder.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from deepspark_ops.local_airflow.api import Api, quoted
from deepspark_ops.local_airflow.folders import HOST
from deepspark_ops.local_airflow.services import log_path
from deepspark_ops.operators.pages.addresses import run_url
from deepspark_ops.operators.tasks.run_plan import safe_run_id
from deepspark_ops.run_paths import write_text_whole
from tests.browser import Page
from tests.e2e.keep_airflow import NOTICES, environment
from tests.e2e.shared_airflow import locked
from tests.paths import ROOT

RUN_S = 900.0
OVER = ("success", "failed")
_POLL_S = 1.5
"""Each question costs the API server up to 50 ms of a core that the runs need."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class AirflowInstance:
    """The session's Airflow. Thread-safe.

    Attributes:
        base: The session's folder.
        port: Of UI and API.
    """

    base: Path
    port: int

    @property
    def site(self) -> str:
        """The address of UI and API, without a slash at its end."""
        return f"http://{HOST}:{self.port}"

    @property
    def home(self) -> Path:
        """DEEPSPARK_HOME: holds runs/, datasets/ and models/."""
        return self.base / "home"

    def api(self, user: str = "admin") -> Api:
        """Return the REST API as a user calls it; logged in once."""
        return _api(self.port, self.base / "airflow" / "passwords.json", user)

    def unpause(self, dag_id: str) -> None:
        """Let a DAG's runs begin."""
        self.api().call("PATCH", f"/dags/{dag_id}", {"is_paused": False})

    def trigger(self, dag_id: str, conf: dict[str, Any], *, user: str = "admin") -> DagRun:
        """Start a run as a person does."""
        self.unpause(dag_id)
        body = {"logical_date": None, "conf": conf}
        run = self.api(user).call("POST", f"/dags/{dag_id}/dagRuns", body)
        return DagRun(self, dag_id, str(run["dag_run_id"]))

    def send_event(self, asset: str, extra: dict[str, Any]) -> None:
        """Send an event of an Asset, as its page lets a person do."""
        (row,) = [row for row in self.api().call("GET", "/assets")["assets"] if row["name"] == asset]
        self.api().call("POST", "/assets/events", {"asset_id": row["id"], "extra": extra})

    def await_run(self, dag_id: str, is_it: Callable[[dict[str, Any]], bool], timeout_s: float = RUN_S) -> DagRun:
        """Wait until Airflow has made a run that ``is_it`` accepts, by the API's answer, and return the run."""
        deadline = time.monotonic() + timeout_s
        while True:
            runs = self.api().call("GET", f"/dags/{dag_id}/dagRuns?order_by=-run_after")["dag_runs"]
            for run in runs:
                if is_it(run):
                    return DagRun(self, dag_id, str(run["dag_run_id"]))
            states = [(run["dag_run_id"], run["state"]) for run in runs]
            assert time.monotonic() < deadline, f"no such run of {dag_id} within {timeout_s:g} s; there are {states}"
            time.sleep(_POLL_S)

    def once(self, name: str, make: Callable[[], _T]) -> _T:
        """Return the value of ``make`` by the first process that asked for ``name``; other processes wait for the
        value.

        Args:
            name: A file name.
            make: Returns a value of plain JSON.
        """
        path = self.base / f"once-{name}.json"
        with locked(path.with_suffix(".lock")):
            if not path.exists():
                write_text_whole(path, json.dumps(make()))
        value: _T = json.loads(path.read_text())
        return value

    def notices(self) -> list[dict[str, str]]:
        """Return what the session's notifier was told: dag, run, event, reason, link."""
        path = self.base / NOTICES
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``deepspark ARGUMENTS`` beside Airflow: on the same runs, datasets and models."""
        return subprocess.run(
            [sys.executable, "-m", "deepspark_ops.command.cli", *arguments],
            cwd=ROOT, env=environment(self.base), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip


@dataclass(frozen=True)
class DagRun:
    """One run of a DAG.

    Attributes:
        airflow: Where it is.
        dag_id: Its DAG.
        run_id: Its id.
    """

    airflow: AirflowInstance
    dag_id: str
    run_id: str

    @property
    def folder(self) -> Path:
        """The folder of the run's files."""
        return self.airflow.home / "runs" / self.dag_id / safe_run_id(self.run_id)

    @property
    def path(self) -> str:
        """The run in the API."""
        return f"/dags/{self.dag_id}/dagRuns/{quoted(self.run_id)}"

    def page(self, name: str) -> str:
        """Return the address of a page about the run: ``training``, ``report``."""
        return self.airflow.site + run_url(self.dag_id, self.run_id, name)

    def read(self) -> dict[str, Any]:
        """Return what Airflow says of the run: ``state``, ``note``, ``run_type``, ..."""
        return dict(self.airflow.api().call("GET", self.path))

    def task_states(self) -> dict[str, str | None]:
        """Return the state of each task by id; of mapped tasks the state of the last."""
        tasks = self.airflow.api().call("GET", f"{self.path}/taskInstances")["task_instances"]
        return {task["task_id"]: task["state"] for task in tasks}

    def wait(self, state: str = "success", timeout_s: float = RUN_S) -> dict[str, Any]:
        """Wait for the end of the run with ``state``; return Airflow's record of the run."""
        run = self._wait(lambda: (run := self.read())["state"] in OVER and run, f"end of {self.run_id}", timeout_s)
        assert run["state"] == state, f"{self.dag_id} ended as {run['state']}; {self._state_text()}"
        return dict(run)

    def wait_task(self, task_id: str, *states: str, timeout_s: float = RUN_S) -> str:
        """Wait until a task is in one of ``states`` and return the state; fail if the run ends before."""

        def state() -> str | None:
            state_name = self.task_states().get(task_id)
            assert state_name in states or self.read()["state"] not in OVER, (
                f"{task_id} is {state_name}; {self._state_text()}"
            )
            return state_name if state_name in states else None

        return str(self._wait(state, f"task {task_id} in {states}", timeout_s))

    def log(self, task_id: str, attempt: int = 1) -> list[dict[str, Any]]:
        """Return a task's log as the UI reads it: entries with ``event``, ``level``, ``logger``, ..."""
        path = f"{self.path}/taskInstances/{task_id}/logs/{attempt}?full_content=true"
        return list(self.airflow.api().call("GET", path)["content"])

    def log_text(self, task_id: str, attempt: int = 1) -> str:
        """Return the lines of a task's log."""
        return "\n".join(str(entry.get("event")) for entry in self.log(task_id, attempt))

    def answer(self, option: str, *, user: str = "admin", comment: str = "") -> None:
        """Answer task approve, which waits, as a person does on the page Required Actions.

        Airflow 3.3 forgets an answer that comes before its scheduler has seen the waiting task, and asks again in
        another try. So wait for the line of the scheduler's log.
        """
        log = log_path(self.airflow.base / "airflow" / "logs" / "services", "scheduler")
        is_awaited = re.compile(rf"task_id=approve, run_id={re.escape(self.run_id)}, .*state=awaiting_input")
        self._wait(lambda: is_awaited.search(log.read_text()), "scheduler to see that approve waits", RUN_S)
        body = {"chosen_options": [option], "params_input": {"comment": comment}}
        self.airflow.api(user).call("PATCH", f"{self.path}/taskInstances/approve/-1/hitlDetails", body)

    def notices(self) -> list[tuple[str, str]]:
        """Return event and reason of each notice of this run."""
        mine = [
            notice for notice in self.airflow.notices() if (notice["dag"], notice["run"]) == (self.dag_id, self.run_id)
        ]
        return [(notice["event"], notice["reason"]) for notice in mine]

    def leave_out(self, task_id: str) -> None:
        """Skip a task that has not begun, and so its successors: no test looks at the task in this run."""
        self.airflow.api().call("PATCH", f"{self.path}/taskInstances/{task_id}", {"new_state": "skipped"})

    def _wait(self, condition: Callable[[], Any], event: str, timeout_s: float) -> Any:
        deadline = time.monotonic() + timeout_s
        while not (value := condition()):
            assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {event}; {self._state_text()}"
            time.sleep(_POLL_S)
        return value

    def _state_text(self) -> str:
        states = self.task_states()
        failed = [task for task, state in states.items() if state in ("failed", "up_for_retry")]
        return f"tasks: {states}" + "".join(f"\n{task}:\n{self.log_text(task)[-6000:]}" for task in failed)


def log_in(page: Page, airflow: AirflowInstance, url: str, *, user: str = "admin") -> None:
    """Open an address without a login, log in on the page that follows, and return to the address."""
    page.goto(url)
    page.fill("input[name=username]", user)
    page.fill("input[name=password]", airflow.api(user).password)
    page.click("button[type=submit]")
    is_back = f"decodeURIComponent(location.href) === decodeURIComponent({json.dumps(url)})"
    page.wait_until(f"{is_back} && document.readyState === 'complete'")


@cache
def _api(port: int, passwords: Path, user: str) -> Api:
    return Api(port, passwords, user)
