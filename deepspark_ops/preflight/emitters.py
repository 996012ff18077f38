"""Layer types with an emitter for workers; determined without TensorFlow."""

from __future__ import annotations

import pkgutil
from functools import cache
from pathlib import Path
from typing import Final

import caffe_import
from caffe_import.errors import NetError
from caffe_import.net.layer_registry import find_layer_type
from caffe_import.proto import caffe_pb2
from deepspark_ops.train.data.data_binding import DRAWS_ITSELF, FED_BY_COLUMN, READS_FILES

_FED_TYPES: Final = (*READS_FILES, *FED_BY_COLUMN, *DRAWS_ITSELF)
"""Types with tops from outside the graph."""


@cache
def _emitter_modules() -> frozenset[str]:
    """Return the module names in ``caffe_import.tf_graph.layers`` without an import: imports need TensorFlow."""
    folders = [str(Path(folder, "tf_graph", "layers")) for folder in caffe_import.__path__]
    return frozenset(module.name for module in pkgutil.iter_modules(folders))


def require_emitter(layer: caffe_pb2.LayerParameter) -> None:
    """Refuse a layer without an emitter: tf_graph/layers/ lacks the module of the same name as in layers/.

    Raises:
        NetError: The type is unknown, or has no emitter.
    """
    module = find_layer_type(layer.type, layer=layer.name).define.__module__.rsplit(".", 1)[-1]
    if layer.type not in _FED_TYPES and module not in _emitter_modules():
        msg = (
            f'layer "{layer.name}": type {layer.type} can be read but not computed; its TensorFlow side is missing '
            f"(caffe_import/tf_graph/layers/{module}.py)"
        )
        raise NetError(msg, layer=layer.name, field_name="type")
