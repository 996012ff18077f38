"""Time the floor: ``floor_step.py NET N_THREADS``; no program with these kernels can be faster here.

Each convolution and product of the net runs alone and in sequence, by TensorFlow's primitives (oneDNN's kernels). A
step adds the kernels for the gradients of data and weights. Every other layer that no kernel can include reads and
writes its larger blob once, and twice more in a step. The update of a step reads three vectors and writes two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import tensorflow as tf

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "peers")]

from serve import serve  # noqa: E402

from benchmarks.speed.nets import NETS, build, forward_layers, read_message  # noqa: E402
from caffe_import.net.net_spec import LayerSpec, NetSpec  # noqa: E402

Operation = Callable[[], Any]
MEMORY_BOUND = ("Pooling", "LRN", "BatchNorm", "Concat", "Eltwise", "Crop", "Embed")
"""Every other layer in place can be part of the kernel before."""


@cache
def values(*shape: int) -> tf.Tensor:
    """Return random values of a shape, the same for all who ask."""
    with tf.init_scope():  # outside the traced graph
        return tf.random.stateless_uniform(shape, (1, 2))


def convolution(layer: LayerSpec) -> tuple[list[Operation], list[Operation]]:
    """Return the kernels of the forward pass, and the kernels of the backward pass."""
    options: Any = layer.definition.options
    image, scores = layer.bottom_shapes[0], layer.definition.top_shapes[0]
    window, is_transposed = options.window, layer.type == "Deconvolution"
    if is_transposed:
        image, scores = scores, image
    group = options.group
    kernel, strides = window.kernel, (1, *window.stride, 1)
    is_same = window.stride == (1, 1) and all(2 * pad == side - 1 for pad, side in zip(window.pad, kernel, strict=True))
    sides = [side + (0 if is_same else 2 * pad) for side, pad in zip(image[2:], window.pad, strict=True)]
    is_depthwise = group == image[1] > 1
    parts = 1 if is_depthwise else group
    shape = (image[0], *sides, image[1] // parts)
    weights_shape = (*kernel, image[1] // parts, 1 if is_depthwise else scores[1] // group)
    fields = {"strides": strides, "padding": "SAME" if is_same else "VALID"}
    raw = tf.raw_ops
    names = ("DepthwiseConv2dNative",) * 3 if is_depthwise else ("Conv2D",) * 3
    compute, to_data, to_weights = (
        getattr(raw, name + suffix) for name, suffix in zip(names, ("", "BackpropInput", "BackpropFilter"), strict=True)
    )
    out_shape = tf.nn.convolution(
        tf.zeros((1, *shape[1:-1], 1)), tf.zeros((*kernel, 1, 1)), window.stride, fields["padding"]
    ).shape[1:3]
    gradient = (image[0], *out_shape, scores[1] // parts)
    x, w, g = values(*shape), values(*weights_shape), values(*gradient)
    forward = lambda: compute(input=x, filter=w, **fields)  # noqa: E731
    data = lambda: to_data(input_sizes=shape, filter=w, out_backprop=g, **fields)  # noqa: E731
    blob = lambda: to_weights(input=x, filter_sizes=weights_shape, out_backprop=g, **fields)  # noqa: E731
    if is_transposed:
        forward, data = data, forward
    backward = [blob] + ([data] if layer.propagate_down[0] else [])
    return [forward] * parts, backward * parts


def product(rows: int, n_in: int, n_out: int, *, with_data: bool = True) -> tuple[list[Operation], list[Operation]]:
    """Return the kernels of a matrix product."""
    x, w, g = values(rows, n_in), values(n_out, n_in), values(rows, n_out)
    data = [lambda: tf.matmul(g, w)] if with_data else []
    return [lambda: tf.matmul(x, w, transpose_b=True)], [lambda: tf.matmul(g, x, transpose_a=True), *data]


def recurrence(options: Any) -> tuple[list[Operation], list[Operation]]:
    """Return the kernels of an LSTM; a step's product is with the transposed weights, the faster form."""
    n_steps, n_streams, n_hidden = options.n_steps, options.n_streams, options.n_hidden
    n_rows = 4 * n_hidden
    h, transposed, w, g = (
        values(*shape) for shape in ((n_streams, n_hidden), (n_hidden, n_rows), (n_rows, n_hidden), (n_streams, n_rows))
    )
    forward, backward = product(n_steps * n_streams, options.n_inputs, n_rows)
    blob = product(n_steps * n_streams, n_hidden, n_rows)[1][:1]
    step, data = lambda: tf.matmul(h, transposed), lambda: tf.matmul(g, w)
    return forward + [step] * n_steps, backward + blob + [data] * n_steps


def operations(layer: LayerSpec) -> tuple[list[Operation], list[Operation]]:
    """Return what a layer costs at least: forward, backward."""
    if layer.type in ("Convolution", "Deconvolution"):
        return convolution(layer)
    if layer.type == "InnerProduct":
        n_out, n_in = layer.definition.blobs[0].shape
        return product(prod(layer.bottom_shapes[0]) // n_in, n_in, n_out, with_data=layer.propagate_down[0])
    if layer.type == "LSTM":
        return recurrence(layer.definition.options)
    if layer.type in MEMORY_BOUND:
        size = max(prod(layer.definition.top_shapes[0]), *(prod(shape) for shape in layer.bottom_shapes))
        if layer.type == "Embed":
            size = prod(layer.definition.top_shapes[0])
        copy = lambda: values(size) + 1.0  # noqa: E731
        return [copy], [copy, copy]
    return [], []


def chained(operations: list[Operation]) -> Any:
    """Return a graph that runs the operations in sequence."""

    @tf.function(autograph=False)
    def run() -> tf.Tensor:
        previous: list[Any] = []
        values_of_all = []
        for operation in operations:
            with tf.control_dependencies(previous):
                previous = [operation()]
            # TensorFlow leaves out what nobody reads.
            values_of_all.append(tf.reshape(previous[0], (-1,))[0])
        return tf.add_n(values_of_all)

    return run


def update(spec: NetSpec) -> Operation:
    """Return a step of SGD with momentum over all weights."""
    size = sum(entry.size for entry in spec.params.entries if entry.kind == "weight")
    weights, history = tf.Variable(tf.zeros(size)), tf.Variable(tf.zeros(size))
    gradient = values(size)

    def run() -> Any:
        fields = {"var": weights.handle, "accum": history.handle, "lr": 1e-9, "grad": gradient, "momentum": 0.9}
        tf.raw_ops.ResourceApplyKerasMomentum(**fields)
        return tf.constant(0.0)

    return run


def main(name: str, n_threads: int) -> None:
    """Gather the operations and serve."""
    tf.config.threading.set_intra_op_parallelism_threads(n_threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    spec = build(NETS[name], read_message(NETS[name]))
    names = set(forward_layers(spec))
    costs = {layer.name: operations(layer) for layer in spec.layers}
    forward = chained([o for layer, cost in costs.items() if layer in names for o in cost[0]])
    step = chained([*_in_order(costs), update(spec)])

    def repeat(graph: Any) -> Callable[[int], None]:
        def run(n_steps: int) -> None:
            for _ in range(n_steps):
                graph().numpy()

        return run

    serve({"step": repeat(step), "forward": repeat(forward)}, {"version": tf.__version__}, lambda: 0.0)


def _in_order(costs: dict[str, tuple[list[Operation], list[Operation]]]) -> Iterator[Operation]:
    for forward, _ in costs.values():
        yield from forward
    for _, backward in reversed(costs.values()):
        yield from backward


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
