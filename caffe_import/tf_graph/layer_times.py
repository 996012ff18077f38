"""Milliseconds of each layer, forward and backward, by the kernels that TensorFlow really runs (``caffe time``).

TensorFlow records when each kernel of a pass began and ended. Here the kernels run in turn, so the times add up; in
training two kernels may run at a time. On the CPU.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from caffe_import.devices.fused_layers import fused_scales
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.tf_graph.builder import build_forward, fed_blobs, initial_layer_state, scope_of

_BACKWARD: Final = "deepspark_backward"
"""Scope of the gradients; no layer is called that."""
_WARM_UP: Final = 5


@dataclass(frozen=True)
class LayerTime:
    """A layer's time in one pass of a batch, the median of the passes, in milliseconds.

    Attributes:
        layer: Its name.
        type: Its type.
        forward_ms: Of its kernels in the forward pass.
        backward_ms: In the backward pass, the gradients of its parameters included.
        computed_with: The layer whose kernel computes this one too, forward; empty if it has kernels of its own.
    """

    layer: str
    type: str
    forward_ms: float
    backward_ms: float
    computed_with: str


@dataclass(frozen=True)
class NetTimes:
    """The times of a net, in milliseconds.

    Attributes:
        layers: In the net's order.
        other_ms: Kernels of no layer: cutting the parameter vector, adding up gradients.
        forward_ms: A whole pass forward by the clock, without the recording; the median.
        pass_ms: A whole pass forward and backward, likewise.
        n_passes: How many were recorded, and how many timed by the clock.
    """

    layers: tuple[LayerTime, ...]
    other_ms: float
    forward_ms: float
    pass_ms: float
    n_passes: int


def measure_layers(
    net: NetSpec, params: Vector, feeds: Mapping[str, npt.NDArray[np.float32]], *, n_threads: int, n_passes: int
) -> NetTimes:
    """Run the net forward and backward and return the time of each layer.

    Args:
        net: Built for the phase that is measured. Without a loss it has no backward pass.
        params: Its parameter vector, float32 (n_params,), read only.
        feeds: Every blob of ``fed_blobs``, in Caffe's axis order. Reading data takes no part.
        n_threads: Threads of a kernel.
        n_passes: How many passes are recorded, and how many are timed by the clock.

    Raises:
        NetError: A layer type that cannot be computed.
    """
    traced = _Traced(net)
    values = {traced.params: params, **{placeholder: feeds[blob] for blob, placeholder in traced.feeds.items()}}
    options = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=n_threads, inter_op_parallelism_threads=1, device_count={"GPU": 0}
    )
    spent = _Spent(net)
    with tf.compat.v1.Session(graph=traced.graph, config=options) as session:

        def run(operations: Sequence[tf.Operation], **record: Any) -> float:
            began = time.perf_counter()
            session.run(operations, values, **record)
            return 1e3 * (time.perf_counter() - began)

        both = [*traced.forward, *traced.backward]
        for _ in range(_WARM_UP):
            run(both)
            run(traced.forward)
        pass_ms = median(run(both) for _ in range(n_passes))
        forward_ms = median(run(traced.forward) for _ in range(n_passes))
        record = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
        for _ in range(n_passes):
            metadata = tf.compat.v1.RunMetadata()
            run(both, options=record, run_metadata=metadata)
            for name, kind, milliseconds in _kernels(metadata):
                spent.add(traced.layer_of(name), kind, milliseconds, is_backward=f"{_BACKWARD}/" in name)
            spent.end_pass()
    layers, other_ms = spent.per_pass()
    return NetTimes(layers=layers, other_ms=other_ms, forward_ms=forward_ms, pass_ms=pass_ms, n_passes=n_passes)


class _Traced:
    """The net's two passes as a graph, and the layer of each kernel."""

    def __init__(self, net: NetSpec) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.params = tf.compat.v1.placeholder(tf.float32, [net.params.n_params])
            self.feeds = {blob: tf.compat.v1.placeholder(tf.float32, shape) for blob, shape in fed_blobs(net).items()}
            state = {name: tf.constant(value) for name, value in initial_layer_state(net).items()}
            forward = build_forward(net)
            entries = forward.entries(self.params)
            n_before = len(self.graph.get_operations())
            result = forward.on_entries(entries, state, tf.constant((1, 1)), self.feeds)
            ends = [result.loss, *(result.blobs[name].values for name in net.outputs)]
            ends += [*result.param_updates.values(), *result.state.values()]
            self.forward = [end.op for end in ends if end.op.type != "Placeholder"]  # what is fed is not run
            names = [operation.name for operation in self.graph.get_operations()[n_before:]]
            slopes = tf.gradients(result.loss, entries, name=_BACKWARD) if entries else []
            self.backward = [slope.op for slope in slopes if slope is not None]
        self._scopes = dict(_scopes(net, names, {scale.name for scale in forward.scales.values()}))

    def layer_of(self, kernel: str) -> int | None:
        """Return the position of a kernel's layer; None for a kernel outside layers."""
        parts = kernel.partition(f"{_BACKWARD}/")[2].split("/") if f"{_BACKWARD}/" in kernel else kernel.split("/")
        for length in range(len(parts) - 1, 0, -1):
            if (position := self._scopes.get("/".join(parts[:length]))) is not None:
                return position
        return None


