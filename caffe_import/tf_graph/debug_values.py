"""The numbers of ``caffe_import.net.debug_info`` as tensors, from taps on a pass that is being traced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import tensorflow as tf

from caffe_import.net.debug_info import DebugValue, backward_values, forward_values
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.tf_graph.builder import ForwardResult
from caffe_import.tf_graph.data_layout import Blob


@dataclass
class DebugTaps:
    """Intercepts every top and every parameter blob of one pass, in one graph."""

    net: NetSpec
    _tops: list[tf.Tensor] = field(default_factory=list)
    _uses: dict[tuple[str, int], tf.Tensor] = field(default_factory=dict)

    def top(self, name: str, blob: Blob) -> Blob:
        """Note a top; its consumer reads what is returned, so that it has a gradient of its own (a ``builder.Tap``)."""
        tensor = tf.identity(blob.values)
        self._tops.append(tensor)
        return blob.wrap(tensor)

    def param(self, layer: LayerSpec, index: int, tensor: tf.Tensor) -> tf.Tensor:
        """Note a parameter blob in the same way (a ``builder.ParamTap``)."""
        self._uses[layer.name, index] = tf.identity(tensor)
        return self._uses[layer.name, index]

    def forward(self, result: ForwardResult, entries: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return the numbers of the forward pass.

        Args:
            result: What the pass gave; statistics that it moved are shown as moved.
            entries: The blobs that it was given.
        """
        tops, uses = self._top_tensors(), self.net.params.uses
        magnitudes = []
        for value in forward_values(self.net):
            if value.blob == "top":
                magnitudes.append(mean_magnitude(tops[value.layer, value.index]))
            else:
                position = uses[self.net.layers[value.layer].name, value.index]
                magnitudes.append(mean_magnitude(result.param_updates.get(position, entries[position])))
        return magnitudes

    def wanted(self) -> list[tf.Tensor]:
        """Return what the backward numbers need the gradients of."""
        return [self._tensor_of(value) for value in backward_values(self.net)]

    def backward(self, gradients: Sequence[tf.Tensor], earlier_sums: dict[int, tf.Tensor]) -> list[tf.Tensor]:
        """Return the numbers of the backward pass.

        Args:
            gradients: Of ``wanted``.
            earlier_sums: Position in the layout -> sum of the blob's gradients in earlier passes of the step, if any.
                A layer adds to the sum, and all users of a shared blob add to the same sum.
        """
        sums, magnitudes = dict(earlier_sums), []
        for value, gradient in zip(backward_values(self.net), gradients, strict=True):
            layer = self.net.layers[value.layer]
            if value.blob == "param":
                position = self.net.params.uses[layer.name, value.index]
                gradient = tf.reshape(gradient, self.net.params.entries[position].shape)
                sums[position] = sums[position] + gradient if position in sums else gradient
                gradient = sums[position]
            magnitudes.append(mean_magnitude(gradient))
        return magnitudes

    def _tensor_of(self, value: DebugValue) -> tf.Tensor:
        layer = self.net.layers[value.layer]
        if value.blob == "param":
            return self._uses[layer.name, value.index]
        return self._bottoms()[value.layer, value.index]

    def _top_tensors(self) -> dict[tuple[int, int], tf.Tensor]:
        top_keys = [
            (position, index) for position, layer in enumerate(self.net.layers) for index in range(len(layer.tops))
        ]
        return dict(zip(top_keys, self._tops, strict=True))

    def _bottoms(self) -> dict[tuple[int, int], tf.Tensor]:
        tops = self._top_tensors()
        content: dict[str, tf.Tensor] = {}
        bottom_tensors: dict[tuple[int, int], tf.Tensor] = {}
        for position, layer in enumerate(self.net.layers):
            bottom_tensors.update({(position, index): content[name] for index, name in enumerate(layer.bottoms)})
            content.update({name: tops[position, index] for index, name in enumerate(layer.tops)})
        return bottom_tensors


def mean_magnitude(tensor: tf.Tensor) -> tf.Tensor:
    """Return the mean of the absolute values, float32 scalar; 0 for an empty blob."""
    return tf.math.divide_no_nan(
        tf.reduce_sum(tf.abs(tf.cast(tensor, tf.float32))), tf.cast(tf.size(tensor), tf.float32)
    )


def norms(params: Sequence[tf.Tensor], gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return L1 of the parameters and of the gradients, then L2 of both."""
    zero = tf.zeros(())
    l1 = [tf.add_n([zero, *(tf.reduce_sum(tf.abs(tensor)) for tensor in of)]) for of in (params, gradients)]
    l2 = [tf.sqrt(tf.add_n([zero, *(tf.reduce_sum(tf.square(tensor)) for tensor in of)])) for of in (params, gradients)]
    return [*l1, *l2]
