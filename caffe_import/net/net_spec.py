"""A net as frozen dataclasses: layers in order with shapes, parameters, losses; built from a NetParameter message.

No TensorFlow, no data: where a data layer's shape depends on the source, the caller gives the shape (SampleShapes).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from caffe_import.errors import NetError, did_you_mean
from caffe_import.net.fillers import filler_fault
from caffe_import.net.layer_registry import (
    LayerDefinition,
    LayerRequest,
    LayerType,
    Phase,
    SampleShapes,
    Shape,
    find_layer_type,
)
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.param_layout import ParamLayout
from caffe_import.net.param_owners import ParamOwners
from caffe_import.net.phases import filter_layers, left_out_tops
from caffe_import.net.shapes.axes import check_n_axes
from caffe_import.net.wiring import GradientFlow, WiredLayer, gradient_flows, insert_splits
from caffe_import.proto import caffe_pb2

MAX_ELEMENTS = 2**31 - 1
"""Caffe's bound on the elements of one blob (Blob::Reshape, INT_MAX); a larger one is refused before any memory."""

_PHASES: Final[Mapping[Phase, caffe_pb2.Phase]] = {"TRAIN": caffe_pb2.TRAIN, "TEST": caffe_pb2.TEST}

AUTOMATIC_TOP = "(automatic)"
"""Caffe's name for the top that a loss layer without one is given; several layers may have it, nothing reads it."""


@dataclass(frozen=True)
class LayerSpec:
    """One layer of a built net. ``message`` is shared and must not be written.

    Attributes:
        message: The layer's message after upgrades; automatic Split layers have one too.
        bottoms: Names of the blobs read, after automatic splits; a top may equal a bottom (in place).
        tops: Names of the blobs written; automatic tops of loss layers included.
        bottom_shapes: Caffe shapes of the bottoms.
        definition: Top shapes, blobs, options and others, from the layer's type.
        loss_weights: One per top; 0 where the top is no loss.
        propagate_down: One per bottom: does the gradient flow into this bottom?
        needs_backward: Does any gradient pass through or end in this layer?
        param_propagate_down: One per parameter blob: does this layer compute a gradient for it? No where its own
            lr_mult is 0, unless the net says force_backward; never for statistics.
    """

    message: caffe_pb2.LayerParameter
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    bottom_shapes: tuple[Shape, ...]
    definition: LayerDefinition
    loss_weights: tuple[float, ...]
    propagate_down: tuple[bool, ...]
    needs_backward: bool
    param_propagate_down: tuple[bool, ...] = ()

    @property
    def name(self) -> str:
        """The layer's name, unique in the net."""
        return self.message.name

    @property
    def type(self) -> str:
        """The layer's registered type."""
        return self.message.type

    @property
    def traits(self) -> LayerTraits:
        """How TensorFlow computes the layer: by the traits of the options, else of the type."""
        return self.definition.traits or find_layer_type(self.type, layer=self.name).traits


@dataclass(frozen=True)
class NetSpec:
    """A whole net for one phase.

    Attributes:
        name: The net's name, may be empty.
        phase: The phase it was filtered for.
        layers: In the order of execution, automatic Split layers included.
        inputs: Blob name -> full shape (batch axis included) for every top of every data layer.
        outputs: Blobs that nothing consumes, in the order Caffe lists them.
        blob_shapes: Every blob's last shape by name.
        params: Positions of the learnable blobs in the parameter vector.
        force_backward: As in the message.
        debug_info: As in the message.
        notes: What Caffe accepts without a message and the user may not have meant, one line each.
    """

    name: str
    phase: Phase
    layers: tuple[LayerSpec, ...]
    inputs: Mapping[str, Shape]
    outputs: tuple[str, ...]
    blob_shapes: Mapping[str, Shape]
    params: ParamLayout
    force_backward: bool = False
    debug_info: bool = False
    notes: tuple[str, ...] = ()

    def layer(self, name: str) -> LayerSpec:
        """Return the layer of a name; KeyError without a layer of the name."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(name)

    @property
    def batch_size(self) -> int | None:
        """Samples of a pass: first axis of the first input, else of DummyData's first top; None without either."""
        filled = (shape for layer in self.layers if layer.type == "DummyData" for shape in layer.definition.top_shapes)
        return next((shape[0] for shape in (*self.inputs.values(), *filled) if shape), None)

    @property
    def user_blobs(self) -> list[str]:
        """Names of the blobs in the prototxt: all but the tops of automatic Split layers."""
        splits = {top for layer in self.layers if layer.type == "Split" for top in layer.tops}
        return [name for name in self.blob_shapes if name not in splits]

    def blob_shape(self, name: str) -> Shape:
        """Return a blob's shape.

        Raises:
            NetError: No such blob, with the net's blobs.
        """
        if name not in self.blob_shapes:
            blobs = self.user_blobs
            msg = f'net "{self.name}" has no blob "{name}"; known: {", ".join(blobs)}{did_you_mean(name, blobs)}'
            raise NetError(msg)
        return self.blob_shapes[name]


