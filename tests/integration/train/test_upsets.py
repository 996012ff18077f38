"""Changes of a run's files, clock and solver while the run trains, or before it goes on."""

from __future__ import annotations

import itertools
import logging
import re
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffe_import.files.caffemodel import read_caffemodel
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError, TrainingFailed
from deepspark_ops.events import read_events
from deepspark_ops.exchange.local_exchange import LocalLink
from deepspark_ops.exchange.state.grants import Grant, GrantAnswer
from deepspark_ops.run_paths import DatasetPaths, RunPaths
from deepspark_ops.run_view.progress import RunProgress
from deepspark_ops.train.data.batches import LeasedBatches
from deepspark_ops.train.data.sample_cache import SampleCache
from deepspark_ops.train.driver.run_end import is_done
from deepspark_ops.train.setup.folder_guard import prepared_files
from deepspark_ops.train.setup.run_dataset import noted_digest
from deepspark_ops.train.setup.run_setup import prepare_run
from deepspark_ops.train.snapshots.start import plan_start
from tests.integration.small_run import make_dataset
from tests.integration.train.cut_shard import cut_short_while_it_is_read
from tests.integration.train.first_batches import spoil_the_first_minibatch, spoiled_take
from tests.integration.train.in_process import CAFFE, run_in_process
from tests.integration.train.process_workers import train_in_processes
from tests.integration.train.test_exactness import MAX_ITER, assert_is, config_for_solver
from tests.processes import wait_until

pytestmark = pytest.mark.tf


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "set", n_train=64)
    return tmp_path / "set"


