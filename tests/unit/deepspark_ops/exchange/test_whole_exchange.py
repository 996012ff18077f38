from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.errors import ProtocolError, WorkerReplaced
from deepspark_ops.events import Event, make_event, read_events
from deepspark_ops.exchange.local_exchange import LocalExchange
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.rounds.solver_step import CenterSolver, SolvedBlob
from deepspark_ops.exchange.state.grants import Finished, Grant, Schedule
from deepspark_ops.exchange.state.leases import Lease
from deepspark_ops.exchange.state.pending_snapshot import PendingSnapshot
from deepspark_ops.exchange.strategies.base import strategy_names
from deepspark_ops.param_vector import StatisticBlobs
from tests.reference.slow_easgd import slow_run
from tests.reference.slow_normalization import slow_moving_sums
from tests.unit.deepspark_ops.exchange.exchange_run import (
    N_PARAMS,
    initial_vector,
    make_settings,
    update_of,
    work,
)


def test_one_worker_is_plain_sgd_bit_for_bit(tmp_path: Path) -> None:
    exchange = LocalExchange(make_settings(tmp_path, n_workers=1), initial_vector())
    run = work(exchange.link(), 0)
    expected = initial_vector()
    for step in range(40):
        expected = expected + update_of(step)
    np.testing.assert_array_equal(run.local, expected)
    np.testing.assert_array_equal(exchange.center.vector, expected)
    assert exchange.poll().finished


def test_snapshot_of_one_worker_is_its_vector_at_that_step(tmp_path: Path) -> None:
    exchange = LocalExchange(make_settings(tmp_path, n_workers=1), initial_vector())
    work(exchange.link(), 0)
    expected = initial_vector()
    for step in range(20):
        expected = expected + update_of(step)
    folder = tmp_path / "work" / "pending" / "iter_20"
    np.testing.assert_array_equal(np.fromfile(folder / "center.f32", "<f4"), expected)
    with np.load(folder / "worker_0.npz") as state:
        np.testing.assert_array_equal(state["history"], expected[None, :])
    complete = json.loads((folder / "complete.json").read_text())
    assert complete["iteration"] == 20
    assert complete["workers"] == {"0": {"at": 20}}
    assert exchange.poll().snapshots == (20, 40)


def test_workers_in_a_fixed_order_agree_with_the_slow_reference_bit_for_bit(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, n_params=50, n_workers=3, chunk=7, moving_rate=0.3)
    exchange = LocalExchange(settings, initial_vector(50))
    links = [exchange.link() for _ in range(3)]
    locals_ = []
    for worker, link in enumerate(links):
        link.join(worker)
        locals_.append(link.pull())
    order = np.random.default_rng(0).integers(0, 3, 30)
    for step, worker in enumerate(order):
        locals_[worker], _ = links[worker].exchange(locals_[worker] + update_of(step, 50))
    steps = [(int(worker), update_of(step, 50).tolist()) for step, worker in enumerate(order)]
    expected, center = slow_run(initial_vector(50).tolist(), steps, 3, 0.3)
    for local, reference in zip(locals_, expected, strict=True):
        np.testing.assert_array_equal(local, np.float32(reference))
    np.testing.assert_array_equal(exchange.center.vector, np.float32(center))


ONE_PUSH_MOVES = {
    "easgd": 0.45 * 2.0,
    "eamsgd": 0.45 * 2.0,
    "deepspark": 0.45 * 2.0,
    "downpour": 2.0,
    "softsync": 0.0,
    "staleness": 2.0,
    "dcasgd": 2.0,
    "local_sgd": 2.0,
    "sync": -0.7,
    "lbfgs": 0.0,
    "diloco": 0.7 * (1 + 0.3) * 2,
    "async_diloco": 0.7 * (1 + 0.2) * 2,
}
"""How far the center's weight moves when the only present worker pushes a weight that moved by 2 (a gradient of 7)."""


