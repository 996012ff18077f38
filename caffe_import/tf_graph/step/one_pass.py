"""The graph of one forward and backward pass: gradients of the parameters, outputs, what ``debug_info`` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import tensorflow as tf

from caffe_import.devices.pieces import Piece, PieceLayout
from caffe_import.files.hdf5_output import hdf5_output_inputs
from caffe_import.net.net_spec import NetSpec
from caffe_import.tf_graph.builder import Forward, ForwardResult, fed_blobs
from caffe_import.tf_graph.debug_values import DebugTaps, norms

Tensors = list[tf.Tensor]


class Pass(NamedTuple):
    """The results of one pass, or of the sum of a step's passes.

    Attributes:
        gradients: One per piece of a weight.
        loss: Float32 scalar.
        statistics: Position among the pieces -> new value, for blobs that the forward pass moved.
        layer_state: For the next pass.
        outputs: The net's outputs and what its HDF5Output layers take, by name.
        n_rows: Blob that an HDF5Output layer takes -> extent of its first axis, int32 scalar: how much of an output is
            not padding.
        debug: The values of ``debug_info.pass_lines``, float32 (n_values,), of a step (iter_size, n_values); empty
            unless asked for.
    """

    gradients: Tensors
    loss: tf.Tensor
    statistics: dict[int, tf.Tensor]
    layer_state: dict[str, tf.Tensor]
    outputs: dict[str, tf.Tensor]
    n_rows: dict[str, tf.Tensor]
    debug: tf.Tensor


@dataclass(frozen=True)
class PassGraph:
    """Makes a pass. Gradients are by ``pieces``."""

    net: NetSpec
    forward: Forward
    pieces: PieceLayout
    with_debug: bool

    def one_pass(
        self,
        pieces: Tensors,
        state: Any,
        seed: tf.Tensor,
        feeds: Any,
        earlier_gradients: Tensors,
        loss_scale: tf.Tensor | None = None,
    ) -> Pass:
        """Return the results of a pass.

        Args:
            pieces: The parameters.
            state: "layer/name" -> tensor from the pass before.
            seed: int32 (2,), different for every step, pass and worker.
            feeds: Blob name -> batch.
            earlier_gradients: Sums of the gradients of the step's earlier passes, only for ``debug_info``; else empty.
            loss_scale: Float32 scalar that the loss is multiplied by and the gradients are divided by; None: 1.
        """
        taps = DebugTaps(self.net) if self.with_debug else None
        entries = self._entries(pieces)
        result = self.forward.on_entries(
            entries, state, seed, feeds, taps.top if taps else None, taps.param if taps else None
        )
        outputs = {}
        for name in self.reported():
            with self.forward.places.on_blob(name):
                outputs[name] = self._whole(name, result.blobs[name].as_dtype(tf.float32).caffe)
        weights = self.pieces.of_kind("weight")
        weight_pieces = [pieces[position] for position, _ in weights]
        gradients = self._gradients(result, [*weight_pieces, *(taps.wanted() if taps else [])], loss_scale)
        debug = tf.zeros((0,))
        if taps:
            of_taps = gradients[len(weight_pieces) :]
            debug = self._debug_of_pass(
                taps, result, entries, gradients[: len(weight_pieces)], of_taps, earlier_gradients
            )
        statistics, layer_state = self._by_piece(result.param_updates), dict(result.state)
        n_rows = {name: tf.shape(result.blobs[name].caffe)[0] for name in self.row_counts()}
        return Pass(gradients[: len(weight_pieces)], result.loss, statistics, layer_state, outputs, n_rows, debug)

    def row_counts(self) -> Sequence[str]:
        """Return the bottoms of HDF5Output layers."""
        return tuple(hdf5_output_inputs(self.net))

    def fed(self) -> Sequence[str]:
        """Return the fed blobs of a pass."""
        return tuple(fed_blobs(self.net))

    def is_replaced(self) -> list[bool]:
        """Return for each weight's piece whether a pass's gradient replaces the sum instead of adding to the sum.

        The top of Caffe's Parameter layer shares the blob's gradient. A reader of the top writes the gradient afresh
        (parameter_layer.hpp, ``Forward_cpu``): of iter_size passes the last one counts.
        """
        kinds = {layer.name: layer.type for layer in self.net.layers}
        return [kinds[piece.entry.layer] == "Parameter" for _, piece in self.pieces.of_kind("weight")]

    def reported(self) -> tuple[str, ...]:
        """Return the net's outputs, then what its HDF5Output layers take."""
        return tuple(dict.fromkeys((*self.net.outputs, *hdf5_output_inputs(self.net))))

    def _entries(self, pieces: Tensors) -> list[Any]:
        """Return the layout's blobs, of split ones the shares; ``debug_info`` looks at whole blobs alone."""
        shares = self.pieces.by_entry(pieces)
        if not self.with_debug:
            return [entry_shares[0] if len(entry_shares) == 1 else tuple(entry_shares) for entry_shares in shares]
        entries = []
        for first, entry_shares in zip(self._first_shares(), shares, strict=True):
            with self.forward.places.on(first.device):
                entries.append(joined_shares(entry_shares, first.axis))
        return entries

    def _first_shares(self) -> list[Piece]:
        return [shares[0] for shares in self.pieces.by_entry(self.pieces.pieces)]

    def _by_piece(self, updates: Mapping[int, tf.Tensor]) -> dict[int, tf.Tensor]:
        """Statistics are never split, so each has one piece."""
        return {k: updates[piece.position] for k, piece in enumerate(self.pieces.pieces) if piece.position in updates}

    def _whole(self, name: str, value: tf.Tensor) -> tf.Tensor:
        """Return an output in the declared shape: rows of NaN stand at the end for dropped samples of Filter."""
        if value.shape.is_fully_defined():
            return value
        shape = self.net.blob_shapes[name]
        missing = shape[0] - tf.shape(value)[0]
        filled = tf.pad(value, [[0, missing], *[[0, 0]] * (len(shape) - 1)], constant_values=float("nan"))
        return tf.ensure_shape(filled, shape)

    def _gradients(self, result: ForwardResult, sources: Tensors, loss_scale: tf.Tensor | None) -> Tensors:
        """Return the loss's gradients with respect to some tensors of the pass."""
        if not sources:
            return []
        loss = result.loss if loss_scale is None else loss_scale * result.loss
        gradients = tf.gradients(loss, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        devices = [piece.device for _, piece in self.pieces.of_kind("weight")]
        dense_gradients = []
        for gradient, device in zip_longest(gradients, devices):
            with self.forward.places.on(device):
                # Embed's gradient comes as rows with indices.
                dense = tf.convert_to_tensor(gradient)
                # Divided in float32: a blob between 16-bit layers, which debug_info looks at, has a 16-bit gradient.
                dense_gradients.append(dense if loss_scale is None else tf.cast(dense, tf.float32) / loss_scale)
        return dense_gradients

    def _debug_of_pass(
        self,
        taps: DebugTaps,
        result: ForwardResult,
        entries: Tensors,
        gradients: Tensors,
        of_taps: Tensors,
        earlier_gradients: Tensors,
    ) -> tf.Tensor:
        earlier: dict[int, Tensors] = {}
        sums = []
        for (_, piece), replaced, sum_before, gradient in zip(
            self.pieces.of_kind("weight"), self.is_replaced(), earlier_gradients, gradients, strict=True
        ):
            if not replaced:
                earlier.setdefault(piece.position, []).append(sum_before)
            sums.append(gradient if replaced else sum_before + gradient)
        firsts = self._first_shares()
        earlier_entries = {
            position: joined_shares(shares, firsts[position].axis) for position, shares in earlier.items()
        }
        values = [*taps.forward(result, entries), *taps.backward(of_taps, earlier_entries)]
        params = [result.param_updates.get(position, entry) for position, entry in enumerate(entries)]
        return tf.stack([*values, *norms(params, sums)])


def moved(pieces: Tensors, statistics: Mapping[int, tf.Tensor]) -> Tensors:
    """Return the pieces with the statistics that a pass moved."""
    return [statistics.get(position, piece) for position, piece in enumerate(pieces)]


def joined_shares(shares: Sequence[tf.Tensor], axis: int) -> tf.Tensor:
    """Return the blob from the blob's shares."""
    return shares[0] if len(shares) == 1 else tf.concat(shares, axis)
