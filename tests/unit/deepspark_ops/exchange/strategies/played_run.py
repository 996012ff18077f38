"""Plays exchanges of a strategy in a fixed order, in one process, for comparison with a slow reference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from deepspark_ops.exchange.local_exchange import LocalExchange
from deepspark_ops.exchange.strategies.base import Option
from deepspark_ops.param_vector import Vector
from tests.unit.deepspark_ops.exchange.exchange_run import initial_vector, make_settings, update_of

N_PARAMS = 30
N_WORKERS = 3
ORDER = [int(worker) for worker in np.random.default_rng(4).integers(0, N_WORKERS, 25)]
INITIAL = initial_vector(N_PARAMS).tolist()
RUN = [(worker, update_of(step, N_PARAMS).tolist()) for step, worker in enumerate(ORDER)]


def play(
    folder: Path, strategy: str, options: Mapping[str, Option] | None = None, moving_rate: float | None = None
) -> tuple[list[Vector], Vector]:
    """Return (every worker's parameters, center) after the exchanges of ``RUN``."""
    settings = make_settings(
        folder,
        n_params=N_PARAMS,
        n_workers=N_WORKERS,
        chunk=7,
        strategy=strategy,
        options=options or {},
        moving_rate=moving_rate,
    )
    exchange = LocalExchange(settings, initial_vector(N_PARAMS))
    links = [exchange.link() for _ in range(N_WORKERS)]
    locals_ = []
    for worker, link in enumerate(links):
        link.join(worker)
        locals_.append(link.pull())
    for step, worker in enumerate(ORDER):
        locals_[worker], _ = links[worker].exchange(locals_[worker] + update_of(step, N_PARAMS))
    return locals_, exchange.center.vector


def assert_same(result: tuple[list[Vector], Vector], expected: tuple[list[list[np.float32]], list[np.float32]]) -> None:
    """Compare bit for bit."""
    for local, expected_local in zip(result[0], expected[0], strict=True):
        np.testing.assert_array_equal(local, np.float32(expected_local))
    np.testing.assert_array_equal(result[1], np.float32(expected[1]))
