"""Caffe's test nets, run by a worker on a copy of the center while the run goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepspark_ops.exchange.state.state_file import write_state
from deepspark_ops.exchange.transport.link import WorkerLink
from deepspark_ops.train.data.batch_source import BatchSource, Feeds
from deepspark_ops.train.worker.loop.loop_plan import LoopPlan
from deepspark_ops.train.worker.loop.progress import ProgressLines
from deepspark_ops.train.worker.net.model import Model

HEARTBEAT_S = 1.0
LISTED_VALUES = 100
"""Values of an output in an event; a larger output has a summary."""
MEANS_FILE = "means.npz"
"""Large outputs of a test net's last test, mean over all batches, by blob; in ``outputs/test_<i>/`` of the run."""


class CenterTests:
    """The tests of a worker. Used by the loop's thread."""

    def __init__(
        self, model: Model, link: WorkerLink, batches: BatchSource, plan: LoopPlan, progress: ProgressLines
    ) -> None:
        """Take the loop's objects."""
        self._model = model
        self._link = link
        self._batches = batches
        self._plan = plan
        self._progress = progress
        self._now = plan.time.now
        self._last_sign = self._now()

    def run(self, clock: int) -> None:
        """Run every test net on a copy of the center, which equals the parameters of a single worker, as in Caffe."""
        params = self._link.look()
        ordinal = self._plan.tests_before(clock)
        for net in range(self._plan.n_test_nets):
            began = self._now()
            sums: dict[str, npt.NDArray[np.float64]] = {}
            n_batches, batch_sizes = 0, list[int]()
            self._model.begin_test(net, params)
            with closing(
                self._model.test(net, _noted(self._batches.test_batches(net, ordinal), batch_sizes))
            ) as tested:
                for outputs in tested:
                    n_batches += 1
                    self._show_life()
                    for name, value in outputs.items():
                        sums[name] = sums.get(name, np.zeros(np.shape(value))) + np.asarray(value, dtype=np.float64)
                    if n_batches == 1:
                        self._progress.debug(clock, self._model.test_debug_lines(net), test_net=net)
            self._model.write_test_outputs(net)
            means = self._reported(net, {name: total / n_batches for name, total in sums.items()})
            about = {"test_net": net, "n_samples": sum(batch_sizes), "seconds": round(self._now() - began, 3)}
            self._progress.send("evaluation", clock, **means, **about)

    def _reported(self, net: int, means: Mapping[str, npt.NDArray[np.float64]]) -> dict[str, Any]:
        """Return a test's mean outputs for the event; large outputs go to a file and have a summary."""
        large = {name: mean.astype(np.float32) for name, mean in means.items() if mean.size > LISTED_VALUES}
        file = Path(f"test_{net}", MEANS_FILE)
        if large:
            write_state(self._plan.outputs / file, large)
        where = str(Path(self._plan.outputs.name, file))
        return {name: _summary(mean, where) if name in large else mean.tolist() for name, mean in means.items()}

    def _show_life(self) -> None:
        """Keep the grant during a long test; a message per second costs nothing."""
        now = self._now()
        if now - self._last_sign >= HEARTBEAT_S:
            self._last_sign = now
            self._link.heartbeat()


def _noted(batches: Iterable[Feeds], sizes: list[int]) -> Iterator[Feeds]:
    """Yield the batches, and add the samples of each to ``sizes``; 0 for a net without data."""
    for feeds in batches:
        sizes.append(len(next(iter(feeds.values()), ())))
        yield feeds


def _summary(mean: npt.NDArray[np.float64], file: str) -> dict[str, Any]:
    return {
        "shape": list(mean.shape),
        "mean": float(mean.mean()),
        "min": float(mean.min()),
        "max": float(mean.max()),
        "file": file,
    }
