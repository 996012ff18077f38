"""Calls of a step's traced graph, on one device and on several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, ClassVar, Literal

import numpy as np
import tensorflow as tf

from caffe_import.devices.pieces import Pieces
from caffe_import.tf_graph.step.arguments import StepArguments
from caffe_import.tf_graph.step.device_step import DeviceStepGraph, carried_state
from caffe_import.tf_graph.step.loss_scaling import SCALE_SPECS
from caffe_import.tf_graph.step.results import GradientResult, StepResult
from caffe_import.tf_graph.step.step_graph import StepGraph

Part = Literal["run", "gradient", "apply"]


@dataclass
class TracedCalls(ABC):
    """Traces each part of the graph at its first call. Thread-safe.

    Attributes:
        graph: The graph whose parts are traced.
        is_scaled: Is the loss scaled?
        n_replicas: Copies of the net that share a step's passes.
        count_traces: How often TensorFlow traced anything.
    """

    graph: StepGraph | DeviceStepGraph
    is_scaled: bool
    n_replicas: int = 1
    count_traces: int = 0
    _lock: Lock = field(default_factory=Lock)
    _functions: dict[Part, Any] = field(default_factory=dict)

    params_field: ClassVar[str]
    """Field of ``StepArguments`` for the parameters."""
    gradient_field: ClassVar[str]
    """Field of ``StepArguments`` for a given gradient."""
    n_prepared_steps: ClassVar[int]
    """Steps of the smallest run that traces the graph."""

    @abstractmethod
    def state_arguments(self, params: Any, history: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Return parameters and history as arguments of ``run``, by field of ``StepArguments``."""

    @abstractmethod
    def run(self, arguments: StepArguments) -> StepResult:
        """Make a step per rate; return state and stacked reports, the history as ``Pieces``."""

    def gradient(self, arguments: StepArguments) -> GradientResult:
        """Return gradient and state of one step's passes."""
        result: GradientResult = self._call("gradient", self._of_step(arguments, 0))
        return replace(result, gradient=self._vector(result.gradient), params=self._vector(result.params))

    def apply(self, arguments: StepArguments) -> tuple[Any, list[Pieces]]:
        """Return parameters and slots after the update by a given gradient."""
        params, history = self._call("apply", arguments)
        return self._vector(params), self._slots(history)

    @abstractmethod
    def feed_to_device(self, name: str, rows: Any) -> Any:
        """Return the batches of a fed blob, of whole steps, each on the device of the pass."""

    @abstractmethod
    def cut(self, vector: Any) -> Any:
        """Return a vector as the graph takes it."""

    @abstractmethod
    def _own_signature(self) -> StepArguments:
        """Return the specs of parameters, rates, key and feeds."""

    @abstractmethod
    def _placed(self, part: Part, leaves: Sequence[Any]) -> Iterable[tf.Tensor]:
        """Return the arguments as tensors, each where the graph reads it."""

    def _of_step(self, arguments: StepArguments, _step: int) -> StepArguments:
        """Return the arguments with the batches of a step of the call."""
        return arguments

    def _vector(self, content: Any) -> Any:
        """Return parameters or a gradient from the graph as a result of the call."""
        return content

    def _pieces(self, content: Sequence[Any]) -> Pieces:
        return Pieces(self.graph.passes.pieces, tuple(content))

    def _slots(self, history: Sequence[Sequence[Any]]) -> list[Pieces]:
        return [self._pieces(slot) for slot in history]

    def _call(self, part: Part, arguments: StepArguments) -> Any:
        """Call a traced function with a flat row of tensors.

        A call through ``tf.function`` with nested arguments costs half a millisecond of Python, a call of the traced
        function 0.2, of its inference function 0.06. A worker with an exchange at every step pays at every step.
        """
        with self._lock:
            if part not in self._functions:
                self._functions[part] = self._trace(part)
        function = self._functions[part]
        return function.inference_fn.call_preflattened(
            [*self._placed(part, arguments.flat()), *function.captured_inputs]
        )

    def _trace(self, part: Part) -> Any:
        signature = self._signature(part)

        def traced(*flat: tf.Tensor) -> Any:
            self.count_traces += 1
            return self._computed(part, signature, flat)

        return tf.function(traced, autograph=False).get_concrete_function(*signature.flat())

    def _computed(self, part: Part, signature: StepArguments, flat: Sequence[tf.Tensor]) -> Any:
        return getattr(self.graph, part)(signature.wrap(flat))

    def _signature(self, part: Part) -> StepArguments:
        """Return the specs of a part's arguments."""
        passes, update, signature = self.graph.passes, self.graph.update, self._own_signature()
        params: Mapping[str, Any] = {self.params_field: getattr(signature, self.params_field)}
        updating = StepArguments(
            **params,
            rates=signature.rates,
            history=[[tf.TensorSpec(piece.shape, tf.float32) for piece in passes.pieces.pieces]] * update.rule.n_slots,
            blob_factors=tf.TensorSpec((len(passes.pieces.pieces),), tf.float32) if update.with_blob_factors else None,
            updates=tf.TensorSpec((), tf.int64),
        )
        if part == "apply":
            return replace(updating, **{self.gradient_field: params[self.params_field]})
        state = carried_state(passes.net, self.n_replicas, np.zeros(passes.net.params.n_params, np.float32))
        return replace(
            updating if part == "run" else StepArguments(**params),
            layer_state={name: tf.TensorSpec(array.shape, tf.float32) for name, array in state.items()},
            step=tf.TensorSpec((), tf.int64),
            key=signature.key,
            feeds=signature.feeds,
            **(SCALE_SPECS if self.is_scaled else {}),
        )
