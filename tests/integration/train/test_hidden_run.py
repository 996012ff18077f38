"""Workers whose mounts hide the run's folder: config, nets, solver and start state come with the task.

Needs the right to make mount namespaces (root has it); `make test-cluster` runs it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from deepspark_ops.events import read_events
from deepspark_ops.run_paths import RunPaths
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
        train_in_processes(config, prepare=partial(hide, run_dir, executor))
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
