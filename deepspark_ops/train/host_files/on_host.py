"""A worker's choice between files of its host's disks and files of the driver's file server."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from caffe_import.proto import caffe_pb2
from deepspark_ops.driver_files.driver_store import DriverStore
from deepspark_ops.driver_files.file_calls import FileServerAddress
from deepspark_ops.errors import DataError
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.manifest import mean_path, read_manifest
from deepspark_ops.sizes import size_text
from deepspark_ops.stores.staging import staging
from deepspark_ops.stores.store_path import DataPath, StorePath, on_driver, use_driver_store
from deepspark_ops.train.data.data_binding import DRAWS_ITSELF

FILE_SERVER: Final = "file_server"
STATE_SHA256: Final = "start_state_sha256"
"""Keys of a task's settings: the address of the file server, and the digest of a start state that the server has."""


@dataclass(frozen=True)
class DriverFiles:
    """The driver's files for a worker.

    Attributes:
        address: The file server.
        state_sha256: Digest of the start state, if the state is not among the files of the task.
        hidden_run: The run's folder on the driver's disk, if this host does not see the folder.
    """

    address: FileServerAddress
    state_sha256: str = ""
    hidden_run: Path | None = None

    @classmethod
    def of_task(cls, settings: Mapping[str, Any], hidden_run: str | None) -> DriverFiles | None:
        """Return the driver's files by a task's settings; None where all workers see the driver's folders.

        This process reads the driver's files from now on.
        """
        if FILE_SERVER not in settings:
            return None
        address = FileServerAddress.from_plain(settings[FILE_SERVER])
        use_driver_store(DriverStore(address))
        run = None if hidden_run is None else Path(hidden_run)
        return cls(address, settings.get(STATE_SHA256, ""), run)


def local_state(state: Path, files: DriverFiles) -> Path:
    """Return a copy of the start state, which stays until the end of this process.

    Raises:
        ConfigError: The state is larger than the room for copies.
        DataError: The driver's file has another digest, or cannot be read.
    """
    name, digest = state.name, files.state_sha256
    try:
        return staging().files(digest, {name: on_driver(state)}, {name: digest}).folder / name
    except OSError as error:
        msg = f"start state {error.filename or state}: {error.strerror or error}"
        raise DataError(msg) from error


def with_local_means(nets: Sequence[caffe_pb2.NetParameter], dataset: DataPath | None) -> None:
    """Replace the dataset's mean file in nets by a copy, where the host reads the driver's dataset; in place.

    Raises:
        DataError: The mean file has another digest, or cannot be read.
    """
    layers = [layer for net in nets for layer in net.layer if layer.transform_param.mean_file]
    layers = [layer for layer in layers if layer.type not in DRAWS_ITSELF]
    if not isinstance(dataset, StorePath) or not dataset.is_on_driver or not layers:
        return
    mean, record = mean_path(dataset), read_manifest(DatasetPaths(dataset).split("train")).mean_file
    assert record is not None, "mean_path refuses a dataset without a mean image"
    assert isinstance(mean, StorePath), "in the dataset"
    try:
        copy = staging().files(record.sha256, {mean.name: mean}, {mean.name: record.sha256})  # to the process's end
    except OSError as error:
        msg = f"mean file {error.filename or mean}: {error.strerror or error}"
        raise DataError(msg) from error
    for layer in layers:
        layer.transform_param.mean_file = str(copy.folder / mean.name)


def hidden_sources(error: Exception) -> DataError:
    """Return the error of a run without an ingested dataset on a host that does not see the nets' sources."""
    return DataError(
        f"{error}; on host {socket.gethostname()}: only an ingested dataset comes from the driver: run deepspark"
        " ingest and give --dataset, or put the nets' sources where all hosts see them"
    )


def reading_note(dataset: DataPath | None, n_bytes: int) -> tuple[str, bool]:
    """Return a note on a host that reads the driver's dataset, and whether the note is a warning; else an empty note.

    Args:
        dataset: The dataset as read here.
        n_bytes: Bytes of the dataset's shards.
    """
    if not isinstance(dataset, StorePath) or not dataset.is_on_driver:
        return "", False
    cache = staging()
    text = (
        f"host {socket.gethostname()} does not see dataset={dataset.keys}: it reads {size_text(n_bytes)} of shards from"
        f" the driver, by copies in {cache.folder}"
    )
    if n_bytes <= cache.n_bytes:
        return text, False
    limit = size_text(cache.n_bytes)
    return (
        f"{text}; staging_size={limit} holds a part of the shards, so that each comes about once an epoch: raise it",
        True,
    )
