"""Caffe layer types with a Keras form. Mirrors ``caffe_import.tf_graph.emitters``, for trained parameters."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import LayerSpec
from deepspark_ops.export.formats.exported_model import CannotHave
from deepspark_ops.export.formats.keras_layers.value import Value

Array = npt.NDArray[np.float32]
_Options = TypeVar("_Options")


@dataclass(frozen=True)
class FormRequest:
    """Input of a Keras form: a layer with its input values and parameters.

    Attributes:
        layer: The layer; the first axis of its shapes is -1, the batch.
        name: Keras name of the layer; further objects of the layer have ``name`` and a suffix.
        bottoms: Input values, in order.
        params: Parameter blobs of the layer in Caffe's shapes and order.
    """

    layer: LayerSpec
    name: str
    bottoms: Sequence[Value]
    params: Sequence[Array]

    def options(self, kind: type[_Options]) -> _Options:
        """Return the layer's resolved options."""
        options = self.layer.definition.options
        assert isinstance(options, kind)
        return options

    def shape(self, bottom: int = 0) -> Shape:
        """Return the Caffe shape of a bottom, -1 in front."""
        return self.layer.bottom_shapes[bottom]

    def top_shape(self) -> Shape:
        """Return the shape of the first top."""
        return self.layer.definition.top_shapes[0]

    def refuse(self, finding: str) -> NoReturn:
        """Refuse an option that has no Keras form."""
        msg = f'layer "{self.layer.name}" ({self.layer.type}): {finding}'
        raise CannotHave(msg)

    def refuse_batch(self, finding: str) -> NoReturn:
        """Refuse an option that mixes the samples of a batch."""
        self.refuse(f"{finding}; there is no Keras form for any batch")


Form = Callable[[FormRequest], list[Value]]
_FORMS: dict[str, Form] = {}


def keras_form(*type_names: str) -> Callable[[Form], Form]:
    """Register the decorated function as the Keras form of some layer types. Its result has a value for each top."""

    def register(form: Form) -> Form:
        for name in type_names:
            if _FORMS.setdefault(name, form) is not form:
                msg = f'layer type "{name}" has two Keras forms'
                raise ValueError(msg)
        return form

    return register


@cache
def _load() -> None:
    package = import_module("deepspark_ops.export.formats.keras_layers")
    for module in pkgutil.iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")


def registered_forms() -> Mapping[str, Form]:
    """Return every form by layer type, sorted."""
    _load()
    return dict(sorted(_FORMS.items()))


def with_weights(layer: Any, bottom: Any, *weights: Array) -> Any:
    """Apply a Keras layer to a tensor, and set the layer's weights, in Keras's order."""
    top = layer(bottom)
    layer.set_weights([np.asarray(weight, np.float32) for weight in weights])
    return top
