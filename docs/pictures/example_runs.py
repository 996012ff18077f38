"""The Airflow and the runs that the pictures show: the digits of examples/, trained small."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deepspark_ops.local_airflow.services import free_port
from tests.e2e.airflow_instance import AirflowInstance, DagRun
from tests.e2e.keep_airflow import environment, is_up, start_airflow, write_settings
from tests.paths import ROOT

START_S = 300.0
STOP_S = 150.0
MODEL = "digits"
_DIGITS = ROOT / "examples" / "digits"
_POLL_S = 0.5


@contextmanager
def running_airflow(folder: Path) -> Iterator[AirflowInstance]:
    """Run ``deepspark ui`` in a folder for the length of a ``with`` block."""
    folder.mkdir(parents=True, exist_ok=True)
    write_settings(folder)
    port = free_port()
    process = start_airflow(folder, port, DEEPSPARK_RETRAIN_LATEST_START="1")
    try:
        deadline = time.monotonic() + START_S
        while not is_up(folder, port):
            assert process.poll() is None, f"Airflow ended with code {process.returncode}; see {folder}"
            assert time.monotonic() < deadline, f"Airflow was not up within {START_S:g} s; see {folder}"
            time.sleep(_POLL_S)
        yield AirflowInstance(folder, port)
    finally:
        process.terminate()
        process.wait(STOP_S)


@contextmanager
def running_server(airflow: AirflowInstance, bundle: Path) -> Iterator[str]:
    """Run ``deepspark serve`` for the length of a ``with`` block; yield the address of its page."""
    port = free_port()
    options = ("--port", str(port), "--max-pixel", "255", "--devices", "cpu")
    process = subprocess.Popen(
        [sys.executable, "-m", "deepspark_ops.command.cli", "serve", str(bundle), *options],
        cwd=ROOT, env=environment(airflow.base), stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + START_S
        while not _listens(port):
            assert process.poll() is None, f"deepspark serve ended with code {process.returncode}"
            assert time.monotonic() < deadline, f"deepspark serve did not listen within {START_S:g} s"
            time.sleep(_POLL_S)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait(STOP_S)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def trained(airflow: AirflowInstance) -> DagRun:
    """Return the run of most pictures: LeNet by two workers, with a report every 20 minibatches."""
    return _run(airflow, "deepspark_train", "run", "lenet", overrides="display: 20 test_interval: 100")


def promoted_model(airflow: AirflowInstance) -> str:
    """Return the name of a model with two versions, each from a training that was cut short."""

    def make() -> str:
        for n_minibatches, reason in ((20, "the first"), (60, "trained for longer")):
            settings = f"max_iter: {n_minibatches} base_lr: 0.002 snapshot: 20 test_interval: 20"
            name = f"lenet_{n_minibatches}"
            run = _run(airflow, "deepspark_train", "run", name, overrides=settings, n_workers=1, tags="short")
            options = ("--models", str(airflow.home / "models"), "--reason", reason)
            done = airflow.command("models", "promote", MODEL, str(run.folder), *options)
            assert done.returncode == 0, done.stdout
        return MODEL

    return airflow.once("model", make)


def refused(airflow: AirflowInstance) -> DagRun:
    """Return a run that the first task refuses."""
    return _run(airflow, "deepspark_train", "run", "refused", "failed", solver="examples/digits/lenet.prototxt")


def compared(airflow: AirflowInstance) -> DagRun:
    """Return a comparison of three strategies."""
    settings = {"strategies": ["easgd", "downpour", "local_sgd"], "overrides": "max_iter: 300 test_interval: 25"}
    return _run(airflow, "deepspark_compare", "compare", "compared", **settings)


def waiting_for_approval(airflow: AirflowInstance) -> DagRun:
    """Return a run of deepspark_retrain whose new version waits for a person; a short training is in production."""
    model = f"{MODEL}_nightly"  # a model belongs to the DAG that made its versions
    short = "max_iter: 60 base_lr: 0.002 snapshot: 60 test_interval: 60"
    _run(airflow, "deepspark_retrain", "retrain", "in_production", model=model, approval=False, overrides=short)

    def make() -> str:
        run = airflow.trigger("deepspark_retrain", _conf("retrain") | {"approval": True, "model": model})
        run.wait_task("approve", "awaiting_input")
        return run.run_id

    return DagRun(airflow, "deepspark_retrain", airflow.once("waiting", make))


def _run(
    airflow: AirflowInstance, dag_id: str, example: str, name: str, state: str = "success", **changes: Any
) -> DagRun:
    def make() -> str:
        run = airflow.trigger(dag_id, _conf(example) | changes)
        run.wait(state)
        return run.run_id

    return DagRun(airflow, dag_id, airflow.once(name, make))


def _conf(example: str) -> dict[str, Any]:
    conf: dict[str, Any] = json.loads((_DIGITS / f"{example}.json").read_text())
    return conf
