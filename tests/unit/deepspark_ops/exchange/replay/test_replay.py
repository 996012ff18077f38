from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.errors import ConfigError, ExchangeUnavailable
from deepspark_ops.exchange.center.locks import CenterLocks
from deepspark_ops.exchange.local import LocalExchange
from deepspark_ops.exchange.replay.replay import ReplayedExchange
from deepspark_ops.exchange.state.grants import Finished, Grant, Schedule
from deepspark_ops.exchange.state.leases import DatasetOrder, Lease, LeaseBook
from deepspark_ops.exchange.transport.run_record import (
    Meeting,
    RecordedWorker,
    TurnLocks,
    WorkerRecord,
    read_record,
)
from deepspark_ops.param_vector import Vector
from tests.unit.deepspark_ops.exchange.exchange_run import initial_vector, make_settings, update_of

N_PARAMS, CHUNK, N_CHUNKS = 200, 33, 7
FIELDS = {"n_params": N_PARAMS, "chunk": CHUNK, "schedule": Schedule(8)}


def in_one_thread(folder: Path, order: list[int], strategy: str) -> Vector:
    exchange = LocalExchange(make_settings(folder, strategy=strategy, **FIELDS), initial_vector(N_PARAMS))
    links = [exchange.link(), exchange.link()]
    for worker, link in enumerate(links):
        link.join(worker)
    locals_ = [link.pull() for link in links]
    steps = [0, 0]
    for worker in order:
        moved = locals_[worker] + update_of(10 * worker + steps[worker], N_PARAMS)
        locals_[worker], _ = links[worker].exchange(moved)
        steps[worker] += 1
    return exchange.center.snapshot()


def replayed(folder: Path, order: list[int], strategy: str) -> Vector:
    turns = [[turn] * N_CHUNKS for turn in range(1, 3 + len(order))]
    recorded = [RecordedWorker(meetings=[Meeting(turns[worker])]) for worker in range(2)]
    since_pull = [0, 0]
    for place, worker in enumerate(order):
        recorded[worker].meetings.append(Meeting(turns[2 + place], since_pull[worker], place))
        since_pull[worker] = 0
        since_pull[1 - worker] += 1
    exchange = ReplayedExchange(make_settings(folder, strategy=strategy, **FIELDS), initial_vector(N_PARAMS), recorded)

    def work(worker: int) -> None:
        link = exchange.link(worker)
        link.join(worker)
        local = link.pull()
        for step in range(order.count(worker)):
            local, _ = link.exchange(local + update_of(10 * worker + step, N_PARAMS))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return exchange.center.snapshot()


@pytest.mark.parametrize("strategy", ["easgd", "downpour", "staleness", "softsync"])
def test_threads_in_recorded_order_give_the_center_of_that_order(tmp_path: Path, strategy: str) -> None:
    order, other = [0, 1, 1, 0, 0, 1, 0, 1], [0, 0, 1, 1, 1, 0, 0, 1]
    center = replayed(tmp_path / "a", order, strategy)
    np.testing.assert_array_equal(center, in_one_thread(tmp_path / "b", order, strategy))
    assert not np.array_equal(center, replayed(tmp_path / "c", other, strategy))


def test_a_worker_that_fails_lets_the_others_go(tmp_path: Path) -> None:
    recorded = [RecordedWorker(meetings=[Meeting([turn] * N_CHUNKS)]) for turn in (1, 2)]
    exchange = ReplayedExchange(make_settings(tmp_path, **FIELDS), initial_vector(N_PARAMS), recorded)
    link = exchange.link(1)
    link.join(1)
    exchange.fail("worker 0: no data")
    with pytest.raises(ExchangeUnavailable, match=r"chunk 3: waited for turn 2 in vain, 0 are done; worker 0: no data"):
        link.pull()


def test_grants_and_leases_are_those_of_the_record(tmp_path: Path) -> None:
    grant = Grant(4, 2, tests=True, state_for=4, id=3)
    lease = LeaseBook("train", DatasetOrder((30,))).lease(0)
    record = WorkerRecord(tmp_path, 0)
    record.answer("request_grant", {"wait_s": 0.05})
    record.answer("request_grant", {"grant": {"start": 4, "count": 2, "tests": True, "state_for": 4, "id": 3}})
    record.answer("lease", vars(lease))
    record.answer("acknowledge", True)
    record.pulled([1, 1])
    record.exchanged(3, 9, [2, 4])
    record.close()
    (found,) = read_record(tmp_path, 1)
    assert found == RecordedWorker([grant], {"train": [lease]}, [Meeting([1, 1]), Meeting([2, 4], 3, 9)])
    exchange = ReplayedExchange(make_settings(tmp_path), initial_vector(), [found])
    link = exchange.link(0)
    assert link.request_grant(7) == Grant(4, 2, id=3)  # tests and snapshots move nothing
    assert isinstance(link.request_grant(7), Finished)
    assert isinstance(link.lease(), Lease)
    assert link.lease() is None


def test_a_restart_shows_in_the_record(tmp_path: Path) -> None:
    for _ in range(2):
        WorkerRecord(tmp_path, 0).close()
    with pytest.raises(ConfigError, match=r"worker_0\.jsonl: this worker was started again"):
        read_record(tmp_path, 1)
    with pytest.raises(ConfigError, match=r"worker_0\.jsonl: no such record"):
        read_record(tmp_path / "none", 2)


@pytest.mark.parametrize("mode", ["striped", "full"])
def test_turns_count_the_actions_of_all_on_each_chunk(mode: str) -> None:
    turns = np.zeros(3, np.uint64)
    locks = CenterLocks(mode, 3, -1, 1.0)  # type: ignore[arg-type]
    mine, yours = TurnLocks(locks, turns), TurnLocks(locks, turns)
    for who, positions in ((mine, (0, 1, 2)), (yours, (1, 2)), (mine, (0, 1, 2))):
        with who.whole():
            for position in positions:
                with who.chunk(position):
                    pass
    assert (mine.taken(), yours.taken()) == ([2, 3, 3], [0, 2, 2])
