"""The parameter vector in pieces: each blob, or each device's share of a blob, in separate memory. No TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, TypeVar

import numpy as np

from caffe_import.devices.compute_plan import ComputePlan
from caffe_import.errors import NetError
from caffe_import.layers.inner_product import InnerProductOptions
from caffe_import.net.layer_registry import BlobKind, Shape
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.net.param_layout import ParamEntry, ParamLayout, Vector

T = TypeVar("T")


@dataclass(frozen=True)
class Piece:
    """A blob of the layout, or one device's share of a blob.

    Attributes:
        position: The blob's position in the layout.
        entry: The blob.
        device: Number of the device that holds it and its history, and updates both.
        axis: The axis along which shares are cut.
        start: First index on that axis; of a whole blob 0.
        stop: One past the last; None: a whole blob.
    """

    position: int
    entry: ParamEntry
    device: int = 0
    axis: int = 0
    start: int = 0
    stop: int | None = None

    @property
    def shape(self) -> Shape:
        """Shape of the piece."""
        shape = list(self.entry.shape)
        if self.stop is not None:
            shape[self.axis] = self.stop - self.start
        return tuple(shape)

    def cut(self, vector: Vector) -> Vector:
        """Return the piece as a view into the vector (n_params,)."""
        return self.share_of(vector[self.entry.offset : self.entry.stop])

    def share_of(self, blob: Vector) -> Vector:
        """Return the piece as a view into its flat blob."""
        shaped = blob.reshape(self.entry.shape)
        return shaped if self.stop is None else shaped[(slice(None),) * self.axis + (slice(self.start, self.stop),)]


@dataclass(frozen=True)
class PieceLayout:
    """Every piece in the layout's order; the shares of a blob follow each other.

    Attributes:
        params: The layout.
        pieces: The pieces.
    """

    params: ParamLayout
    pieces: tuple[Piece, ...]

    def of_kind(self, kind: BlobKind) -> list[tuple[int, Piece]]:
        """Return position and piece for the blobs of a kind."""
        return [(k, piece) for k, piece in enumerate(self.pieces) if piece.entry.kind == kind]

    def cut(self, vector: Vector) -> list[Vector]:
        """Return the pieces as views into the vector (n_params,)."""
        return [piece.cut(vector) for piece in self.pieces]

    def joined(self, arrays: Sequence[Vector]) -> Vector:
        """Return the vector (n_params,) made of the pieces' content, fresh memory."""
        blobs = []
        for shares in self.by_entry(list(zip(self.pieces, arrays, strict=True))):
            axis = shares[0][0].axis
            blob = shares[0][1] if len(shares) == 1 else np.concatenate([array for _, array in shares], axis)
            blobs.append(blob.reshape(-1))
        return np.concatenate(blobs) if blobs else np.zeros(0, np.float32)

    def by_entry(self, values: Sequence[T]) -> list[list[T]]:
        """Return one list per blob of the layout: the entries of ``values`` for the blob's pieces."""
        together = zip(self.pieces, values, strict=True)
        return [
            [value for _, value in entry_group] for _, entry_group in groupby(together, lambda pair: pair[0].position)
        ]


@dataclass(frozen=True)
class Pieces:
    """Content of all pieces: parameters, or one slot of history.

    Attributes:
        layout: Which pieces.
        content: One tensor or array per piece, in order and of its shape.
    """

    layout: PieceLayout
    content: Sequence[Any]

    def __iter__(self) -> Iterator[Any]:
        """Yield the content of each piece."""
        return iter(self.content)


def whole_blobs(params: ParamLayout) -> PieceLayout:
    """Return the layout of a single device: every blob is a piece."""
    return PieceLayout(params, tuple(Piece(k, entry) for k, entry in enumerate(params.entries)))


def pieces_of(net: NetSpec, plan: ComputePlan) -> PieceLayout:
    """Return the device of each blob: blobs are on the device of their layer, blobs of a split layer in shares.

    A shared blob is on the device of its owner. Replicas copy the blobs of device 0.

    Raises:
        NetError: A layer to be split that is no InnerProduct, or has fewer outputs than devices.
    """
    if plan.placement is None:
        return whole_blobs(net.params)
    pieces: list[Piece] = []
    for position, entry in enumerate(net.params.entries):
        devices = plan.placement.split.get(entry.layer)
        if devices is None:
            pieces.append(Piece(position, entry, plan.placement.device_of[entry.layer]))
        else:
            pieces += _shares(position, entry, net.layer(entry.layer), devices)
    return PieceLayout(net.params, tuple(pieces))


def _shares(position: int, entry: ParamEntry, layer: LayerSpec, devices: Sequence[int]) -> Iterator[Piece]:
    axis = split_axis(layer, entry.index)
    for device, (start, stop) in zip(devices, shares_of(entry.shape[axis], len(devices)), strict=True):
        yield Piece(position, entry, device, axis, start, stop)


def split_axis(layer: LayerSpec, index: int) -> int:
    """Return the output axis of a split layer's blob.

    Raises:
        NetError: The layer is no InnerProduct.
    """
    options = layer.definition.options
    if not isinstance(options, InnerProductOptions):
        msg = f'layer "{layer.name}": split is for InnerProduct; found type {layer.type}'
        raise NetError(msg, layer=layer.name)
    return 1 if options.is_transposed and index == 0 else 0


def shares_of(n_outputs: int, n_shares: int) -> list[tuple[int, int]]:
    """Return (start, stop) of each share; if the outputs do not divide evenly, the first shares have an output more."""
    size, more = divmod(n_outputs, n_shares)
    bounds = [k * size + min(k, more) for k in range(n_shares + 1)]
    return list(pairwise(bounds))
