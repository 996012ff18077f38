"""A worker's process whose first minibatch is NaN. No TensorFlow."""

from __future__ import annotations

import itertools

import numpy as np

from deepspark_ops.train.data.batch_source import Feeds
from deepspark_ops.train.data.batches import LeasedBatches

SPOILED = 1
"""The worker."""


def spoil_the_first_minibatch() -> None:
    """Let the first batches of worker 1 in this process be NaN."""
    LeasedBatches.take = spoiled_take()  # type: ignore[method-assign]


def spoiled_take():
    """Return ``LeasedBatches.take`` with NaN in the first batches of worker 1."""
    take, calls = LeasedBatches.take, itertools.count()

    def spoiled(self: LeasedBatches, max_steps: int) -> tuple[Feeds, int]:
        feeds, n_steps = take(self, max_steps)
        if self._key[1] == SPOILED and next(calls) == 0:
            feeds = {**feeds, "data": np.full_like(feeds["data"], np.nan)}
        return feeds, n_steps

    return spoiled
