"""The page of layer types, from the registry."""

from __future__ import annotations

import inspect

from caffe_import.layers import activations
from caffe_import.net.layer_registry import LayerType, registered_types

_HEAD = """<!-- Written by docs/generate/layers.py (make format); do not edit. -->
# Layers

DeepSpark has {count} layer types. A net that names another type is refused with its file and line.
[Own layers](../guides/own_layer.md) says how to add a type, and how to use a `Python` layer.

| type | inputs | outputs | in place | meaning |
| --- | --- | --- | --- | --- |
"""


def page() -> str:
    """Return the page: one line per registered type, sorted by name."""
    types = registered_types()
    return _HEAD.format(count=len(types)) + "".join(_row(layer) for layer in types.values())


def _row(layer: LayerType) -> str:
    module = inspect.getmodule(layer.define)
    described = layer.define if module is activations else module  # elsewhere a file has one type
    first_line = (described.__doc__ or "").splitlines()[0]
    text = first_line.partition(" Source: ")[0].removeprefix(f"{layer.name}: ").replace("|", "\\|")
    in_place = "yes" if layer.in_place else ""
    return f"| `{layer.name}` | {_count(layer.bottoms)} | {_count(layer.tops)} | {in_place} | {text} |\n"


def _count(bounds: tuple[int, int | None]) -> str:
    low, high = bounds
    if high is None:
        return f"{low} or more"
    return str(low) if low == high else f"{low} to {high}"
