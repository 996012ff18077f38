"""Calls of the traced graph of one device: all steps in one call, the parameters as one vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from caffe_import.devices.pieces import Pieces
from caffe_import.tf_graph.builder import fed_blobs, initial_layer_state
from caffe_import.tf_graph.device_copies import to_device
from caffe_import.tf_graph.step.arguments import StepArguments
from caffe_import.tf_graph.step.loss_scaling import SCALE_SPECS
from caffe_import.tf_graph.step.step_graph import StepGraph

Part = Literal["run", "gradient", "apply"]


@dataclass
class WholeCalls:
    """Traces each part of the graph at its first call. Thread-safe.

    Attributes:
        graph: What is traced.
        devices: TensorFlow's name of the device; empty: its own choice.
        is_scaled: Is the loss scaled?
        count_traces: How often TensorFlow traced anything.
    """

    graph: StepGraph
    devices: Sequence[str]
    is_scaled: bool
    count_traces: int = 0
    _lock: Lock = field(default_factory=Lock)
    _functions: dict[Part, Callable[..., Any]] = field(default_factory=dict)

    def run(self, arguments: StepArguments) -> Any:
        """See ``StepGraph.run``; the history comes back as ``Pieces``."""
        params, history, *reports = self._call("run", arguments)
        return params, self._pieces(history), *reports

    def gradient(self, arguments: StepArguments) -> Any:
        """See ``StepGraph.gradient``."""
        return self._call("gradient", arguments)

    def apply(self, arguments: StepArguments) -> Any:
        """See ``StepGraph.apply``; the history comes back as ``Pieces``."""
        params, history = self._call("apply", arguments)
        return params, self._pieces(history)

    def feed_to_device(self, name: str, rows: Any) -> tf.Tensor:
        """Return the batches of a fed blob in the device's memory."""
        del name  # all are read on one device
        return self._placed(rows)

    def _pieces(self, history: Sequence[Sequence[tf.Tensor]]) -> list[Pieces]:
        return [Pieces(self.graph.passes.pieces, slot) for slot in history]

    def _call(self, part: Part, arguments: StepArguments) -> Any:
        """Call a traced function, which takes its tensors in one flat row.

        A call through ``tf.function`` with nested arguments costs half a millisecond of Python, a flat one of the
        traced function a fifth of that; a worker that exchanges at every step pays it at every step.
        """
        with self._lock:
            if part not in self._functions:
                self._functions[part] = self._trace(part)
        return self._functions[part](*map(self._placed, arguments.flat()))

    def _placed(self, leaf: Any) -> tf.Tensor:
        """Return an argument as a tensor where it is used; what the call before returned is there already.

        The scalars too: one that is elsewhere makes TensorFlow run the loops on both devices, in step.
        """
        if not self.devices:
            return tf.convert_to_tensor(leaf)
        return to_device(np.int64(leaf) if isinstance(leaf, np.int32) else leaf, self.devices[0])

    def _trace(self, part: Part) -> Callable[..., Any]:
        signature, compute = self._signature(part), getattr(self.graph, part)

        def traced(*flat: tf.Tensor) -> Any:
            self.count_traces += 1
            if not self.devices:
                return compute(signature.wrap(flat))
            with tf.device(self.devices[0]):
                arguments = signature.wrap(flat)
                return compute(
                    replace(arguments, key=None if arguments.key is None else tf.cast(arguments.key, tf.int32))
                )

        function: Callable[..., Any] = tf.function(traced, autograph=False).get_concrete_function(*signature.flat())
        return function

    def _signature(self, part: Part) -> StepArguments:
        entries = self.graph.net.params.entries
        vector = tf.TensorSpec((self.graph.net.params.n_params,), tf.float32)
        updating = StepArguments(
            params=vector,
            history=[
                [tf.TensorSpec(entry.shape, tf.float32) for entry in entries]
                for _ in range(self.graph.update.rule.n_slots)
            ],
            rates=tf.TensorSpec((None,), tf.float32),
            blob_factors=tf.TensorSpec((len(entries),), tf.float32) if self.graph.update.with_blob_factors else None,
            updates=tf.TensorSpec((), tf.int64),
        )
        if part == "apply":
            return replace(updating, gradient=vector)
        scale = SCALE_SPECS if self.is_scaled else {}
        return replace(
            updating if part == "run" else StepArguments(params=vector),
            layer_state={
                name: tf.TensorSpec(array.shape, tf.float32)
                for name, array in initial_layer_state(self.graph.net).items()
            },
            step=tf.TensorSpec((), tf.int64),
            # TensorFlow leaves every int32 scalar on the host.
            key=tf.TensorSpec((), tf.int64 if self.devices else tf.int32),
            feeds={
                name: tf.TensorSpec((None, *shape), tf.float32) for name, shape in fed_blobs(self.graph.net).items()
            },
            **scale,
        )
