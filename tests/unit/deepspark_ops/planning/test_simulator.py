"""The simulator against what queueing theory knows in closed form."""

import heapq
import math

import numpy as np
import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import find_strategy
from deepspark_ops.planning.simulator import (
    Crew,
    ExchangeCost,
    Hardware,
    TreeCost,
    host_cost,
    lognormal,
    memory_cost,
    root_comm_period,
    saturation_workers,
    simulate,
    socket_cost,
    worker_factors,
)

EASGD = find_strategy("easgd")
SYNC = find_strategy("sync")
COST = ExchangeCost(push_s=0.001, pull_s=0.0, least_s=0.0, latency_s=0.0004)
N_PARAMS = 1_000_000


def test_one_worker_meets_nobody():
    result = simulate(Crew(1, step_s=0.01, comm_period=4), COST, EASGD)
    # A period is four minibatches, one service and the messages' way.
    assert result.steps_per_s == pytest.approx(4 / (0.04 + 0.001 + 0.0004))
    assert result.exchange_s == pytest.approx(0.0014)
    assert result.exchange_share == pytest.approx(0.0014 / 0.0414)
    assert result.server_load == pytest.approx(0.001 / 0.0414)
    assert result.staleness == 0.0


@pytest.mark.parametrize("n_workers", [50, 400, 10_000])
def test_past_saturation_the_centers_rate_is_all_there_is(n_workers):
    crew = Crew(n_workers, step_s=0.01, comm_period=4, spread=0.1, jitter=0.1)
    result = simulate(crew, COST, EASGD)
    assert result.server_load == pytest.approx(1.0, abs=1e-9)
    assert result.steps_per_s == pytest.approx(4 / 0.001, rel=1e-9)
    # Little's law over the closed loop: p = rate * (computing + exchange).
    computing = np.mean(worker_factors(0.1, n_workers)) * 0.04
    assert result.exchange_s == pytest.approx(n_workers * 0.001 - computing, rel=0.05)


def test_equal_workers_see_each_other_once_between_two_of_their_own():
    for n_workers in (2, 7, 64, 1000):
        result = simulate(Crew(n_workers, step_s=0.01, comm_period=4), COST, EASGD)
        # Steady state of equal workers: everybody else has met the center once. The window cuts some rounds.
        assert result.staleness == pytest.approx(n_workers - 1, rel=1e-3), n_workers


def test_unequal_workers_have_the_same_mean_and_a_longer_tail():
    equal, unequal = (simulate(Crew(20, 0.1, 1, spread=s, jitter=0.05), COST, EASGD) for s in (0.0, 0.5))
    assert unequal.staleness == pytest.approx(equal.staleness, rel=0.02)
    assert unequal.staleness_p95 > 1.5 * equal.staleness_p95


def test_many_workers_that_rarely_exchange_queue_as_m_d_1():
    # Random times between exchanges of 500 workers add up to nearly Poisson arrivals. Mean wait of M/D/1
    # (Pollaczek and Khinchine): rho S / (2 (1 - rho)).
    service = 0.001
    for load in (0.3, 0.6, 0.8):
        cost = ExchangeCost(push_s=service, pull_s=0.0, least_s=0.0, latency_s=0.0)
        result = simulate(Crew(500, step_s=500 * service / load, comm_period=1, jitter=1.0), cost, EASGD, seed=3)
        waited = result.exchange_s - service
        # rel: 4,000 waits that depend on each other, and 500 workers are not infinitely many.
        assert waited == pytest.approx(load * service / (2 * (1 - load)), rel=0.25), load
        assert result.server_load == pytest.approx(load, rel=0.05)


def slow_steps_per_s(arrivals_between, service, n_rounds):
    """Serve workers of given periods in turn, exchange by exchange, as on paper."""
    waiting = [(period, number) for number, period in enumerate(arrivals_between)]
    heapq.heapify(waiting)
    free, served, first = 0.0, 0, 0.0
    while served < n_rounds * len(arrivals_between):
        now, number = heapq.heappop(waiting)
        free = max(now, free) + service
        heapq.heappush(waiting, (free + arrivals_between[number], number))
        served += 1
        if served == len(arrivals_between):
            first = free
    return (served - len(arrivals_between)) / (free - first)


