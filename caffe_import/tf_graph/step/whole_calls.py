"""Calls of the traced graph of one device: all steps in a single call, the parameters as a single vector."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from caffe_import.tf_graph.builder import fed_blobs
from caffe_import.tf_graph.device_copies import tensor_in_memory_of, to_device
from caffe_import.tf_graph.step.arguments import StepArguments
from caffe_import.tf_graph.step.results import StepResult
from caffe_import.tf_graph.step.traced_calls import Part, TracedCalls


@dataclass
class WholeCalls(TracedCalls):
    """Calls of a ``StepGraph``.

    Attributes:
        devices: TensorFlow's name of the device; empty: its own choice.
    """

    devices: Sequence[str] = ()

    params_field: ClassVar[str] = "params"
    gradient_field: ClassVar[str] = "gradient"
    n_prepared_steps: ClassVar[int] = 0

    def run(self, arguments: StepArguments) -> StepResult:
        """See ``TracedCalls.run``."""
        result: StepResult = self._call("run", arguments)
        return replace(result, history=self._slots(result.history))

    def feed_to_device(self, name: str, rows: Any) -> tf.Tensor:
        """Return the batches of a fed blob in the device's memory."""
        del name  # all are read on one device
        return self._on_device(rows)

    def cut(self, vector: Any) -> Any:
        """Return the vector itself, an array as a tensor in the array's memory."""
        return tensor_in_memory_of(vector) if isinstance(vector, np.ndarray) else vector

    def _placed(self, _part: Part, leaves: Sequence[Any]) -> Iterable[tf.Tensor]:
        return map(self._on_device, leaves)

    def _on_device(self, leaf: Any) -> tf.Tensor:
        """Return an argument as a tensor on the device; results of an earlier call are there already.

        The scalars too: a scalar elsewhere makes TensorFlow run the loops on both devices, in step.
        """
        if not self.devices:
            return tf.convert_to_tensor(leaf)
        return to_device(np.int64(leaf) if isinstance(leaf, np.int32) else leaf, self.devices[0])

    def _computed(self, part: Part, signature: StepArguments, flat: Sequence[tf.Tensor]) -> Any:
        if not self.devices:
            return super()._computed(part, signature, flat)
        with tf.device(self.devices[0]):
            arguments = signature.wrap(flat)
            key = None if arguments.key is None else tf.cast(arguments.key, tf.int32)
            return getattr(self.graph, part)(replace(arguments, key=key))

    def _own_signature(self) -> StepArguments:
        net = self.graph.passes.net
        return StepArguments(
            params=tf.TensorSpec((net.params.n_params,), tf.float32),
            rates=tf.TensorSpec((None,), tf.float32),
            # TensorFlow leaves every int32 scalar on the host.
            key=tf.TensorSpec((), tf.int64 if self.devices else tf.int32),
            feeds={name: tf.TensorSpec((None, *shape), tf.float32) for name, shape in fed_blobs(net).items()},
        )
