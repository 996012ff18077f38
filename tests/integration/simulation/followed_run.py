"""A slow loop beside a virtual run: it sees the first parameters and the steps of each worker."""

from __future__ import annotations

from typing import Any, Protocol

import pytest

from deepspark_ops.param_vector import Vector
from deepspark_ops.simulation.virtual_run import VirtualModel
from deepspark_ops.train.data.batch_source import Feeds
from deepspark_ops.train.worker.net.model import StepReport


class SlowLoop(Protocol):
    """Takes the run's order and minibatches, and compares all parameters."""

    def join(self, worker: int, params: Vector) -> None:
        """Take the first parameters of a worker."""

    def step(self, worker: int, feeds: Feeds, params: Vector) -> None:
        """Make the steps of a worker on the minibatches; compare with the worker's parameters."""


def follow_steps(slow: SlowLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the slow loop follow each start and each run of steps of the virtual workers."""
    start, run = VirtualModel.__init__, VirtualModel.run

    def started(model: VirtualModel, *arguments: Any, **options: Any) -> None:
        start(model, *arguments, **options)
        slow.join(options["worker"], model.local())

    def stepped(model: VirtualModel, **options: Any) -> StepReport:
        feeds = {name: values.copy() for name, values in options["feeds"].items()}  # the others use the memory again
        report = run(model, **options)
        slow.step(model.time.worker, feeds, model.local())
        return report

    monkeypatch.setattr(VirtualModel, "__init__", started)
    monkeypatch.setattr(VirtualModel, "run", stepped)
