"""Calls of the traced graph of one device: all steps in a single call, the parameters as a single vector.

TensorFlow keeps the arguments of a call in memory until the call ends. So a run's parameters and history are no
arguments: they wait in a staging area, and the graph takes them from there. The graph writes the new state into their
memory, unless somebody else has the tensors, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from typing import Any, ClassVar, Final

import numpy as np
import tensorflow as tf

from caffe_import.tf_graph.builder import fed_blobs
from caffe_import.tf_graph.device_copies import HOST, tensor_in_memory_of, to_device
from caffe_import.tf_graph.step.arguments import StepArguments
from caffe_import.tf_graph.step.results import StepResult
from caffe_import.tf_graph.step.traced_calls import Part, TracedCalls

_AREAS: Final = count()
"""Numbers of the process's staging areas."""


@cache
def _host_range(stop: int) -> tf.Tensor:
    with tf.device(HOST):
        return tf.range(stop)


@dataclass
class WholeCalls(TracedCalls):
    """Calls of a ``StepGraph``.

    Attributes:
        devices: TensorFlow's name of the device; empty: its own choice.
    """

    devices: Sequence[str] = ()
    _area: str = field(default_factory=lambda: f"states {next(_AREAS)}")
    _numbers: Iterator[int] = field(default_factory=count)

    params_field: ClassVar[str] = "params"
    gradient_field: ClassVar[str] = "gradient"
    n_prepared_steps: ClassVar[int] = 0

    def state_arguments(self, params: Any, history: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """See ``TracedCalls.state_arguments``: puts the state into the staging area."""
        # A tensor for each argument: TensorFlow then calls the operation in a third of the time. It keeps each new
        # integer of Python for ever.
        number = tf.convert_to_tensor(np.int64(next(self._numbers)))
        tensors = [self._on_device(leaf) for leaf in (self.cut(params), *(blob for slot in history for blob in slot))]
        with tf.device(self.devices[0]) if self.devices else nullcontext():
            tf.raw_ops.MapStage(key=number, values=tensors, **self._staging(_host_range(len(tensors))))
        return {"staged": number}

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
            return leaf if isinstance(leaf, tf.Tensor) else tf.convert_to_tensor(leaf)
        return to_device(np.int64(leaf) if isinstance(leaf, np.int32) else leaf, self.devices[0])

    def _computed(self, part: Part, signature: StepArguments, flat: Sequence[tf.Tensor]) -> Any:
        arguments = signature.wrap(flat)
        if self.devices:
            # A block of tf.device ends before TensorFlow adds copies of the results, for the staging area's sake.
            tf.compat.v1.get_default_graph()._add_device_to_stack(self.devices[0])
            key = None if arguments.key is None else tf.cast(arguments.key, tf.int32)
            arguments = replace(arguments, key=key)
        if arguments.staged is not None:
            arguments = self._with_staged(arguments)
        return getattr(self.graph, part)(arguments)

    def _staging(self, indices: Any) -> dict[str, Any]:
        """Return the common arguments of TensorFlow's operations on the staging area."""
        return {"indices": indices, "dtypes": [tf.float32] * len(indices), "shared_name": self._area}

    def _with_staged(self, arguments: StepArguments) -> StepArguments:
        """Return the arguments with parameters and history from the staging area."""
        specs = super()._signature("run")
        leaves = [specs.params, *(spec for slot in specs.history for spec in slot)]
        tensors = tf.raw_ops.MapUnstage(key=arguments.staged, **self._staging(np.arange(len(leaves), dtype=np.int32)))
        shaped = iter([tf.ensure_shape(tensor, spec.shape) for tensor, spec in zip(tensors, leaves, strict=True)])
        params = next(shaped)
        history = [[next(shaped) for _ in slot] for slot in specs.history]
        return replace(arguments, staged=None, params=params, history=history)

    def _signature(self, part: Part) -> StepArguments:
        signature = super()._signature(part)
        if part != "run":
            return signature
        return replace(signature, params=None, history=(), staged=tf.TensorSpec((), tf.int64))

    def _own_signature(self) -> StepArguments:
        net = self.graph.passes.net
        return StepArguments(
            params=tf.TensorSpec((net.params.n_params,), tf.float32),
            rates=tf.TensorSpec((None,), tf.float32),
            # TensorFlow leaves every int32 scalar on the host.
            key=tf.TensorSpec((), tf.int64 if self.devices else tf.int32),
            feeds={name: tf.TensorSpec((None, *shape), tf.float32) for name, shape in fed_blobs(net).items()},
        )
