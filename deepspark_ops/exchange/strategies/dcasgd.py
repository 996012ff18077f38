"""Asynchronous SGD whose gradients are corrected for how far the center moved while they were computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import ExchangeContext, Requires
from deepspark_ops.exchange.strategies.shared_rules import Additive, scale
from deepspark_ops.param_vector import Vector


@dataclass(frozen=True)
class DelayCompensated(Additive):
    """DC-ASGD: a gradient taken at old parameters is moved to the present ones along its own outer product.

    Zheng, Meng, Wang, Chen, Yu, Ma and Liu, "Asynchronous Stochastic Gradient Descent with Delay Compensation" (2017),
    eq. 10 and Algorithm 2. The diagonal of g g^T stands in for the Hessian in a Taylor step from the parameters x that
    the gradient g was taken at to the center c of now::

        g'      = g + compensation * g * g * (c - x)
        delta   = -(the solver's step at c by g', weight decay and momentum included)
        center' = center + delta
        local'  = center', as pulled, with the own delta added

    In the paper the server keeps x for every worker; here the worker has it and reads c once its gradient is computed,
    so the server keeps nothing and the solver's history stays with the worker.

    The correction holds for small steps. With momentum 0.9 on a slope of one curvature, the largest stable rate of p
    workers in turn falls like 1/(p - 1), the number of steps by others that a gradient is old. ``rate_limit`` counts
    the own step too and is 1/p (Zhang, Gupta, Lian and Liu 2015 divide by the staleness): what two workers bear at the
    solver's rate, p bear at that. At the solver's own rate LeNet with four workers diverged, and cifar10_quick with two
    ended half a point lower.

    Attributes:
        compensation: lambda. The paper's best constant for CIFAR-10 is 0.04; 0 is plain asynchronous SGD.
    """

    name = "dcasgd"
    source = "Zheng, Meng, Wang, Chen, Yu, Ma, Liu 2017, eq. 10 and Algorithm 2"
    unit = "delta"
    keeps_start = True
    compensates = True
    requires = Requires(comm_period_one=True)

    compensation: float = 0.04

    def __post_init__(self) -> None:
        """Refuse a negative factor.

        Raises:
            ConfigError: Negative or not a number.
        """
        if not 0.0 <= self.compensation < float("inf"):
            msg = f"compensation={self.compensation:g}: must be a finite number, at least 0; 0 compensates nothing"
            raise ConfigError(msg)

    def compensate(self, gradient: Vector, local: Vector, center: Vector, n_passes: int) -> Vector:
        """Return g' of a gradient that is the sum of ``n_passes``; the equation holds for their mean."""
        corrected = np.subtract(center, local)
        np.multiply(corrected, gradient, out=corrected)
        np.multiply(corrected, gradient, out=corrected)
        scale(corrected, self.compensation / n_passes)
        np.add(gradient, corrected, out=corrected)
        return corrected

    def worker_chunk(
        self, local: Vector, center: Vector, new_local: Vector, push: Vector, start: Vector, context: ExchangeContext
    ) -> None:
        """Write ``push = local - start``, start being the center that was looked at, and ``new_local = center + push``.

        Between that read and this, others may have pushed again: their pushes are in ``new_local`` too.
        """
        np.subtract(local, start, out=push)
        np.add(center, push, out=new_local)

    def progress_per_step(self, n_workers: int) -> float:
        """Return 1: every worker's step moves the center by all of it."""
        return 1.0

    def rate_limit(self, n_workers: int) -> float:
        """Return 1/p."""
        return 1.0 / n_workers


STRATEGY = DelayCompensated()
