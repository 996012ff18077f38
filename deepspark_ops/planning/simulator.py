"""Predicts the speed of a run: exchanges of workers with a center, as discrete events. numpy and heapq alone.

The center is a single station and serves exchanges in the order of arrival. An exchange takes the time of its slowest
part (link or server process): the chunks of an exchange flow through both parts in parallel. A worker computes for
``comm_period`` minibatches, then queues. This is the closed queue of the machine repairman (Feller, "An Introduction to
Probability Theory", vol. 1, XVII.7) with fixed service times. It is simulated and not solved, because workers differ
and a round of ``sync`` waits for all workers.

The model leaves out late data, tests, snapshots, the first call of a graph, and the shared memory bandwidth of workers
on a host.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import astuple, dataclass, replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.comm_period import MAX_COMM_PERIOD, smallest_comm_period
from deepspark_ops.exchange.strategies.base import Strategy
from deepspark_ops.exchange.transport.compression import WireDtype
from deepspark_ops.param_vector import CHUNK_FLOATS, chunk_ranges

WIRE_BYTES: dict[WireDtype, int] = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of a pushed float. Pulled floats have four bytes: only pushes are rounded (``transport/compression``)."""


class _Requests(NamedTuple):
    """Requests of an exchange.

    Attributes:
        handled: By the server, the grant among them.
        awaited: Of these, the round trips for which the worker waits.
    """

    handled: int
    awaited: int


_BY_SOCKET = {
    "before": _Requests(handled=3, awaited=1),  # of grant, begin and end the begin, which asks for the first chunks
    "after": _Requests(handled=3, awaited=2),  # begin, last chunk
    "after_round": _Requests(handled=6, awaited=4),  # of two begins and "pushed": grant, begin, round, first chunks
    "never": _Requests(handled=3, awaited=3),
}
_IN_MEMORY = {
    "before": _Requests(handled=1, awaited=0),
    "after": _Requests(handled=1, awaited=0),
    "after_round": _Requests(handled=2, awaited=2),  # grant and round
    "never": _Requests(handled=1, awaited=1),
}
"""By ``Strategy.pulls``. Without rounds, several workers ask for a grant during the steps before. The end of an
exchange is answered during the steps after. This holds if the steps take as long as these round trips."""
_EVENTS_PER_WORKER = 12
_LEAST_EVENTS = 3_000
_WARM_UP = 3
"""The first third of the events is warm-up: all workers begin at once, in their first period."""


@dataclass(frozen=True)
class Hardware:
    """Speeds of a cluster. The defaults are measurements of ``benchmarks/exchange.py`` on two cores of a server CPU.

    Attributes:
        bandwidth_bytes: Bytes/s of a host's link, in each direction at the same time.
        latency_s: Seconds from one host to another, one way.
        server_bytes: Bytes/s, both directions together, of one server process.
        memory_bytes: Bytes/s, both directions together, of a worker that maps the center.
        control_s: Seconds of one control call without the network; the server is busy for half of the time.
        loop_s: Extra seconds of an exchange in the worker loop, compared with a pure benchmark: both ends sleep
            between two exchanges and must wake up.
        cold_bytes: Bytes/s for reloading parameters that a step evicted from the caches, once per exchange. Fitted,
            with ``loop_s``, to LeNet and cifar10_quick at tau 1 (``benchmarks/plan.py``).
    """

    bandwidth_bytes: float = 10e9 / 8
    latency_s: float = 50e-6
    server_bytes: float = 2.4e9
    memory_bytes: float = 12e9
    control_s: float = 145e-6
    loop_s: float = 300e-6
    cold_bytes: float = 1.9e9

    def own_s(self, n_params: int) -> float:
        """Return the seconds of an exchange in the worker's loop."""
        return self.loop_s + 4 * n_params / self.cold_bytes


