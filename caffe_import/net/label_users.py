"""The layers with a data layer's top as class labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from caffe_import.net.layer_registry import ClassLabels
from caffe_import.net.net_spec import NetSpec


@dataclass(frozen=True)
class LabelUser:
    """A reader of class labels.

    Attributes:
        layer: Name of the layer.
        layer_type: Type of the layer.
        scores: The blob with a score for each class, by the name in the file.
        labels: Labels that the layer takes.
    """

    layer: str
    layer_type: str
    scores: str
    labels: ClassLabels


def label_users(net: NetSpec) -> Mapping[str, tuple[LabelUser, ...]]:
    """Return top of a data layer -> the layers with the top's unchanged values as classes, in the net's order.

    Layers with a shared bottom and top (Split, Reshape, Flatten) hand the values on; any other layer makes new values.
    """
    sources: dict[str, str] = {}
    names: dict[str, str] = {}
    users: dict[str, tuple[LabelUser, ...]] = {}
    for layer in net.layers:
        definition = layer.definition
        if definition.labels is not None and layer.bottoms[1] in sources:
            source, scores = sources[layer.bottoms[1]], names.get(layer.bottoms[0], layer.bottoms[0])
            users[source] = (*users.get(source, ()), LabelUser(layer.name, layer.type, scores, definition.labels))
        passed_on = sources.get(layer.bottoms[0]) if definition.shares_memory else None
        for top in layer.tops:
            sources.pop(top, None)
            if definition.is_data:
                sources[top] = top
            elif passed_on is not None:
                sources[top] = passed_on
            if layer.type == "Split":
                names[top] = layer.bottoms[0]
    return users
