"""Files of a net's HDF5Output layers during training and tests, below the run's folder.

The training net's files hold the last shown pass. A test net's files hold all batches of the last test, in order. Caffe
aborts at a layer's second pass.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.file_access.allowed_roots import check_named_path
from caffe_import.files.hdf5_output import check_hdf5_rows, hdf5_output_inputs, write_hdf5_outputs
from caffe_import.net.net_spec import NetSpec
from deepspark_ops.errors import ConfigError
from deepspark_ops.run_paths import RunPaths

Blobs = Mapping[str, npt.NDArray[Any]]


@dataclass
class SideOutputs:
    """The files of a net in a worker. Used by a single thread.

    Attributes:
        net: The net.
        root: Folder of relative file names.
        suffix: Stands before a file's ending, so that each worker writes other files.
    """

    net: NetSpec
    root: Path
    suffix: str = ""
    _rows: dict[str, list[npt.NDArray[Any]]] = field(default_factory=dict)

    def write(self, blobs: Blobs) -> None:
        """Write a pass."""
        write_hdf5_outputs(self.net, blobs, root=self.root, suffix=self.suffix)

    def add(self, blobs: Blobs) -> None:
        """Keep a batch of a test."""
        check_hdf5_rows(self.net, blobs)
        for name in hdf5_output_inputs(self.net):
            self._rows.setdefault(name, []).append(blobs[name])

    def write_added(self) -> None:
        """Write the batches kept since the last call, sample after sample."""
        if self._rows:
            self.write({name: np.concatenate(parts) for name, parts in self._rows.items()})
            self._rows.clear()


def training_outputs(net: NetSpec, paths: RunPaths, *, worker: int, n_workers: int) -> SideOutputs:
    """Return the training net's files of a worker: ``outputs/train/FILE``, with several workers ``FILE.worker_I``."""
    return SideOutputs(net, paths.outputs / "train", f".worker_{worker}" if n_workers > 1 else "")


def outputs_of_tests(nets: Sequence[NetSpec], paths: RunPaths) -> list[SideOutputs]:
    """Return each test net's files, ``outputs/test_I/FILE``; the worker of a test writes the files."""
    return [SideOutputs(net, paths.outputs / f"test_{index}") for index, net in enumerate(nets)]


def refuse_lost_outputs(nets: Sequence[NetSpec], outputs: Path, run_dir: Path) -> None:
    """Refuse HDF5Output layers that write outside of the run's outputs, on a host that does not see the run's folder.

    Raises:
        ConfigError: The files would stay on the worker's host.
    """
    if outputs.is_relative_to(run_dir):
        return
    for layer in (layer for net in nets for layer in net.layers if layer.type == "HDF5Output"):
        written = layer.message.hdf5_output_param.file_name
        if os.path.isabs(written) or ".." in Path(written).parts:
            msg = (
                f'layer "{layer.name}" writes {written}: host {socket.gethostname()} does not see run_dir={run_dir},'
                " and sends the files below outputs/ alone; give a file_name below it, or a run_dir that all hosts"
                " see"
            )
            raise ConfigError(msg)


def check_side_outputs(nets: Mapping[str, NetSpec], outputs: Path) -> list[str]:
    """Return a line with the file of each HDF5Output layer.

    Args:
        nets: Title -> net: ``train``, ``test_0``, ...
        outputs: The run's folder of outputs.

    Raises:
        ConfigError: Two layers write the same file.
        ForbiddenPathError: A layer writes outside of the allowed folders.
    """
    notes: list[str] = []
    writers: dict[Path, str] = {}
    for title, net in nets.items():
        for layer in net.layers:
            if layer.type != "HDF5Output":
                continue
            written = layer.message.hdf5_output_param.file_name
            path = Path(title) / written  # an absolute name stays as it is
            writer = f'layer "{layer.name}" of the {title} net'
            check_named_path(outputs / path, named_by=f"{writer}: file_name")
            if path in writers:
                msg = f"{writer} writes {written}, as {writers[path]} does; give each HDF5Output layer a file_name"
                raise ConfigError(msg)
            writers[path] = writer
            shown_path = path if path.is_absolute() else Path("outputs") / path
            notes.append(f"{writer} writes {shown_path}: {_WHEN[title == 'train']}")
    return notes


_WHEN = {
    True: "the pass shown last at each display, one file per worker where there are several",
    False: "all batches of the last test",
}