@dataclass(frozen=True)
class ExchangeCost:
    """Cost of an exchange, in seconds.

    Attributes:
        push_s: Busy time of the center for the push and its control calls.
        pull_s: Busy time of the center for the pull; only the excess over the push if both directions flow at once.
        least_s: Minimum time of the worker, with an idle center.
        latency_s: Time of messages on the way, while both sides wait.
        own_s: Further busy time of the worker, before and after the exchange.
    """

    push_s: float
    pull_s: float
    least_s: float
    latency_s: float
    own_s: float = 0.0

    @property
    def service_s(self) -> float:
        """Total busy time of the center, in seconds; the inverse is the center's rate."""
        return self.push_s + self.pull_s

    @property
    def alone_s(self) -> float:
        """Seconds until the worker continues, without other workers."""
        return max(self.service_s, self.least_s) + self.latency_s + self.own_s


@dataclass(frozen=True)
class TreeCost(ExchangeCost):
    """Mean cost of an exchange in a tree of centers, and its parts.

    Attributes:
        host: Of a worker with the center of its host: the server is busy with control calls alone.
        root: Of the host's center with the root.
        workers_per_host: The workers of a host.
        root_period: tau of hosts, in exchanges of each worker of the host.
    """

    host: ExchangeCost = ExchangeCost(0.0, 0.0, 0.0, 0.0)
    root: ExchangeCost = ExchangeCost(0.0, 0.0, 0.0, 0.0)
    workers_per_host: int = 1
    root_period: int = 1

    @property
    def every(self) -> int:
        """Exchanges of a worker for one of them in which it also exchanges the host's center with the root."""
        return self.workers_per_host * self.root_period

    @classmethod
    def of(cls, host: ExchangeCost, root: ExchangeCost, workers_per_host: int, root_period: int = 1) -> TreeCost:
        """Return the costs with their means."""
        every = workers_per_host * root_period
        parts = zip(astuple(host), astuple(root), strict=True)
        push_s, pull_s, least_s, latency_s, own_s = (of_host + of_root / every for of_host, of_root in parts)
        return cls(push_s, pull_s, least_s, latency_s, own_s, host, root, workers_per_host, root_period)


class _CenterStation:
    """The center of a simulated run, or the root of a tree: exchanges are served in the order of arrival."""

    def __init__(self, cost: ExchangeCost) -> None:
        """Start idle."""
        self._cost = cost
        self._service_s, self._stay_s = cost.service_s, cost.alone_s
        self._free = 0.0

    def serve(self, arrival: float, worker: int) -> tuple[float, float]:
        """Return begin and end of a worker's exchange."""
        began = max(arrival, self._free)
        self._free = began + self._service_s
        return began, began + self._stay_s


class _TreeStation:
    """The centers of hosts, where nobody waits, the server's control calls, and the root.

    While a worker exchanges its host with the root, a worker of the host whose turn comes goes on until its next
    exchange.
    """

    def __init__(self, cost: TreeCost) -> None:
        """Start idle."""
        self._calls, self._root = _CenterStation(cost.host), _CenterStation(cost.root)
        self._cost = cost
        self._exchanges: Counter[int] = Counter()
        self._root_ends: dict[int, float] = {}  # of hosts
        self._late: set[int] = set()  # workers that wait for their turn

    def serve(self, arrival: float, worker: int) -> tuple[float, float]:
        """See ``_CenterStation``."""
        began, end = self._calls.serve(arrival, worker)
        self._exchanges[worker] += 1
        if worker in self._late or (self._exchanges[worker] + worker) % self._cost.every == 0:
            host = worker // self._cost.workers_per_host
            if end < self._root_ends.get(host, 0.0):
                self._late.add(worker)
                return began, end
            self._late.discard(worker)
            _, end = self._root.serve(end, worker)
            self._root_ends[host] = end
        return began, end


