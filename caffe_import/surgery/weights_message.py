"""A weights file as a single message in Caffe's current form, and back; only the form is lost."""

from __future__ import annotations

from math import prod
from pathlib import Path

import h5py

from caffe_import.errors import NetError, WeightsError
from caffe_import.file_access.whole_file import write_whole
from caffe_import.files.binary_file import MAX_BYTES, is_hdf5, read_message
from caffe_import.files.blob_proto import array_from_blob, blob_from_array, check_shape, shape_of_blob
from caffe_import.files.caffemodel import read_caffemodel
from caffe_import.files.upgrade import NetForm, net_form, upgrade_net
from caffe_import.proto import caffe_pb2

_FILE_KIND = "a .caffemodel or .caffemodel.h5"


def read_weights(path: Path) -> caffe_pb2.NetParameter:
    """Return a weights file, old forms upgraded. Layers of an HDF5 file have names and blobs only.

    Raises:
        WeightsError: The file is missing, damaged, or no weights file.
    """
    return read_weights_and_form(path)[0]


def read_weights_and_form(path: Path) -> tuple[caffe_pb2.NetParameter, NetForm]:
    """Return a weights file as ``read_weights`` does, and which form it has.

    Raises:
        WeightsError: The file is missing, damaged, or no weights file.
    """
    if is_hdf5(path, file_kind=_FILE_KIND):
        net = caffe_pb2.NetParameter()
        for name, blobs in read_caffemodel(path).items():
            layer = net.layer.add(name=name)
            layer.blobs.extend(blob_from_array(values) for values in blobs)
        return net, NetForm("current", ())
    stored = read_message(path, caffe_pb2.NetParameter(), file_kind=_FILE_KIND)
    if not len(stored.layer) and not len(stored.layers):
        msg = f"{path}: holds no layers; {_FILE_KIND} was expected"
        raise WeightsError(msg)
    try:
        form, net = net_form(stored), upgrade_net(stored)
    except NetError as error:
        msg = f"{path}: {error}"
        raise WeightsError(msg) from error
    _check_blobs(net, path)
    return net, form


def _check_blobs(net: caffe_pb2.NetParameter, path: Path) -> None:
    for layer in net.layer:
        for index, blob in enumerate(layer.blobs):
            n_values = len(blob.double_data) or len(blob.data)
            check_shape(shape_of_blob(blob), n_values, where=f'{path}: layer "{layer.name}" blob {index}')


def write_weights(path: Path, net: caffe_pb2.NetParameter) -> None:
    """Write a weights file: HDF5 if ``path`` ends in ``.h5``, else binary. The file appears whole or not at all.

    Raises:
        WeightsError: The binary form would be larger than protobuf can read, or the names of layers clash in HDF5.
    """
    with write_whole(path) as temporary:
        if path.suffix == ".h5":
            _write_hdf5(temporary, net, path)
            return
        if net.ByteSize() > MAX_BYTES:
            msg = f"{path}: would have {net.ByteSize():,} bytes, protobuf reads at most {MAX_BYTES:,};"
            msg += " write .caffemodel.h5"
            raise WeightsError(msg)
        _check_whole(net, path)
        temporary.write_bytes(net.SerializeToString())


def _check_whole(net: caffe_pb2.NetParameter, path: Path) -> None:
    """HDF5 stores a shared blob with the owner only; the binary form needs the blob in each layer."""
    for layer in net.layer:
        for index, blob in enumerate(layer.blobs):
            if prod(shape_of_blob(blob)) == 0:
                msg = f'{path}: layer "{layer.name}" shares blob {index} with a layer that holds it, which HDF5'
                msg += " files alone can say; write .caffemodel.h5"
                raise WeightsError(msg)


def _write_hdf5(temporary: Path, net: caffe_pb2.NetParameter, path: Path) -> None:
    with h5py.File(temporary, "w") as file:
        data = file.create_group("data")
        for layer in net.layer:
            try:
                group = data.require_group(layer.name)
                for index, blob in enumerate(layer.blobs):
                    values = array_from_blob(blob, where=f'{path}: layer "{layer.name}" blob {index}')
                    if values.size:  # a shared blob is stored with its owner
                        group.create_dataset(str(index), data=values, dtype="<f4")
            except (TypeError, ValueError) as error:
                msg = f'{path}: layer "{layer.name}": its name and another one\'s are one in HDF5; use the binary form'
                raise WeightsError(msg) from error
