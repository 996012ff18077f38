"""Weights files of every generation to arrays, and a trained vector to files for Caffe.

Binary (``.caffemodel``: current, V1, V0, float or double data) and HDF5 (``.caffemodel.h5``). Reading distinguishes
the two by content, writing by the suffix ``.h5``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path

import h5py
import numpy as np

from caffe_import.errors import WeightsError
from caffe_import.file_access.whole_file import write_whole
from caffe_import.files.binary_file import MAX_BYTES, float_dataset, is_hdf5, opened_hdf5, read_message
from caffe_import.files.blob_proto import FloatArray, array_from_blob, blob_from_array, has_shape, varint
from caffe_import.net.layer_registry import BlobSpec, Shape
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.proto import caffe_pb2

_FILE_KIND = "a .caffemodel or .caffemodel.h5"
_NAME_TAG = varint(1 << 3 | 2)
_LAYER_TAG = varint(100 << 3 | 2)


def read_caffemodel(path: Path, *, net: NetSpec | None = None) -> dict[str, list[FloatArray]]:
    """Return layer name -> parameter blobs, float32, in the file's shapes.

    Legacy files have four axes (a bias is (1, 1, 1, N)). Layers without blobs map to an empty list. HDF5 stores a
    shared blob only with the owner. A sharer has an array of no elements before a later blob, and nothing at the end.

    Args:
        path: The file.
        net: Takes the weights. Of an HDF5 file, which may unpack to a thousand times its size, only blobs that fit
            this net are read; others have their shape and zeros, which take no memory. None reads all.

    Raises:
        WeightsError: The file is missing, damaged, or no weights file.
    """
    path = Path(path)
    blobs = _read_hdf5(path, net) if is_hdf5(path, file_kind=_FILE_KIND) else _read_binary(path)
    if not blobs:
        msg = f"{path}: holds no layers; {_FILE_KIND} was expected"
        raise WeightsError(msg)
    return blobs


def _read_binary(path: Path) -> dict[str, list[FloatArray]]:
    net = read_message(path, caffe_pb2.NetParameter(), file_kind=_FILE_KIND)
    blobs: dict[str, list[FloatArray]] = {}
    for name, protos in _stored_layers(net):
        blobs[name] = [
            array_from_blob(proto, where=f'{path}: layer "{name}" blob {index}') for index, proto in enumerate(protos)
        ]
    return blobs


def _stored_layers(net: caffe_pb2.NetParameter) -> Iterator[tuple[str, Sequence[caffe_pb2.BlobProto]]]:
    for layer in net.layer:
        yield layer.name, layer.blobs
    for old in net.layers:
        stored = old.layer if old.HasField("layer") else old
        yield stored.name, stored.blobs


def _read_hdf5(path: Path, net: NetSpec | None) -> dict[str, list[FloatArray]]:
    with opened_hdf5(path, file_kind=_FILE_KIND) as file:
        data = file.get("data")
        if not isinstance(data, h5py.Group):
            msg = f'{path}: has no group "data"; {_FILE_KIND} was expected'
            raise WeightsError(msg)
        layers = None if net is None else {layer.name: layer.definition.blobs for layer in net.layers}
        return dict(_hdf5_layers(data, "", path, set(), layers))


def _hdf5_layers(
    group: h5py.Group, prefix: str, path: Path, addresses: set[int], layers: Mapping[str, Sequence[BlobSpec]] | None
) -> Iterator[tuple[str, list[FloatArray]]]:
    """Yield every group below ``group`` as a layer; a slash in a layer's name makes groups in groups.

    ``addresses`` has the earlier groups: repeated groups make circles, or too many layers.
    """
    for key, item in group.items():
        if not isinstance(item, h5py.Group):
            continue
        name = f"{prefix}{key}"
        address = h5py.h5o.get_info(item.id).addr
        if address in addresses:
            msg = f'{path}: group "{name}" is another one\'s, too, by a link; Caffe writes a group for each layer'
            raise WeightsError(msg)
        addresses.add(address)
        stored = {
            int(index): float_dataset(
                member,
                where=f'{path}: layer "{name}" blob {index}',
                is_read=partial(_fits, layers, name, int(index)),
            )
            for index, member in item.items()
            if isinstance(index, str) and index.isdecimal() and len(index) <= 3 and not isinstance(member, h5py.Group)
        }
        n_blobs = max(stored) + 1 if stored else 0
        yield name, [stored.get(index, np.empty(0, np.float32)) for index in range(n_blobs)]
        yield from _hdf5_layers(item, f"{name}/", path, addresses, layers)


def _fits(layers: Mapping[str, Sequence[BlobSpec]] | None, name: str, index: int, shape: Shape) -> bool:
    """Return whether a stored blob is one of the net's; every blob is, where no net is given."""
    if layers is None:
        return True
    expected = layers.get(name, ())
    return index < len(expected) and has_shape(shape, expected[index].shape)


