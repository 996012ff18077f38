"""State of a snapshot that the server of a continued run takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.state.pending_snapshot import ServerState
from deepspark_ops.train.snapshots.start import Start, restore_server
from deepspark_ops.train.snapshots.state_file import RunState, write_run_state
from tests.unit.deepspark_ops.exchange.exchange_run import N_PARAMS, initial_vector, make_settings


def start_with(path: Path, server: ServerState | None) -> Start:
    write_run_state(path, RunState(6, 0, N_PARAMS, 5), {}, server)
    return Start(6, 0, initial_vector(), path, None, ())


def test_a_run_that_goes_on_takes_over_what_softsync_had_gathered(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, strategy="softsync", options={"updates_per_apply": 4})
    center = Center.in_memory(initial_vector(), settings.center_shape())
    gathered = np.arange(N_PARAMS, dtype=np.float32)[None]
    start = start_with(tmp_path / "s.state.h5", ServerState("softsync", np.uint64([3, 3, 2, 3]), gathered))
    assert restore_server(start, settings, center) == []
    np.testing.assert_array_equal(center.extras[0], gathered[0])
    assert center.counts.tolist() == [3, 3, 2, 3]


def test_another_strategy_leaves_it_out_and_says_so(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, strategy="local_sgd", options={"block_momentum": 0.5})
    center = Center.in_memory(initial_vector(), settings.center_shape())
    gathered = np.ones((1, N_PARAMS), np.float32)
    start = start_with(tmp_path / "s.state.h5", ServerState("softsync", np.uint64([3, 3, 2, 3]), gathered))
    (note,) = restore_server(start, settings, center)
    assert "strategy softsync had gathered beside the center is left out: strategy local_sgd runs now" in note
    assert not any(extra.any() for extra in center.extras)


def test_a_snapshot_without_anything_of_the_server_changes_nothing(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, strategy="softsync")
    center = Center.in_memory(initial_vector(), settings.center_shape())
    assert restore_server(start_with(tmp_path / "s.state.h5", None), settings, center) == []
    assert not center.extras[0].any()
    assert not center.counts.any()
