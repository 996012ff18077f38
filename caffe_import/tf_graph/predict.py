"""A net compiled for forward passes alone: evaluation, test nets, export checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from caffe_import.errors import NetError
from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.net.reshaped_net import reshaped
from caffe_import.tf_graph.builder import Forward, build_forward, fed_blobs, initial_layer_state, random_key
from caffe_import.tf_graph.debug_values import DebugTaps
from caffe_import.tf_graph.device_copies import to_device
from caffe_import.tf_graph.fixed_weights import taken_as_fixed, values_of_weights
from caffe_import.tf_graph.other_shapes import OtherShapes, other_shapes_of
from caffe_import.tf_graph.threads import set_threads

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ForwardPass:
    """Result of a pass.

    Attributes:
        blobs: The blobs asked for, in Caffe's shapes.
        loss: The weighted loss of the pass.
        params: (n_params,), as given but for statistics that the pass moved (BatchNorm with batch statistics).
        layer_state: For the next pass of the same sequence (LSTM, RNN).
    """

    blobs: dict[str, Array]
    loss: float
    params: tf.Tensor | Vector
    layer_state: Mapping[str, tf.Tensor | Array]


@dataclass(frozen=True)
class FixedPass:
    """Result of a pass of fixed or prepared parameters; attributes as of ``ForwardPass``.

    Attributes:
        debug: The values of ``debug_info.forward_lines``; None unless asked for.
    """

    blobs: dict[str, Array]
    loss: float
    layer_state: Mapping[str, tf.Tensor | Array]
    debug: Array | None = None


class ForwardFunction:
    """The compiled pass. Made by ``compile_forward``; keeps nothing between calls and is safe to share.

    Attributes:
        net: The net.
        outputs: Names of the blobs that a call returns.
        count_traces: How often TensorFlow traced it; stays 1.
    """

    def __init__(self, net: NetSpec, outputs: Sequence[str], device: str = "") -> None:
        """Fix the signature; tracing happens at the first call."""
        self._device = device
        self.net = net
        self.outputs = tuple(outputs)
        self.count_traces = 0
        self._forward = build_forward(net)
        self._fed = fed_blobs(net)
        signature = [tf.TensorSpec((net.params.n_params,), tf.float32), *_signature(net)]
        self._function = tf.function(self._traced, input_signature=signature, autograph=False)

    def __call__(self, params: tf.Tensor | Vector, feeds: Mapping[str, Array], seed: int = 0) -> dict[str, Array]:
        """Return the output blobs of a pass from empty layer state.

        Args:
            params: float32 (n_params,), a tensor or a numpy vector.
            feeds: Blob name -> float32 in Caffe's shape, for every name in ``builder.fed_blobs``; others are ignored.
            seed: For layers that draw numbers.

        Raises:
            ValueError: A feed is missing or has the wrong shape.
        """
        return self.run(params, feeds, layer_state=initial_layer_state(self.net), seed=seed).blobs

    def run(
        self,
        params: tf.Tensor | Vector,
        feeds: Mapping[str, Array],
        *,
        layer_state: Mapping[str, tf.Tensor | Array],
        seed: int = 0,
    ) -> ForwardPass:
        """Run a pass and return all results; arguments as in ``__call__``."""
        inputs = _inputs(layer_state, seed, _checked(feeds, self._fed), self._device)
        arguments = (_tensor(params, self._device), *inputs)
        blobs, loss, params_after, state = _called(self._function, arguments, self._device)
        return ForwardPass({name: blob.numpy() for name, blob in blobs.items()}, float(loss), params_after, state)

    def _traced(self, params: tf.Tensor, layer_state: Any, seed: tf.Tensor, feeds: Any) -> Any:
        self.count_traces += 1
        entries = self._forward.entries(params)
        result = self._forward.on_entries(entries, layer_state, seed, feeds)
        if result.param_updates:
            entries_after = [result.param_updates.get(k, entry) for k, entry in enumerate(entries)]
            params = tf.concat([tf.reshape(entry, (-1,)) for entry in entries_after], axis=0)
        blobs = {name: result.blobs[name].caffe for name in self.outputs}
        return blobs, result.loss, params, dict(result.state)


class FixedForward:
    """The compiled pass of one vector of parameters. Made by ``compile_fixed_forward``; safe to share.

    A call does not order the weights for the kernels anew, and a BatchNorm with stored statistics behind a convolution
    is part of the convolution's weights.

    Attributes:
        net: The net.
        outputs: Names of the blobs that a call returns.
        graph: The traced pass.
    """

    def __init__(
        self, net: NetSpec, params: Vector, outputs: Sequence[str], device: str = "", *, takes_sizes: bool = False
    ) -> None:
        """Trace the pass, and keep what the graph needs of ``params``, float32 (n_params,)."""
        self.net = net
        self.outputs = tuple(outputs)
        self._device = device
        self._fed = fed_blobs(net)
        self._singles = _Singles(net, params, self.outputs, device) if takes_sizes else None
        forward = build_forward(net, has_gradient=False)
        entries = forward.fixed_entries(params)

        def traced(layer_state: Any, seed: tf.Tensor, feeds: Any) -> Any:
            result = forward.on_entries(entries, layer_state, seed, feeds)
            return {name: result.blobs[name].caffe for name in self.outputs}, result.loss, dict(result.state)

        function = tf.function(traced, input_signature=_signature(net), autograph=False)
        with tf.device(device or None):
            self._function = function.get_concrete_function()
        self.graph = self._function.graph
        entries.clear()  # the graph has copies

    def __call__(self, feeds: Mapping[str, Array], seed: int = 0) -> dict[str, Array]:
        """Return the output blobs of a pass from empty layer state; arguments as of ``ForwardFunction``."""
        return self.run(feeds, layer_state=initial_layer_state(self.net), seed=seed).blobs

    def run(
        self, feeds: Mapping[str, Array], *, layer_state: Mapping[str, tf.Tensor | Array], seed: int = 0
    ) -> FixedPass:
        """Run a pass and return all results; arguments as of ``ForwardFunction``."""
        if self._singles is not None and other_shapes_of(_shapes(feeds, self._fed), self._fed):
            return self._singles.run(feeds, layer_state=layer_state, seed=seed)
        inputs = _inputs(layer_state, seed, _checked(feeds, self._fed), self._device)
        blobs, loss, state = _called(self._function, inputs, self._device)
        return FixedPass({name: blob.numpy() for name, blob in blobs.items()}, float(loss), state)


class _Singles:
    """Passes of ``FixedForward`` for single samples of any size. Nothing is compiled before the first of them."""

    def __init__(self, net: NetSpec, params: Vector, outputs: Sequence[str], device: str) -> None:
        self._net = net
        self._params = params
        self._outputs = outputs
        self._device = device
        self._lock = Lock()

    def run(self, feeds: Mapping[str, Array], **arguments: Any) -> FixedPass:
        """Run a pass; arguments as of ``PreparedForward``."""
        with self._lock:
            forward, values = self._prepared
        return forward.run(values, feeds, **arguments)

    @cached_property
    def _prepared(self) -> tuple[PreparedForward, list[tf.Tensor]]:
        single = reshaped(self._net, {name: (1, *shape[1:]) for name, shape in fed_blobs(self._net).items()})
        forward = PreparedForward(single, self._outputs, device=self._device)
        return forward, forward.prepared(self._params)


class PreparedForward:
    """The compiled pass for parameters of many passes. Made by ``compile_prepared_forward``; safe to share.

    As ``FixedForward``, for parameters that change now and then: other parameters need no tracing, only a preparation.
    A small value is no constant here, so that TensorFlow orders the value for its kernels in each pass. Single samples
    of other sizes have graphs of their own, which read the same values.

    Attributes:
        net: The net.
        outputs: Names of the blobs that a call returns.
    """

    def __init__(self, net: NetSpec, outputs: Sequence[str], *, debug_info: bool = False, device: str = "") -> None:
        """Fix the signature; tracing happens at the first preparation."""
        self.net = net
        self.outputs = tuple(outputs)
        self._device = device
        self._with_debug = debug_info
        self._fed = fed_blobs(net)
        self._forward = build_forward(net, has_gradient=False)
        self._graphs_of_sizes = OtherShapes(net, self._other_graphs)

    def prepared(self, params: Vector) -> list[tf.Tensor]:
        """Return what ``run`` takes for parameters, float32 (n_params,), which may be written afterwards."""
        vector = to_device(params, self._device) if self._device else tf.constant(params)
        with tf.device(self._device or None):
            values: list[tf.Tensor] = self.graphs.prepare(vector)
        return values

    def run(
        self,
        values: list[tf.Tensor],
        feeds: Mapping[str, Array],
        *,
        layer_state: Mapping[str, tf.Tensor | Array],
        seed: int = 0,
    ) -> FixedPass:
        """Run a pass with ``prepared`` values; other arguments as of ``ForwardFunction``."""
        other_shapes = other_shapes_of(_shapes(feeds, self._fed), self._fed)
        graphs = self._graphs_of_sizes.of(other_shapes) if other_shapes else self.graphs
        inputs = _inputs(layer_state, seed, _checked(feeds, other_shapes or self._fed), self._device)
        blobs, loss, state, debug = _called(graphs.run, (values, *inputs), self._device)
        numbers = {name: blob.numpy() for name, blob in blobs.items()}
        return FixedPass(numbers, float(loss), state, debug.numpy() if self._with_debug else None)

    @cached_property
    def graphs(self) -> PreparedGraphs:
        """Both parts of the graph, traced at first use."""
        return self._traced(self.net, self._forward)

    def _other_graphs(self, net: NetSpec) -> PreparedGraphs:
        graphs = self._traced(net, build_forward(net, has_gradient=False))
        if graphs.value_names != self.graphs.value_names:
            differing = ", ".join(sorted({*graphs.value_names} ^ {*self.graphs.value_names}))
            msg = f'net "{net.name}" computes from its weights what depends on the size of a sample: {differing}'
            raise NetError(msg)
        return graphs

    def _traced(self, net: NetSpec, forward: Forward) -> PreparedGraphs:
        arguments: tuple[Any, ...] = ()
        results: tuple[Any, ...] = ()

        def traced(params: tf.Tensor, *inputs: Any) -> list[tf.Tensor]:
            nonlocal arguments, results
            entries = forward.entries(params)
            with taken_as_fixed(entries):
                results = self._results(forward, entries, *inputs)
            arguments = (params, *inputs)
            flat: list[tf.Tensor] = tf.nest.flatten(results)
            return flat

        signature = [tf.TensorSpec((net.params.n_params,), tf.float32), *_signature(net)]
        with tf.device(self._device or None):
            uncut = tf.compat.v1.wrap_function(traced, signature)
            values = values_of_weights(arguments[0], tf.nest.flatten(results))
            of_weights = uncut.prune(arguments[0], values)
            of_pass = uncut.prune([*values, *tf.nest.flatten(arguments[1:])], tf.nest.flatten(results))
        # TensorFlow optimises the graph of a tf.function, and not that of a pruned function. A direct call of a pruned
        # function also reads the arguments for an error message that nobody sees.
        prepare = tf.function(of_weights, input_signature=signature[:1], autograph=False)
        run = tf.function(
            lambda *flat: tf.nest.pack_sequence_as(results, of_pass(*tf.nest.flatten(flat))),
            input_signature=[[tf.TensorSpec(value.shape, value.dtype) for value in values], *signature[1:]],
            autograph=False,
        )
        with tf.device(self._device or None):
            names = tuple(value.name for value in values)
            return PreparedGraphs(uncut, prepare, run.get_concrete_function(), of_pass.graph, names)

    def _results(
        self,
        forward: Forward,
        entries: list[tf.Tensor],
        layer_state: Mapping[str, tf.Tensor],
        seed: tf.Tensor,
        feeds: Mapping[str, tf.Tensor],
    ) -> tuple[Any, ...]:
        taps = DebugTaps(self.net) if self._with_debug else None
        result = forward.on_entries(entries, layer_state, seed, feeds, taps.top if taps else None)
        debug = tf.stack(taps.forward(result, entries)) if taps else tf.zeros((0,))
        blobs = {name: result.blobs[name].caffe for name in self.outputs}
        return blobs, result.loss, dict(result.state), debug


@dataclass(frozen=True)
class PreparedGraphs:
    """The parts of ``PreparedForward``.

    Attributes:
        uncut: The graph before the cut; keeps Python functions of layers alive.
        prepare: Vector of parameters -> values that the pass reads.
        run: The pass.
        of_pass: The pass' graph.
        value_names: Names of the values in the graph before the cut.
    """

    uncut: Any
    prepare: Callable[[tf.Tensor], list[tf.Tensor]]
    run: Callable[..., Any]
    of_pass: tf.Graph
    value_names: tuple[str, ...]


def _signature(net: NetSpec) -> list[Any]:
    """Return the signature of layer state, key and feeds."""
    return [
        {name: tf.TensorSpec(array.shape, tf.float32) for name, array in initial_layer_state(net).items()},
        tf.TensorSpec((2,), tf.int32),
        {name: tf.TensorSpec(shape, tf.float32) for name, shape in fed_blobs(net).items()},
    ]


def _shapes(feeds: Mapping[str, Array], fed: Mapping[str, Shape]) -> dict[str, Shape]:
    return {name: tuple(feeds[name].shape) for name in fed if name in feeds}


def _checked(feeds: Mapping[str, Array], fed: Mapping[str, Shape]) -> dict[str, Array]:
    """Return the feeds that the net reads.

    Raises:
        ValueError: A feed is missing or has the wrong shape.
    """
    for name, shape in fed.items():
        if name not in feeds or tuple(feeds[name].shape) != shape:
            feed_state = f"has shape {tuple(feeds[name].shape)}" if name in feeds else "is missing"
            msg = f'feed for blob "{name}" {feed_state}; expected float32 {shape}'
            raise ValueError(msg)
    return {name: feeds[name] for name in fed}


def _inputs(layer_state: Mapping[str, tf.Tensor | Array], seed: int, feeds: Mapping[str, Array], device: str) -> Any:
    """Return layer state, key and feeds as tensors.

    A call of a concrete function with tensors takes 0.2 ms less than a call of a ``tf.function`` with arrays.
    """
    state = {name: _tensor(value, device) for name, value in layer_state.items()}
    key = _tensor(np.array([random_key(seed), 0], np.int32), device, tf.int32)
    return state, key, {name: _tensor(value, device) for name, value in feeds.items()}


def _tensor(value: tf.Tensor | Array, device: str, dtype: tf.DType = tf.float32) -> tf.Tensor:
    return to_device(value, device) if device else tf.convert_to_tensor(value, dtype)


def _called(function: Any, arguments: tuple[Any, ...], device: str) -> Any:
    with tf.device(device) if device else nullcontext():
        return function(*arguments)


def compile_forward(
    net: NetSpec, *, n_threads: int, outputs: Sequence[str] | None = None, device: str = ""
) -> ForwardFunction:
    """Compile a net's forward pass.

    Args:
        net: Any phase.
        n_threads: Cores for this process (see ``set_threads``).
        outputs: Blobs to return; None for the net's outputs.
        device: TensorFlow's name of the device to compute on; empty: its own choice.

    Raises:
        NetError: A layer type that cannot be computed, or an output that the net does not have.
    """
    names = _checked_outputs(net, outputs)
    set_threads(n_threads)
    return ForwardFunction(net, names, device)


def compile_fixed_forward(
    net: NetSpec,
    params: Vector,
    *,
    n_threads: int,
    outputs: Sequence[str] | None = None,
    device: str = "",
    takes_sizes: bool = False,
) -> FixedForward:
    """Compile a net's forward pass for many calls with the same parameters, for the life of the process.

    Args:
        net: Any phase.
        params: float32 (n_params,); not needed after the call, unless ``takes_sizes``.
        n_threads: See ``compile_forward``.
        outputs: See ``compile_forward``.
        device: See ``compile_forward``.
        takes_sizes: Take also single samples, of any size.

    Raises:
        NetError: See ``compile_forward``.
    """
    names = _checked_outputs(net, outputs)
    set_threads(n_threads)
    return FixedForward(net, params, names, device, takes_sizes=takes_sizes)


def compile_prepared_forward(
    net: NetSpec,
    *,
    n_threads: int,
    outputs: Sequence[str] | None = None,
    debug_info: bool = False,
    device: str = "",
) -> PreparedForward:
    """Compile a net's forward pass for many calls with the same parameters, and then others.

    Args:
        net: Any phase.
        n_threads: See ``compile_forward``.
        outputs: See ``compile_forward``.
        debug_info: Compute the numbers of ``debug_info`` too.
        device: See ``compile_forward``.

    Raises:
        NetError: See ``compile_forward``.
    """
    names = _checked_outputs(net, outputs)
    set_threads(n_threads)
    return PreparedForward(net, names, debug_info=debug_info, device=device)


def _checked_outputs(net: NetSpec, outputs: Sequence[str] | None) -> tuple[str, ...]:
    names = net.outputs if outputs is None else tuple(outputs)
    for name in names:
        net.blob_shape(name)
    return names
