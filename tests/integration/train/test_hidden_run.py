"""Workers whose mounts hide the driver's folders: small files come with the task, all else from the driver's server.

Needs the right to make mount namespaces (root has the right); `make test-cluster` runs the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest

from deepspark_ops.driver_files import file_server
from deepspark_ops.errors import ConfigError
from deepspark_ops.events import read_events
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.shards.manifest import ShardRecord, read_manifest, sha256_of_file
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.train.driver import served_files
from tests.integration.small_run import NET, make_dataset
from tests.integration.train.bare_hosts import hide, skip_without_mount_namespaces
from tests.integration.train.cut_transfer import hide_and, keep_no_samples, kill_in_first_transfer
from tests.integration.train.process_workers import train_in_processes
from tests.integration.train.test_run_setup import training_config

pytestmark = [pytest.mark.cluster, pytest.mark.tf, pytest.mark.slow]


def test_workers_that_do_not_see_the_runs_folder_train_and_go_on_from_a_snapshot(tmp_path: Path) -> None:
    skip_without_mount_namespaces()
    make_dataset(tmp_path / "data")
    executor = tmp_path / "executor"
    executor.mkdir()
    run_dir = tmp_path / "run"
    fields = {"n_workers": 2, "transport": "socket"}
    for max_iter in (40, 60):
        config = training_config(tmp_path, tmp_path / "data", overrides=f"max_iter: {max_iter}", **fields)
        train_in_processes(config, prepare=partial(hide, executor, run_dir))
    events = list(read_events(RunPaths(run_dir).events))
    assert RunPaths(run_dir).snapshot_iterations() == [40, 60]
    joined = [event.clock for event in events if event.kind == "worker_joined"]
    assert len(joined) == 4
    assert max(joined) >= 40, "the second training goes on from the snapshot"
    notes = [event.data["text"] for event in events if event.kind == "note" and event.data.get("warning")]
    assert notes == []
    copies = list(executor.iterdir())
    assert len(copies) == 2, "a copy for each training, for both workers"
    assert [path.name for path in copies[0].glob("starts")] == []
    assert {path.name for path in (copies[0] / "work" / "starts").iterdir()} == {"worker_0.json", "worker_1.json"}
    assert not (run_dir / "work").exists()
    (state,) = [path for copy in copies for path in copy.rglob("*.state.h5")]
    assert state.parent.name == "snapshots"


class HiddenRun:
    """A training with two workers on a host that sees neither the run's folder nor the dataset."""

    def __init__(self, folder: Path, **options: int) -> None:
        self.data, self.run, self.executor, self.staging = (
            folder / name for name in ("data", "run", "executor", "staging")
        )
        self._folder = folder
        make_dataset(self.data, **{"n_train": 640, **options})
        self.executor.mkdir()

    def train(self, *, then: Callable[[], None] | None = None, restarts: int = 0, **fields: Any) -> None:
        fields = {"n_workers": 2, "transport": "socket", "staging_folder": self.staging, **fields}
        config = training_config(self._folder, fields.pop("dataset", self.data), **fields)
        train_in_processes(
            config, prepare=partial(hide_and, then, self.executor, self.run, self.data), restarts=restarts
        )

    def texts(self, *, warning: bool = False) -> list[str]:
        notes = [event.data for event in read_events(RunPaths(self.run).events) if event.kind == "note"]
        return [note["text"] for note in notes if note.get("warning", False) == warning]

    def shards(self) -> list[ShardRecord]:
        return [shard for split in ("train", "test") for shard in read_manifest(self.data / split).shards]

    def check_copies(self) -> set[str]:
        """Compare the digest of each copy with its key; return the keys."""
        copies = {path.parent.parent.name: sha256_of_file(path) for path in self.staging.rglob("data.mdb")}
        assert list(copies) == list(copies.values())
        assert list(self.staging.glob(".*.tmp")) == [], "half a transfer"
        return set(copies)


@pytest.fixture
def hidden(tmp_path: Path) -> HiddenRun:
    skip_without_mount_namespaces()
    return HiddenRun(tmp_path)


def test_workers_that_do_not_see_the_data_read_the_drivers_shards(hidden: HiddenRun) -> None:
    hidden.train()
    assert RunPaths(hidden.run).snapshot_iterations() == [40]
    assert hidden.check_copies() == {shard.sha256 for shard in hidden.shards()}
    assert any(f"does not see dataset={hidden.data}" in text for text in hidden.texts())
    assert hidden.texts(warning=True) == []