def test_unequal_workers_as_served_by_hand():
    periods = worker_factors(0.5, 20) * 0.03
    result = simulate(Crew(20, step_s=0.03, comm_period=1, spread=0.5), ExchangeCost(0.001, 0.0, 0.0, 0.0), EASGD)
    assert result.steps_per_s == pytest.approx(slow_steps_per_s(periods.tolist(), 0.001, 400), rel=0.01)


def test_even_pace_gives_equal_periods_and_fewer_steps_to_the_slow():
    crew = Crew(20, step_s=0.1, comm_period=40, spread=0.5)
    even, plain = (simulate(crew, COST, find_strategy(name)) for name in ("async_diloco", "downpour"))
    # Nobody is much older than the others, and no core is idle for it.
    assert even.staleness_p95 <= 22 < plain.staleness_p95
    assert even.steps_per_s == pytest.approx(plain.steps_per_s, rel=0.05)
    seconds = worker_factors(0.5, 20) * 0.1
    counts = np.round(40 * seconds.min() / seconds)
    assert even.steps_per_s == pytest.approx(np.sum(counts / (counts * seconds + 0.0014)), rel=0.03)


def test_saturation_is_where_both_bounds_meet():
    crew = Crew(1, step_s=0.01, comm_period=4)
    limit = saturation_workers(COST, step_s=crew.step_s, comm_period=crew.comm_period)
    assert limit == pytest.approx((0.04 + 0.0014) / 0.001)
    below, above = (
        simulate(Crew(round(limit * part), step_s=0.01, comm_period=4, spread=0.2, jitter=0.1), COST, EASGD)
        for part in (0.7, 1.3)
    )
    assert below.server_load == pytest.approx(0.7, abs=0.03)
    assert below.exchange_share < 0.08
    assert above.server_load == pytest.approx(1.0)
    assert above.exchange_share > 0.2


def test_round_of_equal_workers_adds_up():
    cost = ExchangeCost(push_s=0.002, pull_s=0.001, least_s=0.0, latency_s=0.0005)
    result = simulate(Crew(5, step_s=0.1, comm_period=1), cost, SYNC)
    # All pushes, then all pulls, then the messages' way; the next pushes come in the order of the pulls, each when
    # the one before is through, except that pushes take longer than the gaps between pulls: the last one waits.
    by_hand, ready = [], [0.0] * 5
    for _ in range(50):
        arrivals = sorted(start + 0.1 for start in ready)
        free = 0.0
        for arrival in arrivals:
            free = max(free, arrival) + 0.002
        ready = [free + 0.001 * (turn + 1) + 0.0005 for turn in range(5)]
        by_hand.append(ready[-1])
    assert result.steps_per_s == pytest.approx(5 * 40 / (by_hand[-1] - by_hand[-41]), rel=1e-9)
    assert result.staleness == 0.0


def test_rounds_wait_for_the_slowest():
    crew = Crew(64, step_s=0.1, comm_period=1, spread=0.3)
    asynchronous, rounds = (simulate(crew, COST, strategy) for strategy in (EASGD, SYNC))
    slowest = worker_factors(0.3, 64).max() * 0.1
    assert rounds.steps_per_s == pytest.approx(64 / (slowest + 0.001 + 0.0004), rel=0.01)
    assert asynchronous.steps_per_s > 1.5 * rounds.steps_per_s


def test_more_processes_than_cores_share_them():
    uncrowded, crowded = (simulate(Crew(4, step_s=0.1, comm_period=1, slowdown=s), COST, EASGD) for s in (1.0, 2.0))
    assert uncrowded.steps_per_s / crowded.steps_per_s == pytest.approx(2.0, rel=0.01)


