"""Two workers train a small net and are recorded; the repetition gives the same center, bit for bit."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow.python.framework.config import is_op_determinism_enabled

from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError, TrainingFailed
from deepspark_ops.events import read_events
from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.server.launch import start_exchange
from deepspark_ops.train.driver.record_summary import summarize, write_summary
from deepspark_ops.train.driver.replay import replay_run
from deepspark_ops.train.setup.run_setup import prepare_run
from deepspark_ops.train.snapshots.start import exchange_settings, plan_start
from deepspark_ops.train.worker.process import run_worker
from deepspark_ops.train.worker.task import WorkerTask
from deepspark_ops.train.worker.tf_model import TfModel
from tests.integration.train.in_process import CAFFE

pytestmark = pytest.mark.tf


def config_in(run_dir: Path, **changes: Any) -> TrainConfig:
    fields: dict[str, Any] = {
        "solver": Path("solvers/sgd_mlp/solver.prototxt"),
        "overrides": "display: 10 max_iter: 80 snapshot: 40",
        "weights": Path("solvers/sgd_mlp/init.caffemodel"),
        "run_dir": run_dir,
        "n_workers": 2,
        "comm_period": 2,
        "lock": "striped",
    }
    return TrainConfig(**{**fields, **changes})


def record(config: TrainConfig) -> np.ndarray:
    """Train with the real server and shared memory; returns the center."""
    prepared = prepare_run(config)
    run, start = prepared.run, plan_start(prepared.run)
    with start_exchange(exchange_settings(prepared, start), start.center) as exchange:

        def work(worker: int) -> None:
            task = WorkerTask(run.paths.root, worker, 0, start.state, start.origin)
            run_worker(task, connect(exchange.address))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(config.n_workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert exchange.poll().finished
        center = exchange.center.snapshot()
        write_summary(run.paths, summarize(run.paths, start.center, center))
    return center


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(CAFFE)
    record(config_in(tmp_path / "first", record=True))
    return tmp_path / "first"


def replayed(recorded: Path, **changes: Any) -> list[str]:
    config = config_in(recorded.parent / "again", replay=recorded, **changes)
    replay_run(config)
    return [str(e.data["text"]) for e in read_events(config.run_dir / "events.jsonl") if e.kind == "note"]


@pytest.mark.parametrize(("lock", "strategy"), [("striped", "easgd"), ("full", "downpour")])
def test_a_repeated_run_has_the_same_center(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str, strategy: str
) -> None:
    monkeypatch.chdir(CAFFE)
    changes = {"lock": lock, "strategy": strategy}
    center = record(config_in(tmp_path / "first", record=True, **changes))
    assert any("the same, bit for bit" in note for note in replayed(tmp_path / "first", **changes))
    last = tmp_path / "again" / "snapshots" / "snap_iter_80.caffemodel"
    assert last.exists()
    assert np.isfinite(center).all()


@pytest.mark.parametrize("is_recorded", [True, False])
def test_workers_of_a_recorded_run_compute_deterministically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_recorded: bool
) -> None:
    monkeypatch.chdir(CAFFE)
    seen = []

    class Watched(TfModel):
        def __init__(self, *args: Any, **options: Any) -> None:
            seen.append(is_op_determinism_enabled())
            super().__init__(*args, **options)

    monkeypatch.setattr("deepspark_ops.train.worker.process.TfModel", Watched)
    changes = {"overrides": "display: 10 max_iter: 4 snapshot: 4", "n_workers": 1}
    record(config_in(tmp_path / "first", record=is_recorded, **changes))
    if is_recorded:
        replayed(tmp_path / "first", **changes)
    assert seen == ([True, True] if is_recorded else [False])
    assert not is_op_determinism_enabled()


def test_another_center_is_told(recorded: Path) -> None:
    path = recorded / "record" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "center": "0" * 64}))
    with pytest.raises(TrainingFailed, match="the center is another one"):
        replayed(recorded)


def test_what_cannot_be_repeated_is_refused_by_name(recorded: Path) -> None:
    with pytest.raises(ConfigError, match=r"comm_period=4: the recorded run .* has 2"):
        replayed(recorded, comm_period=4)
    with pytest.raises(ConfigError, match="another net or start"):
        replayed(recorded, weights=None)
    for changes, message in (
        ({"lock": "none"}, "record=true with lock=none: allowed: striped, full"),
        ({"transport": "socket"}, "record=true with transport=socket: allowed: auto, shm"),
        ({"threads_per_worker": 2}, "record=true with threads_per_worker=2: allowed: 1"),
        ({"strategy": "local_sgd"}, "record=true with strategy=local_sgd"),
    ):
        with pytest.raises(ConfigError, match=message):
            prepare_run(config_in(recorded.parent / "refused", record=True, **changes))
    with (recorded / "record" / "worker_1.jsonl").open("a") as file:
        file.write(json.dumps({"restarted": True}) + "\n")
    with pytest.raises(ConfigError, match="was started again in the middle"):
        replayed(recorded)
