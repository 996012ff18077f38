"""First batches of workers: taken by all before one trains, and NaN for worker 1. No TensorFlow."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from deepspark_ops.train.data.batch_source import Feeds
from deepspark_ops.train.data.batches import LeasedBatches
from tests.processes import wait_until

N_WORKERS = 2
SPOILED = 1
"""The worker."""
Take = Callable[[LeasedBatches, int], tuple[Feeds, int]]


def begin_together(folder: Path) -> None:
    """Let each worker in this process wait with its first batches for the other worker's first batches."""
    LeasedBatches.take = take_together(folder)  # type: ignore[method-assign]


def take_together(folder: Path, *, n_calls: int = 1) -> Take:
    """Return ``LeasedBatches.take`` that waits for the first batches of both workers: alone a worker may end the run.

    Args:
        folder: Folder for a file of each worker and call that has its batches.
        n_calls: Calls of a worker that wait, from the first call on.
    """
    take, n_begun = LeasedBatches.take, Counter[int]()
    folder.mkdir(exist_ok=True)

    def take_feeds(self: LeasedBatches, max_steps: int) -> tuple[Feeds, int]:
        batches = take(self, max_steps)
        worker = self._key[1]
        call, n_begun[worker] = n_begun[worker], n_begun[worker] + 1
        if call < n_calls:
            (folder / f"{call}_{worker}").touch()
            wait_until(lambda: len(list(folder.glob(f"{call}_*"))) == N_WORKERS, "the first batches of both workers")
        return batches

    return take_feeds


def spoil_the_first_minibatch(folder: Path) -> None:
    """Let the first batches of worker 1 in this process be NaN; ``take_together`` has the argument."""
    LeasedBatches.take = spoiled_take(folder)  # type: ignore[method-assign]


def spoiled_take(folder: Path) -> Take:
    """Return ``take_together`` with NaN in the first batches of worker 1."""
    take, calls = take_together(folder), itertools.count()

    def spoiled(self: LeasedBatches, max_steps: int) -> tuple[Feeds, int]:
        feeds, n_steps = take(self, max_steps)
        if self._key[1] == SPOILED and next(calls) == 0:
            feeds = {**feeds, "data": np.full_like(feeds["data"], np.nan)}
        return feeds, n_steps

    return spoiled