@dataclass(frozen=True)
class Crew:
    """The workers.

    Attributes:
        n_workers: p.
        step_s: Seconds of a minibatch on free cores.
        comm_period: tau, minibatches between two exchanges.
        spread: Standard deviation of the workers' mean speeds, relative to their mean: some hosts are always slow.
        jitter: Standard deviation of the time of a minibatch, relative to the worker's mean. Without jitter, workers
            of slightly different speeds synchronise and queue behind each other, unlike real workers.
        slowdown: Factor on all processor times, for more processes than cores; at least 1.
    """

    n_workers: int
    step_s: float
    comm_period: int
    spread: float = 0.0
    jitter: float = 0.0
    slowdown: float = 1.0


@dataclass(frozen=True)
class Prediction:
    """The steady state of a run.

    Attributes:
        steps_per_s: Minibatches per second of all workers.
        staleness: Mean number of other workers' exchanges between two exchanges of a worker; 0 for rounds. The mean is
            always p - 1: fast workers have many fresh exchanges, slow workers have few stale exchanges.
        staleness_p95: 95th percentile of the staleness.
        server_load: Share of the time in which the center is busy, 0 to 1.
        exchange_s: Mean seconds from the last minibatch of a period until the first of the next.
        exchange_share: Share of the exchanges in the workers' time.
    """

    steps_per_s: float
    staleness: float
    staleness_p95: float
    server_load: float
    exchange_s: float
    exchange_share: float


def socket_cost(
    n_params: int,
    strategy: Strategy,
    hardware: Hardware,
    *,
    wire_dtype: WireDtype,
    n_servers: int,
    has_grant: bool = True,
) -> ExchangeCost:
    """Return the cost of an exchange of workers on other hosts.

    The server processes of ``n_servers`` key ranges work in parallel on a host and share the link: more servers
    multiply the computing speed, not the link's speed. The slowest range, which is the longest by whole chunks,
    decides. An exchange of a host's center with the root is without ``has_grant``: the workers' exchanges have grants.

    Raises:
        ConfigError: More servers than chunks.
    """
    n_chunks = len(chunk_ranges(n_params))
    if not 1 <= n_servers <= n_chunks:
        msg = f"n_servers={n_servers}: must be 1 to {n_chunks}; {n_params:,} parameters are {n_chunks} chunks"
        raise ConfigError(msg)
    longest = min(n_params, math.ceil(n_chunks / n_servers) * CHUNK_FLOATS)
    up, down = WIRE_BYTES[wire_dtype], 0 if strategy.pulls == "never" else 4
    requests = _BY_SOCKET[strategy.pulls]
    control_s = (requests.handled - (not has_grant)) * hardware.control_s / 2
    link_s = max(up, down) * n_params / hardware.bandwidth_bytes
    busy_s = (up + down) * longest / hardware.server_bytes
    latency_s = requests.awaited * (2 * hardware.latency_s + hardware.control_s / 2)
    if strategy.pulls != "after_round":
        return ExchangeCost(max(link_s, busy_s) + control_s, 0.0, link_s, latency_s, hardware.own_s(n_params))
    # No worker pulls before all workers have pushed: the two directions take turns.
    push_s, pull_s = (
        max(size * n_params / hardware.bandwidth_bytes, size * longest / hardware.server_bytes) for size in (up, down)
    )
    least_s = (up + down) * n_params / hardware.bandwidth_bytes
    return ExchangeCost(push_s + control_s, pull_s, least_s, latency_s, hardware.own_s(n_params))


def memory_cost(n_params: int, strategy: Strategy, hardware: Hardware) -> ExchangeCost:
    """Return the cost of an exchange of workers that map the center: the server only keeps the clock."""
    passes = 1 if strategy.pulls == "never" else 2
    requests = _IN_MEMORY[strategy.pulls]
    copy_s = passes * 4 * n_params / hardware.memory_bytes
    least_s = requests.awaited * hardware.control_s + copy_s
    return ExchangeCost(requests.handled * hardware.control_s / 2, 0.0, least_s, 0.0, hardware.own_s(n_params))


