"""Exchanges that run while the next period is computed, through the whole loop."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from caffe_import.files.caffemodel import read_caffemodel
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.events import Event, read_events
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.train.data.batches import LeasedBatches
from deepspark_ops.train.setup.run_setup import prepare_run
from tests.integration.train.first_batches import begin_together, take_together
from tests.integration.train.in_process import CAFFE, run_in_process
from tests.integration.train.process_workers import train_in_processes

pytestmark = pytest.mark.tf

WATCHED = {"watch": 20, "overrides": "display: 100 max_iter: 400 snapshot: 400"}
N_TOGETHER = 60
"""Calls of each worker for minibatches that wait for the other's call: alone a worker may end the run."""


def overlapped(tmp_path: Path, **changes: Any) -> TrainConfig:
    fields: dict[str, Any] = {
        "solver": Path("solvers/sgd_mlp/solver.prototxt"),
        "overrides": "display: 1 max_iter: 60 snapshot: 30",
        "weights": Path("solvers/sgd_mlp/init.caffemodel"),
        "run_dir": tmp_path / "run",
        "n_workers": 2,
        "comm_period": 2,
        "overlap": True,
    }
    return TrainConfig(**{**fields, **changes})


def losses_by_clock(events: list[Event]) -> list[float]:
    """Return losses in the order of their minibatches: a worker that waits for the processor ends step 2 last."""
    by_clock = {event.clock: event.data["loss"] for event in events}
    return [by_clock[clock] for clock in sorted(by_clock)]


def test_two_workers_lower_the_loss_and_every_step_is_done_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CAFFE)
    finished = run_in_process(overlapped(tmp_path))
    assert [outcome.ending for outcome in finished.outcomes] == ["finished"] * 2, finished.outcomes
    assert sum(outcome.steps for outcome in finished.outcomes) == 60
    losses = losses_by_clock(finished.events("loss"))
    assert max(losses[-3:]) < 0.5 * losses[0]
    names = {path.name for path in (tmp_path / "run" / "snapshots").glob("*.caffemodel")}
    assert names == {"snap_iter_30.caffemodel", "snap_iter_60.caffemodel"}


def test_a_watched_run_has_distances_of_both_workers_and_histograms_of_every_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CAFFE)
    monkeypatch.setattr(LeasedBatches, "take", take_together(tmp_path / "calls", n_calls=N_TOGETHER))
    finished = run_in_process(overlapped(tmp_path, **WATCHED))
    assert [outcome.ending for outcome in finished.outcomes] == ["finished"] * 2, finished.outcomes
    events = finished.events("watch")
    assert {event.worker for event in events} == {0, 1}
    weights = read_caffemodel(tmp_path / "run" / "snapshots" / "snap_iter_400.caffemodel")
    sizes = [blob.size for blobs in weights.values() for blob in blobs]
    of_center = [event.data for event in events if "norm" in event.data]
    assert len(of_center) >= 2
    for data in of_center:
        assert [sum(counts) for _, _, counts in data["values"]] == sizes
        assert len(data["blobs"]) == len(data["norm"]) == len(sizes)
    assert all(share > 0.0 for event in events[-2:] for share in event.data["distance"])


@pytest.mark.parametrize(("strategy", "has_distance"), [("downpour", True), ("sync", False)])
def test_a_watched_run_of_a_strategy_that_pushes_changes_or_gradients(
    strategy: str, has_distance: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CAFFE)
    monkeypatch.setattr(LeasedBatches, "take", take_together(tmp_path / "calls", n_calls=N_TOGETHER))
    finished = run_in_process(overlapped(tmp_path, strategy=strategy, overlap=False, comm_period=1, **WATCHED))
    assert [outcome.ending for outcome in finished.outcomes] == ["finished"] * 2, finished.outcomes
    events = [event.data for event in finished.events("watch") if event.worker == 0]
    assert len(events) >= 2
    assert all("norm" in data and ("distance" in data) == has_distance for data in events)
    assert all(min(data["update"]) >= 0.0 and max(data["update"]) > 0.0 for data in events[1:])
    weights = read_caffemodel(tmp_path / "run" / "snapshots" / "snap_iter_400.caffemodel")
    sizes = [blob.size for blobs in weights.values() for blob in blobs]
    assert [sum(counts) for _, _, counts in events[-1]["values"]] == sizes


@pytest.mark.long
def test_workers_of_a_tree_of_centers_by_sockets_of_16_bits_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CAFFE)
    options = {"strategy": "easgd", "strategy_options": {"center": "tree"}, "wire_dtype": "bfloat16"}
    prepare = partial(begin_together, tmp_path / "first_batches")
    train_in_processes(overlapped(tmp_path, transport="socket", **options), prepare=prepare)
    events = list(read_events(RunPaths(tmp_path / "run").events))
    assert [event.data["transport"] for event in events if event.kind == "worker_joined"] == ["tree", "tree"]
    losses = losses_by_clock([event for event in events if event.kind == "loss"])
    assert max(losses[-3:]) < 0.5 * losses[0]
    assert RunPaths(tmp_path / "run").snapshot_iterations() == [30, 60]


def test_a_strategy_whose_workers_wait_refuses_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CAFFE)
    with pytest.raises(ConfigError, match=r"overlap=true with strategy=downpour: .* allowed with: deepspark, .*easgd"):
        prepare_run(overlapped(tmp_path, strategy="downpour"))
    assert not (tmp_path / "run").exists()