def build_net_spec(
    net: caffe_pb2.NetParameter,
    *,
    phase: Phase,
    level: int = 0,
    stages: Collection[str] = (),
    sample_shapes: SampleShapes | None = None,
) -> NetSpec:
    """Build the net for one phase, as Caffe's Net::Init: filter, split, set up layer by layer, find the gradients.

    Args:
        net: Upgraded message (``prototxt.read_net``); it is not changed.
        phase: TRAIN or TEST; a layer's own ``phase`` field goes before it.
        level: Level for include/exclude rules; 0 leaves the net's own ``state.level``.
        stages: Stages for include/exclude rules, added to the net's own.
        sample_shapes: Returns the shapes of a data layer's samples; not needed if the file gives every shape.

    Raises:
        NetError: Unknown layer types or bottoms, wrong counts, shapes that do not fit, sharing that does not fit.
    """
    filtered = filter_layers(net, phase=phase, level=level, stages=stages)
    if len(filtered.layer) == 0:
        why = "its include/exclude rules leave none" if len(net.layer) else "it holds no `layer` at all"
        msg = f'net "{net.name}" has no layers in phase {phase}: {why}'
        raise NetError(msg)
    wired = insert_splits(filtered, absent=left_out_tops(net, filtered))
    builder = _NetBuilder(wired, phase, sample_shapes)
    for message in wired.layer:
        try:
            builder.add(message)
        except NetError as error:
            raise _with_blobs_of_file(error, message, wired) from error
    return builder.finish()


def _with_blobs_of_file(error: NetError, message: caffe_pb2.LayerParameter, wired: caffe_pb2.NetParameter) -> NetError:
    """Return the error with the blobs that the file names, where a layer reads a part of an inserted Split."""
    text = str(error)
    for split in wired.layer:
        for part in set(split.top) & set(message.bottom):
            if split.type == "Split" and part.startswith(f"{split.name}_"):
                text = text.replace(f'"{part}"', f'"{split.bottom[0]}"')
    return NetError(text, layer=error.layer, field_name=error.field_name)


@dataclass
class _BuiltLayer:
    """A layer that is set up; the flow of gradients is known only when all are."""

    spec: LayerSpec
    wired: WiredLayer


