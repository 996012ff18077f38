"""How layers are connected: automatic Split layers, and where gradients flow. Only names; no shapes, no values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from caffe_import.errors import NetError, did_you_mean
from caffe_import.proto import caffe_pb2

_Top = tuple[int, int]
"""(position of the layer, position among its tops)."""


def insert_splits(net: caffe_pb2.NetParameter, *, absent: Mapping[str, str] | None = None) -> caffe_pb2.NetParameter:
    """Return a copy of ``net`` with a Split layer behind every top with two or more uses.

    As Caffe's InsertSplits: a loss weight counts as a use and moves to the first top of the Split. Caffe then clears
    *all* loss weights of the producing layer, so a loss layer falls back to weight 1; the copy does the same.

    Args:
        net: Layers of one phase, in order.
        absent: Blob -> layer that makes it but does not exist in this phase; only for the error's message.

    Raises:
        NetError: A bottom that no earlier layer makes.
    """
    uses = _find_uses(net, absent or {})
    wired = caffe_pb2.NetParameter()
    wired.CopyFrom(net)
    wired.ClearField("layer")
    next_part: dict[_Top, int] = {}
    for position, original in enumerate(net.layer):
        layer = wired.layer.add()
        layer.CopyFrom(original)
        for index, blob in enumerate(original.bottom):
            source = uses.sources[position, index]
            if uses.counts[source] > 1:
                part = next_part.get(source, 0)
                next_part[source] = part + 1
                layer.bottom[index] = _part_name(net.layer[source[0]].name, blob, source[1], part)
        for index, blob in enumerate(original.top):
            top = (position, index)
            if uses.counts.get(top, 0) > 1:
                weight = uses.loss_weights.get(top, 0.0)
                wired.layer.append(_split_layer(original.name, blob, index, uses.counts[top], weight))
                if weight:
                    layer.ClearField("loss_weight")
                    next_part[top] = 1
    return wired


@dataclass(frozen=True)
class _Uses:
    sources: dict[tuple[int, int], _Top]
    counts: dict[_Top, int]
    loss_weights: dict[_Top, float]


def _find_uses(net: caffe_pb2.NetParameter, absent: Mapping[str, str]) -> _Uses:
    uses = _Uses({}, {}, {})
    tops_by_name: dict[str, _Top] = {}
    for position, layer in enumerate(net.layer):
        for index, blob in enumerate(layer.bottom):
            if blob not in tops_by_name:
                raise _unknown_bottom(net, position, blob, tops_by_name, absent)
            uses.sources[position, index] = tops_by_name[blob]
            uses.counts[tops_by_name[blob]] = uses.counts.get(tops_by_name[blob], 0) + 1
        tops_by_name.update({blob: (position, index) for index, blob in enumerate(layer.top)})
        for blob, weight in zip(layer.top, layer.loss_weight, strict=False):
            uses.loss_weights[tops_by_name[blob]] = weight
            if weight:
                uses.counts[tops_by_name[blob]] = uses.counts.get(tops_by_name[blob], 0) + 1
    return uses


def _unknown_bottom(
    net: caffe_pb2.NetParameter, position: int, blob: str, tops_by_name: Mapping[str, _Top], absent: Mapping[str, str]
) -> NetError:
    layer = net.layer[position]
    later = next((other.name for other in net.layer[position + 1 :] if blob in other.top), None)
    if later is not None:
        remedy = f'; layer "{later}" makes it, but comes later: move it before "{layer.name}"'
    elif blob in absent:
        state = net.state
        stages = ", ".join(state.stage) or "none"
        state_text = f"phase {caffe_pb2.Phase.Name(state.phase)} (level {state.level}, stages: {stages})"
        remedy = f'; layer "{absent[blob]}" makes it, but its include/exclude rules leave it out of {state_text}'
    else:
        remedy = did_you_mean(blob, tops_by_name)
    available = ", ".join(sorted(tops_by_name)) or "none"
    msg = f'layer "{layer.name}": no layer before it makes bottom "{blob}"; available: {available}{remedy}'
    return NetError(msg, layer=layer.name)


def _part_name(layer: str, blob: str, top_index: int, part: int) -> str:
    return f"{blob}_{layer}_{top_index}_split_{part}"


def _split_layer(layer: str, blob: str, top_index: int, count: int, loss_weight: float) -> caffe_pb2.LayerParameter:
    split = caffe_pb2.LayerParameter(name=f"{blob}_{layer}_{top_index}_split", type="Split", bottom=[blob])
    split.top.extend(_part_name(layer, blob, top_index, part) for part in range(count))
    if loss_weight:
        split.loss_weight.extend([loss_weight] + [0.0] * (count - 1))
    return split


@dataclass(frozen=True)
class WiredLayer:
    """Properties of a layer that the flow of gradients depends on.

    Attributes:
        bottoms: Blobs read.
        tops: Blobs written.
        propagate_down: The message's ``propagate_down``, one per bottom, or empty.
        loss_weights: One per top.
        learns: Does the layer have a parameter blob whose own lr_mult is not zero?
        may_force: One per bottom: can the type send a gradient there when ``force_backward`` asks for it?
    """

    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    propagate_down: tuple[bool, ...]
    loss_weights: tuple[float, ...]
    learns: bool
    may_force: tuple[bool, ...]


@dataclass(frozen=True)
class GradientFlow:
    """Does a layer need a gradient, and into which bottoms does the gradient flow?"""

    needs_backward: bool
    propagate_down: tuple[bool, ...]


def gradient_flows(layers: Sequence[WiredLayer], *, force_backward: bool) -> list[GradientFlow]:
    """Return the flow of each layer as Caffe's Net::Init decides it: forward, backward, then force_backward.

    A bottom takes a gradient if a layer below learns (or ``propagate_down`` says so) and the bottom's layer contributes
    to a loss. Layers whose tops all go without a gradient are skipped.
    """
    needs, downs = _what_learns(layers)
    _cut_what_serves_no_loss(layers, needs, downs)
    if force_backward:
        for position, layer in enumerate(layers):
            needs[position] = True
            downs[position] = [down or may for down, may in zip(downs[position], layer.may_force, strict=True)]
    return [GradientFlow(need, tuple(down)) for need, down in zip(needs, downs, strict=True)]


def _what_learns(layers: Sequence[WiredLayer]) -> tuple[list[bool], list[list[bool]]]:
    blob_needs: dict[str, bool] = {}
    needs: list[bool] = []
    downs: list[list[bool]] = []
    for layer in layers:
        below = [blob_needs[blob] for blob in layer.bottoms]
        downs.append(list(layer.propagate_down) or list(below))
        # Caffe looks at the layers below, not at propagate_down: a layer with a cut bottom still needs a gradient.
        need = any(below) or layer.learns
        needs.append(need)
        blob_needs.update(dict.fromkeys(layer.tops, need))
    return needs, downs


def _cut_what_serves_no_loss(layers: Sequence[WiredLayer], needs: list[bool], downs: list[list[bool]]) -> None:
    under_loss: set[str] = set()
    skipped: set[str] = set()
    for position in reversed(range(len(layers))):
        layer = layers[position]
        serves_loss = any(layer.loss_weights) or any(blob in under_loss for blob in layer.tops)
        all_skipped = all(blob in skipped for blob in layer.tops)
        if (needs[position] and all_skipped) or not serves_loss:
            needs[position] = False
            downs[position] = [False] * len(layer.bottoms)
        if serves_loss:
            under_loss.update(layer.bottoms)
        skipped.update(blob for blob, down in zip(layer.bottoms, downs[position], strict=True) if not down)
