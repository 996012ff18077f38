"""Files of Caffe's HDF5Output layer. The graph has no side effects, so the caller of a net writes the files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from caffe_import.errors import NetError
from caffe_import.file_access.allowed_roots import check_named_path
from caffe_import.file_access.whole_file import write_whole
from caffe_import.net.net_spec import NetSpec


def hdf5_output_blobs(net: NetSpec) -> dict[str, tuple[str, str]]:
    """Return file name as in the prototxt -> the blobs that become its ``data`` and ``label``."""
    return {
        layer.message.hdf5_output_param.file_name: (layer.bottoms[0], layer.bottoms[1])
        for layer in net.layers
        if layer.type == "HDF5Output"
    }


def hdf5_output_inputs(net: NetSpec) -> tuple[str, ...]:
    """Return the bottoms of the net's HDF5Output layers, each once."""
    return tuple(dict.fromkeys(blob for pair in hdf5_output_blobs(net).values() for blob in pair))


def write_hdf5_outputs(
    net: NetSpec, blobs: Mapping[str, npt.NDArray[Any]], *, root: Path, suffix: str = ""
) -> list[Path]:
    """Write one pass of every HDF5Output layer and return the files; each appears whole or not at all.

    Caffe's layer can be run once only, its second pass aborts on the existing dataset; here the last pass stays.
    Like Caffe's data_blob_ and label_blob_, both datasets have four axes: what is missing is 1. Where Filter has left
    no sample Caffe divides by zero; here the datasets then have no rows.

    Args:
        net: The net that ran.
        blobs: At least the blobs that ``hdf5_output_blobs`` names, after the pass.
        root: Folder that relative file names start from; it is made where it does not exist.
        suffix: Goes before a file's ending.

    Raises:
        NetError: The two blobs of a layer have different numbers of samples.
    """
    check_hdf5_rows(net, blobs)
    written = []
    for file_name, (data, label) in hdf5_output_blobs(net).items():
        named = root / file_name
        path = named.with_name(f"{named.stem}{suffix}{named.suffix}")
        check_named_path(path, named_by="file_name of an HDF5Output layer")
        with write_whole(path) as temporary, h5py.File(temporary, "w") as file:
            file.create_dataset("data", data=_with_four_axes(blobs[data]))
            file.create_dataset("label", data=_with_four_axes(blobs[label]))
        written.append(path)
    return written


def check_hdf5_rows(net: NetSpec, blobs: Mapping[str, npt.NDArray[Any]]) -> None:
    """Compare, as HDF5OutputLayer::Forward_cpu, how many samples the two blobs of each layer hold after a pass.

    Raises:
        NetError: They differ: Filter has dropped samples of one only.
    """
    for layer in net.layers:
        if layer.type != "HDF5Output":
            continue
        (data, n_data), (label, n_label) = ((blob, np.shape(blobs[blob])[:1]) for blob in layer.bottoms)
        if n_data != n_label:
            msg = (
                f'layer "{layer.name}" (HDF5Output): bottom "{data}" holds {n_data[0]} samples and "{label}" '
                f"{n_label[0]}; take both from the same Filter layer"
            )
            raise NetError(msg, layer=layer.name)


def _with_four_axes(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    return np.asarray(values, np.float32).reshape(values.shape + (1,) * (4 - values.ndim))