class _NetBuilder:
    def __init__(self, net: caffe_pb2.NetParameter, phase: Phase, sample_shapes: SampleShapes | None) -> None:
        self._net = net
        self._phase = phase
        self._sample_shapes = sample_shapes
        self._built_layers: list[_BuiltLayer] = []
        self._first_of_name: dict[str, LayerSpec] = {}
        self._shapes: dict[str, Shape] = {}
        self._makers: dict[str, str] = {}
        self._unread: set[str] = set()
        self._params = ParamOwners()
        self._notes: list[str] = []

    def add(self, original: caffe_pb2.LayerParameter) -> None:
        message = caffe_pb2.LayerParameter()
        message.CopyFrom(original)
        if not message.HasField("phase"):
            message.phase = _PHASES[self._phase]
        kind = find_layer_type(message.type, layer=message.name)
        bottoms = tuple(message.bottom)
        self._unread -= set(bottoms)
        request = layer_request(message, kind, tuple(self._shapes[blob] for blob in bottoms), self._sample_shapes)
        _check_counts(request, kind)
        tops = self._take_tops(request, kind)
        definition = kind.define(request)
        check_definition(request, definition, kind)
        self._check_name(request, definition)
        self._shapes.update(zip(tops, definition.top_shapes, strict=True))
        self._params.add(request, definition.blobs)
        spec = LayerSpec(
            message=message,
            bottoms=bottoms,
            tops=tops,
            bottom_shapes=request.bottom_shapes,
            definition=definition,
            loss_weights=_loss_weights(request, definition),
            propagate_down=(),
            needs_backward=False,
            param_propagate_down=_param_propagate_down(message, definition, force=self._net.force_backward),
        )
        self._built_layers.append(_BuiltLayer(spec, _wired(spec, kind)))
        self._first_of_name.setdefault(spec.name, spec)

    def _check_name(self, request: LayerRequest, definition: LayerDefinition) -> None:
        """Net::CopyTrainedLayersFrom gives a saved layer's blobs to the first layer of that name."""
        name = request.message.name
        namesake = self._first_of_name.get(name)  # a namesake with blobs has no other namesake so far
        if namesake is None:
            return
        if definition.blobs or namesake.definition.blobs:
            finding = (
                f"an earlier layer ({namesake.type}) has the same name; weights are loaded by name, so neither "
                "DeepSpark nor Caffe could load those of this net; rename one of the two layers"
            )
            raise request.refuse(finding)
        self._notes.append(f'two layers are named "{name}"; Caffe allows it, but reports cannot distinguish them')

    def _take_tops(self, request: LayerRequest, kind: LayerType) -> tuple[str, ...]:
        """Net::AppendTop: a top may carry the name of the bottom at its position, else the name must be new."""
        bottoms = request.message.bottom
        tops = tuple(request.message.top)
        for index, blob in enumerate(tops):
            if blob == AUTOMATIC_TOP:
                continue
            if index < len(bottoms) and blob == bottoms[index]:
                if not kind.in_place:
                    finding = (
                        f'top "{blob}" overwrites its bottom; {kind.name} cannot work in place: '
                        "give the top another name"
                    )
                    raise request.refuse(finding)
            elif blob in self._makers:
                finding = f'top "{blob}" is already made by layer "{self._makers[blob]}"'
                raise request.refuse(finding)
            self._makers[blob] = request.message.name
            self._unread.add(blob)
        return tops

    def finish(self) -> NetSpec:
        flows = gradient_flows([built.wired for built in self._built_layers], force_backward=self._net.force_backward)
        layers = tuple(_with_flow(built.spec, flow) for built, flow in zip(self._built_layers, flows, strict=True))
        return NetSpec(
            name=self._net.name,
            phase=self._phase,
            layers=layers,
            inputs={blob: self._shapes[blob] for s in layers if s.definition.is_data for blob in s.tops},
            outputs=tuple(sorted(self._unread)),  # Caffe keeps them in a std::set, hence by name
            blob_shapes=dict(self._shapes),
            params=self._params.layout(),
            force_backward=self._net.force_backward,
            debug_info=self._net.debug_info,
            notes=tuple(self._notes),
        )


def _param_propagate_down(
    message: caffe_pb2.LayerParameter, definition: LayerDefinition, *, force: bool
) -> tuple[bool, ...]:
    """Layer::param_propagate_down as in Net::Init: by the layer's lr_mult, not by the lr_mult of the blob's owner."""
    learns = [spec.lr_mult != 0 for spec in message.param]
    learns += [True] * (len(definition.blobs) - len(learns))
    ignores_lr = force or definition.ignores_lr_mult
    return tuple(
        blob.kind == "weight" and (ignores_lr or is_learned)
        for blob, is_learned in zip(definition.blobs, learns, strict=True)
    )


def _with_flow(spec: LayerSpec, flow: GradientFlow) -> LayerSpec:
    return replace(spec, propagate_down=flow.propagate_down, needs_backward=flow.needs_backward)


def layer_request(
    message: caffe_pb2.LayerParameter,
    kind: LayerType,
    bottom_shapes: tuple[Shape, ...],
    sample_shapes: SampleShapes | None,
) -> LayerRequest:
    """Return the request for the definition of a layer, whose message has its phase."""
    return LayerRequest(
        message=_with_automatic_tops(message, kind),
        phase="TRAIN" if message.phase == caffe_pb2.TRAIN else "TEST",
        bottom_shapes=bottom_shapes,
        sample_shapes=sample_shapes,
    )


