from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.chunks import Chunks
from deepspark_ops.exchange.center.memory import CenterShape
from deepspark_ops.exchange.state.pending_snapshot import (
    CenterCopy,
    PendingSnapshot,
    ServerState,
    consumed_samples,
    forget_pending,
)
from deepspark_ops.exchange.strategies.base import Strategy, configure, find_strategy
from deepspark_ops.param_vector import StatisticBlobs


def center_with(n_extras: int) -> Center:
    center = Center.in_memory(np.float32([1.0, 2.0]), CenterShape(2, 1, 1, n_extras))
    for i, extra in enumerate(center.extras):
        extra[:] = 10.0 * i
    return center


def chunks_of(strategy: Strategy, n_params: int = 2, chunk: int = 2) -> Chunks:
    return Chunks(n_params, chunk, strategy, StatisticBlobs())


def test_parts_come_one_by_one_and_go_together(tmp_path: Path) -> None:
    pending = PendingSnapshot(tmp_path, 20)
    pending.write_center(CenterCopy.of(center_with(0), chunks_of(find_strategy("easgd")), 7))
    assert np.fromfile(pending.center, "<f4").tolist() == [1.0, 2.0]
    assert not pending.history.exists()
    assert pending.server_state() is None
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
    pending.write_center(CenterCopy.of(center_with(3), chunks_of(strategy), 7))
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


SAVED = [
    ("softsync", {"updates_per_apply": 4}, 1, (0,)),
    ("local_sgd", {"block_momentum": 0.5}, 2, (1,)),
    ("diloco", {}, 2, (1,)),
    ("async_diloco", {}, 2, (0, 1)),
]


@pytest.mark.parametrize(("name", "options", "n_extras", "saved"), SAVED)
def test_what_a_strategy_keeps_beside_the_center_comes_back(
    tmp_path: Path, name: str, options: dict[str, float], n_extras: int, saved: tuple[int, ...]
) -> None:
    strategy = configure(name, options)
    shape = CenterShape(5, 1, 3, n_extras)
    center = Center.in_memory(np.arange(5, dtype=np.float32), shape)
    for i, extra in enumerate(center.extras):
        extra[:] = np.arange(5) + 10.0 * (i + 1)
    center.counts[:] = (2, 3, 2)
    pending = PendingSnapshot(tmp_path, 5)
    pending.write_center(CenterCopy.of(center, chunks_of(strategy, 5, 2), 0))
    assert np.fromfile(pending.center, "<f4").tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    state = pending.server_state()
    assert state is not None
    fresh = Center.in_memory(np.arange(5, dtype=np.float32), shape)
    assert state.restore(fresh, strategy) is None
    for i, extra in enumerate(fresh.extras):
        assert extra.tolist() == (center.extras[i].tolist() if i in saved else [0.0] * 5)
    assert fresh.counts.tolist() == ([2, 3, 2] if name in ("softsync", "async_diloco") else [0, 0, 0])


@pytest.mark.parametrize(("name", "n_chunks"), [("local_sgd", 3), ("softsync", 2)])
def test_what_another_strategy_or_chunk_size_has_kept_is_left_out_with_a_note(name: str, n_chunks: int) -> None:
    state = ServerState("softsync", np.uint64([2, 3, 2]), np.ones((1, 5), np.float32))
    strategy = find_strategy(name)
    center = Center.in_memory(np.zeros(5, np.float32), CenterShape(5, 1, n_chunks, strategy.server_vectors))
    note = state.restore(center, strategy)
    assert note is not None
    assert f"had gathered beside the center is left out: strategy {name} runs now" in note
    assert not center.extras[0].any()
    assert not center.counts.any()
