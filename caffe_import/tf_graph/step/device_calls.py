"""Calls of the traced graph of several devices: one call per step, everything where it is used.

Between two steps parameters, history and layer state are not moved: what a call returns is where the next one takes it.
A loop inside the graph would carry them all through one device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from caffe_import.devices.loss_scale import LossScale
from caffe_import.devices.pieces import Pieces
from caffe_import.net.debug_info import n_pass_values
from caffe_import.tf_graph.builder import fed_blobs
from caffe_import.tf_graph.device_copies import to_device
from caffe_import.tf_graph.step.arguments import StepArguments
from caffe_import.tf_graph.step.device_step import (
    DeviceStepGraph,
    carried_devices,
    carried_state,
    feed_devices,
    feed_key,
)
from caffe_import.tf_graph.step.loss_scaling import SCALE_SPECS, as_numpy, scale_arguments

Part = Literal["run", "gradient", "apply"]
_HOST: Final = "/device:CPU:0"


@dataclass(frozen=True)
class PlacedPasses:
    """Batches of a fed blob, each on the device that reads it. Taken apart like an array (n_passes, *blob shape).

    Attributes:
        rows: One tensor per pass.
        blob_shape: Shape of each.
    """

    rows: Sequence[Any]
    blob_shape: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array that this stands for."""
        return (len(self.rows), *self.blob_shape)

    def __getitem__(self, index: int | slice) -> Any:
        """Return one batch, or some as an object of this kind."""
        return PlacedPasses(self.rows[index], self.blob_shape) if isinstance(index, slice) else self.rows[index]