def test_socket_cost_by_hand():
    hardware = Hardware(
        bandwidth_bytes=1e9, latency_s=1e-4, server_bytes=2e9, control_s=2e-4, loop_s=3e-4, cold_bytes=4e9
    )
    cost = socket_cost(N_PARAMS, EASGD, hardware, wire_dtype="float32", n_servers=1)
    # 4 MB each way at 1 GB/s, both at once; the process moves 8 MB at 2 GB/s; grant, begin and end, half of each.
    assert cost.service_s == pytest.approx(max(0.004, 0.004) + 3 * 1e-4)
    # The begin's round trip and other half; 4 MB that come back at 4 GB/s, and the loop's own time.
    assert cost.alone_s == pytest.approx(cost.service_s + (2 * 1e-4 + 1e-4) + 0.001 + 3e-4)
    # A host's center has no grants: begin and end.
    of_host = socket_cost(N_PARAMS, EASGD, hardware, wire_dtype="float32", n_servers=1, has_grant=False)
    assert of_host.service_s == pytest.approx(0.004 + 2 * 1e-4)
    # A round: grant, begin, "pushed", round, begin and end; not awaited are "pushed" and end.
    rounds = socket_cost(N_PARAMS, SYNC, hardware, wire_dtype="float32", n_servers=1)
    assert rounds.service_s == pytest.approx(0.004 + 6 * 1e-4 + 0.004)
    assert rounds.latency_s == pytest.approx(4 * (2 * 1e-4 + 1e-4))
    single = socket_cost(N_PARAMS, EASGD.for_workers(1), hardware, wire_dtype="float32", n_servers=1)
    assert single.latency_s == pytest.approx(3 * (2 * 1e-4 + 1e-4))
    slow_link = Hardware(bandwidth_bytes=1e8, latency_s=0.0, server_bytes=2e9, control_s=2e-4)
    for n_servers in (1, 4):  # key ranges share the host's link
        cost = socket_cost(N_PARAMS, EASGD, slow_link, wire_dtype="float32", n_servers=n_servers)
        assert cost.service_s == pytest.approx(0.04 + 3e-4)


def test_memory_cost_by_hand():
    hardware = Hardware(memory_bytes=8e9, control_s=2e-4, loop_s=3e-4, cold_bytes=4e9)
    cost = memory_cost(N_PARAMS, EASGD, hardware)
    assert cost.service_s == pytest.approx(1e-4)  # the server keeps the clock, no more
    assert cost.alone_s == pytest.approx(8e6 / 8e9 + 4e6 / 4e9 + 3e-4)
    rounds = memory_cost(N_PARAMS, SYNC, hardware)
    assert rounds.alone_s == pytest.approx(2 * 2e-4 + 8e6 / 8e9 + 4e6 / 4e9 + 3e-4)
    assert rounds.service_s == pytest.approx(2 * 1e-4)


def test_own_time_of_a_worker_delays_it_and_nobody_else():
    slow = ExchangeCost(push_s=0.001, pull_s=0.0, least_s=0.0, latency_s=0.0004, own_s=0.005)
    single = simulate(Crew(1, step_s=0.01, comm_period=4), slow, EASGD)
    assert single.exchange_s == pytest.approx(0.0064)
    assert simulate(Crew(100, step_s=0.01, comm_period=4), slow, EASGD).steps_per_s == pytest.approx(4 / 0.001)
    rounds = [simulate(Crew(4, step_s=0.01, comm_period=1), cost, SYNC).exchange_s for cost in (COST, slow)]
    assert rounds[1] - rounds[0] == pytest.approx(0.005)


def test_key_ranges_share_the_arithmetic_by_whole_chunks():
    fast_link = Hardware(bandwidth_bytes=1e12, latency_s=0.0, server_bytes=2e9, control_s=1e-12)
    served = {
        n: socket_cost(8 * 131_072, EASGD, fast_link, wire_dtype="float32", n_servers=n).service_s for n in (1, 2, 3, 8)
    }
    assert served[1] / served[2] == pytest.approx(2.0)
    assert served[1] / served[8] == pytest.approx(8.0)
    assert served[1] / served[3] == pytest.approx(8 / 3)  # three chunks, three and two
    with pytest.raises(ConfigError, match=r"n_servers=9: must be 1 to 8; 1,048,576 parameters are 8 chunks"):
        socket_cost(8 * 131_072, EASGD, fast_link, wire_dtype="float32", n_servers=9)


