"""Runs in a folder and the application of the pages for one person, who may read all DAGs but ``secret_dag``."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.run_index.index_file import SummaryReader
from deepspark_ops.run_index.listing import KnownRun
from deepspark_ops.run_index.schedule import BY_HAND, Schedule
from tests.integration.airflow.asking_person import let_ask
from tests.unit.deepspark_ops.run_view.run_events import RUN, lines, stage, started

EVIL = "<script>alert(1)</script>"
RUNS = [
    KnownRun("deepspark_train", "run-a", "success", 300.0, 300.0, 360.0, "manual", "ada"),
    KnownRun("deepspark_train", "run-b", "failed", 200.0, 200.0, 230.0, "scheduled"),
    KnownRun("secret_dag", "run-c", "success", 100.0, 100.0, 130.0, "manual", "mallory"),
    KnownRun("deepspark_train", "run-d", "queued", 400.0, None, None, "manual", "ada"),
]


def write_run(home: Path, dag: str, run: str, *, net: str = "LeNet", ending: str = "finished") -> Path:
    folder = home / "runs" / dag / run
    folder.mkdir(parents=True)
    events = [started(0, 1000.0, net=net), *RUN[1:], stage(ending, 1000, 1100.0, images_per_s=812.5)]
    (folder / "events.jsonl").write_bytes(lines(events))
    (folder / "config.json").write_text('{"solver": "/s/lenet_solver.prototxt", "comm_period": 4}')
    return folder


def schedules(dags: Collection[str]) -> list[Schedule]:
    assert "secret_dag" not in dags
    return [
        Schedule("daily_dag", "03:00 UTC every day", 1769832300.0, is_paused=False),
        Schedule("deepspark_train", BY_HAND, None, is_paused=True),
    ]


@contextmanager
def pages_client(home: Path) -> Iterator[Any]:
    """Yield a client of the pages; ``client.home`` and ``client.app`` are the folder and the application."""
    from fastapi.testclient import TestClient

    from deepspark_ops.operators.pages import app as pages
    from deepspark_ops.operators.pages.lists.runs import RunsPage
    from deepspark_ops.operators.pages.run.training import TrainingPage

    write_run(home, "deepspark_train", "run-a")
    write_run(home, "deepspark_train", "run-b", net="AlexNet", ending="stopped")
    write_run(home, "secret_dag", "run-c", net="SecretNet")
    locations = Places(home, home, allowed_roots=(home / "allowed",))
    # Airflow's side gives more than asked for: the page must not rely on the query alone.
    runs = RunsPage(
        locations, lambda dags: RUNS, lambda: {"deepspark_train"}, schedules=schedules,
        reader=SummaryReader(budget_s=60.0), clock=lambda: 500.0,
    )  # fmt: skip
    app = pages.build_app(locations, TrainingPage(locations, lambda dag, run: None), runs=runs)
    let_ask(app, readable=lambda: {"deepspark_train", "another"})
    with TestClient(app) as test_client:
        test_client.home, test_client.app = home, app
        yield test_client