def _with_automatic_tops(message: caffe_pb2.LayerParameter, kind: LayerType) -> caffe_pb2.LayerParameter:
    """Return the message with the tops that Caffe adds to a loss layer (AutoTopBlobs); others are refused later."""
    missing = kind.tops[0] - len(message.top)
    if missing <= 0:
        return message
    completed = caffe_pb2.LayerParameter()
    completed.CopyFrom(message)
    completed.top.extend([AUTOMATIC_TOP] * missing)
    return completed


def _count_text(allowed: tuple[int, int | None]) -> str:
    low, high = allowed
    if high is None:
        return f"{low} or more"
    return str(low) if low == high else f"{low} to {high}"


def _check_counts(request: LayerRequest, kind: LayerType) -> None:
    message = request.message
    for kind_of_blobs, n_found, (low, high) in (
        ("bottoms", len(message.bottom), kind.bottoms),
        ("tops", len(message.top), kind.tops),
    ):
        if n_found < low or (high is not None and n_found > high):
            finding = f"has {n_found} {kind_of_blobs}, allowed: {_count_text((low, high))}"
            raise request.refuse(finding)
    if len(message.propagate_down) not in (0, len(message.bottom)):
        finding = (
            f"has {len(message.propagate_down)} propagate_down for {len(message.bottom)} bottoms; "
            "give none or one per bottom"
        )
        raise request.refuse(finding)


def check_definition(request: LayerRequest, definition: LayerDefinition, kind: LayerType) -> None:
    """Refuse a definition with another number of tops than the file has, or with a blob that Caffe refuses.

    Raises:
        NetError: Names the layer and the blob.
    """
    message = request.message
    if AUTOMATIC_TOP in message.top and not definition.default_loss_weight:
        n_named_tops = sum(top != AUTOMATIC_TOP for top in message.top)
        finding = f"has {n_named_tops} tops, allowed: {_count_text(kind.tops)}"
        raise request.refuse(finding)
    if len(definition.top_shapes) != len(message.top):
        finding = f"makes {len(definition.top_shapes)} tops, the file names {len(message.top)}"
        raise request.refuse(finding)
    named = [(f'top "{top}"', shape) for top, shape in zip(message.top, definition.top_shapes, strict=True)]
    named += [(f"parameter blob {index}", blob.shape) for index, blob in enumerate(definition.blobs)]
    for blob_title, shape in named:
        check_n_axes(request, len(shape), blob_title)
        if any(extent < 0 for extent in shape):
            finding = f"{blob_title} would have shape {shape}; no extent may be negative"
            raise request.refuse(finding)
        if prod(shape) > MAX_ELEMENTS:
            finding = (
                f"{blob_title} would have shape {shape}, {prod(shape):,} elements; allowed: at most {MAX_ELEMENTS:,}"
            )
            raise request.refuse(finding)
    for index, blob in enumerate(definition.blobs):
        if fault := filler_fault(blob.filler, blob.shape):
            finding = f"parameter blob {index}: {fault}"
            raise request.refuse(finding)


def _loss_weights(request: LayerRequest, definition: LayerDefinition) -> tuple[float, ...]:
    """Layer::SetLossWeights; a loss layer without loss_weight has weight 1 (LossLayer::LayerSetUp)."""
    weights = tuple(request.message.loss_weight)
    n_tops = len(request.message.top)
    if not weights and definition.default_loss_weight:
        return (definition.default_loss_weight,) + (0.0,) * (n_tops - 1)
    if weights and len(weights) != n_tops:
        finding = f"has {len(weights)} loss_weight for {n_tops} tops; give none or one per top"
        raise request.refuse(finding)
    return weights or (0.0,) * n_tops


def _wired(spec: LayerSpec, kind: LayerType) -> WiredLayer:
    specs = spec.message.param
    return WiredLayer(
        bottoms=spec.bottoms,
        tops=spec.tops,
        propagate_down=tuple(spec.message.propagate_down),
        loss_weights=spec.loss_weights,
        learns=any(index >= len(specs) or specs[index].lr_mult != 0 for index in range(len(spec.definition.blobs))),
        may_force=tuple(
            kind.differentiable_bottoms and index not in kind.label_bottoms for index in range(len(spec.bottoms))
        ),
    )
