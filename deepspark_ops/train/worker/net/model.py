"""A compiled net in the view of the worker loop. No framework."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from caffe_import.devices.loss_scale import StepScales
from caffe_import.net.param_layout import Vector
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.train.data.batch_source import Feeds
from deepspark_ops.train.snapshots.worker_state import WorkerState


@dataclass(frozen=True)
class StepReport:
    """The results of consecutive steps.

    Attributes:
        losses: Weighted loss of each step, mean over iter_size passes, before the update; shape (n_steps,).
        learning_rates: Rate of each update, rate scale included; shape (n_steps,).
        outputs: Output blob -> values in each step's last pass, shape (n_steps, ...).
        debug_lines: Position of a step -> lines for ``debug_info``; None without ``debug_info`` in the solver.
        scales: Loss scales of the steps; None but for float16.
    """

    losses: npt.NDArray[np.float32]
    learning_rates: npt.NDArray[np.float32]
    outputs: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    debug_lines: Callable[[int], list[str]] | None = None
    scales: StepScales | None = None

    def scalars(self, offset: int, *, loss: float) -> dict[str, float]:
        """Return a step's scalar outputs; none if the only output is the ``loss``, which has its own place."""
        scalars = {
            name: round(float(value[offset]), 6) for name, value in self.outputs.items() if value[offset].size == 1
        }
        return {} if list(scalars.values()) == [loss] and len(self.outputs) == 1 else scalars


class Model(Protocol):
    """A compiled net with a worker's own parameters and state; used by a single thread."""

    def run(self, *, step: int, n_steps: int, rate_scale: float, feeds: Feeds) -> StepReport:
        """Make ``n_steps`` updates, the first at clock ``step``; ``feeds`` holds n_steps * iter_size batches."""

    def local(self) -> Vector:
        """Return a read-only view of the vector to exchange, shape (n_params,), valid until the next change.

        The vector has the parameters, or the gradient of the last step if the strategy's workers push gradients.
        """

    def reader_of_local(self) -> Callable[[], Vector]:
        """Return a function for any thread and any time that returns the present result of ``local``.

        The function itself copies from a device, not this method.
        """

    def round_note(self) -> RoundNote | None:
        """Return the server's note on a pushed gradient; None if parameters are exchanged."""

    def replace_local(self, local: Vector) -> None:
        """Take a fresh vector as the parameters; the caller gives the vector away."""

    def start_at(self, params: Vector) -> None:
        """Take a fresh vector as the parameters, with the state of a model that has not run; updates stay counted."""

    def state(self) -> WorkerState:
        """Return the worker's own state; arrays may be views, valid until the next change."""

    def begin_test(self, net: int, params: Vector) -> None:
        """Take the parameters, (n_params,), for the next passes of test net ``net``; not written."""

    def test(self, net: int, batches: Iterable[Feeds]) -> Generator[Mapping[str, npt.NDArray[np.float32]], None, None]:
        """Yield the outputs of test net ``net`` for each batch, in order; a thread reads ``batches`` ahead."""

    def test_debug_lines(self, net: int) -> list[str]:
        """Return the ``debug_info`` lines of the last yielded batch; none without ``debug_info`` in the solver."""

    def write_outputs(self, offset: int) -> None:
        """Write the files of the training net's HDF5Output layers, as of step ``offset`` of the last ``run``."""

    def write_test_outputs(self, net: int) -> None:
        """Write the files of a test net's HDF5Output layers: the passes since the last call."""
