"""Puts a net's layers on devices: scopes for operations, copies of inputs, shares of split layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import tensorflow as tf

from caffe_import.devices.compute_plan import ComputePlan
from caffe_import.devices.pieces import Piece, PieceLayout, pieces_of, shares_of, split_axis
from caffe_import.devices.residence import Residence, residence
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.tf_graph.data_layout import Blob
from caffe_import.tf_graph.operations.own_gradient import own_gradient

Param: TypeAlias = Any
"""A parameter blob as a tensor, or the tuple of its shares on the devices of a split layer."""
Held = TypeVar("Held")

Copies = dict[tuple[int, int], tuple[Any, Any]]
"""(Identity of a tensor or blob, device) -> what was copied, which keeps the identity its own, and the copy there."""


@dataclass(frozen=True)
class Places:
    """Where layers compute. Without a placement all methods leave everything where it is.

    Attributes:
        devices: TensorFlow's name of each device.
        residence: Which layer is where; None without a placement.
        pieces: Where the parameters are.
    """

    devices: Sequence[str]
    residence: Residence | None
    pieces: PieceLayout

    def on(self, device: int | None) -> AbstractContextManager[Any]:
        """Return the scope for operations of a device."""
        return nullcontext() if self.residence is None or device is None else tf.device(self.devices[device])

    def of_layer(self, layer: LayerSpec) -> Sequence[int | None]:
        """Return the devices of the layer; only a split layer has several."""
        return (None,) if self.residence is None else self.residence.layers[layer.name]

    def on_blob(self, name: str) -> AbstractContextManager[Any]:
        """Return the scope in which the blob's last content was made."""
        return nullcontext() if self.residence is None else self.on(self.residence.blobs[name])

    def bottom(self, layer: LayerSpec, index: int, blob: Blob, device: int | None, copies: Copies) -> Blob:
        """Return a bottom of the layer on a device of the layer."""
        if self.residence is None or device is None:
            return blob
        source = self.residence.bottoms[layer.name, layer.bottoms][index]
        return _copied_once(copies, blob, source, device, lambda: blob.wrap(self._copy(blob.values, source, device)))

    def param(self, layer: LayerSpec, index: int, blob: Param, copies: Copies) -> list[tf.Tensor]:
        """Return what each of the layer's devices needs of a parameter blob."""
        if self.residence is None:
            return [blob]
        devices = self.residence.layers[layer.name]
        held = self._held(layer, index)
        shares = blob if isinstance(blob, tuple) else (blob,)
        if isinstance(blob, tuple) and tuple(piece.device for piece in held) == devices:
            return list(blob)
        params_of_devices = []
        for number, device in enumerate(devices):
            sources = [piece.device for piece in held[: len(shares)]]
            local_pieces = [self._tensor(*pair, device, copies) for pair in zip(shares, sources, strict=True)]
            with self.on(device):
                joined_param = local_pieces[0] if len(local_pieces) == 1 else tf.concat(local_pieces, held[0].axis)
                params_of_devices.append(
                    joined_param if len(devices) == 1 else _share(layer, index, joined_param, number, len(devices))
                )
        return params_of_devices

    def joined(self, layer: LayerSpec, tops: Sequence[tuple[Blob, ...]]) -> tuple[Blob, ...]:
        """Return a layer's tops from the tops of each device."""
        if self.residence is None or len(tops) == 1:
            return tops[0]
        first, *_ = devices = self.residence.layers[layer.name]
        parts = [self._tensor(top.caffe, device, first, {}) for (top,), device in zip(tops, devices, strict=True)]
        with self.on(first):
            return (Blob.from_caffe(tf.concat(parts, -1)),)

    def _held(self, layer: LayerSpec, index: int) -> Sequence[Piece]:
        position = self.pieces.params.uses[layer.name, index]
        return [piece for piece in self.pieces.pieces if piece.position == position]

    def _tensor(self, tensor: tf.Tensor, source: int, target: int, copies: Copies) -> tf.Tensor:
        return _copied_once(copies, tensor, source, target, lambda: self._copy(tensor, source, target))

    def _copy(self, tensor: tf.Tensor, source: int, target: int) -> tf.Tensor:
        """Return the tensor on another device; the gradient goes back whole and is added up at the source."""

        def gradient(of_copy: tf.Tensor) -> tf.Tensor:
            # Within a gradient operations go where the one is that they are the gradient of.
            with tf.compat.v1.get_default_graph().colocate_with(None, ignore_existing=True), self.on(source):
                return tf.identity(of_copy)

        @own_gradient
        def copied(source_tensor: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            return tf.identity(source_tensor), gradient

        with self.on(target):
            return copied(tensor)


def places_of(net: NetSpec, plan: ComputePlan, devices: Sequence[str], fed: Collection[str]) -> Places:
    """Return where the layers of ``net`` compute.

    Args:
        net: The net.
        plan: Its placement counts.
        devices: TensorFlow's name of each of the plan's devices.
        fed: Blobs that are fed.

    Raises:
        ValueError: Another number of devices than the plan has.
        NetError: A layer is split that cannot be.
    """
    if plan.n_devices > 1 and len(devices) != plan.n_devices:
        msg = f"the plan has {plan.n_devices} devices; names of {len(devices)} are given"
        raise ValueError(msg)
    resides = residence(net, plan.placement, fed) if plan.placement else None
    return Places(devices, resides, pieces_of(net, plan))


def share_of_layer(layer: LayerSpec, number: int, n_shares: int) -> LayerSpec:
    """Return a device's share of an InnerProduct; the InnerProduct is split by outputs."""
    if n_shares == 1:
        return layer
    start, stop = shares_of(layer.definition.top_shapes[0][-1], n_shares)[number]
    shape = (*layer.definition.top_shapes[0][:-1], stop - start)
    return replace(layer, definition=replace(layer.definition, top_shapes=(shape,)))


def _share(layer: LayerSpec, index: int, joined_param: tf.Tensor, number: int, n_shares: int) -> tf.Tensor:
    axis = split_axis(layer, index)
    sizes = [stop - start for start, stop in shares_of(joined_param.shape[axis], n_shares)]
    return tf.split(joined_param, sizes, axis)[number]


def _copied_once(copies: Copies, held: Held, source: int, target: int, copy: Callable[[], Held]) -> Held:
    """Return what is held on ``source`` on ``target``: each thing is copied to a device once."""
    if source == target:
        return held
    key = (id(held), target)
    if key not in copies:
        copies[key] = (held, copy())
    copied: Held = copies[key][1]
    return copied