def once_at(clock: int, action: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have something happen, once, when the first steps behind a clock are acknowledged."""
    acknowledge, request_grant, todo = LocalLink.acknowledge, LocalLink.request_grant, [action]

    def act(grants: Sequence[Grant]) -> None:
        if todo and any(grant.stop > clock for grant in grants):
            todo.pop()()

    def acting(self: LocalLink, grant: Grant) -> bool:
        act([grant])
        return acknowledge(self, grant)

    def acting_before_request(self: LocalLink, want: int, *, done: Sequence[Grant] = (), **options: Any) -> GrantAnswer:
        act(done)
        return request_grant(self, want, done=done, **options)

    monkeypatch.setattr(LocalLink, "acknowledge", acting)
    monkeypatch.setattr(LocalLink, "request_grant", acting_before_request)


def warnings_of(run_dir: Path) -> list[str]:
    """Return the warnings on the page Training."""
    progress = RunProgress()
    for event in read_events(run_dir / "events.jsonl"):
        progress.take(event)
    return [note.text for note in progress.notes if note.is_warning]


BEGINS_AGAIN = r"worker 1: loss is nan at minibatch \d+; the worker begins again at the center, "


@pytest.mark.parametrize("strategy", ["easgd", "sync"])
def test_a_minibatch_of_nan_costs_a_worker_of_elastic_averaging_its_steps_and_others_the_run(
    strategy: str, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LeasedBatches, "take", spoiled_take(tmp_path / "spoiled"))
    config = config_for_solver(
        tmp_path / "run", dataset, "SGD", strategy=strategy, n_workers=2, comm_period="auto", overrides="max_iter: 200"
    )
    finished = run_in_process(config)
    if strategy == "easgd":
        assert [outcome.ending for outcome in finished.outcomes] == ["finished"] * 2
        assert np.isfinite(finished.center).all()
        (warning,) = warnings_of(config.run_dir)
        assert re.match(BEGINS_AGAIN, warning)
    else:
        assert finished.outcomes[1].ending == "failed"
        assert re.match(r"worker 1: loss is nan at minibatch \d+ \(learning_rate=", finished.outcomes[1].message)


@pytest.mark.long
def test_a_process_with_a_minibatch_of_nan_begins_again_at_the_center(dataset: Path, tmp_path: Path) -> None:
    config = config_for_solver(tmp_path / "run", dataset, "SGD", n_workers=2, overrides="max_iter: 200 snapshot: 200")
    train_in_processes(config, prepare=partial(spoil_the_first_minibatch, tmp_path / "spoiled"))
    (warning,) = warnings_of(config.run_dir)
    assert re.match(BEGINS_AGAIN, warning)
    weights = read_caffemodel(RunPaths(config.run_dir).snapshot("s", 200, "caffemodel"))
    assert all(np.isfinite(blob).all() for blobs in weights.values() for blob in blobs)


def _remove(shard: Path, other: Path) -> None:
    (shard / "data.mdb").unlink()


def _replace(shard: Path, other: Path) -> None:
    shutil.copyfile(other / "data.mdb", shard.with_name("new"))
    shard.with_name("new").rename(shard / "data.mdb")


@pytest.mark.parametrize(
    ("upset", "finding"),
    [
        (_remove, "No such file or directory; the run reads it"),
        (_replace, "has changed since the run began: SHA-256 is"),
    ],
)
def test_a_shard_that_changes_while_it_is_read_ends_the_run_with_its_name(
    upset: Callable[[Path, Path], None], finding: str, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SampleCache, "_allocate", lambda self, sample: self._give_up())  # as of a large dataset
    first, second = sorted((dataset / "train").glob("*.lmdb"))
    once_at(8, lambda: upset(first, second), monkeypatch)
    finished = run_in_process(config_for_solver(tmp_path / "run", dataset, "SGD", overrides="max_iter: 100000"))
    (outcome,) = finished.outcomes
    assert outcome.ending == "refused"
    assert outcome.message.startswith(f"shard {first}")
    assert finding in outcome.message
    assert 'run "deepspark ingest" again; the training then goes on from its last snapshot' in outcome.message
    lost = finished.events("worker_lost")[0].data
    assert (lost["ending"], lost["reason"]) == ("refused", outcome.message)


def test_an_lmdb_that_is_cut_short_in_a_read_is_named_though_the_read_kills_its_process(
    dataset: Path, tmp_path: Path
) -> None:
    config = config_for_solver(tmp_path / "run", dataset, "SGD", overrides="max_iter: 100000", worker_tries=2)
    with pytest.raises(ConfigError, match=r"shard .*\.lmdb has changed since the run began: 4,096 bytes"):
        train_in_processes(config, prepare=cut_short_while_it_is_read, restarts=1)
    events = read_events(config.run_dir / "events.jsonl")
    (warning,) = [event.data["text"] for event in events if event.kind == "note" and event.data.get("warning")]
    assert warning.startswith(f"its process before ended by a bus error (SIGBUS) while it read dataset {dataset}: ")


def test_clock_jumps_and_a_removed_events_file_change_nothing(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run_in_process(config_for_solver(tmp_path / "plain", dataset, "SGD"))
    jumps, real = itertools.cycle((0.0, 3600.0, -3600.0)), time.time
    monkeypatch.setattr(time, "time", lambda: real() + next(jumps))
    config = config_for_solver(tmp_path / "jumping", dataset, "SGD", grant_timeout_s=600.0)
    finished = run_in_process(config)
    assert_is(finished, plain)
    numbers = [event.data for event in finished.events("loss")]
    for name in ("compute_s", "data_s", "exchange_s"):
        assert all(0 <= data[name] < 60 for data in numbers)
    assert all(data["images_per_s"] > 0 for data in numbers)
    assert finished.events("worker_lost") == []
    stamps = [event.time for event in finished.events("loss")]
    assert max(stamps) - min(stamps) > 3600, "the jumps were there"
    # The same without the file of events from minibatch 20 on.
    config = config_for_solver(tmp_path / "removed", dataset, "SGD")
    once_at(20, lambda: (config.run_dir / "events.jsonl").unlink(), monkeypatch)
    finished = run_in_process(config)
    assert [outcome.ending for outcome in finished.outcomes] == ["finished"]
    assert finished.center.tobytes() == plain.center.tobytes()
    assert {event.clock for event in finished.events("loss")} <= set(range(20, MAX_ITER))


@pytest.mark.parametrize("is_renamed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_run_whose_folder_is_removed_ends_with_one_message(dataset: Path, tmp_path: Path, is_renamed: bool) -> None:
    config = config_for_solver(
        tmp_path / "run", dataset, "SGD", overrides="max_iter: 10000000 snapshot: 50 display: 50"
    )
    moved = tmp_path / "moved"

    def remove() -> None:
        wait_until(lambda: RunPaths(config.run_dir).snapshot_iterations(), "a snapshot")
        config.run_dir.rename(moved)
        if is_renamed:
            (config.run_dir / "snapshots").mkdir(parents=True)  # as a file that is being written
        else:
            shutil.rmtree(moved)

    remover = threading.Thread(target=remove)
    remover.start()
    with pytest.raises(TrainingFailed) as caught:
        train_in_processes(config)
    remover.join()
    assert str(caught.value).startswith(
        f"{config.run_dir}: the run's folder was removed or renamed while the run trained, at minibatch "
    )
    assert str(caught.value).endswith("; put the folder back to go on from its last snapshot, or start a new run")
    assert moved.exists() == is_renamed
    if is_renamed:
        shutil.rmtree(config.run_dir, ignore_errors=True)
        moved.rename(config.run_dir)
        last = max(RunPaths(config.run_dir).snapshot_iterations())
        train_in_processes(config.model_copy(update={"overrides": f"max_iter: {last + 10} snapshot: 50"}))


def _with_max_iter(config: TrainConfig, max_iter: int) -> TrainConfig:
    text = config.solver.read_text()
    config.solver.write_text(text.replace(f"max_iter: {MAX_ITER}", f"max_iter: {max_iter}"))
    return config


def test_max_iter_of_an_edited_solver(dataset: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A retry with a larger max_iter goes on; with a reached max_iter the run trains nothing and says so."""
    unbroken = run_in_process(config_for_solver(tmp_path / "unbroken", dataset, "SGD"))
    config = _with_max_iter(config_for_solver(tmp_path / "longer", dataset, "SGD"), 14)
    assert run_in_process(config).prepared.run.paths.snapshot_iterations() == [10, 14]
    config.solver.write_text((tmp_path / "unbroken" / "solver.prototxt").read_text())
    finished = run_in_process(config)
    assert finished.start.clock == 14
    assert_is(finished, unbroken)

    shorter = config.model_copy(update={"overrides": "max_iter: 20"})
    with caplog.at_level(logging.INFO):
        run = prepare_run(shorter).run
        assert is_done(run, plan_start(run))
    of_pipeline = [record for record in caplog.records if record.name.startswith("deepspark_ops.")]
    assert [record.getMessage() for record in of_pipeline if record.levelno == logging.WARNING] == [
        "max_iter=20 is below minibatch 30, which this run has reached: nothing is trained and its snapshots stay; to"
        " train less, give another run_dir"
    ]
    assert run.paths.snapshot_iterations() == [10, 14, 20, 30]


def test_a_finished_run_names_other_inputs_and_keeps_its_record_of_the_training(
    dataset: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_for_solver(tmp_path / "run", dataset, "SGD")
    train_in_processes(config)
    old_files = prepared_files(config.run_dir)

    def warnings_of(**changes: Any) -> list[str]:
        caplog.clear()
        train_in_processes(config.model_copy(update=changes))
        assert prepared_files(config.run_dir) == old_files
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    assert warnings_of() == []
    make_dataset(tmp_path / "other", n_train=128)
    changes = {"dataset": tmp_path / "other", "overrides": "base_lr: 0.3"}
    (warning,) = warnings_of(**changes)
    assert warning == (
        "this run has trained with another solver and another dataset: nothing is trained now, and its folder stays as"
        " it was; to train, give another run_dir or remove the folder"
    )
    kept = DatasetPaths(dataset).version(noted_digest(RunPaths(config.run_dir)) or "")
    shutil.copytree(dataset, tmp_path / "kept")
    shutil.move(tmp_path / "kept", kept)  # as ingestion keeps a version
    make_dataset(dataset, n_train=128)
    caplog.clear()
    train_in_processes(config)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith(f"dataset={dataset}: has changed since this run began; the run keeps the data of")


def test_a_run_that_diverges_fails_with_what_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CAFFE)
    config = TrainConfig(
        solver=Path("solvers/sgd_mlp/solver.prototxt"),
        overrides="max_iter: 3000 base_lr: 1e38",
        run_dir=tmp_path / "run",
        n_workers=1,
    )
    with pytest.raises(TrainingFailed, match=r"^worker 0: loss is \S+ at minibatch \d+ .*base_lr=1e\+38.*rate_scale"):
        train_in_processes(config)
    paths = RunPaths(config.run_dir)
    assert paths.snapshot_iterations() == []
    assert [event for event in read_events(paths.events) if event.kind == "stage"][-1].data["status"] == "failed"
