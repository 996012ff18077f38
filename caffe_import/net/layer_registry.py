"""Meaning of each Caffe layer type: options, output shapes, parameter blobs. One decorated function per type.

A layer type is one function in ``layers/<type>.py`` (the activations share a file)::

    @layer_type("Pooling", bottoms=(1, 1), tops=(1, 2), traits=LayerTraits(...))
    def define_pooling(request: LayerRequest) -> LayerDefinition: ...

and, mirrored, one emitter in ``tf_graph/layers/<type>.py``. Nothing here computes a value.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Literal

from caffe_import.errors import NetError, did_you_mean
from caffe_import.fork_names import OWN_LAYER, fork_of_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.layer_traits import Shape as Shape
from caffe_import.proto import caffe_pb2

Phase = Literal["TRAIN", "TEST"]
BlobKind = Literal["weight", "statistic"]
SampleShapes = Callable[[caffe_pb2.LayerParameter], tuple[Shape, ...]]
"""Shapes of one sample of a data layer's tops, in the order of its tops, without the batch axis and
before any crop, e.g. ``((3, 32, 32), ())`` for an image and its label. The owner of the data knows them."""


@dataclass(frozen=True)
class LayerRequest:
    """Request of a net for a layer. ``message`` is shared: never write the message.

    Attributes:
        message: The layer's own message, after upgrades.
        phase: The phase the net is built for.
        bottom_shapes: Caffe shapes (N, C, H, W or any rank) of the bottoms, in order.
        sample_shapes: Knows the data layers' samples; None where the net has no data (see ``SampleShapes``).
    """

    message: caffe_pb2.LayerParameter
    phase: Phase
    bottom_shapes: tuple[Shape, ...]
    sample_shapes: SampleShapes | None = None

    def refuse(self, finding: str) -> NetError:
        """Return the error to raise: ``layer "name" (Type): finding``."""
        return NetError(f'layer "{self.message.name}" ({self.message.type}): {finding}', layer=self.message.name)


@dataclass(frozen=True)
class BlobSpec:
    """A layer's parameter blob, before names, multipliers and sharing are known.

    Attributes:
        shape: Caffe's shape and axis order (OIHW; (out, in)).
        filler: Filler of a fresh blob. Caffe's default filler is constant 0.
        kind: ``statistic`` blobs (BatchNorm's sums) take no gradient and are exchanged in their own way.
    """

    shape: Shape
    filler: caffe_pb2.FillerParameter = field(default_factory=caffe_pb2.FillerParameter)
    kind: BlobKind = "weight"


@dataclass(frozen=True)
class ClassLabels:
    """A layer's use of the second bottom: whole numbers in [0, n_classes), or ``ignore_label`` if the layer has one."""

    n_classes: int
    ignore_label: int | None = None


@dataclass(frozen=True)
class LayerDefinition:
    """Definition of a layer for a request.

    Attributes:
        top_shapes: Caffe shapes of the tops, one per top of the message (Softmax-like optional tops included).
        blobs: Parameter blobs in Caffe's order (weights before bias).
        options: The type's own frozen dataclass with every option resolved; the emitter reads only this.
        flops: Multiply-adds of one forward pass over the batch, times two; 0 where they do not count.
        notes: Traps worth a line in the preflight report.
        default_loss_weight: 1 for loss layers: Caffe gives the first top of a loss this weight.
        is_data: True for a layer whose tops are fed from outside the net (Data, Input, ...).
        state_shapes: Named tensors that live from one forward pass to the next (recurrent h and c).
        ignores_lr_mult: Does Caffe's backward pass compute the gradients of all its blobs, whatever their lr_mult
            (LSTM, RNN)? They then count in the clip norm.
        gradient_reads_bottoms: Does Caffe's ``Backward_cpu`` read the data of a bottom again? Labels need not be
            declared: every loss reads them again.
        labels: Kind of labels in the second bottom, where the bottom has classes.
        mixes_samples: Does a sample's value in a top depend on the other samples of the batch?
        shares_memory: Are the tops the memory of the first bottom in Caffe (``Blob::ShareData``), with no copy?
        traits: The layer's traits where its options decide them; None: those of its type.
    """

    top_shapes: tuple[Shape, ...]
    blobs: tuple[BlobSpec, ...] = ()
    options: object = None
    flops: int = 0
    notes: tuple[str, ...] = ()
    default_loss_weight: float = 0.0
    is_data: bool = False
    state_shapes: Mapping[str, Shape] = field(default_factory=dict)
    ignores_lr_mult: bool = False
    gradient_reads_bottoms: bool = False
    shares_memory: bool = False
    labels: ClassLabels | None = None
    mixes_samples: bool = False
    traits: LayerTraits | None = None


DefineLayer = Callable[[LayerRequest], LayerDefinition]


@dataclass(frozen=True)
class LayerType:
    """A registered type: definition, and least and greatest number of bottoms and tops (None: no upper bound).

    ``differentiable_bottoms`` False means Caffe never sends a gradient to any bottom (Accuracy, ArgMax).
    ``label_bottoms`` are positions without a gradient (a loss layer's label is bottom 1). ``in_place`` says whether a
    top may carry its bottom's name. ``traits`` say how TensorFlow computes the type. ``no_keras_form`` is the reason
    for no Keras form; None: the type has a Keras form.
    """

    name: str
    define: DefineLayer
    bottoms: tuple[int, int | None]
    tops: tuple[int, int | None]
    traits: LayerTraits
    differentiable_bottoms: bool = True
    label_bottoms: tuple[int, ...] = ()
    in_place: bool = False
    no_keras_form: str | None = None


_TYPES: dict[str, LayerType] = {}


def layer_type(
    name: str,
    *,
    bottoms: tuple[int, int | None],
    tops: tuple[int, int | None],
    traits: LayerTraits,
    differentiable_bottoms: bool = True,
    label_bottoms: tuple[int, ...] = (),
    in_place: bool = False,
    no_keras_form: str | None = None,
) -> Callable[[DefineLayer], DefineLayer]:
    """Register the decorated function as the definition of layer type ``name``.

    Raises:
        ValueError: The name is already registered (a second registration is always a mistake).
    """

    def register(define: DefineLayer) -> DefineLayer:
        registered = _TYPES.get(name)
        if registered is not None and registered.define is not define:
            msg = f'layer type "{name}" is registered twice: {registered.define.__module__} and {define.__module__}'
            raise ValueError(msg)
        _TYPES[name] = LayerType(
            name, define, bottoms, tops, traits, differentiable_bottoms, label_bottoms, in_place, no_keras_form
        )
        return define

    return register


@cache
def _load_layers() -> None:
    package = import_module("caffe_import.layers")
    for module in pkgutil.iter_modules(package.__path__):
        import_module(f"caffe_import.layers.{module.name}")


def registered_types() -> Mapping[str, LayerType]:
    """Return every known layer type by name, sorted; loads ``caffe_import.layers`` first."""
    _load_layers()
    return dict(sorted(_TYPES.items()))


def find_layer_type(name: str, *, layer: str) -> LayerType:
    """Return the registered type.

    Raises:
        NetError: No such type; the message names the fork it belongs to, or the nearest types.
    """
    _load_layers()
    if name not in _TYPES:
        if fork := fork_of_type(name):
            finding = f"type {name} belongs to {fork}, not to Caffe 1.0; not supported here"
        else:
            finding = f'no importer for layer type "{name}"'
        misspelt = "" if fork else did_you_mean(name, _TYPES, similarity=0.8)
        nearest = "" if fork else misspelt or did_you_mean(name, _TYPES, most=3)
        remedy = "" if misspelt else f"; {OWN_LAYER}"
        elsewhere = "" if fork or nearest else f"; docs/reference/layers.md has all {len(_TYPES)} types"
        msg = f'layer "{layer}": {finding}{nearest}{elsewhere}{remedy}'
        raise NetError(msg, layer=layer, field_name="type")
    return _TYPES[name]
