"""Models for strategies that work on gradients, in place of the compiled net in the worker loop."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from caffe_import.devices.loss_scale import StepScales
from caffe_import.net.param_layout import Vector
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.exchange.strategies.base import Strategy
from deepspark_ops.exchange.transport.link import WorkerLink
from deepspark_ops.param_vector import StatisticBlobs
from deepspark_ops.train.data.batch_source import Feeds
from deepspark_ops.train.snapshots.worker_state import WorkerState
from deepspark_ops.train.worker.net.model import Model, StepReport


class GradientSource(Model, Protocol):
    """A compiled net with steps in two parts; used by a single thread.

    Attributes:
        statistics: BatchNorm's blobs in the parameters.
        n_passes: iter_size: a gradient is the sum over these passes.
    """

    statistics: StatisticBlobs
    n_passes: int

    def gradient(self, *, step: int, rate_scale: float, feeds: Feeds) -> tuple[Vector, StepReport]:
        """Return the gradient of a step, (n_params,), before clipping and decay, and the report of ``run``.

        Parameters stay; statistics and layer state move on.
        """

    def count_update(self) -> int:
        """Count an update by the server; returns the number of this worker's updates, from 1."""

    def apply(self, gradient: Vector, *, step: int, rate_scale: float) -> None:
        """Make the solver's update by a result of ``gradient``."""


def works_on_gradients(strategy: Strategy) -> bool:
    """Return whether a worker's step has two parts."""
    return strategy.compensates or strategy.solves_at_center


def model_for(strategy: Strategy, model: GradientSource, link: WorkerLink) -> Model:
    """Return the loop's model: the model itself, or a wrapper for the strategy."""
    if strategy.compensates:
        return CompensatedModel(model, link, strategy)
    if not strategy.solves_at_center:
        return model
    return AveragingModel(model) if strategy.repeats_data else PushingModel(model)


class _ModelAround:
    """Forwards all calls but steps and exchanges to the inner model."""

    def __init__(self, model: GradientSource) -> None:
        self._model = model

    def local(self) -> Vector:
        """See ``Model``."""
        return self._model.local()

    def reader_of_local(self) -> Callable[[], Vector]:
        """See ``Model``; these strategies exchange in the foreground."""
        local = self.local()
        return lambda: local

    def replace_local(self, local: Vector) -> None:
        """See ``Model``."""
        self._model.replace_local(local)

    def start_at(self, params: Vector) -> None:
        """See ``Model``."""
        self._model.start_at(params)

    def state(self) -> WorkerState:
        """See ``Model``."""
        return self._model.state()

    def begin_test(self, net: int, params: Vector) -> None:
        """See ``Model``."""
        self._model.begin_test(net, params)

    def test(self, net: int, batches: Iterable[Feeds]) -> Generator[Mapping[str, npt.NDArray[np.float32]], None, None]:
        """See ``Model``."""
        return self._model.test(net, batches)

    def test_debug_lines(self, net: int) -> list[str]:
        """See ``Model``."""
        return self._model.test_debug_lines(net)

    def write_outputs(self, offset: int) -> None:
        """See ``Model``."""
        self._model.write_outputs(offset)

    def write_test_outputs(self, net: int) -> None:
        """See ``Model``."""
        self._model.write_test_outputs(net)


class CompensatedModel(_ModelAround):
    """Computes each gradient at the worker's parameters and makes the step from the present center."""

    def __init__(self, model: GradientSource, link: WorkerLink, strategy: Strategy) -> None:
        """Take a model with the parameters pulled from the link."""
        super().__init__(model)
        self._link = link
        self._strategy = strategy

    def run(self, *, step: int, n_steps: int, rate_scale: float, feeds: Feeds) -> StepReport:
        """See ``Model``; one step, since the strategy exchanges after each."""
        assert n_steps == 1, "comm_period is 1"
        gradient, report = self._model.gradient(step=step, rate_scale=rate_scale, feeds=feeds)
        local, center = self._model.local(), self._link.look(as_start=True)
        gradient = self._strategy.compensate(gradient, local, center, self._model.n_passes)
        self._model.replace_local(with_own_statistics(center, local, self._model.statistics))
        self._model.apply(gradient, step=step, rate_scale=rate_scale)
        return report

    def round_note(self) -> RoundNote | None:
        """See ``Model``; the strategy has no rounds."""
        return None


