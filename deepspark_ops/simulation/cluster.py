"""Times of computing, exchanges, slowdowns and deaths in a virtual cluster: the numbers behind ``deepspark plan``."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from deepspark_ops.planning.simulator import Crew, ExchangeCost, lognormal, worker_factors

_DEATHS_FROM, _DEATHS_TO = 0.1, 0.9
"""Workers die in this part of the expected time."""


@dataclass(frozen=True)
class Cluster:
    """A cluster.

    Attributes:
        crew: The workers: how many, how fast, how equal; ``comm_period`` and ``slowdown`` are not looked at.
        cost: Of one exchange with the server's center.
        host_cost: Of one exchange of a worker with its host's center, in a tree of centers.
        stragglers: Share of the workers that are slow for good, 0 to below 1: the last ones.
        straggler_factor: How many times longer a minibatch takes them.
        deaths: Workers that are killed in the run.
        restart_s: Seconds from then until the worker is there again.
        seed: Of minibatches' times and deaths.
    """

    crew: Crew
    cost: ExchangeCost
    host_cost: ExchangeCost | None = None
    stragglers: float = 0.0
    straggler_factor: float = 3.0
    deaths: int = 0
    restart_s: float = 10.0
    seed: int = 0

    @property
    def n_slow(self) -> int:
        """Number of slow workers: their share of all, half a worker and more rounded up."""
        return math.floor(self.stragglers * self.crew.n_workers + 0.5)

    def step_times(self, worker: int) -> StepTimes:
        """Return the times of a worker's minibatches."""
        crew = self.crew
        is_slow = worker >= crew.n_workers - self.n_slow
        factor = float(worker_factors(crew.spread, crew.n_workers)[worker])
        step_s = crew.step_s * factor * (self.straggler_factor if is_slow else 1.0)
        return StepTimes(step_s, crew.jitter, np.random.default_rng((self.seed, worker)))

    def deaths_of(self, worker: int, n_steps: int) -> list[float]:
        """Return the times of a worker's deaths, ascending seconds.

        Args:
            worker: Which one.
            n_steps: Minibatches of the run, which say how long it will take.
        """
        crew = self.crew
        rng = np.random.default_rng((self.seed, crew.n_workers, self.deaths))
        victims = rng.integers(0, crew.n_workers, self.deaths)
        expected_s = n_steps * crew.step_s / crew.n_workers
        moments = rng.uniform(_DEATHS_FROM, _DEATHS_TO, self.deaths) * expected_s
        return sorted(moments[victims == worker].tolist())


class StepTimes:
    """The times of a worker's successive minibatches."""

    def __init__(self, step_s: float, jitter: float, rng: np.random.Generator) -> None:
        """Take the worker's mean, the relative deviation of a minibatch, and the generator of deviations."""
        self._step_s = step_s
        self._jitter = jitter
        self._rng = rng

    def seconds(self, n_steps: int) -> float:
        """Return the seconds of the next minibatches."""
        return self._step_s * float(lognormal(self._rng, self._jitter, n_steps).sum())


class CenterQueue:
    """The center as a queue: exchanges are served in the order of arrival, one at a time, like in the planner.

    Attributes:
        busy_s: Seconds in which it has worked.
    """

    def __init__(self) -> None:
        """Start idle."""
        self.busy_s = 0.0
        self._free = 0.0

    def serve(self, arrival: float, service_s: float) -> float:
        """Return the begin of a service for a request at ``arrival``; calls come in the order of arrival."""
        began = max(arrival, self._free)
        self._free = began + service_s
        self.busy_s += service_s
        return began
