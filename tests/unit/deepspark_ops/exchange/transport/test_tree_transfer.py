"""A tree of centers in one process: the paper's equations, the sum, workers that come and go."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from deepspark_ops.exchange.local_exchange import LocalExchange, LocalLink
from deepspark_ops.exchange.state.grants import Schedule
from deepspark_ops.exchange.transport.memory_transfer import MemoryTransfer
from deepspark_ops.exchange.transport.transfer_plan import TransferPlan
from deepspark_ops.param_vector import StatisticBlobs
from tests.reference.slow_easgd import slow_tree
from tests.unit.deepspark_ops.exchange.exchange_run import initial_vector, make_settings, update_of

N_PARAMS = 700  # three chunks


def tree(
    folder: Path, *, n_workers: int = 6, workers_per_host: int = 3, moving_rate: float | None = None, **options: Any
) -> LocalExchange:
    tree_options = {"center": "tree", **options}
    settings = make_settings(
        folder, n_params=N_PARAMS, n_workers=n_workers, moving_rate=moving_rate, options=tree_options
    )
    return LocalExchange(settings, initial_vector(N_PARAMS), workers_per_host=workers_per_host)


Link = TypeVar("Link", bound=LocalLink)


def joined_links(links: list[Link]) -> tuple[list[Link], list[np.ndarray]]:
    for worker, link in enumerate(links):
        link.join(worker)
    return links, [link.pull() for link in links]


@pytest.mark.parametrize("period", [1, 3])
def test_a_fixed_order_of_exchanges_is_the_papers(tmp_path: Path, period: int) -> None:
    order = np.random.default_rng(3).integers(0, 6, 150).tolist()
    steps = [(worker, update_of(step, N_PARAMS)) for step, worker in enumerate(order)]
    expected = slow_tree(initial_vector(N_PARAMS), steps, [[0, 1, 2], [3, 4, 5]], (0.3, 0.45), lambda _: period)
    exchange = tree(tmp_path, moving_rate=0.3, root_moving_rate=0.45, root_comm_period=period)
    links, locals_ = joined_links([exchange.link() for _ in range(6)])
    for worker, update in steps:
        locals_[worker], report = links[worker].exchange(locals_[worker] + update)
        assert report.transport == "tree"
    np.testing.assert_allclose(locals_, expected[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose([exchange.host_of(w).center.vector for w in (0, 3)], expected[1], rtol=0, atol=1e-6)
    np.testing.assert_allclose(exchange.center.vector, expected[2], rtol=0, atol=1e-6)
    assert sum(exchange.poll().exchanges) == pytest.approx(150 / 3 / period, abs=6)
    assert min(exchange.poll().exchanges) > 0, "the workers take turns"


class TimedLink(LocalLink):
    """A link with a clock; exchanges of host and root advance the clock by ``ROOT_S``."""

    def __init__(self, exchange: LocalExchange) -> None:
        super().__init__(exchange)
        self.time_s = 0.0

    def now(self) -> float:
        return self.time_s

    def root_transfer(self, plan: TransferPlan) -> MemoryTransfer:
        root, began = super().root_transfer(plan), MemoryTransfer.begin

        def begin() -> int:
            self.time_s += ROOT_S
            return began(root)

        root.begin = begin  # type: ignore[method-assign]
        return root


ROOT_S = 0.050


@pytest.mark.slow
@pytest.mark.parametrize("step_s", [0.010, 0.055, 1.0])
def test_tau_of_hosts_is_the_smallest_whose_exchange_with_the_root_costs_a_tenth(tmp_path: Path, step_s: float) -> None:
    order = np.random.default_rng(3).integers(0, 6, 500).tolist()
    steps = [(worker, update_of(step, N_PARAMS)) for step, worker in enumerate(order)]
    period = next(tau for tau in range(1, 65) if ROOT_S / (tau * 3 * step_s + ROOT_S) <= 0.1)
    hosts = [[0, 1, 2], [3, 4, 5]]
    # Each worker leaves out its first exchange with the root, and decides after four more.
    expected = slow_tree(initial_vector(N_PARAMS), steps, hosts, (0.3, 0.45), lambda n: period if n >= 5 else 1)
    exchange = tree(tmp_path, moving_rate=0.3, root_moving_rate=0.45)
    links, locals_ = joined_links([TimedLink(exchange) for _ in range(6)])
    remarks = []
    for worker, update in steps:
        links[worker].time_s += step_s
        locals_[worker], report = links[worker].exchange(locals_[worker] + update)
        remarks += [report.remark] if report.remark else []
    assert [link.root_comm_period for link in links] == [period] * 6
    np.testing.assert_allclose(exchange.center.vector, expected[2], rtol=0, atol=1e-5)
    np.testing.assert_allclose(locals_, expected[0], rtol=0, atol=1e-5)
    share = ROOT_S / (period * 3 * step_s + ROOT_S)
    text = (
        f"root_comm_period {period}: an exchange of host and root takes 50.00 ms, a period of the host's workers"
        f" {3e3 * step_s:.2f} ms in all; exchanging costs {100 * share:.1f} % of the time"
    )
    assert remarks == ([text] * 6 if period > 1 else [])


def test_the_sum_of_workers_hosts_and_root_stays(tmp_path: Path) -> None:
    exchange = tree(tmp_path, n_workers=8, workers_per_host=4)
    links, locals_ = joined_links([exchange.link() for _ in range(8)])
    for step in range(100):
        worker = step % 8
        locals_[worker], _ = links[worker].exchange(locals_[worker] + update_of(step, N_PARAMS))
    vectors = [*locals_, *(exchange.host_of(w).center.vector for w in (0, 4)), exchange.center.vector]
    updates = [update_of(step, N_PARAMS) for step in range(100)]
    expected = 11 * initial_vector(N_PARAMS).astype(np.float64) + np.sum(updates, axis=0, dtype=np.float64)
    np.testing.assert_allclose(np.sum(vectors, axis=0, dtype=np.float64), expected, rtol=0, atol=1e-4)


def test_the_centers_go_by_the_number_of_their_present_children(tmp_path: Path) -> None:
    exchange = tree(tmp_path, n_workers=9, workers_per_host=3)
    links, _ = joined_links([exchange.link() for _ in range(9)])
    assert (exchange.center.live_workers, exchange.host_of(0).center.live_workers) == (3, 3)
    links[8].leave()
    links[8].close()
    assert (exchange.center.live_workers, exchange.host_of(6).center.live_workers) == (3, 2)
    for worker in (6, 7):
        links[worker].close()  # a crash
    assert exchange.center.live_workers == 2


def test_a_host_that_lost_its_workers_begins_anew_at_the_root(tmp_path: Path) -> None:
    exchange = tree(tmp_path, n_workers=2, workers_per_host=1)
    links, locals_ = joined_links([exchange.link() for _ in range(2)])
    links[1].exchange(locals_[1] + 8)
    links[1].close()
    new_link = exchange.link()
    new_link.join(1)
    np.testing.assert_array_equal(new_link.pull(), exchange.center.vector)
    assert (new_link.look() == exchange.center.vector).all()


def test_a_worker_leaves_after_its_steps_have_reached_the_root(tmp_path: Path) -> None:
    exchange = tree(tmp_path, moving_rate=0.5, root_moving_rate=0.5)
    links, locals_ = joined_links([exchange.link() for _ in range(6)])
    links[0].exchange(locals_[0] + 1)
    np.testing.assert_array_equal(exchange.center.vector, initial_vector(N_PARAMS))
    links[0].leave()
    np.testing.assert_allclose(exchange.center.vector, initial_vector(N_PARAMS) + 0.25, rtol=0, atol=1e-6)
    links[1].leave()  # has exchanged nothing
    assert exchange.poll().exchanges == (1, 0, 0, 0, 0, 0)


def test_the_last_snapshot_has_the_steps_of_all_hosts(tmp_path: Path) -> None:
    settings = make_settings(
        tmp_path, moving_rate=0.5, options={"center": "tree", "root_comm_period": 100}, schedule=Schedule(2)
    )
    exchange = LocalExchange(settings, initial_vector(), workers_per_host=1)
    links, locals_ = joined_links([exchange.link() for _ in range(2)])
    grants = [link.request_grant(1) for link in links]
    for link, local, grant in zip(links, locals_, grants, strict=True):
        link.exchange(local + 1)
        link.acknowledge(grant)
    assert exchange.poll().acknowledged == 2
    for link in links:
        assert exchange.poll().snapshots == ()
        grant = link.request_grant(1)
        assert grant.state_for == 2
        link.send_state(2, {}, {})
        link.acknowledge(grant)
    assert exchange.poll().snapshots == (2,)
    saved = np.fromfile(settings.work / "pending" / "iter_2" / "center.f32", np.float32)
    np.testing.assert_array_equal(saved, exchange.center.vector)
    assert (saved != initial_vector()).all()


def test_batch_statistics_go_to_the_root_past_the_hosts(tmp_path: Path) -> None:
    statistics = StatisticBlobs.from_json([[10, 60, 60, 110, 110, 0.9]])
    roots = {}
    for center in ("flat", "tree"):
        settings = make_settings(tmp_path / center, n_workers=4, statistics=statistics, options={"center": center})
        exchange = LocalExchange(settings, initial_vector(), workers_per_host=2)
        links, locals_ = joined_links([exchange.link() for _ in range(4)])
        for step in range(20):
            locals_[step % 4], _ = links[step % 4].exchange(locals_[step % 4] + update_of(step))
        roots[center] = exchange.center.vector[statistics.positions]
        if center == "tree":
            host = exchange.host_of(0).center.vector
            np.testing.assert_array_equal(host[statistics.positions], initial_vector()[statistics.positions])
    np.testing.assert_array_equal(roots["tree"], roots["flat"])
    assert (roots["tree"] != initial_vector()[statistics.positions]).all()
