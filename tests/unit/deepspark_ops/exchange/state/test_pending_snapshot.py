from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.memory import CenterShape
from deepspark_ops.exchange.state.pending_snapshot import PendingSnapshot, consumed_samples, forget_pending
from deepspark_ops.exchange.strategies.base import find_strategy


def center_with(n_extras: int) -> Center:
    center = Center.in_memory(np.float32([1.0, 2.0]), CenterShape(2, 1, 1, n_extras))
    for i, extra in enumerate(center.extras):
        extra[:] = 10.0 * i
    return center


def test_parts_come_one_by_one_and_go_together(tmp_path: Path) -> None:
    pending = PendingSnapshot(tmp_path, 20)
    pending.write_center(center_with(0), find_strategy("easgd"), 7)
    assert np.fromfile(pending.center, "<f4").tolist() == [1.0, 2.0]
    assert not pending.history.exists()
    metas = {0: {"updates": 3}, 11: {"updates": 4}}
    for worker, meta in metas.items():
        pending.write_meta(worker, meta)
    assert pending.metas() == metas
    assert not pending.complete.exists()
    pending.write_complete(metas, {"train": {"epoch": 1}})
    assert json.loads(pending.complete.read_text()) == {
        "iteration": 20,
        "applied": 7,
        "workers": {"0": {"updates": 3}, "11": {"updates": 4}},
        "leases": {"train": {"epoch": 1}},
    }
    assert {path.parent for path in (pending.arrays(0), pending.center, pending.complete)} == {pending.folder}
    pending.remove()
    assert not pending.folder.exists()


def test_history_lies_behind_the_strategys_own_vectors(tmp_path: Path) -> None:
    strategy = find_strategy("sync")
    assert (strategy.history_at_center, strategy.server_vectors) == (True, 1)
    pending = PendingSnapshot(tmp_path, 5)
    pending.write_center(center_with(3), strategy, 7)
    assert np.fromfile(pending.history, "<f4").tolist() == [10.0, 10.0, 20.0, 20.0]


def test_an_earlier_drivers_parts_are_forgotten(tmp_path: Path) -> None:
    for iteration in (5, 10):
        PendingSnapshot(tmp_path, iteration).write_meta(0, {})
    forget_pending(tmp_path)
    assert list(tmp_path.iterdir()) == []
    forget_pending(tmp_path)


def test_samples_consumed_of_each_lease_are_gathered_over_the_workers() -> None:
    metas = {0: {"leases": {"train": {"5": 17}, "other": {"1": 2}}}, 1: {"leases": {"train": {"6": 3}}}, 2: {}}
    assert consumed_samples(metas, "train") == {5: 17, 6: 3}
    assert consumed_samples(metas, "none") == {}
