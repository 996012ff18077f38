"""Net surgery: layers of a weights file renamed, dropped, or taken from another file.

A net takes weights by the names of its layers (Net::CopyTrainedLayersFrom), so a renamed layer starts afresh or gets
what another layer had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from caffe_import.errors import WeightsError, did_you_mean
from caffe_import.files.blob_proto import shape_of_blob
from caffe_import.proto import caffe_pb2
from caffe_import.surgery.weights_message import read_weights

_NAMES_SHOWN = 20


@dataclass(frozen=True)
class LayerCopy:
    """A layer of another file that is taken over.

    Attributes:
        source: The other weights file.
        layer: Name of the layer there.
        name: Its name here; a layer of that name gives up its blobs for it.
    """

    source: Path
    layer: str
    name: str


@dataclass(frozen=True)
class Edits:
    """Edits of a weights file, in this order.

    Attributes:
        drops: Layers that go.
        renames: Old name -> new name; a swap is possible.
        copies: Layers from other files.
    """

    drops: Sequence[str] = ()
    renames: Mapping[str, str] | None = None
    copies: Sequence[LayerCopy] = ()


def edited(net: caffe_pb2.NetParameter, edits: Edits, *, where: str) -> tuple[caffe_pb2.NetParameter, list[str]]:
    """Return the net after the edits, a new message, and a line for each change.

    Args:
        net: As ``read_weights`` returns it; left alone.
        edits: What to do.
        where: Begins errors: the file's name.

    Raises:
        WeightsError: A layer that is not there, a name that is taken, or another file that cannot be read.
    """
    result = caffe_pb2.NetParameter()
    result.CopyFrom(net)
    messages = [*_drop(result, edits.drops, where), *_rename(result, edits.renames or {}, where)]
    sources = {copy.source: read_weights(copy.source) for copy in edits.copies}
    for copy in edits.copies:
        messages.append(_take(result, copy, sources[copy.source]))
    return result, messages


def _drop(net: caffe_pb2.NetParameter, names: Sequence[str], where: str) -> list[str]:
    messages = []
    for name in names:
        layer = _layer(net, name, where)
        messages.append(f"dropped {_described(layer)}")
        net.layer.remove(layer)
    return messages


def _rename(net: caffe_pb2.NetParameter, names: Mapping[str, str], where: str) -> list[str]:
    chosen = [(_layer(net, old, where), new) for old, new in names.items()]
    used_names = {layer.name for layer in net.layer} - set(names)
    messages = []
    for layer, new in chosen:
        if not new or new in used_names:
            finding = "no name" if not new else "taken by another layer, which has to be dropped or renamed too"
            msg = f'{where}: layer "{layer.name}" cannot become "{new}": {finding}'
            raise WeightsError(msg)
        used_names.add(new)
        messages.append(f'renamed {_described(layer)} to "{new}"')
    for layer, new in chosen:
        layer.name = new
    return messages


def _take(net: caffe_pb2.NetParameter, copy: LayerCopy, other: caffe_pb2.NetParameter) -> str:
    source = _layer(other, copy.layer, str(copy.source))
    target = next((layer for layer in net.layer if layer.name == copy.name), None)
    if target is None:
        target = net.layer.add()
        target.CopyFrom(source)
        target.name = copy.name
        return f'added "{copy.name}" from {copy.source}: {_described(source)}'
    old_layer = _described(target)
    del target.blobs[:]
    target.blobs.extend(source.blobs)
    return f"replaced {old_layer} by {_described(source)} of {copy.source}"


def _layer(net: caffe_pb2.NetParameter, name: str, where: str) -> caffe_pb2.LayerParameter:
    for layer in net.layer:
        if layer.name == name:
            return layer
    names = [layer.name for layer in net.layer]
    shown = ", ".join(names[:_NAMES_SHOWN]) + (f" and {len(names) - _NAMES_SHOWN} more" * (len(names) > _NAMES_SHOWN))
    msg = f'{where}: has no layer "{name}"{did_you_mean(name, names)}; it has {shown}'
    raise WeightsError(msg)


def _described(layer: caffe_pb2.LayerParameter) -> str:
    shapes = " ".join("x".join(map(str, shape_of_blob(blob))) or "1" for blob in layer.blobs)
    return f'"{layer.name}" ({shapes or "no blobs"})'