def _scopes(net: NetSpec, names: Sequence[str], without: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield the scope of each layer's operations; TensorFlow adds a number to a used scope.

    The layers ``without`` operations have no scope. The other layers are traced in their order, so of two layers with
    the same scope the earlier has the lower number.
    """
    scope_names = {scope: None for name in names for scope in _scopes_around(name)}
    used_names: set[str] = set()
    for position, layer in enumerate(net.layers):
        if layer.name in without:
            continue
        scope = re.compile(rf"{re.escape(scope_of(layer))}(_\d+)?")
        mine = next((name for name in scope_names if name not in used_names and scope.fullmatch(name)), None)
        if mine is not None:
            used_names.add(mine)
            yield mine, position


def _scopes_around(name: str) -> Iterator[str]:
    parts = name.split("/")
    return ("/".join(parts[:length]) for length in range(1, len(parts)))


def _kernels(metadata: Any) -> Iterator[tuple[str, str, float]]:
    """Yield name, type and milliseconds of each kernel that ran."""
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            kind = node.timeline_label.partition("=")[2].strip().partition("(")[0]
            yield node.node_name, kind, (node.op_end_rel_nanos - node.op_start_rel_nanos) / 1e6


class _Spent:
    """Adds up kernels. A fused kernel has the name of the last layer; the time counts for the first layer."""

    def __init__(self, net: NetSpec) -> None:
        self._net = net
        self._pass: dict[tuple[int | None, bool], float] = defaultdict(float)
        self._passes: list[Mapping[tuple[int | None, bool], float]] = []
        positions = {layer.name: position for position, layer in enumerate(net.layers)}
        self._fused = {positions[scale.name]: positions[name] for name, scale in fused_scales(net).items()}

    def add(self, layer: int | None, kind: str, milliseconds: float, *, is_backward: bool) -> None:
        if layer is not None and "Fused" in kind and not is_backward:
            layer = self._first_of(layer)
        self._pass[layer, is_backward] += milliseconds

    def end_pass(self) -> None:
        """Keep what was added since the pass before."""
        self._passes.append(self._pass)
        self._pass = defaultdict(float)

    def _first_of(self, last: int) -> int:
        """Return the nearest layer before ``last`` with parameters, on the way of its first bottom; or ``last``."""
        between = []
        position = last
        while not self._net.layers[position].definition.blobs:
            between.append(position)
            maker = self._maker(position)
            if maker is None:
                return last
            position = maker
        position = self._fused.get(position, position)
        self._fused.update(dict.fromkeys(between, position))
        return position

    def _maker(self, position: int) -> int | None:
        """Return the layer before ``position`` that last made the first bottom; an in-place blob has several makers."""
        layer = self._net.layers[position]
        makers = [k for k in range(position) if layer.bottoms and layer.bottoms[0] in self._net.layers[k].tops]
        return makers[-1] if makers else None

    def per_pass(self) -> tuple[tuple[LayerTime, ...], float]:
        """Return the layers' times, and the time of kernels outside layers."""

        def of(position: int | None, *, is_backward: bool) -> float:
            return median(pass_times.get((position, is_backward), 0.0) for pass_times in self._passes)

        layers = tuple(
            LayerTime(
                layer=layer.name,
                type=layer.type,
                forward_ms=of(position, is_backward=False),
                backward_ms=of(position, is_backward=True),
                computed_with=self._name(self._fused.get(position)),
            )
            for position, layer in enumerate(self._net.layers)
        )
        return layers, of(None, is_backward=False) + of(None, is_backward=True)

    def _name(self, position: int | None) -> str:
        layer: LayerSpec | None = None if position is None else self._net.layers[position]
        return "" if layer is None else layer.name
