"""What Caffe's HDF5Output layer writes. The graph has no side effects, so whoever runs a net calls this."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from caffe_import.net_spec import NetSpec
from caffe_import.whole_file import write_whole


def hdf5_output_blobs(net: NetSpec) -> dict[str, tuple[str, str]]:
    """Return file name as in the prototxt -> the blobs that become its ``data`` and ``label``."""
    return {
        layer.message.hdf5_output_param.file_name: (layer.bottoms[0], layer.bottoms[1])
        for layer in net.layers
        if layer.type == "HDF5Output"
    }


def hdf5_output_inputs(net: NetSpec) -> tuple[str, ...]:
    """Return the blobs that the net's HDF5Output layers take, each once."""
    return tuple(dict.fromkeys(blob for pair in hdf5_output_blobs(net).values() for blob in pair))


def write_hdf5_outputs(
    net: NetSpec, blobs: Mapping[str, npt.NDArray[Any]], *, root: Path, suffix: str = ""
) -> list[Path]:
    """Write one pass of every HDF5Output layer and return the files; each appears whole or not at all.

    Caffe's layer can be run once only, its second pass aborts on the existing dataset; here the last pass stays.

    Args:
        net: The net that ran.
        blobs: At least the blobs that ``hdf5_output_blobs`` names, after the pass.
        root: Folder that relative file names start from; it is made where it does not exist.
        suffix: Goes before a file's ending.
    """
    written = []
    for file_name, (data, label) in hdf5_output_blobs(net).items():
        named = root / file_name
        path = named.with_name(f"{named.stem}{suffix}{named.suffix}")
        with write_whole(path) as temporary, h5py.File(temporary, "w") as file:
            file.create_dataset("data", data=np.asarray(blobs[data], np.float32))
            file.create_dataset("label", data=np.asarray(blobs[label], np.float32))
        written.append(path)
    return written
