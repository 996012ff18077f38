"""Calls of the traced graph of several devices: a call per step, every tensor on the device that uses the tensor.

Between two steps parameters, history and layer state stay on their devices: a call's results are the next call's
arguments. A loop inside the graph would carry all tensors through a single device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from caffe_import.devices.loss_scale import LossScale
from caffe_import.devices.pieces import Pieces
from caffe_import.tf_graph.builder import fed_blobs
from caffe_import.tf_graph.device_copies import to_device
from caffe_import.tf_graph.step.arguments import StepArguments
from caffe_import.tf_graph.step.device_step import DeviceStepGraph, carried_devices, feed_devices, feed_key
from caffe_import.tf_graph.step.loss_scaling import as_numpy, scale_arguments
from caffe_import.tf_graph.step.results import StepReports, StepResult, report_specs
from caffe_import.tf_graph.step.traced_calls import Part, TracedCalls

_HOST: Final = "/device:CPU:0"


@dataclass(frozen=True)
class PlacedPasses:
    """Batches of a fed blob, each on the reader's device. Sliced like an array (n_passes, *blob shape).

    Attributes:
        rows: One tensor per pass.
        blob_shape: Shape of each.
    """

    rows: Sequence[Any]
    blob_shape: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the equivalent array."""
        return (len(self.rows), *self.blob_shape)

    def __getitem__(self, index: int | slice) -> Any:
        """Return a batch, or for a slice ``PlacedPasses``."""
        return PlacedPasses(self.rows[index], self.blob_shape) if isinstance(index, slice) else self.rows[index]


@dataclass
class DeviceCalls(TracedCalls):
    """Calls of a ``DeviceStepGraph``. Parameters, gradients and the slots of the history come back as ``Pieces``."""

    graph: DeviceStepGraph
    _where: dict[Part, list[str]] = field(default_factory=dict)

    params_field: ClassVar[str] = "pieces"
    gradient_field: ClassVar[str] = "gradients"
    n_prepared_steps: ClassVar[int] = 1

    def state_arguments(self, params: Any, history: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """See ``TracedCalls.state_arguments``."""
        return {"pieces": self.cut(params), "history": history}

    def run(self, arguments: StepArguments) -> StepResult:
        """See ``TracedCalls.run``; arrays where one device has tensors."""
        scale = LossScale(float(arguments.loss_scale), int(arguments.good_steps)) if self.is_scaled else None
        now = arguments
        reports: list[StepReports] = []
        for i, rate in enumerate(arguments.rates):
            step = np.int64(arguments.step + i)
            now = replace(now, rates=np.array([rate]), step=step, feeds=arguments.feeds, **scale_arguments(scale))
            result: StepResult = self._call("run", self._of_step(now, i))
            n_made = 1
            if scale is not None:
                n_made = int(result.reports.is_made)
                scale = scale.advanced(is_finite=bool(n_made))
            updates = np.int64(now.updates + n_made)
            now = replace(
                now, pieces=result.params, history=result.history, layer_state=result.layer_state, updates=updates
            )
            reports.append(result.reports)
        specs = report_specs(self.graph.passes, self.graph.solver.iter_size, is_scaled=self.is_scaled)
        stacked = tf.nest.map_structure(_stacked, specs, *reports)
        next_scale = tuple(scale_arguments(scale).values())
        return StepResult(self._vector(now.pieces), self._slots(now.history), now.layer_state, stacked, next_scale)

    def feed_to_device(self, name: str, rows: Any) -> PlacedPasses:
        """Return the batches of a fed blob, of whole steps, each on the device of the pass."""
        passes, plan = self.graph.solver.iter_size, self.graph.plan
        names = [self.graph.devices[feed_devices(self.graph.passes, k % plan.n_replicas)[name]] for k in range(passes)]
        return PlacedPasses([to_device(row, names[k % passes]) for k, row in enumerate(rows)], rows.shape[1:])

    def cut(self, vector: Any) -> Sequence[Any]:
        """Return the pieces of a vector."""
        return list(vector) if isinstance(vector, Pieces) else self.graph.passes.pieces.cut(np.asarray(vector))

    def _vector(self, content: Any) -> Pieces:
        return self._pieces(content)

    def _of_step(self, arguments: StepArguments, step: int) -> StepArguments:
        n_passes, feeds = self.graph.solver.iter_size, arguments.feeds.items()
        batches = {feed_key(name, k): rows[step * n_passes + k] for name, rows in feeds for k in range(n_passes)}
        return replace(arguments, feeds=batches)

    def _placed(self, part: Part, leaves: Sequence[Any]) -> Iterable[tf.Tensor]:
        if part not in self._where:
            self._where[part] = self._devices(part).flat()
        return map(to_device, leaves, self._where[part])

    def _own_signature(self) -> StepArguments:
        passes = self.graph.passes
        return StepArguments(
            pieces=[tf.TensorSpec(piece.shape, tf.float32) for piece in passes.pieces.pieces],
            rates=tf.TensorSpec((1,), tf.float32),
            key=tf.TensorSpec((), tf.int32),
            feeds={
                feed_key(name, k): tf.TensorSpec(shape, tf.float32)
                for name, shape in fed_blobs(passes.net).items()
                for k in range(self.graph.solver.iter_size)
            },
        )

    def _devices(self, part: Part) -> StepArguments:
        """Return the device of each argument, in the structure of the signature."""
        signature, names, passes = self._signature(part), self.graph.devices, self.graph.passes
        single = ("rates", "updates", "step", "key", "loss_scale", "good_steps")
        pieces = [names[piece.device] for piece in passes.pieces.pieces]
        carried = carried_devices(passes, self.graph.plan.n_replicas)
        fed = {
            feed_key(name, k): names[device]
            for k in range(self.graph.solver.iter_size)
            for name, device in feed_devices(passes, k % self.graph.plan.n_replicas).items()
        }
        return replace(
            signature,
            **{name: _HOST for name in single if getattr(signature, name) is not None},
            pieces=pieces[: len(signature.pieces)],
            gradients=pieces[: len(signature.gradients)],
            history=[pieces for _ in signature.history],
            layer_state={name: names[carried[name]] for name in signature.layer_state},
            feeds={name: fed[name] for name in signature.feeds},
        )


def _stacked(spec: tf.TensorSpec, *values_of_steps: Any) -> npt.NDArray[Any]:
    """Return the values (n_steps, *shape) of all steps."""
    if not values_of_steps:
        return np.zeros((0, *spec.shape), spec.dtype.as_numpy_dtype)
    return np.stack([as_numpy(value) for value in values_of_steps])
