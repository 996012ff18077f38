"""A net as frozen facts: layers in order with shapes, parameters, losses; built from a NetParameter message.

No TensorFlow, no data: where a data layer's shape depends on its source, the caller says it (SampleShapes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from caffe_import.layer_registry import LayerDefinition, Phase, Shape
from caffe_import.param_layout import ParamLayout
from caffe_import.proto import caffe_pb2


@dataclass(frozen=True)
class LayerSpec:
    """One layer of a built net. ``message`` is shared and must not be written.

    Attributes:
        message: The layer's message after upgrades; automatic Split layers have one too.
        bottoms: Names of the blobs read, after automatic splits; a top may equal a bottom (in place).
        tops: Names of the blobs written; automatic tops of loss layers included.
        bottom_shapes: Caffe shapes of the bottoms.
        definition: What the layer's type made of it (top shapes, blobs, options, ...).
        loss_weights: One per top; 0 where the top is no loss.
        propagate_down: One per bottom: does the gradient flow into this bottom?
        needs_backward: Does any gradient pass through or end in this layer?
    """

    message: caffe_pb2.LayerParameter
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    bottom_shapes: tuple[Shape, ...]
    definition: LayerDefinition
    loss_weights: tuple[float, ...]
    propagate_down: tuple[bool, ...]
    needs_backward: bool

    @property
    def name(self) -> str:
        """The layer's name, unique in the net."""
        return self.message.name

    @property
    def type(self) -> str:
        """The layer's registered type."""
        return self.message.type


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
        params: Where the learnable blobs lie.
        force_backward: As in the message.
        debug_info: As in the message.
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

    def layer(self, name: str) -> LayerSpec:
        """Return the layer of that name; KeyError if there is none."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(name)