@dataclass
class DeviceCalls:
    """Traces each part of the graph at its first call. Thread-safe.

    Attributes:
        graph: What is traced.
        is_scaled: Is the loss scaled?
        count_traces: How often TensorFlow traced anything.
    """

    graph: DeviceStepGraph
    is_scaled: bool
    count_traces: int = 0
    _lock: Lock = field(default_factory=Lock)
    _functions: dict[Part, Callable[..., Any]] = field(default_factory=dict)
    _where: dict[Part, list[str]] = field(default_factory=dict)

    def run(self, run_arguments: StepArguments) -> Any:
        """Make as many steps as there are rates; returns what ``StepGraph.run`` does, arrays where that has tensors.

        Parameters and the slots of the history come back as ``Pieces``.
        """
        scale = LossScale(float(run_arguments.loss_scale), int(run_arguments.good_steps)) if self.is_scaled else None
        now = replace(run_arguments, feeds={}, rates=None)
        reports: list[Sequence[Any]] = []
        scales: list[float] = []
        for i, rate in enumerate(run_arguments.rates):
            arguments = replace(
                now,
                rates=np.array([rate]),
                step=np.int64(run_arguments.step + i),
                feeds=self._dealt(run_arguments.feeds, i),
                **scale_arguments(scale),
            )
            pieces, history, layer_state, *report, is_made = self._call("run", arguments)
            n_made = 1
            if scale is not None:
                scales.append(scale.scale)
                n_made = int(is_made[0])
                scale = scale.after(is_finite=bool(n_made))
            now = replace(
                now, pieces=pieces, history=history, layer_state=layer_state, updates=np.int64(now.updates + n_made)
            )
            reports.append([*report, is_made])
        return (*self._state(now), *self._joined(reports), self._scaling(scale, scales, reports))

    def gradient(self, arguments: StepArguments) -> Any:
        """Return what ``StepGraph.gradient`` does; gradient and parameters as ``Pieces``."""
        gradient, pieces, *reports = self._call("gradient", replace(arguments, feeds=self._dealt(arguments.feeds, 0)))
        return self._pieces(gradient), self._pieces(pieces), *reports

    def apply(self, arguments: StepArguments) -> Any:
        """Return parameters and slots after an update, as ``Pieces``."""
        pieces, history = self._call("apply", arguments)
        return self._pieces(pieces), [self._pieces(slot) for slot in history]

    def _pieces(self, content: Sequence[Any]) -> Pieces:
        return Pieces(self.graph.passes.pieces, tuple(content))

    def _state(self, now: StepArguments) -> tuple[Any, ...]:
        return self._pieces(now.pieces), [self._pieces(slot) for slot in now.history], now.layer_state

    def feed_to_device(self, name: str, rows: Any) -> PlacedPasses:
        """Return the batches of a fed blob, whole steps of them, where their passes read them."""
        passes, plan = self.graph.solver.iter_size, self.graph.plan
        names = [self.graph.devices[feed_devices(self.graph.passes, k % plan.n_replicas)[name]] for k in range(passes)]
        return PlacedPasses([to_device(row, names[k % passes]) for k, row in enumerate(rows)], rows.shape[1:])

    def _dealt(self, feeds: Mapping[str, Any], i: int) -> dict[str, Any]:
        """Return the batches of step ``i``, one argument per pass."""
        n_passes = self.graph.solver.iter_size
        return {feed_key(name, k): rows[i * n_passes + k] for name, rows in feeds.items() for k in range(n_passes)}

    def _joined(self, reports: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        """Return losses, outputs, norms, rows and debug of all steps."""
        losses, outputs, norms, n_rows, debug, _ = zip(*reports, strict=True) if reports else ((),) * 6
        net, passes = self.graph.passes.net, self.graph.passes
        return (
            _stacked(losses, ()),
            {
                name: _stacked([step_outputs[name] for step_outputs in outputs], net.blob_shapes[name])
                for name in passes.reported()
            },
            _stacked(norms, ()),
            {name: _stacked([step_rows[name] for step_rows in n_rows], (), np.int32) for name in passes.row_counts()},
            [_stacked(column, shape) for column, shape in zip(_columns(debug, 2), self._debug_shapes(), strict=True)]
            if passes.with_debug
            else [],
        )

    def _debug_shapes(self) -> list[tuple[int, ...]]:
        net = self.graph.passes.net
        return [(self.graph.solver.iter_size, n_pass_values(net)), (2, len(net.params.entries))]

    def _scaling(self, scale: LossScale | None, scales: Sequence[float], reports: Sequence[Sequence[Any]]) -> list[Any]:
        if scale is None:
            return []
        is_made = _stacked([report[-1][0] for report in reports], (), np.bool_)
        return [np.float32(scale.scale), np.int64(scale.good_steps), np.array(scales, np.float32), is_made]

    def _call(self, part: Part, arguments: StepArguments) -> Any:
        with self._lock:
            if part not in self._functions:
                self._functions[part] = self._trace(part)
                self._where[part] = self._devices(part).flat()
        return self._functions[part](*map(to_device, arguments.flat(), self._where[part]))

    def _trace(self, part: Part) -> Callable[..., Any]:
        signature, compute = self._signature(part), getattr(self.graph, part)

        def traced(*flat: tf.Tensor) -> Any:
            self.count_traces += 1
            return compute(signature.wrap(flat))

        function: Callable[..., Any] = tf.function(traced, autograph=False).get_concrete_function(*signature.flat())
        return function

    def _signature(self, part: Part) -> StepArguments:
        """Return the specs of a part's arguments."""
        passes, n_replicas = self.graph.passes, self.graph.plan.n_replicas
        specs = [tf.TensorSpec(piece.shape, tf.float32) for piece in passes.pieces.pieces]
        updating = StepArguments(
            pieces=specs,
            history=[specs] * self.graph.update.rule.n_slots,
            rates=tf.TensorSpec((1,), tf.float32),
            updates=tf.TensorSpec((), tf.int64),
        )
        if part == "apply":
            return replace(updating, gradients=specs)
        nothing = np.zeros(passes.net.params.n_params, np.float32)
        carried = carried_state(passes.net, n_replicas, nothing)
        return replace(
            updating if part == "run" else StepArguments(pieces=specs),
            layer_state={name: tf.TensorSpec(array.shape, tf.float32) for name, array in carried.items()},
            step=tf.TensorSpec((), tf.int64),
            key=tf.TensorSpec((), tf.int32),
            feeds={
                feed_key(name, k): tf.TensorSpec(shape, tf.float32)
                for name, shape in fed_blobs(passes.net).items()
                for k in range(self.graph.solver.iter_size)
            },
            **(SCALE_SPECS if self.is_scaled else {}),
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


def _stacked(
    values_of_steps: Sequence[Any], shape: Sequence[int], dtype: npt.DTypeLike = np.float32
) -> npt.NDArray[Any]:
    """Return the values (n_steps, *shape) of all steps."""
    return (
        np.stack([as_numpy(value) for value in values_of_steps])
        if len(values_of_steps)
        else np.zeros((0, *shape), dtype)
    )


def _columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    return [[row[k] for row in rows] for k in range(width)]
