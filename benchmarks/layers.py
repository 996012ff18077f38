"""Time layers that TensorFlow lacks beside similar layers of TensorFlow: ``python benchmarks/layers.py``.

A pair is a layer of this project, built from a prototxt, and the most similar layer of TensorFlow. Both have the same
number of values or multiply-adds, forward and backward (gradients of input and weights). Both run in this process in
turns. Figures are medians of the rounds in milliseconds, wall time and processor time, and their ratios. The bar: no
ratio above 1.5.

  lrn_within      LRN within channels       tf.nn.lrn, which goes across channels
  pool_max_ceil   MAX pooling, rounded up   VALID pooling of an image with the same number of windows
  pool_ave_ceil   AVE pooling, rounded up   likewise
  pool_ave_pad    padded AVE pooling        SAME pooling, which does not count the padding
  pool_ave_pad_stride  likewise, stride 2   VALID pooling with the same number of windows
  conv_group_*    AlexNet's convolutions    a convolution without groups, with the same number of multiply-adds
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[1]))

import tensorflow as tf

from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import build_net_spec
from caffe_import.tf_graph.builder import registered_emitters
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.emitters import EmitRequest

TARGET = 1.5
BATCH = 16

Values = tf.Tensor
Layer = Callable[..., Values]
"""Layer of an image (N, H, W, C) and optional weights; returns (N, H', W', C')."""


@dataclass(frozen=True)
class Pair:
    """A comparison.

    Attributes:
        prototxt: Layer of this project, without name, bottom and top.
        image: Input of this layer (C, H, W).
        neighbour: TensorFlow's layer.
        neighbour_image: Input of TensorFlow's layer (H, W, C).
        neighbour_weights: Shape of the kernels (kh, kw, in, out), or None.
    """

    prototxt: str
    image: tuple[int, int, int]
    neighbour: Layer
    neighbour_image: tuple[int, int, int]
    neighbour_weights: tuple[int, int, int, int] | None = None


def _conv(image: Values, kernels: Values) -> Values:
    return tf.nn.conv2d(image, kernels, 1, "SAME")


def _grouped(image: tuple[int, int, int], n_outputs: int, kernel: int) -> Pair:
    """Return a convolution of two groups beside a convolution without groups, which has half of the outputs."""
    channels, height, width = image
    text = f"num_output: {n_outputs} kernel_size: {kernel} pad: {kernel // 2} group: 2 bias_term: false"
    return Pair(
        f'type: "Convolution" convolution_param {{ {text} }}',
        image,
        _conv,
        (height, width, channels),
        (kernel, kernel, channels, n_outputs // 2),
    )


PAIRS = {
    "lrn_within": Pair(
        'type: "LRN" lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 norm_region: WITHIN_CHANNEL }',
        (96, 27, 27),
        lambda x: tf.nn.lrn(x, 2, 1.0, 0.0001 / 5, 0.75),
        (27, 27, 96),
    ),
    "pool_max_ceil": Pair(
        'type: "Pooling" pooling_param { pool: MAX kernel_size: 3 stride: 2 }',
        (64, 112, 112),
        lambda x: tf.nn.max_pool2d(x, 3, 2, "VALID"),
        (113, 113, 64),
    ),
    "pool_ave_ceil": Pair(
        'type: "Pooling" pooling_param { pool: AVE kernel_size: 3 stride: 2 }',
        (64, 112, 112),
        lambda x: tf.nn.avg_pool2d(x, 3, 2, "VALID"),
        (113, 113, 64),
    ),
    "pool_ave_pad": Pair(
        'type: "Pooling" pooling_param { pool: AVE kernel_size: 3 stride: 1 pad: 1 }',
        (192, 28, 28),
        lambda x: tf.nn.avg_pool2d(x, 3, 1, "SAME"),
        (28, 28, 192),
    ),
    "pool_ave_pad_stride": Pair(
        'type: "Pooling" pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }',
        (192, 28, 28),
        lambda x: tf.nn.avg_pool2d(x, 3, 2, "VALID"),
        (31, 31, 192),
    ),
    "conv_group_conv2": _grouped((96, 27, 27), 256, 5),
    "conv_group_conv4": _grouped((384, 13, 13), 384, 3),
    "conv_group_conv5": _grouped((384, 13, 13), 256, 3),
}


def our_layer(pair: Pair) -> tuple[Layer, tuple[int, ...] | None]:
    """Return the layer of this project, and the shape of the weights or None."""
    dims = " ".join(f"dim: {extent}" for extent in (BATCH, *pair.image))
    net = build_net_spec(
        parse_net(
            f'layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ {dims} }} }} }} '
            f'layer {{ name: "y" bottom: "x" top: "y" {pair.prototxt} }}'
        ),
        phase="TRAIN",
    )
    layer = net.layers[-1]
    emit = registered_emitters()[layer.type]

    def run(image: Values, *weights: Values) -> Values:
        request = EmitRequest(layer, True, [Blob.from_channels_last(image)], weights, tf.constant([0, 0]), {})
        return emit(request).tops[0].channels_last

    return run, layer.definition.blobs[0].shape if layer.definition.blobs else None


def compiled(layer: Layer, image: tuple[int, ...], weights: tuple[int, ...] | None) -> Callable[[], None]:
    """Return a compiled forward and backward pass on fixed random values."""
    arguments = [tf.random.stateless_uniform((BATCH, *image), (1, 2))]
    if weights is not None:
        arguments.append(tf.random.stateless_normal(weights, (3, 4)))

    @tf.function(autograph=False)
    def both(*values: Values) -> list[Values]:
        top = layer(*values)
        # The top is the gradient too, so the compiler cannot fold a constant.
        gradients = tf.gradients(top, list(values), top)
        return [tf.reduce_max(gradient) for gradient in gradients]

    both(*arguments)

    def run() -> None:
        for result in both(*arguments):
            result.numpy()

    return run


class Cost(NamedTuple):
    """Milliseconds of a pass, wall time and processor time. Other programs disturb processor time less."""

    ms: float
    cpu_ms: float


def timed(run: Callable[[], None], n_passes: int) -> Cost:
    """Return the mean cost of a pass."""
    start, cpu_start = time.perf_counter(), time.process_time()
    for _ in range(n_passes):
        run()
    scale = 1000 / n_passes
    return Cost((time.perf_counter() - start) * scale, (time.process_time() - cpu_start) * scale)


def compare(pair: Pair, n_rounds: int, n_passes: int) -> dict[str, Any]:
    """Run both sides in turns."""
    layer, weights = our_layer(pair)
    layer_pass = compiled(layer, (*pair.image[1:], pair.image[0]), weights)
    neighbour_pass = compiled(pair.neighbour, pair.neighbour_image, pair.neighbour_weights)
    timed(layer_pass, 2)
    timed(neighbour_pass, 2)
    rounds = [(timed(layer_pass, n_passes), timed(neighbour_pass, n_passes)) for _ in range(n_rounds)]
    result: dict[str, Any] = {"target": TARGET}
    for k, unit in enumerate(Cost._fields):
        our_median, their_median = (median(costs[side][k] for costs in rounds) for side in (0, 1))
        result |= {f"ours_{unit}": our_median, f"neighbour_{unit}": their_median}
    return result | {
        "ratio": result["ours_ms"] / result["neighbour_ms"],
        "ratio_cpu": result["ours_cpu_ms"] / result["neighbour_cpu_ms"],
    }


def main() -> int:
    """Compare all pairs; 0 if no ratio of processor time is above the target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--only", nargs="+", choices=sorted(PAIRS), default=list(PAIRS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--passes", type=int, default=5, help="passes per round")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    results = {name: compare(PAIRS[name], options.rounds, options.passes) for name in options.only}
    if options.json:
        print(json.dumps(results, indent=1))
    else:
        for name, result in results.items():
            print(f"{name:18} {result['ours_ms']:8.1f} ms, neighbour {result['neighbour_ms']:8.1f} ms, ratio "
                  f"{result['ratio']:.2f}; processor time {result['ratio_cpu']:.2f} (target {TARGET})")  # fmt: skip
    return 0 if all(result["ratio_cpu"] <= TARGET for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
