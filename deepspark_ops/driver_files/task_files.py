"""Files of the driver's disk for tasks of Spark of the stages after training.

A task reads a file from its host's disk if the host has the driver's file, else from the driver's file server.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deepspark_ops.driver_files.driver_store import DriverStore
from deepspark_ops.driver_files.file_calls import FileServerAddress
from deepspark_ops.driver_files.file_server import FileServer, SharedFolders
from deepspark_ops.errors import DataError
from deepspark_ops.file_stamp import MISSING, Stamp, file_stamp
from deepspark_ops.ingest.files.archive import split_member
from deepspark_ops.processes.cluster_network import choose_listen_address, choose_protection, stays_in_process
from deepspark_ops.stores.staging import Staging, kept_copy, use_staging
from deepspark_ops.stores.store_path import DataPath, StorePath, on_driver, use_driver_store

_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class TaskFiles:
    """The driver's files for tasks. Travels inside the tasks' closure.

    Attributes:
        staging: Folder of copies on each host.
        output: New folder on the driver's disk for files of tasks, with a name that no other host has; None for none.
        address: The driver's file server; None where tasks run in the driver's process.
        stamps: Files and folders on the driver's disk, and their stamps.
    """

    staging: Staging
    output: Path | None = None
    address: FileServerAddress | None = None
    stamps: tuple[tuple[str, Stamp], ...] = ()

    def use(self) -> None:
        """Let this process read and write the driver's files."""
        use_staging(self.staging)
        if self.address is not None:
            use_driver_store(DriverStore(self.address, []))

    def on_host(self, path: DataPath) -> DataPath:
        """Return the path itself if this host has the driver's file, else the address on the driver's disk.

        Paths without a stamp stay: addresses in stores, and files that the driver does not have.
        """
        file = str(split_member(path)[0])
        stamp = dict(self.stamps).get(file)
        if stamp is None or isinstance(path, StorePath) or (file_stamp(file) == stamp and os.access(file, os.R_OK)):
            return path
        return on_driver(path)

    def copy(self, path: Path) -> Path:
        """Return the path itself if this host has the driver's file or folder, else a copy, kept by this process.

        Raises:
            ConfigError: The copy is larger than the room for copies.
            DataError: The file cannot be fetched.
        """
        try:
            return kept_copy(self.on_host(path))
        except OSError as error:
            msg = f"{error.filename or path}: {error.strerror or error}"
            raise DataError(msg) from error

    def output_on_host(self) -> DataPath | None:
        """Return the folder for files of tasks, as this host writes into the folder."""
        output = self.output
        return output if output is None or os.access(output, os.W_OK | os.X_OK) else on_driver(output)


@contextmanager
def files_for_tasks(
    master: str,
    *,
    listen_address: str,
    listen_port: int = 0,
    staging: Staging,
    read: Iterable[DataPath | None],
    folders: Iterable[DataPath] = (),
    output: Path | None = None,
) -> Iterator[TaskFiles]:
    """Serve files of this host's disks to tasks during the block.

    Args:
        master: Spark's master; inside this process no server is needed.
        listen_address: Address of this host for the tasks' connections, or ``auto``.
        listen_port: Port; 0 lets the system choose.
        staging: Folder of copies on each host.
        read: Files and folders that tasks read, absolute; others than files of this host's disks are left out.
        folders: Folders with more files that tasks may name.
        output: New folder for files of tasks.

    Raises:
        ConfigError: The address or the port cannot be used.
    """
    if stays_in_process(master):
        yield TaskFiles(staging, output)
        return
    paths = [file for path in read if path is not None and isinstance(file := split_member(path)[0], Path)]
    stamps = tuple((str(path), stamp) for path in paths if (stamp := file_stamp(path)) != MISSING)
    host = choose_listen_address(listen_address, master)
    server = FileServer(
        SharedFolders(
            tuple(path for path in (*paths, *folders) if isinstance(path, Path)), () if output is None else (output,)
        ),
        host,
        listen_port,
        protection=choose_protection("auto", master, listen_address=host).kind,
        timeout_s=_TIMEOUT_S,
    )
    try:
        yield TaskFiles(staging, output, server.address, stamps)
    finally:
        server.stop()
