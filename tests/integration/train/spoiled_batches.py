"""A worker whose first minibatch is NaN. No TensorFlow."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from deepspark_ops.train.data.batch_source import Feeds
from deepspark_ops.train.data.batches import LeasedBatches
from tests.processes import wait_until

SPOILED = 1
"""The worker."""


def spoil_the_first_minibatch(marker: Path) -> None:
    """Let the first batches of worker 1 in this process be NaN; ``spoiled_take`` has the argument."""
    LeasedBatches.take = spoiled_take(marker)  # type: ignore[method-assign]


def spoiled_take(marker: Path):
    """Return ``LeasedBatches.take`` with NaN in the first batches of worker 1.

    Args:
        marker: File that worker 1 writes then. Other workers wait for the file: alone they may end the run first.
    """
    take, calls = LeasedBatches.take, itertools.count()

    def spoiled(self: LeasedBatches, max_steps: int) -> tuple[Feeds, int]:
        feeds, n_steps = take(self, max_steps)
        if self._key[1] != SPOILED:
            wait_until(marker.exists, "the first minibatch of worker 1")
        elif next(calls) == 0:
            feeds = {**feeds, "data": np.full_like(feeds["data"], np.nan)}
            marker.touch()
        return feeds, n_steps

    return spoiled
