"""Origin of a net's blobs: the data blobs behind a blob, and whether a learned layer takes part."""

from __future__ import annotations

from dataclasses import dataclass, replace

from caffe_import.layers.slice import SliceOptions
from caffe_import.net.net_spec import LayerSpec, NetSpec


@dataclass(frozen=True)
class Origin:
    """Origin of a blob.

    Attributes:
        data: Tops of data layers that it depends on; of a top that a Slice layer cuts, the part: (top, part).
        is_learned: Does a layer with parameters have a part in it?
        is_selected: Was a choice made that no longer has the values themselves (ArgMax)?
    """

    data: frozenset[tuple[str, ...]]
    is_learned: bool
    is_selected: bool = False

    def depends_on_all_of(self, other: Origin) -> bool:
        """Return whether this blob depends on all data of the other blob."""
        return all(any(path[:length] in self.data for length in range(1, len(path) + 1)) for path in other.data)


def origins(net: NetSpec) -> dict[str, Origin]:
    """Return the origin of every blob, by name after automatic splits; for layers in place the last origin."""
    learned = {entry.layer for entry in net.params.entries}
    origin_of: dict[str, Origin] = {}
    for layer in net.layers:
        if layer.definition.is_data or (not layer.bottoms and layer.name not in learned):
            origin_of.update({top: Origin(frozenset({(top,)}), is_learned=False) for top in layer.tops})
            continue
        read = layer.bottoms[:1] if layer.type == "Crop" else layer.bottoms  # its second bottom gives a shape alone
        parts = [origin_of[bottom] for bottom in read]
        origin = Origin(
            frozenset().union(*(part.data for part in parts)),
            is_learned=layer.name in learned or bool(layer.definition.blobs) or any(part.is_learned for part in parts),
            is_selected=layer.type == "ArgMax" or any(part.is_selected for part in parts),
        )
        origin_of.update(dict.fromkeys(layer.tops, origin))
        options = layer.definition.options
        if isinstance(options, SliceOptions) and options.axis != 0 and not origin.is_learned:
            parts_of = {top: frozenset((*path, top) for path in origin.data) for top in layer.tops}
            origin_of.update({top: replace(origin, data=data) for top, data in parts_of.items()})
    return origin_of


def weights_behind(net: NetSpec) -> dict[str, frozenset[int]]:
    """Return the learned blobs that each blob depends on, as positions in ``params.entries``."""
    of_layer: dict[str, set[int]] = {}
    for (layer_name, _), position in net.params.uses.items():
        of_layer.setdefault(layer_name, set()).add(position)
    behind: dict[str, frozenset[int]] = {}
    for layer in net.layers:
        weights = frozenset(of_layer.get(layer.name, ())).union(*(behind[bottom] for bottom in layer.bottoms))
        behind.update(dict.fromkeys(layer.tops, weights))
    return behind


def user_name(net: NetSpec, blob: str) -> str:
    """Return the source of ``blob`` if an automatic Split layer wrote ``blob``, else ``blob``."""
    producers = {top: layer for layer in net.layers for top in layer.tops}
    while blob in producers and producers[blob].type == "Split":
        blob = producers[blob].bottoms[0]
    return blob


def maker_of(net: NetSpec, blob: str) -> LayerSpec | None:
    """Return the last layer with the top ``blob``; None for an unknown blob."""
    makers = [layer for layer in net.layers if blob in layer.tops]
    return makers[-1] if makers else None


def named(layer: LayerSpec) -> str:
    """Return the layer's name for messages."""
    return f'layer "{layer.name}" ({layer.type})'