class PushingModel(_ModelAround):
    """Computes gradients and leaves the update to the center: the loop exchanges the last gradient."""

    def __init__(self, model: GradientSource) -> None:
        """Take a model with the center's parameters."""
        super().__init__(model)
        self._gradient: Vector | None = None
        self._note: RoundNote | None = None

    def run(self, *, step: int, n_steps: int, rate_scale: float, feeds: Feeds) -> StepReport:
        """See ``Model``; one step, since the strategy exchanges after each."""
        assert n_steps == 1, "comm_period is 1"
        gradient, report = self._model.gradient(step=step, rate_scale=rate_scale, feeds=feeds)
        update = self._model.count_update()
        self._gradient = with_own_statistics(gradient, self._model.local(), self._model.statistics)
        rate = float(report.learning_rates[0])
        self._note = RoundNote(float(report.losses[0]), rate, update, is_first=self._note is None)
        return report

    def local(self) -> Vector:
        """Return the gradient, (n_params,), with the worker's statistics at the statistics' positions."""
        assert self._gradient is not None, "run comes first"
        return self._gradient

    def round_note(self) -> RoundNote | None:
        """See ``Model``."""
        return self._note


class AveragingModel(_ModelAround):
    """Adds up loss and gradient of many minibatches at the same parameters; the loop exchanges the mean."""

    def __init__(self, model: GradientSource) -> None:
        """Take a model with the parameters of the measurement."""
        super().__init__(model)
        self._losses: list[float] = []
        self._total = np.zeros(model.local().size)
        self._is_first = True

    def run(self, *, step: int, n_steps: int, rate_scale: float, feeds: Feeds) -> StepReport:
        """See ``Model``; parameters stay, and the rate is 0."""
        n_passes = self._model.n_passes
        reports = []
        for k in range(n_steps):
            batch = {name: values[k * n_passes : (k + 1) * n_passes] for name, values in feeds.items()}
            gradient, report = self._model.gradient(step=step + k, rate_scale=0.0, feeds=batch)
            self._total += gradient
            reports.append(report)
        losses = np.concatenate([report.losses for report in reports])
        self._losses += losses.tolist()
        outputs = {name: np.concatenate([r.outputs[name] for r in reports]) for name in reports[0].outputs}
        scales = [report.scales for report in reports if report.scales is not None]
        rates = np.zeros_like(losses)
        return StepReport(losses, rates, outputs, scales=StepScales.joined(scales) if scales else None)

    def write_outputs(self, offset: int) -> None:
        """See ``Model``; the files hold the blobs of the set's last minibatch."""
        super().write_outputs(-1)

    def local(self) -> Vector:
        """Return the mean gradient, (n_params,), with the worker's statistics at the statistics' positions."""
        mean = self._total / (len(self._losses) * self._model.n_passes)
        return with_own_statistics(mean.astype(np.float32), self._model.local(), self._model.statistics)

    def round_note(self) -> RoundNote | None:
        """See ``Model``."""
        loss = sum(self._losses) / len(self._losses)
        return RoundNote(loss, 0.0, self._model.count_update(), is_first=self._is_first)

    def replace_local(self, local: Vector) -> None:
        """Begin to measure at other parameters."""
        self._model.replace_local(local)
        self._is_first = self._is_first and not self._losses  # a worker pulls before its first minibatch, too
        self._losses.clear()
        self._total.fill(0.0)


def with_own_statistics(vector: Vector, local: Vector, statistics: StatisticBlobs) -> Vector:
    """Return ``vector`` with the statistics of ``local``: statistics have their own exchange.

    Args:
        vector: Parameters or a gradient, (n_params,); not written, and returned itself for a net without statistics.
        local: The worker's parameters.
        statistics: Positions of the statistics.
    """
    if not statistics.layers:
        return vector
    mixed = vector.copy()
    mixed[statistics.positions] = local[statistics.positions]
    return mixed