@pytest.mark.parametrize("strategy", strategy_names())
def test_the_center_gathers_statistics_whatever_the_strategy(tmp_path: Path, strategy: str) -> None:
    """Positions 2 to 4 of 6 are mean, variance and factor of a BatchNorm layer; the rest are weights."""
    statistics = StatisticBlobs.from_json([[2, 3, 3, 4, 4, 0.5]])
    blobs = (SolvedBlob(0, 2, 1.0, 1.0), SolvedBlob(5, 6, 1.0, 1.0))
    solver = CenterSolver("SGD", 0.0, 0.0, 0.0, 0.0, 0.0, "L2", -1.0, 1, blobs)
    initial = np.float32([5.0, 5.0, 6.0, 8.0, 2.0, 5.0])
    settings = make_settings(
        tmp_path, n_params=6, chunk=4, strategy=strategy, statistics=statistics, solver=solver, moving_rate=0.45
    )
    exchange = LocalExchange(settings, initial)
    link = exchange.link()
    link.join(0)
    assert link.pull().tolist() == [5.0, 5.0, 0.0, 0.0, 0.0, 5.0], "a worker's own begin at 0"
    batches = [(40.0, 90.0), (20.0, 70.0)]
    note = RoundNote(1.0, 0.1, 1, is_first=True)
    local, _ = link.exchange(np.float32([7.0, 5.0, *slow_moving_sums((0.0, 0.0, 0.0), batches, 0.5), 1.0]), note=note)
    assert local[2:5].tolist() == [0.0, 0.0, 0.0], "they begin again"
    expected = slow_moving_sums((6.0, 8.0, 2.0), batches, 0.5)
    np.testing.assert_allclose(exchange.center.vector[2:5], expected, rtol=1e-6)  # float32 storage
    assert exchange.center.vector[0] == pytest.approx(5.0 + ONE_PUSH_MOVES[strategy]), (
        "the weights move by the strategy's rule"
    )


@pytest.mark.parametrize(("n_workers", "weight"), [(2, 1.0), (8, 2.0), (32, 4.0)])
def test_the_center_weighs_what_the_number_of_workers_asks_for(tmp_path: Path, n_workers: int, weight: float) -> None:
    settings = make_settings(tmp_path, n_params=6, n_workers=n_workers, moving_rate=0.3)
    exchange = LocalExchange(settings, np.zeros(6, np.float32))
    for worker in range(1, n_workers):
        exchange.link().join(worker)
    link = exchange.link()
    link.join(0)
    local, _ = link.exchange(link.pull() + np.float32(1.0))
    np.testing.assert_allclose(local, 0.7, rtol=1e-6)
    np.testing.assert_allclose(exchange.center.vector, 0.3 / weight, rtol=1e-6)


def test_statistics_of_one_worker_are_untouched(tmp_path: Path) -> None:
    statistics = StatisticBlobs.from_json([[2, 3, 3, 4, 4, 0.5]])
    settings = make_settings(tmp_path, n_params=6, n_workers=1, statistics=statistics)
    exchange = LocalExchange(settings, np.zeros(6, np.float32))
    link = exchange.link()
    link.join(0)
    local = np.float32([7.1, 5.2, 40.3, 90.4, 9.99, 1.5])
    new_local, _ = link.exchange(local)
    np.testing.assert_array_equal(new_local, local)
    np.testing.assert_array_equal(exchange.center.vector, local)


def test_report_says_what_happened(tmp_path: Path) -> None:
    exchange = LocalExchange(make_settings(tmp_path), initial_vector())
    mine, other = exchange.link(), exchange.link()
    mine.join(0)
    other.join(1)
    local, other_local = mine.pull(), other.pull()
    other.exchange(other_local)
    new_local, report = mine.exchange(local + 1, measure_distance=True)
    assert (report.sequence, report.staleness, report.overlaps, report.transport) == (1, 1, 0, "local")
    assert (report.bytes_up, report.bytes_down) == (4 * N_PARAMS, 4 * N_PARAMS)
    assert report.distance == pytest.approx(N_PARAMS**0.5, rel=1e-6)
    assert report.seconds > 0
    assert new_local is not local
    assert mine.exchange(new_local)[1].distance is None


