from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepspark_ops.errors import TrainingFailed
from deepspark_ops.events import read_events
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.memory import CenterShape
from deepspark_ops.exchange.center.worker_counters import session_number
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.rounds.solver_step import CenterSolver, SolvedBlob
from deepspark_ops.exchange.server import snapshot_gathering
from deepspark_ops.exchange.server.coordinator import Coordinator
from deepspark_ops.exchange.state import journal as journal_module
from deepspark_ops.exchange.state.grants import Grant, Schedule, Wait
from deepspark_ops.exchange.state.leases import DatasetOrder
from deepspark_ops.exchange.state.messages import Acknowledge, LeaseData, Request, RequestGrant
from deepspark_ops.exchange.state.pending_snapshot import PendingSnapshot
from tests.processes import wait_until
from tests.unit.deepspark_ops.exchange.exchange_run import N_PARAMS, initial_vector, make_settings


class Clock:
    """A clock that tests move."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def make_coordinator(folder: Path, center: Center | None = None, **changes: object) -> tuple[Coordinator, Clock]:
    settings = make_settings(folder, **changes)
    center = center or Center.in_memory(initial_vector(), settings.center_shape())
    clock = Clock()
    return Coordinator(settings, center, clock), clock


def request_grant(coordinator: Coordinator, worker: int, request: int, want: int = 4) -> Grant:
    grant = coordinator.answer(RequestGrant(want).numbered(worker, request))
    assert isinstance(grant, Grant)
    return grant


def test_repeated_request_is_answered_once(tmp_path: Path) -> None:
    coordinator, _ = make_coordinator(tmp_path)
    coordinator.join(0, "a", "socket")
    first = coordinator.answer(LeaseData("train").numbered(0, 1))
    assert coordinator.answer(LeaseData("train").numbered(0, 1)) == first
    assert coordinator.answer(LeaseData("train").numbered(0, 2)) != first


def test_leases_look_neither_for_rounds_nor_for_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator, _ = make_coordinator(tmp_path)
    coordinator.join(0, "a", "socket")
    grant = request_grant(coordinator, 0, 1)
    calls: list[str] = []
    for owner, name in ((coordinator.updates, "close_round"), (coordinator.updates, "apply_rest")):
        monkeypatch.setattr(owner, name, lambda *_, name=name: calls.append(name) or [])
    monkeypatch.setattr(coordinator.snapshots, "advance", lambda: calls.append("advance"))
    lease = coordinator.answer(LeaseData("train").numbered(0, 2))
    assert lease is not None
    coordinator.answer(LeaseData("train", [lease.id]).numbered(0, 3))
    assert calls == []
    coordinator.answer(Acknowledge(grant.id).numbered(0, 4))
    assert sorted(calls) == ["advance", "apply_rest", "close_round"]


def test_repeated_acknowledgement_is_still_true(tmp_path: Path) -> None:
    coordinator, _ = make_coordinator(tmp_path)
    coordinator.join(0, "a", "socket")
    grant = request_grant(coordinator, 0, 1)
    assert coordinator.answer(Acknowledge(grant.id).numbered(0, 2)) is True
    assert coordinator.answer(Acknowledge(grant.id).numbered(0, 2)) is True
    assert coordinator.answer(Acknowledge(grant.id).numbered(0, 3)) is False


def test_everything_goes_on_after_a_kill(tmp_path: Path) -> None:
    coordinator, _ = make_coordinator(tmp_path)
    coordinator.join(0, "a", "socket")
    coordinator.join(1, "b", "socket")
    first = request_grant(coordinator, 0, 1)
    coordinator.answer(Acknowledge(first.id).numbered(0, 2))
    open_grant = request_grant(coordinator, 0, 3)
    lease = coordinator.answer(LeaseData("train").numbered(1, 1))
    restarted, _ = make_coordinator(tmp_path)
    restarted.check_session(0, "a")
    assert request_grant(restarted, 0, 3) == open_grant, "the request whose answer was perhaps lost"
    assert request_grant(restarted, 0, 4) == open_grant
    assert restarted.answer(LeaseData("train").numbered(1, 1)) == lease
    assert restarted.answer(Acknowledge(open_grant.id).numbered(0, 5)) is True
    status = restarted.status()
    assert (status["acknowledged"], status["live_workers"]) == (8, [0, 1])


def test_long_journal_is_replaced_by_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "COMPACT_BYTES", 2_000)
    coordinator, _ = make_coordinator(tmp_path, schedule=Schedule(10_000, snapshot=0))
    coordinator.join(0, "a", "socket")
    for request in range(1, 200, 2):
        coordinator.answer(Acknowledge(request_grant(coordinator, 0, request).id).numbered(0, request + 1))
    lease = coordinator.answer(LeaseData("train").numbered(0, 500))
    assert (tmp_path / "work" / "exchange.journal").stat().st_size < 5_000
    restarted, _ = make_coordinator(tmp_path, schedule=Schedule(10_000, snapshot=0))
    assert restarted.status()["acknowledged"] == 400
    assert restarted.answer(LeaseData("train").numbered(0, 500)) == lease
    restarted.check_session(0, "a")


def test_silent_worker_is_lost_and_reported(tmp_path: Path) -> None:
    coordinator, clock = make_coordinator(tmp_path, grant_timeout_s=5.0)
    coordinator.join(0, "a", "socket")
    coordinator.join(1, "b", "socket")
    lost = request_grant(coordinator, 0, 1)
    clock.now += 4.0
    coordinator.heartbeat(1)
    clock.now += 2.0
    reissued = request_grant(coordinator, 1, 1)
    assert (reissued.start, reissued.count) == (lost.start, lost.count)
    lost_events = [e for e in read_events(tmp_path / "events.jsonl") if e.kind == "worker_lost"]
    assert [(e.worker, e.data["reason"]) for e in lost_events] == [(0, "silent")]
    assert coordinator.status()["reissued_grants"] == 1


def test_hosts_of_a_tree_are_counted_as_workers_come_and_go(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, n_workers=4, strategy="easgd", options={"center": "tree"})
    center = Center.in_memory(initial_vector(), settings.center_shape())
    clock = Clock()
    coordinator = Coordinator(settings, center, clock)
    counts = []
    for worker in range(4):
        coordinator.join(worker, str(worker), "socket")
        coordinator.note_host(worker, "a" if worker < 2 else "b")
        counts.append(center.live_workers)
    coordinator.lose(0, "0", "its connection ended")
    counts.append(center.live_workers)
    coordinator.lose(1, "1", "its connection ended")
    counts.append(center.live_workers)
    coordinator.heartbeat(1)  # a call brings a lost worker back
    coordinator.leave(2)
    coordinator.leave(3)
    counts.append(center.live_workers)
    coordinator.heartbeat(0)
    coordinator.lose(1, "1", "its connection ended")
    counts.append(center.live_workers)
    assert counts == [1, 1, 2, 2, 2, 1, 1, 1]


def test_process_that_is_replaced_was_lost(tmp_path: Path) -> None:
    coordinator, _ = make_coordinator(tmp_path)
    coordinator.join(0, "a", "socket")
    coordinator.join(0, "b", "socket")
    coordinator.leave(0)
    coordinator.join(0, "c", "socket")
    kinds = [event.kind for event in read_events(tmp_path / "events.jsonl")]
    assert [kind for kind in kinds if kind.startswith("worker")] == [
        "worker_joined",
        "worker_lost",
        "worker_joined",
        "worker_joined",
    ]


def test_no_worker_was_silent_while_there_was_no_server(tmp_path: Path) -> None:
    coordinator, _ = make_coordinator(tmp_path, grant_timeout_s=5.0)
    coordinator.join(0, "a", "socket")
    settings = make_settings(tmp_path, grant_timeout_s=5.0)
    late = Clock()
    late.now += 1_000.0
    center = Center.in_memory(initial_vector(), CenterShape(N_PARAMS, 2, 4))
    assert Coordinator(settings, center, late).status()["live_workers"] == [0]


def test_snapshot_that_a_kill_interrupted_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    center = Center.in_memory(initial_vector(), CenterShape(N_PARAMS, 1, 4))
    coordinator, _ = make_coordinator(tmp_path, center, n_workers=1, schedule=Schedule(4, snapshot=2))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    coordinator.join(0, "a", "socket")
    grant = request_grant(coordinator, 0, 1)
    monkeypatch.setattr(PendingSnapshot, "write_center", killed)
    with pytest.raises(KeyboardInterrupt):
        coordinator.answer(Acknowledge(grant.id).numbered(0, 2))
    monkeypatch.undo()
    restarted, _ = make_coordinator(tmp_path, center, n_workers=1, schedule=Schedule(4, snapshot=2))
    folder = tmp_path / "work" / "pending" / "iter_2"
    np.testing.assert_array_equal(np.fromfile(folder / "center.f32", "<f4"), center.vector)
    assert restarted.answer(Acknowledge(grant.id).numbered(0, 2)) is True
    assert request_grant(restarted, 0, 3).state_for == 2


def test_a_copy_that_was_lost_with_its_server_is_not_made_again_from_a_later_center(tmp_path: Path) -> None:
    schedule = Schedule(9, snapshot=2)
    settings = make_settings(tmp_path, n_workers=1, schedule=schedule)
    center = Center.in_memory(initial_vector(), settings.center_shape())
    unwritten: list[object] = []
    coordinator = Coordinator(settings, center, Clock(), writes_in_turn=unwritten.append)
    coordinator.join(0, "a", "socket")
    for number in range(1, 9, 2):
        coordinator.answer(Acknowledge(request_grant(coordinator, 0, number, want=1).id).numbered(0, number + 1))
    assert len(unwritten) == 2, "of 2 and of 4"
    make_coordinator(tmp_path, center, n_workers=1, schedule=schedule)
    assert [path.name for path in (tmp_path / "work" / "pending").iterdir()] == ["iter_4"], "nothing was done since"
    (note,) = [event for event in read_events(tmp_path / "events.jsonl") if event.kind == "note"]
    assert note.data["text"] == "snapshot 2 is left out: the server ended before its center was written"


def test_a_writer_that_fails_says_so_and_writes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make_settings(tmp_path, n_workers=1, schedule=Schedule(9, snapshot=1))
    center = Center.in_memory(initial_vector(), settings.center_shape())
    coordinator = Coordinator(settings, center, Clock(), writes_in_turn=snapshot_gathering.WriterThread())
    coordinator.join(0, "a", "socket")

    def bad(*_: object) -> None:
        raise ValueError("not foreseen")

    monkeypatch.setattr(PendingSnapshot, "write_center", bad)
    coordinator.answer(Acknowledge(request_grant(coordinator, 0, 1, want=1).id).numbered(0, 2))
    wait_until(lambda: coordinator.status()["failure"], "the failure")
    assert coordinator.status()["failure"] == "exchange server: ValueError: not foreseen; see its log above"
    monkeypatch.undo()
    grant = request_grant(coordinator, 0, 3, want=1)
    coordinator.snapshots.state_received(0, 1, {})
    coordinator.answer(Acknowledge(grant.id).numbered(0, 4))
    wait_until((tmp_path / "work" / "pending" / "iter_2" / "server.json").exists, "the next snapshot")


@pytest.mark.parametrize("bound", ["MAX_WAITING", "MAX_WAITING_BYTES"])
def test_snapshots_that_a_driver_does_not_write_have_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(snapshot_gathering, bound, 2)
    coordinator, _ = make_coordinator(tmp_path, n_workers=1, schedule=Schedule(9, snapshot=1))
    coordinator.join(0, "a", "socket")
    pending = tmp_path / "work" / "pending"
    number = 0

    def step() -> None:
        nonlocal number
        grant = request_grant(coordinator, 0, number + 1)
        if grant.state_for:
            coordinator.snapshots.state_received(0, grant.state_for, {})
        number += 2
        coordinator.answer(Acknowledge(grant.id).numbered(0, number))

    def notes() -> list[str]:
        events = read_events(tmp_path / "events.jsonl")
        return [event.data["text"] for event in events if event.kind == "note" and event.data.get("warning")]

    for _ in range(5):
        step()
    assert sorted(path.name for path in pending.iterdir()) == ["iter_1", "iter_2"]
    assert [text.split(":")[0] for text in notes()] == ["snapshot 3 and those after it are left out for now"]
    assert "2 before them (8.5 KiB) still wait for the driver" in notes()[0]
    for path in pending.iterdir():
        shutil.rmtree(path)  # as the driver does after a snapshot
    step()
    assert [path.name for path in pending.iterdir()] == ["iter_6"]
    assert notes()[1:] == ["3 snapshots were left out, from 3 to 5"]
    for _ in range(3):
        step()
    assert sorted(path.name for path in pending.iterdir()) == ["iter_6", "iter_7", "iter_9"], "the last one is taken"
    assert request_grant(coordinator, 0, number + 1).state_for == 9
    coordinator.snapshots.state_received(0, 9, {})
    assert coordinator.status()["snapshots"] == [1, 2, 6, 7, 9]
    # What was left out is left out for a server that is started again, too.
    assert make_coordinator(tmp_path, n_workers=1, schedule=Schedule(9, snapshot=1))[0].status()["snapshots"] == [
        1, 2, 6, 7, 9,
    ]  # fmt: skip


def test_data_position_of_a_snapshot_leads_to_the_same_samples(tmp_path: Path) -> None:
    changes = {
        "n_workers": 1,
        "schedule": Schedule(4, snapshot=2),
        "datasets": {"train": DatasetOrder((9,), piece_samples=4)},
    }
    coordinator, _ = make_coordinator(tmp_path, **changes)
    coordinator.join(0, "a", "socket")
    held = [coordinator.answer(LeaseData("train").numbered(0, request)) for request in (1, 2)]
    coordinator.answer(Acknowledge(request_grant(coordinator, 0, 3).id).numbered(0, 4))
    assert request_grant(coordinator, 0, 5).state_for == 2
    coordinator.snapshots.state_received(0, 2, {"leases": {"train": {str(held[0].id): 3}}})
    complete = json.loads((tmp_path / "work" / "pending" / "iter_2" / "complete.json").read_text())
    settings = replace(make_settings(tmp_path / "resumed", **changes), lease_state=complete["leases"])
    center = Center.in_memory(initial_vector(), CenterShape(N_PARAMS, 1, 4))
    resumed = Coordinator(settings, center)
    resumed.join(0, "b", "socket")
    leases = [resumed.answer(LeaseData("train").numbered(0, request)) for request in (1, 2, 3)]
    assert [(x.start, x.count, x.skip) for x in leases] == [(0, 4, 3), (4, 4, 0), (8, 1, 0)]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_pieces_that_are_read_before_the_last_state_is_there_are_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_compacted: bool
) -> None:
    """Without rounds: worker 0 sends its state at once, worker 1 a piece later, both read on, the server is killed."""
    changes = {"schedule": Schedule(8, snapshot=2), "datasets": {"train": DatasetOrder((20,), piece_samples=4)}}
    center = Center.in_memory(initial_vector(), CenterShape(N_PARAMS, 2, 4))
    coordinator, _ = make_coordinator(tmp_path, center, **changes)
    coordinator.join(0, "a", "shm")
    coordinator.join(1, "b", "shm")
    # Samples 0 to 3, 4 to 7, 8 to 11
    of_0, of_1, next_of_1 = (coordinator.answer(LeaseData("train").numbered(w, 1 + n)) for n, w in enumerate((0, 1, 1)))
    coordinator.answer(Acknowledge(request_grant(coordinator, 0, 10).id).numbered(0, 11))
    ahead = request_grant(coordinator, 1, 10)
    assert request_grant(coordinator, 0, 12).state_for == 2
    coordinator.snapshots.state_received(0, 2, {"leases": {"train": {str(of_0.id): 1}}})
    last_of_0 = coordinator.answer(LeaseData("train", [of_0.id]).numbered(0, 13))
    coordinator.answer(LeaseData("train", [last_of_0.id]).numbered(0, 14))
    if is_compacted:
        monkeypatch.setattr(journal_module, "COMPACT_BYTES", 600)
    coordinator.answer(LeaseData("train", [of_1.id]).numbered(1, 13))
    restarted, _ = make_coordinator(tmp_path, center, **changes)
    restarted.answer(Acknowledge(ahead.id).numbered(1, 15))
    assert request_grant(restarted, 1, 16).state_for == 2
    restarted.snapshots.state_received(1, 2, {"leases": {"train": {str(next_of_1.id): 1}}})
    complete = json.loads((tmp_path / "work" / "pending" / "iter_2" / "complete.json").read_text())
    center = Center.in_memory(initial_vector(), CenterShape(N_PARAMS, 2, 4))
    resumed, _ = make_coordinator(tmp_path / "resumed", center, **changes, lease_state=complete["leases"])
    resumed.join(0, "c", "shm")
    leases = [resumed.answer(LeaseData("train").numbered(0, request)) for request in range(1, 6)]
    # Of worker 0 the position of its state, though it read on; of worker 1 the later state's position; the rest anew.
    assert [(x.start, x.skip) for x in leases] == [(0, 1), (8, 1), (12, 0), (16, 0), (0, 0)]


def pushed(coordinator: Coordinator, worker: int, sequence: int) -> None:
    coordinator.await_round(worker, sequence, RoundNote(), wait_s=0.0)


def test_no_worker_of_a_round_goes_on_before_all_have_acknowledged_what_a_snapshot_needs(tmp_path: Path) -> None:
    coordinator, _ = make_coordinator(tmp_path, strategy="local_sgd", schedule=Schedule(40, snapshot=16))
    coordinator.join(0, "a", "shm")
    coordinator.join(1, "b", "shm")
    for sequence, number in ((1, 10), (2, 20)):
        grants = [request_grant(coordinator, worker, number) for worker in (0, 1)]
        for worker in (0, 1):
            pushed(coordinator, worker, sequence)
        assert coordinator.updates.await_round(0, sequence, 0.0) is not None
        coordinator.answer(Acknowledge(grants[0].id).numbered(0, number + 1))
        if sequence == 1:
            assert request_grant(coordinator, 0, 12).start == 8, "no snapshot is near: nobody is held"
            coordinator.answer(Acknowledge(grants[1].id).numbered(1, number + 1))
    for number in (22, 23):
        held = coordinator.answer(RequestGrant(4).numbered(0, number))
        assert isinstance(held, Wait)
        assert held.is_expected
    coordinator.answer(Acknowledge(grants[1].id).numbered(1, 21))
    following = [request_grant(coordinator, worker, 24) for worker in (0, 1)]
    assert [(grant.start, grant.state_for) for grant in following] == [(16, 16), (20, 16)]
    pushed(coordinator, 1, 3)
    assert coordinator.updates.await_round(1, 3, 0.0) is None, "the one that was held belongs to the round"


@pytest.mark.parametrize("strategy", ["local_sgd", "diloco"])
def test_rounds_go_on_without_a_worker_that_still_compiles_and_each_record_is_read_once(
    tmp_path: Path, strategy: str
) -> None:
    order = DatasetOrder((12, 8), piece_samples=1)
    coordinator, clock = make_coordinator(tmp_path, strategy=strategy, schedule=Schedule(20), datasets={"train": order})
    numbers, records, steps, sequences = [0, 0], [], [], [0, 0]
    read: list[list[int]] = [[], []]

    def answer(worker: int, request: Request[Any]) -> Any:
        numbers[worker] += 1
        return coordinator.answer(request.numbered(worker, numbers[worker]))

    def push(worker: int) -> None:
        sequences[worker] += 1
        pushed(coordinator, worker, sequences[worker])

    def is_over(worker: int) -> bool:
        return coordinator.await_round(worker, sequences[worker], RoundNote(), wait_s=0.0) is not None

    def compute(worker: int) -> Grant:
        grant = answer(worker, RequestGrant(2))
        assert isinstance(grant, Grant)
        for _ in range(grant.count):
            lease = answer(worker, LeaseData("train", read[worker]))
            records.append((lease.epoch, lease.shard, lease.start))
            read[worker] = [lease.id]
        return grant

    def acknowledge(worker: int, grant: Grant) -> None:
        assert answer(worker, Acknowledge(grant.id))
        steps.extend(range(grant.start, grant.stop))

    coordinator.join(0, "a", "shm")
    coordinator.join(1, "b", "shm")
    clock.now += 15.0
    grant = compute(0)
    push(0)
    clock.now += 14.0
    coordinator.heartbeat(1)
    assert not is_over(0), "the other worker may need twice the time"
    clock.now += 2.0
    coordinator.heartbeat(1)
    assert is_over(0)
    acknowledge(0, grant)
    for _ in range(3):
        grant = compute(0)
        push(0)
        assert is_over(0)
        acknowledge(0, grant)
    while len(steps) < 20:
        grants = [compute(worker) for worker in (0, 1)]
        push(0)
        assert not is_over(0), "the other worker has steps now"
        push(1)
        assert is_over(0)
        assert is_over(1)
        for worker, grant in enumerate(grants):
            acknowledge(worker, grant)
    assert steps == list(range(20))
    assert sorted(records) == [(0, 0, start) for start in range(12)] + [(0, 1, start) for start in range(8)]
    assert coordinator.status()["acknowledged"] == 20
    assert coordinator.status()["reissued_grants"] == 0


def test_a_held_worker_reports_its_steps_once_and_gets_the_same_answer_again(tmp_path: Path) -> None:
    changes = {"strategy": "local_sgd", "schedule": Schedule(40, snapshot=8)}
    center = Center.in_memory(initial_vector(), make_settings(tmp_path, **changes).center_shape())
    coordinator, _ = make_coordinator(tmp_path, center, **changes)
    coordinator.join(0, "a", "shm")
    coordinator.join(1, "b", "shm")
    grants = [request_grant(coordinator, worker, 1) for worker in (0, 1)]
    for worker in (0, 1):
        pushed(coordinator, worker, 1)
    request = RequestGrant(4, done=[grants[0].id]).numbered(0, 2)
    held = coordinator.answer(request)
    assert isinstance(held, Wait)
    assert held.is_expected
    assert coordinator.status()["acknowledged"] == 4
    coordinator, _ = make_coordinator(tmp_path, center, **changes)  # the server is killed before the answer
    assert coordinator.answer(request) == held
    assert coordinator.status()["acknowledged"] == 4
    # The last worker of the round: its steps make the snapshot due, and the same answer has the next steps.
    following = coordinator.answer(RequestGrant(4, done=[grants[1].id]).numbered(1, 2))
    assert isinstance(following, Grant)
    assert (following.start, following.state_for) == (8, 8)
    assert (tmp_path / "work" / "pending" / "iter_8" / "center.f32").exists(), "copied before the worker goes on"
    assert request_grant(coordinator, 0, 3).state_for == 8


@pytest.mark.parametrize("ends", ["lost", "replaced", "left", "server"])
def test_nobody_is_held_for_a_worker_that_is_gone(tmp_path: Path, ends: str) -> None:
    changes = {"strategy": "local_sgd", "schedule": Schedule(40, snapshot=8)}
    center = Center.in_memory(initial_vector(), make_settings(tmp_path, **changes).center_shape())
    coordinator, _ = make_coordinator(tmp_path, center, **changes)
    coordinator.join(0, "a", "shm")
    coordinator.join(1, "b", "shm")
    first, _ = [request_grant(coordinator, worker, 1) for worker in (0, 1)]
    for worker in (0, 1):
        pushed(coordinator, worker, 1)
    coordinator.answer(Acknowledge(first.id).numbered(0, 2))
    assert isinstance(coordinator.answer(RequestGrant(4).numbered(0, 3)), Wait)
    if ends == "lost":
        coordinator.lose(1, "b", "killed")
    elif ends == "replaced":
        coordinator.join(1, "c", "shm")
    elif ends == "left":
        coordinator.leave(1)
    else:
        coordinator, _ = make_coordinator(tmp_path, center, **changes)
    grant = request_grant(coordinator, 0, 4)
    assert grant.start == (8 if ends == "server" else 4)


def test_changed_dataset_is_noted_on_resume(tmp_path: Path) -> None:
    coordinator, _ = make_coordinator(tmp_path)
    state = coordinator._shared.state.leases["train"].to_state()
    make_coordinator(tmp_path / "resumed", lease_state={"train": state}, datasets={"train": DatasetOrder((7,))})
    notes = [e.data["text"] for e in read_events(tmp_path / "resumed" / "events.jsonl") if e.kind == "note"]
    assert notes == ['dataset "train" has changed since the snapshot: it is read from its start']


def test_last_workers_loss_completes_a_snapshot(tmp_path: Path) -> None:
    coordinator, _ = make_coordinator(tmp_path, schedule=Schedule(4, snapshot=2))
    coordinator.join(0, "a", "socket")
    coordinator.join(1, "b", "socket")
    coordinator.answer(Acknowledge(request_grant(coordinator, 0, 1, 2).id).numbered(0, 2))
    coordinator.snapshots.state_received(0, 2, {"mine": 1})
    complete = tmp_path / "work" / "pending" / "iter_2" / "complete.json"
    assert not complete.exists()
    coordinator.lose(1, "an older process", "its connection ended")
    assert not complete.exists()
    coordinator.lose(1, "b", "its connection ended")
    assert json.loads(complete.read_text())["workers"] == {"0": {"mine": 1}}


def test_server_events_say_what_was_exchanged_since_the_last(tmp_path: Path) -> None:
    coordinator, clock = make_coordinator(tmp_path)
    center = coordinator._center
    for worker in (0, 1):
        coordinator.join(worker, "a", "shm")
    for worker in (0, 1, 0):
        center.end(worker, center.begin(worker, session=session_number("a")), 8_000)
    clock.now += 4.0
    coordinator.expire()
    clock.now += 2.0
    coordinator.expire()
    clock.now += 5.0
    coordinator.expire()  # nothing since: nothing to say
    reports = [event.data for event in read_events(tmp_path / "events.jsonl") if event.kind == "server"]
    assert [(d["exchanges"], d["exchanges_per_s"], d["bytes_per_s"]) for d in reports] == [(3, 0.5, 4_000)]


def test_the_last_worker_to_leave_has_the_rest_reported(tmp_path: Path) -> None:
    coordinator, clock = make_coordinator(tmp_path)
    center = coordinator._center
    coordinator.join(0, "a", "shm")
    center.end(0, center.begin(0, session=session_number("a")), 8_000)
    clock.now += 0.5
    coordinator.leave(0)
    (event,) = [event for event in read_events(tmp_path / "events.jsonl") if event.kind == "server"]
    assert (event.data["exchanges"], event.data["exchanges_per_s"], event.data["seconds"]) == (1, 2.0, 0.5)


def test_a_round_that_cannot_be_closed_fails_the_run_and_releases_the_workers(tmp_path: Path) -> None:
    solver = CenterSolver("SGD", 0.0, 0.0, 0.0, 0.0, 0.0, "L2", -1.0, 1, (SolvedBlob(0, N_PARAMS, 1.0, 1.0),))
    coordinator, _ = make_coordinator(tmp_path, n_workers=1, strategy="lbfgs", solver=solver)
    coordinator.join(0, "a", "shm")
    request_grant(coordinator, 0, 1)
    assert coordinator.await_round(0, 1, RoundNote(float("nan"), 0.1, 1, is_first=True)) == 0
    assert "loss and gradient must be finite where the search starts" in str(coordinator.status()["failure"])


def test_a_disk_that_fills_up_while_a_silent_worker_is_dropped_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, clock = make_coordinator(tmp_path, grant_timeout_s=5.0)
    coordinator.join(0, "a", "socket")
    request_grant(coordinator, 0, 1)

    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(journal_module.os, "write", full)
    clock.now += 100.0
    coordinator.expire()  # as the server's timer does: its thread must not end
    failure = coordinator.status()["failure"]
    assert f"{tmp_path / 'work' / 'exchange.journal'}: the exchange's journal cannot be written" in failure
    assert "No space left on device" in failure
    assert "free space" in failure
    with pytest.raises(TrainingFailed, match="No space left on device"):
        coordinator.answer(LeaseData("train").numbered(0, 2))
    monkeypatch.undo()
    restarted, _ = make_coordinator(tmp_path, grant_timeout_s=5.0)
    assert restarted.status()["live_workers"] == [0]