def host_cost(n_params: int, strategy: Strategy, hardware: Hardware) -> ExchangeCost:
    """Return the cost of an exchange with the center of a host other than the server's; control calls use the link."""
    latency_s = _IN_MEMORY[strategy.pulls].awaited * 2 * hardware.latency_s
    return replace(memory_cost(n_params, strategy, hardware), latency_s=latency_s)


def root_comm_period(
    host: ExchangeCost, root: ExchangeCost, *, period_s: float, workers_per_host: int, n_hosts: float, share: float
) -> int:
    """Return tau of hosts as ``RootPeriod`` chooses it, in exchanges of each worker of a host.

    Hosts that keep the root busy all the time wait for each other.

    Args:
        host: Of a worker with the center of its host.
        root: Of a host's center with the root.
        period_s: Seconds that a worker computes between two exchanges.
        workers_per_host: The workers of a host.
        n_hosts: The hosts.
        share: Of the time that these exchanges may take.
    """
    between_s = period_s + host.alone_s
    for period in range(1, MAX_COMM_PERIOD):
        is_busy = n_hosts * root.service_s > period * between_s
        exchange_s = max(root.alone_s, n_hosts * root.service_s) if is_busy else root.alone_s
        if smallest_comm_period(workers_per_host * between_s, exchange_s, share) <= period:
            return period
    return MAX_COMM_PERIOD


def saturation_workers(cost: ExchangeCost, *, step_s: float, comm_period: int) -> float:
    """Return p*: the number of workers without waiting that equals the center's rate; further workers only queue."""
    return (comm_period * step_s + cost.alone_s) / cost.service_s


def simulate(crew: Crew, cost: ExchangeCost, strategy: Strategy, *, seed: int = 0) -> Prediction:
    """Return the steady state; some seconds for ten thousand workers, the same for the same seed.

    Args:
        crew: The workers.
        cost: Of an exchange of this strategy.
        strategy: What runs with this number of workers (``Strategy.for_workers``).
        seed: Of the workers' speeds and the minibatches' times.
    """
    rng = np.random.default_rng(seed)
    cost = _slowed(cost, crew.slowdown)
    steps_s = worker_factors(crew.spread, crew.n_workers) * crew.step_s * crew.slowdown
    if strategy.round == "all":
        return _in_rounds(crew, cost, steps_s, rng)
    return _one_by_one(crew, cost, steps_s, rng, evens_pace=strategy.even_pace)


def worker_factors(spread: float, n_workers: int) -> npt.NDArray[np.float64]:
    """Return each worker's factor on the time of a minibatch, shape (n_workers,), ascending; their mean speed is 1.

    The factors are quantiles of a lognormal distribution, not a sample, so that few workers do not depend on chance.
    """
    sigma = math.sqrt(math.log1p(spread**2))
    normal = NormalDist()
    quantiles = np.array([normal.inv_cdf((i + 0.5) / n_workers) for i in range(n_workers)])
    factors: npt.NDArray[np.float64] = np.exp(sigma * quantiles)
    factors *= np.mean(1.0 / factors)
    return factors


def lognormal(rng: np.random.Generator, deviation: float, n_values: int) -> npt.NDArray[np.float64]:
    """Return positive factors with mean 1 and a relative standard deviation, shape (n_values,)."""
    sigma = math.sqrt(math.log1p(deviation**2))
    return np.exp(rng.normal(-(sigma**2) / 2, sigma, n_values)) if deviation else np.ones(n_values)


def _slowed(cost: ExchangeCost, slowdown: float) -> ExchangeCost:
    if slowdown == 1.0:
        return cost
    push_s, pull_s, least_s, own_s = (slowdown * s for s in (cost.push_s, cost.pull_s, cost.least_s, cost.own_s))
    return ExchangeCost(push_s, pull_s, least_s, cost.latency_s, own_s)


def _period_jitter(crew: Crew) -> float:
    """Return the relative deviation of a whole period: minibatches vary independently, so their sum varies less."""
    return crew.jitter / math.sqrt(crew.comm_period)