def copy_weights(
    net_spec: NetSpec, vector: Vector, blobs: Mapping[str, Sequence[FloatArray]], *, where: str
) -> list[str]:
    """Copy blobs into the net's vector by layer name, as Net::CopyTrainedLayersFrom; return notes for the user.

    Layers of a single side are left alone. A layer on both sides must have the same number of blobs and the same
    shapes; legacy shapes with ones in front fit. Nothing is written unless everything fits.

    Args:
        net_spec: The net.
        vector: float32 (n_params,), written in place.
        blobs: As ``read_caffemodel`` returns them.
        where: Begins errors and notes: the file's name.

    Raises:
        WeightsError: A layer's blobs do not fit (both shapes are named), or no layer with parameters is in common.
    """
    _check_vector(net_spec, vector)
    copies: list[tuple[int, FloatArray]] = []
    fresh: list[str] = []
    for layer in net_spec.layers:
        if layer.name in blobs:
            copies += _matched(net_spec, layer, blobs[layer.name], where)
        elif layer.definition.blobs:
            fresh.append(layer.name)
    net_layers = {layer.name for layer in net_spec.layers}
    ignored = [name for name, stored in blobs.items() if stored and name not in net_layers]
    if not copies and net_spec.params.entries:
        msg = (
            f"{where}: no layer with weights has the name of a layer of this net; the file has {_listed(ignored)}, "
            f"the net has {_listed(fresh)}"
        )
        raise WeightsError(msg)
    for position, array in copies:
        entry = net_spec.params.entries[position]
        vector[entry.offset : entry.stop] = array.reshape(-1)
    notes = []
    if ignored:
        notes.append(f"{where}: layers that the net does not have are ignored: {_listed(ignored)}")
    if fresh:
        notes.append(f"{where}: has nothing for these layers, they keep their values: {_listed(fresh)}")
    return notes


def _listed(names: Sequence[str]) -> str:
    return (", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")) or "none"


def _matched(
    net_spec: NetSpec, layer: LayerSpec, stored: Sequence[FloatArray], where: str
) -> list[tuple[int, FloatArray]]:
    expected = layer.definition.blobs
    if len(stored) > len(expected):
        raise _wrong_count(layer, stored, where)
    copies: list[tuple[int, FloatArray]] = []
    for index, blob in enumerate(expected):
        position = net_spec.params.uses[layer.name, index]
        if index >= len(stored) or (stored[index].size == 0 and prod(blob.shape) > 0):
            owner = net_spec.params.entries[position]
            if (owner.layer, owner.index) == (layer.name, index):
                raise _wrong_count(layer, stored, where)
            continue  # shared: HDF5 stores the blob with its owner
        if not has_shape(stored[index].shape, blob.shape):
            msg = (
                f'{where}: layer "{layer.name}" blob {index} has shape {stored[index].shape}, '
                f"the net expects {blob.shape}; rename the layer to start it afresh"
            )
            raise WeightsError(msg)
        copies.append((position, stored[index]))
    return copies


def _wrong_count(layer: LayerSpec, stored: Sequence[FloatArray], where: str) -> WeightsError:
    stored_shapes = [array.shape for array in stored]
    expected = [blob.shape for blob in layer.definition.blobs]
    return WeightsError(
        f'{where}: layer "{layer.name}" has {len(stored_shapes)} blobs of shapes {stored_shapes}, '
        f"the net expects {len(expected)} of shapes {expected}"
    )