def test_events_and_epochs_stand_in_the_runs_events(tmp_path: Path) -> None:
    exchange = LocalExchange(make_settings(tmp_path), initial_vector())
    link = exchange.link()
    link.join(1)
    link.send_event(make_event("loss", clock=3, worker=1, loss=0.5))
    read: list[Lease] = []
    for _ in range(6):
        lease = link.lease(read=read)
        assert lease is not None
        read = [lease]
    link.close()
    events = list(read_events(tmp_path / "events.jsonl"))
    assert [e.kind for e in events] == ["worker_joined", "loss", "epoch", "worker_lost"]
    assert events[2].data == {"dataset": "train", "epoch": 0, "samples": 80, "reissued_samples": 0}


def test_an_event_in_anothers_name_is_refused(tmp_path: Path) -> None:
    link = LocalExchange(make_settings(tmp_path), initial_vector()).link()
    link.join(1)
    with pytest.raises(ProtocolError, match="worker 1: not an event of its own"):
        link.send_event(Event("loss", 0, 0, {}, 0.0))


def test_no_lease_after_the_last_step(tmp_path: Path) -> None:
    exchange = LocalExchange(make_settings(tmp_path, schedule=Schedule(2)), initial_vector())
    link = exchange.link()
    link.join(0)
    grant = link.request_grant(9)
    assert isinstance(grant, Grant)
    assert link.lease() is not None
    link.acknowledge(grant)
    assert link.lease() is None


def test_link_must_join_first(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match=r"join\(worker\) comes before"):
        LocalExchange(make_settings(tmp_path), initial_vector()).link().pull()


def test_worker_outside_the_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match="worker 2: this run has n_workers=2, ids 0 to n_workers-1"):
        LocalExchange(make_settings(tmp_path), initial_vector()).link().join(2)


def test_process_whose_place_was_taken_is_refused(tmp_path: Path) -> None:
    exchange = LocalExchange(make_settings(tmp_path), initial_vector())
    old, new = exchange.link(), exchange.link()
    old.join(0)
    first = old.request_grant(4)
    new.join(0)
    assert new.request_grant(4) != first
    with pytest.raises(WorkerReplaced, match=r"^worker 0: a newer process has taken its place; leaving$"):
        old.request_grant(4)


def test_state_that_was_not_asked_for_is_dropped(tmp_path: Path) -> None:
    link = LocalExchange(make_settings(tmp_path), initial_vector()).link()
    link.join(0)
    link.send_state(17, {}, {"x": np.zeros(3)})
    assert not (tmp_path / "work" / "pending").exists()


def test_a_new_exchange_in_an_old_folder_begins_anew(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, n_workers=1)
    work(LocalExchange(settings, initial_vector()).link(), 0)
    second_exchange = LocalExchange(settings, initial_vector())
    assert second_exchange.poll().clock == 0
    assert not (tmp_path / "work" / "pending").exists()


def test_closing_leaves_no_journal(tmp_path: Path) -> None:
    exchange = LocalExchange(make_settings(tmp_path, n_workers=1), initial_vector())
    work(exchange.link(), 0)
    assert (tmp_path / "work" / "exchange.journal").exists()
    exchange.close()
    assert not (tmp_path / "work" / "exchange.journal").exists()


def test_full_disk_is_told_to_the_driver_and_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = LocalExchange(make_settings(tmp_path, n_workers=1), initial_vector())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PendingSnapshot, "write_center", full)
    link = exchange.link()
    link.join(0)
    while (grant := link.request_grant(10)) and isinstance(grant, Grant) and grant.start < 20:
        link.acknowledge(grant)
    failure = exchange.poll().failure
    assert failure is not None
    assert "iter_20: cannot write snapshot 20 (No space left on device); free space and try again" in failure


def test_an_exchange_that_softsync_still_gathers_is_not_applied(tmp_path: Path) -> None:
    settings = make_settings(
        tmp_path, strategy="softsync", options={"updates_per_apply": 4}, schedule=Schedule(40, snapshot=20)
    )
    exchange = LocalExchange(settings, initial_vector())
    link = exchange.link()
    link.join(0)
    local = link.pull()
    applied = []
    for step in range(5):
        local, _ = link.exchange(local + update_of(step))
        applied.append(exchange.poll().applied)
    assert applied == [0, 0, 0, 4, 4]
    assert exchange.poll().exchanges == (5, 0)


