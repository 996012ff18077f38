"""ONNX form of the operation that tf2onnx lacks: a deconvolution of every channel by a separate kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_TO_NCHW, _TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


def _depthwise_transpose(graph: Any, node: Any, _name: str, _arguments: Any) -> Any:
    """Replace DepthwiseConv2dNativeBackpropInput by ONNX's ConvTranspose with a group per channel.

    The node's inputs are sizes, kernels (kh, kw, channels, 1), and values (N, H, W, channels) to spread.
    """
    _, kernels, values = node.input
    _, *strides, _ = node.get_attr("strides").ints
    height, width, channels, _ = graph.get_shape(kernels)
    _, *positions, _ = graph.get_shape(values)
    _, *output_extents, _ = graph.get_shape(node.output[0])
    surplus = [
        stride * (n - 1) + extent - size
        for stride, n, extent, size in zip(strides, positions, (height, width), output_extents, strict=True)
    ]
    # TensorFlow's SAME cuts the smaller half in front; VALID cuts nothing.
    pads = [cut // 2 for cut in surplus] + [cut - cut // 2 for cut in surplus]
    shapes, dtypes = node.output_shapes, node.output_dtypes
    output = node.output[0]
    by_channel = graph.make_node("Transpose", [kernels], attr={"perm": (2, 3, 0, 1)})
    first = graph.make_node("Transpose", [values], attr={"perm": _TO_NCHW})
    spread = graph.make_node(
        "ConvTranspose",
        [first.output[0], by_channel.output[0]],
        attr={"group": channels, "strides": strides, "pads": pads, "kernel_shape": (height, width)},
    )
    graph.remove_node(node.name)
    return graph.make_node(
        "Transpose", [spread.output[0]], attr={"perm": _TO_NHWC}, outputs=[output], shapes=shapes, dtypes=dtypes
    )


HANDLERS: Final[dict[str, tuple[Callable[..., Any], list[Any]]]] = {
    "DepthwiseConv2dNativeBackpropInput": (_depthwise_transpose, [])
}
"""Handlers in tf2onnx's form: TensorFlow's operation -> replacement function, and its further arguments."""
