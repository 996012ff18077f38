"""Workers whose mounts hide the run's folder: config, nets, solver and start state come with the task.

Needs the right to make mount namespaces (root has it); `make test-cluster` runs it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from deepspark_ops.events import read_events
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.shards.manifest import read_manifest, sha256_of_file
from tests.integration.small_run import make_dataset
from tests.integration.train.bare_hosts import hide, skip_without_mount_namespaces
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


def test_workers_that_do_not_see_the_data_read_the_drivers_shards(tmp_path: Path) -> None:
    skip_without_mount_namespaces()
    data, executor, staging = tmp_path / "data", tmp_path / "executor", tmp_path / "staging"
    make_dataset(data)
    executor.mkdir()
    config = training_config(tmp_path, data, n_workers=2, transport="socket", staging_folder=staging)
    train_in_processes(config, prepare=partial(hide, executor, tmp_path / "run", data))
    events = list(read_events(RunPaths(tmp_path / "run").events))
    assert RunPaths(tmp_path / "run").snapshot_iterations() == [40]
    shards = [shard for split in ("train", "test") for shard in read_manifest(data / split).shards]
    copies = {path.parent.parent.name: sha256_of_file(path) for path in staging.rglob("data.mdb")}
    assert {digest for digest in copies.values()} == {shard.sha256 for shard in shards}
    assert list(copies) == list(copies.values())
    texts = [event.data["text"] for event in events if event.kind == "note"]
    assert any(f"does not see dataset={data}" in text for text in texts), texts