def test_a_snapshot_says_how_many_exchanges_its_center_has_taken(tmp_path: Path) -> None:
    exchange = LocalExchange(
        make_settings(tmp_path, strategy="softsync", schedule=Schedule(8, snapshot=4)), initial_vector()
    )
    work(exchange.link(), 0, want=2)
    counts = [
        json.loads((tmp_path / "work" / "pending" / f"iter_{iteration}" / "complete.json").read_text())["applied"]
        for iteration in (4, 8)
    ]
    assert counts == [2, 4]


def test_a_run_is_stopped_early_with_a_snapshot_of_what_is_done(tmp_path: Path) -> None:
    exchange = LocalExchange(make_settings(tmp_path, schedule=Schedule(100, snapshot=50)), initial_vector())
    link = exchange.link()
    link.join(0)
    local = link.pull()
    grant = link.request_grant(4)
    assert isinstance(grant, Grant)
    exchange.coordinator.control("stop_early")
    link.exchange(local + 1)
    link.acknowledge(grant)
    snapshot_grant = link.request_grant(4)
    assert isinstance(snapshot_grant, Grant)
    assert (snapshot_grant.state_for, snapshot_grant.count) == (4, 0)
    link.send_state(4, {"updates": 4}, {"history": np.zeros((1, len(local)), np.float32)})
    link.acknowledge(snapshot_grant)
    assert isinstance(link.request_grant(4), Finished)
    status = exchange.poll()
    assert (status.finished, status.acknowledged, status.snapshots) == (True, 4, (4,))
    with pytest.raises(ProtocolError, match="control call 'join' is unknown; known: take_snapshot, stop_early"):
        exchange.coordinator.control("join")


def test_the_pushes_that_softsync_holds_at_the_end_are_applied(tmp_path: Path) -> None:
    options = {"updates_per_apply": 4}
    settings = make_settings(tmp_path, strategy="softsync", options=options, schedule=Schedule(6, snapshot=6))
    exchange = LocalExchange(settings, initial_vector())
    work(exchange.link(), 0, want=1)
    expected = initial_vector().astype(np.float64)
    for first, stop in ((0, 4), (4, 6)):
        expected += sum(update_of(step).astype(np.float64) for step in range(first, stop)) / (stop - first)
    np.testing.assert_allclose(exchange.center.vector, expected, atol=1e-5)  # float32 rounding of 6 updates
    assert not exchange.center.counts.any()
    assert exchange.poll().applied == 6
    center = np.fromfile(tmp_path / "work" / "pending" / "iter_6" / "center.f32", "<f4")
    np.testing.assert_array_equal(center, exchange.center.vector)


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("softsync", {"updates_per_apply": 4}),
        ("async_diloco", {"delay": 4}),
        ("local_sgd", {"block_momentum": 0.5}),
        ("diloco", {"outer_momentum": 0.9}),
    ],
)
def test_a_run_that_goes_on_from_a_snapshot_ends_where_an_uninterrupted_one_does(
    tmp_path: Path, strategy: str, options: dict[str, float]
) -> None:
    fields = {"strategy": strategy, "options": options}
    uninterrupted = LocalExchange(
        make_settings(tmp_path, **fields, schedule=Schedule(12, snapshot=6)), initial_vector()
    )
    work(uninterrupted.link(), 0, want=1)
    pending = PendingSnapshot(tmp_path / "work", 6)
    server = pending.server_state()
    assert server is not None
    settings = make_settings(tmp_path / "resumed", **fields, schedule=Schedule(12, first=6))
    resumed = LocalExchange(settings, np.fromfile(pending.center, np.float32))
    assert server.restore(resumed.center, settings.running_strategy()) is None
    work(resumed.link(), 0, want=1)
    np.testing.assert_allclose(
        resumed.center.vector, uninterrupted.center.vector, atol=1e-5
    )  # movements are differences
