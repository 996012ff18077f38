"""A layer of one's own: Swish, x * sigmoid(beta x), with a beta for each channel that is learned.

Source: P. Ramachandran, B. Zoph, Q. V. Le, Searching for Activation Functions, 2017, section 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from caffe_import.net.python_layers import PythonBlob, python_layer

Shape = tuple[int, ...]


@python_layer(module="learned_swish", name="LearnedSwish")
class LearnedSwish:
    """A bottom (N, C, ...), a top of the same shape; ``param_str`` is the first beta, 1 without."""

    def setup(self, param_str: str, bottom_shapes: tuple[Shape, ...]) -> None:
        """Read what beta begins with."""
        if len(bottom_shapes) != 1:
            msg = f"takes one bottom, the net gives {len(bottom_shapes)}"
            raise ValueError(msg)
        self.beta = float(param_str or 1)

    def reshape(self, bottom_shapes: tuple[Shape, ...]) -> Sequence[Shape]:
        """Return the top's shape, which is the bottom's."""
        return bottom_shapes

    def blobs(self, bottom_shapes: tuple[Shape, ...]) -> Sequence[PythonBlob]:
        """Return what is learned: a beta for each channel."""
        return [PythonBlob((bottom_shapes[0][1],), f'type: "constant" value: {self.beta}')]

    def forward(self, bottoms: Sequence[Any], *, is_training: bool, blobs: Sequence[Any]) -> Sequence[Any]:
        """Return x * sigmoid(beta x). The gradient is TensorFlow's, of x and of beta."""
        import tensorflow as tf  # here, since a net is checked without it

        (x,), (beta,) = bottoms, blobs
        channels = [-1, *[1] * (len(x.shape) - 2)]
        return [x * tf.sigmoid(tf.reshape(beta, channels) * x)]