def test_a_cache_smaller_than_the_dataset_is_enough(hidden: HiddenRun) -> None:
    largest = max(shard.n_bytes for shard in hidden.shards())
    hidden.train(staging_size=largest + largest // 2, n_workers=1)
    assert RunPaths(hidden.run).snapshot_iterations() == [40]
    assert 0 < len(hidden.check_copies()) < len(hidden.shards())
    assert any("holds a part of the shards" in text for text in hidden.texts(warning=True))


def test_an_epoch_with_a_small_cache_fetches_each_shard_about_once(tmp_path: Path) -> None:
    skip_without_mount_namespaces()
    hidden = HiddenRun(tmp_path, n_train=1280, n_shards=8)  # forty minibatches of 32 are an epoch
    train, test = (read_manifest(hidden.data / split).shards for split in ("train", "test"))
    room = int(4.5 * max(shard.n_bytes for shard in train)) + sum(shard.n_bytes for shard in test)
    overrides = "max_iter: 240 test_interval: 1000 test_initialization: false"
    hidden.train(
        then=keep_no_samples,
        staging_size=room,
        master="local-cluster[4,1,1024]",
        n_workers=4,
        overrides=overrides,
    )
    (text,) = [text for text in hidden.texts() if text.startswith("fetched from")]
    (copies,) = re.findall(r"([0-9]+) copies of shards, each of 10 shards", text)
    # Six epochs, and at most two that workers read ahead. Without groups of shards a piece in two comes from a shard
    # that is not on the host: more than a hundred copies.
    assert 8 <= int(copies) <= 8 * 8


def test_a_worker_killed_in_the_middle_of_a_transfer_leaves_no_half_shard(
    hidden: HiddenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_server, "PIECE_BYTES", 8_192)
    died = hidden.executor / "died"
    hidden.train(then=partial(kill_in_first_transfer, died), restarts=1)
    assert died.exists()
    assert RunPaths(hidden.run).snapshot_iterations() == [40]
    assert hidden.check_copies() == {shard.sha256 for shard in hidden.shards()}


def test_a_start_state_that_is_too_large_for_the_task_comes_from_the_driver(
    hidden: HiddenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_files, "STATE_BYTES", 0)
    for max_iter in (40, 60):
        hidden.train(overrides=f"max_iter: {max_iter}")
    assert RunPaths(hidden.run).snapshot_iterations() == [40, 60]
    joined = [event.clock for event in read_events(RunPaths(hidden.run).events) if event.kind == "worker_joined"]
    assert min(joined[2:]) >= 40
    (copy,) = hidden.staging.rglob("*.state.h5")
    assert copy.parent.name == sha256_of_file(RunPaths(hidden.run).snapshot("patches", 40, "state.h5"))
    assert sha256_of_file(copy) == copy.parent.name
    assert list(hidden.executor.rglob("*.state.h5")) == []


def test_outputs_of_hidden_hosts_are_in_the_runs_folder(hidden: HiddenRun) -> None:
    layer = 'layer {{ name: "{0}" type: "HDF5Output" bottom: "ip" bottom: "label" include {{ phase: {1} }}'
    layers = [layer.format(*names) for names in (("a", "TRAIN"), ("b", "TEST"))]
    net = NET + "".join(f'{start} hdf5_output_param {{ file_name: "deep/o.h5" }} }}' for start in layers)
    hidden.train(net=net)
    outputs = RunPaths(hidden.run).outputs
    files = {str(path.relative_to(outputs)): path for path in outputs.rglob("*") if path.is_file()}
    assert set(files) == {"train/deep/o.worker_0.h5", "train/deep/o.worker_1.h5", "test_0/deep/o.h5"}
    local = {
        path.relative_to(copy / "outputs"): path
        for copy in hidden.executor.glob("deepspark-run-*")
        for path in copy.glob("outputs/**/*.h5")
    }
    assert {str(name): path.read_bytes() for name, path in local.items()} == {
        name: path.read_bytes() for name, path in files.items()
    }
    with h5py.File(files["test_0/deep/o.h5"]) as file:
        assert file["data"].shape == (30, 3, 1, 1), "three batches of ten"
        third_test = np.arange(2 * 30, 3 * 30) % len(labels := labels_of_tests(hidden.data))
        assert file["label"][:, 0, 0, 0].tolist() == labels[third_test].tolist()
    assert not (hidden.run / "work").exists()


def test_sources_that_no_ingestion_wrote_are_named_with_the_remedy(hidden: HiddenRun) -> None:
    shard = hidden.data / "train" / hidden.shards()[0].file
    net = NET.replace('"none"', f'"{shard}"').replace('"mean"', f'"{hidden.data / "train" / "mean.binaryproto"}"')
    remedy = "only an ingested dataset comes from the driver: run deepspark ingest and give --dataset"
    with pytest.raises(ConfigError, match=rf"{hidden.data}.*; on host \S+: {remedy}"):
        hidden.train(net=net, dataset=None)


def labels_of_tests(data: Path) -> npt.NDArray[Any]:
    with open_dataset(data / "test") as dataset:
        return np.concatenate(
            [dataset.read(index, 0, shard.n_samples)[1] for index, shard in enumerate(dataset.shards)]
        )