def _one_by_one(
    crew: Crew, cost: ExchangeCost, steps_s: npt.NDArray[np.float64], rng: np.random.Generator, *, evens_pace: bool
) -> Prediction:
    """Simulate workers that wait only for the center."""
    n_events = max(_LEAST_EVENTS, _EVENTS_PER_WORKER * crew.n_workers)
    counts = np.full(crew.n_workers, float(crew.comm_period))
    if evens_pace:
        counts = np.maximum(1.0, np.round(counts * steps_s.min() / steps_s))
    periods = (steps_s * counts).tolist()
    factors = lognormal(rng, _period_jitter(crew), n_events).tolist()
    starts = rng.random(crew.n_workers).tolist()
    queue = [(period * start, worker) for worker, (period, start) in enumerate(zip(periods, starts, strict=True))]
    heapq.heapify(queue)
    first = n_events // _WARM_UP
    turns = [-1] * crew.n_workers
    station = _TreeStation(cost) if isinstance(cost, TreeCost) else _CenterStation(cost)
    began_first = began = exchange_s = compute_s = 0.0
    gaps: list[int] = []
    steps = 0.0
    for turn, factor in enumerate(factors):
        arrival, worker = queue[0]
        began, end = station.serve(arrival, worker)
        computing = periods[worker] * factor
        heapq.heapreplace(queue, (end + computing, worker))
        if turn == first:
            began_first = began
        if turn >= first:
            exchange_s += end - arrival
            compute_s += computing
            steps += counts[worker]
            if turns[worker] >= 0:
                gaps.append(turn - turns[worker] - 1)
        turns[worker] = turn
    rate = (n_events - 1 - first) / (began - began_first)
    return Prediction(
        steps_per_s=rate * steps / (n_events - first),
        staleness=float(np.mean(gaps)),
        staleness_p95=float(np.percentile(gaps, 95)),
        server_load=min(1.0, rate * cost.service_s),
        exchange_s=exchange_s / (n_events - first),
        exchange_share=exchange_s / (exchange_s + compute_s),
    )


def _in_rounds(
    crew: Crew, cost: ExchangeCost, steps_s: npt.NDArray[np.float64], rng: np.random.Generator
) -> Prediction:
    """Simulate workers that wait for the pushes of all workers."""
    n_rounds = max(_EVENTS_PER_WORKER, _LEAST_EVENTS // crew.n_workers)
    ranks = np.arange(crew.n_workers)
    ready = np.zeros(crew.n_workers)
    first, began, exchange_s, compute_s = n_rounds // _WARM_UP, 0.0, 0.0, 0.0
    for turn in range(n_rounds):
        computing = steps_s * crew.comm_period * lognormal(rng, _period_jitter(crew), crew.n_workers)
        arrivals = np.sort(ready + computing)
        # First come, first served: a push begins after its arrival and after the end of the last push.
        pushed = np.maximum.accumulate(arrivals - ranks * cost.push_s) + (ranks + 1) * cost.push_s
        closed = pushed[-1]
        stays = np.maximum(closed + (ranks + 1) * cost.pull_s, arrivals + cost.least_s)
        stays += cost.latency_s + cost.own_s
        if turn == first:
            began = float(stays.max())
        elif turn > first:
            exchange_s += float(np.mean(stays - arrivals))
            compute_s += float(computing.mean())
        ready = rng.permutation(stays)  # the order of pulls changes from round to round
    measured = n_rounds - 1 - first
    rate = measured / (float(stays.max()) - began)
    return Prediction(
        steps_per_s=rate * crew.n_workers * crew.comm_period,
        staleness=0.0,
        staleness_p95=0.0,
        server_load=min(1.0, rate * crew.n_workers * cost.service_s),
        exchange_s=exchange_s / measured,
        exchange_share=exchange_s / (exchange_s + compute_s),
    )