def test_worker_alone_only_pushes():
    single_worker = EASGD.for_workers(1)
    hardware = Hardware()
    both = memory_cost(N_PARAMS, EASGD, hardware).least_s - memory_cost(0, EASGD, hardware).least_s
    push = memory_cost(N_PARAMS, single_worker, hardware).least_s - memory_cost(0, single_worker, hardware).least_s
    assert push == pytest.approx(both / 2)


def test_factors_have_the_moments_asked_for():
    factors = lognormal(np.random.default_rng(0), 0.3, 200_000)
    assert np.mean(factors) == pytest.approx(1.0, abs=0.005)
    assert np.std(factors) == pytest.approx(0.3, abs=0.005)
    workers = worker_factors(0.3, 1001)
    assert np.mean(1 / workers) == pytest.approx(1.0)  # their speeds: together they do the work of as many equal ones
    assert np.std(workers) / np.mean(workers) == pytest.approx(0.3, abs=0.02)
    assert worker_factors(0.0, 3).tolist() == [1.0, 1.0, 1.0]


def test_same_seed_same_prediction():
    crew = Crew(10, step_s=0.01, comm_period=2, spread=0.1, jitter=0.3)
    assert simulate(crew, COST, EASGD, seed=1) == simulate(crew, COST, EASGD, seed=1)
    assert simulate(crew, COST, EASGD, seed=1) != simulate(crew, COST, EASGD, seed=2)
    assert math.isfinite(simulate(crew, COST, SYNC).steps_per_s)


def test_a_busy_root_holds_up_one_worker_of_each_host():
    host = ExchangeCost(push_s=0.0, pull_s=0.0, least_s=0.0001, latency_s=0.0)
    root = ExchangeCost(push_s=0.001, pull_s=0.0, least_s=0.0, latency_s=0.0)
    crew = Crew(400, step_s=0.01, comm_period=4, jitter=0.1)
    flat, tree = simulate(crew, root, EASGD), simulate(crew, TreeCost.of(host, root, 4), EASGD)
    assert flat.steps_per_s == pytest.approx(4 / 0.001, rel=1e-9)
    assert tree.steps_per_s == pytest.approx(300 / 0.01, rel=0.05)
    single = simulate(Crew(1, step_s=0.01, comm_period=4), TreeCost.of(host, root, 4), EASGD)
    assert single.exchange_s == pytest.approx(0.0001 + 0.001 / 4, rel=0.01)


def test_tau_of_hosts_keeps_the_share_of_the_roots_exchanges():
    def chosen(root_s: float, n_hosts: int) -> int:
        root = ExchangeCost(push_s=root_s, pull_s=0.0, least_s=0.0, latency_s=0.0)
        host = ExchangeCost(push_s=0.0, pull_s=0.0, least_s=0.001, latency_s=0.0)
        return root_comm_period(host, root, period_s=0.009, workers_per_host=4, n_hosts=n_hosts, share=0.1)

    # 9 x the exchange of 10 ms, in periods of 4 x 10 ms; of 5 ms; no period keeps the share.
    assert [chosen(seconds, 1) for seconds in (0.010, 0.005, 10.0)] == [3, 2, 64]
    # 35 hosts keep the root busy for 35 ms: until a period of 40 ms they wait for each other.
    assert chosen(0.001, 35) == 4


def test_host_cost_by_hand():
    hardware = Hardware(latency_s=0.001, memory_bytes=4e9, control_s=0.0001, loop_s=0.0, cold_bytes=math.inf)
    # Four bytes of a parameter down and up; in rounds also two calls over the link.
    assert host_cost(N_PARAMS, EASGD, hardware).alone_s == pytest.approx(0.002)
    assert host_cost(N_PARAMS, SYNC, hardware).alone_s == pytest.approx(2 * (0.0001 + 0.002) + 0.002)
