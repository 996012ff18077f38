from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.server.coordinator import Coordinator
from deepspark_ops.exchange.state import journal as journal_module
from deepspark_ops.exchange.state.grants import Grant, Schedule
from deepspark_ops.exchange.state.leases import DatasetOrder
from deepspark_ops.exchange.state.messages import LeaseData, RequestGrant
from tests.unit.deepspark_ops.exchange.exchange_run import initial_vector, make_settings

HOUR_S = 3_600.0


class Crew:
    """Scripted workers of a coordinator with a clock that tests move."""

    def __init__(
        self, folder: Path, n_workers: int, schedule: Schedule, n_samples: int = 80_000, **changes: object
    ) -> None:
        settings = make_settings(
            folder,
            n_workers=n_workers,
            schedule=schedule,
            datasets={"train": DatasetOrder((n_samples,), order="shuffled", piece_samples=100)},
            **changes,
        )
        self.now = 0.0
        center = Center.in_memory(initial_vector(), settings.center_shape())
        self.coordinator = Coordinator(settings, center, lambda: self.now)
        self._n_pushes = 0
        self._numbers = [0] * n_workers
        self._sessions = [0] * n_workers
        self._grants: dict[int, Grant] = {}
        self._leases: dict[int, int] = {}

    def join(self, worker: int) -> None:
        self._sessions[worker] += 1
        self._grants.pop(worker, None)
        self._leases.pop(worker, None)
        self.coordinator.join(worker, str(self._sessions[worker]), "socket")

    def grant(self, worker: int) -> Grant | None:
        """Return the grant before, and take another."""
        ended_grants = [self._grants.pop(worker).id] if worker in self._grants else []
        answer = self.coordinator.answer(RequestGrant(4, 0, ended_grants).numbered(worker, self._number(worker)))
        if isinstance(answer, Grant):
            self._grants[worker] = answer
            return answer
        return None

    def lease(self, worker: int) -> None:
        """Return the piece before, and take another."""
        read = [self._leases[worker]] if worker in self._leases else []
        lease_data = self.coordinator.answer(LeaseData("train", read).numbered(worker, self._number(worker)))
        assert lease_data is not None
        self._leases[worker] = lease_data.id

    def push(self, worker: int) -> None:
        self._n_pushes += 1
        self.coordinator.await_round(worker, self._n_pushes, None, 0.0)

    def lose(self, worker: int) -> None:
        self.coordinator.lose(worker, str(self._sessions[worker]), "its connection ended")

    def _number(self, worker: int) -> int:
        self._numbers[worker] += 1
        return self._numbers[worker]


def seconds_per_call(folder: Path, strategy: str, n_workers: int, *, has_tree: bool = False) -> dict[str, float]:
    """Return the processor's time of a call of a worker beside the others, which hold grants and pieces."""
    options = {"center": "tree"} if has_tree else {}
    crew = Crew(folder, n_workers, Schedule(10**9), strategy=strategy, options=options)
    calls: tuple[Callable[[int], object], ...] = (crew.join, crew.grant, crew.lease, crew.push, crew.lose)
    for worker in range(n_workers):
        crew.join(worker)
        crew.lease(worker)
    if has_tree:
        for worker in range(n_workers):
            crew.coordinator.note_host(worker, f"host {worker // 4}")
    for _ in range(4):  # paces are known after three grants
        crew.now += 1.0
        for worker in range(n_workers):
            crew.grant(worker)
    seconds = {}
    for call in calls:
        times = []
        for first in range(0, 60, 20):
            began = time.process_time()
            for worker in range(first, first + 20):
                call(worker)
            times.append(time.process_time() - began)
        seconds[call.__name__] = min(times) / 20
    crew.coordinator.close()
    return seconds


@pytest.mark.parametrize("strategy", ["easgd", "local_sgd", "async_diloco"])
def test_a_call_costs_no_more_beside_thousands_of_workers(tmp_path: Path, strategy: str) -> None:
    few, seconds_of_2000 = (seconds_per_call(tmp_path / str(n), strategy, n) for n in (100, 2_000))
    costlier = {
        call: seconds_of_2000[call] / few[call] for call in few if seconds_of_2000[call] > 3.0 * max(few[call], 10e-6)
    }
    assert not costlier, f"20 times as many workers, seconds of a call: {few}, {seconds_of_2000}"


def test_a_request_in_a_tree_of_centers_costs_no_more_beside_hundreds_of_hosts(tmp_path: Path) -> None:
    few, seconds_of_2000 = (seconds_per_call(tmp_path / str(n), "easgd", n, has_tree=True) for n in (100, 2_000))
    assert all(seconds_of_2000[call] < 3.0 * few[call] for call in ("grant", "lease")), f"{few}, {seconds_of_2000}"


@pytest.mark.slow
def test_a_day_of_a_run_takes_no_more_memory_than_its_first_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A simulated day: a worker holds a grant for hours, others fall silent and come back, snapshots are taken."""
    monkeypatch.setattr(journal_module, "COMPACT_BYTES", 40_000)
    n_workers, slow = 8, 0
    schedule = Schedule(10**9, snapshot=200)
    crew = Crew(tmp_path, n_workers, schedule, 4_000, grant_timeout_s=900.0, strategy="async_diloco")
    for worker in range(n_workers):
        crew.join(worker)
    sizes = []
    tracemalloc.start()
    try:
        for hour in range(24):
            for minute in range(0, 60, 5):
                crew.now = hour * HOUR_S + minute * 60.0
                silent = 1 + hour % (n_workers - 1)
                if minute == 30:
                    crew.join(silent)
                for worker in range(n_workers):
                    if worker == slow and hour >= 12:
                        crew.coordinator.heartbeat(slow)
                    elif worker != silent or minute >= 30:
                        take_turn(crew, worker)
            if hour in (10, 23):  # a collection takes long beside TensorFlow's objects
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    journal = crew.coordinator.settings.journal().stat().st_size
    status = crew.coordinator.status()
    assert (status["reissued_grants"], len(status["snapshots"]) > 10) == (23, True)
    assert sizes[1] - sizes[0] < 32_000, sizes
    assert journal < 100_000


def take_turn(crew: Crew, worker: int) -> None:
    grant = crew.grant(worker)
    crew.lease(worker)
    if grant is not None and grant.state_for:
        crew.coordinator.snapshots.state_received(worker, grant.state_for, {})