def write_caffemodel(path: Path, net_spec: NetSpec, vector: Vector) -> None:
    """Write the net's weights as Caffe's Net::ToProto does, or as Net::ToHDF5 if ``path`` ends in ``.h5``.

    The binary form has every layer, also data and Split layers, with phase, and shared blobs in each user. The HDF5
    form has a group per layer, and shared blobs only with their owner. The file appears whole or not at all.

    Args:
        path: The new file; a missing folder is made.
        net_spec: The net.
        vector: float32 (n_params,); read only.

    Raises:
        WeightsError: The vector is not the net's, or the binary form would be larger than protobuf can read.
    """
    path = Path(path)
    _check_vector(net_spec, vector)
    if path.suffix == ".h5":
        _check_hdf5_names(net_spec, path)
    with write_whole(path) as temporary:
        if path.suffix == ".h5":
            _write_hdf5(temporary, net_spec, vector)
        else:
            _write_binary(temporary, net_spec, vector, path)


def _check_vector(net_spec: NetSpec, vector: Vector) -> None:
    if vector.shape != (net_spec.params.n_params,) or vector.dtype != np.float32:
        msg = (
            f'net "{net_spec.name}": parameters have shape {vector.shape} and type {vector.dtype}; '
            f"expected ({net_spec.params.n_params},) and float32"
        )
        raise WeightsError(msg)


def _blob_values(net_spec: NetSpec, vector: Vector, layer: LayerSpec, index: int) -> FloatArray:
    entry = net_spec.params.entry(layer.name, index)
    # A permissive sharer has the owner's values in a shape of its own.
    return vector[entry.offset : entry.stop].reshape(layer.definition.blobs[index].shape)


def _write_binary(temporary: Path, net_spec: NetSpec, vector: Vector, path: Path) -> None:
    # Field by field: the whole message at once would need the weights three times in memory.
    with temporary.open("wb") as file:
        if net_spec.name:
            name = net_spec.name.encode()
            file.write(_NAME_TAG + varint(len(name)) + name)
        for layer in net_spec.layers:
            message = saved_message(layer)
            message.blobs.extend(
                blob_from_array(_blob_values(net_spec, vector, layer, index))
                for index in range(len(layer.definition.blobs))
            )
            content = message.SerializeToString()
            file.write(_LAYER_TAG + varint(len(content)) + content)
        if file.tell() > MAX_BYTES:
            msg = f"{path}: would have {file.tell():,} bytes, protobuf reads at most {MAX_BYTES:,}; use .caffemodel.h5"
            raise WeightsError(msg)


def saved_message(layer: LayerSpec) -> caffe_pb2.LayerParameter:
    """Return the layer's message as Caffe's layers save it, without blobs.

    Two types change the layer's message at set-up: a loss layer its weight 1 (LossLayer::LayerSetUp), BatchNorm a
    rate of 0 for each statistic (BatchNormLayer::LayerSetUp).
    """
    message = caffe_pb2.LayerParameter()
    message.CopyFrom(layer.message)
    message.ClearField("blobs")
    if layer.definition.default_loss_weight and len(message.loss_weight) == 0:
        message.loss_weight.append(layer.definition.default_loss_weight)
    for index, blob in enumerate(layer.definition.blobs):
        if blob.kind == "statistic" and index == len(message.param):
            message.param.add(lr_mult=0)
    return message


def _check_hdf5_names(net_spec: NetSpec, path: Path) -> None:
    """A blob is stored as layer/index; no layer of the same name, nor a layer below, may need the name for a group."""
    dataset_names = {f"{entry.layer}/{entry.index}" for entry in net_spec.params.entries}
    for layer in net_spec.layers:
        parts = layer.name.split("/")
        for length in range(2, len(parts) + 1):
            if "/".join(parts[:length]) in dataset_names:
                msg = f'{path}: layer "{layer.name}" and a blob of layer "{"/".join(parts[: length - 1])}" would have '
                msg += "one name in HDF5; use the binary form"
                raise WeightsError(msg)


def _write_hdf5(temporary: Path, net_spec: NetSpec, vector: Vector) -> None:
    with h5py.File(temporary, "w") as file:
        data = file.create_group("data")
        for layer in net_spec.layers:
            # A slash in the name makes nested groups; Caffe itself cannot save such a net in this form.
            group = data.require_group(layer.name)
            for index in range(len(layer.definition.blobs)):
                entry = net_spec.params.entry(layer.name, index)
                if (entry.layer, entry.index) == (layer.name, index):
                    group.create_dataset(str(index), data=_blob_values(net_spec, vector, layer, index), dtype="<f4")
