"""The driver's side of files for workers on hosts that do not see the driver's folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from caffe_import.file_access.regular_file import regular_bytes
from deepspark_ops.driver_files.file_server import FileServer, SharedFolders
from deepspark_ops.exchange.transport.connection import ExchangeAddress
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.shards.manifest import sha256_of_file
from deepspark_ops.train.host_files.on_host import FILE_SERVER, STATE_SHA256
from deepspark_ops.train.setup.folder_guard import prepared_files
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.setup.run_dataset import root_of
from deepspark_ops.train.worker.fault_file import FAULTS
from deepspark_ops.train.worker.run_copy import FILES, MARK, write_mark

STATE_BYTES: Final = 16 * 2**20
"""Longest start state inside a task: Spark's tasks carry kilobytes. The file server has a larger state."""


def start_file_server(run: Run, exchange: ExchangeAddress, start_state: str) -> FileServer:
    """Start the server of the run's data, start state and outputs.

    Args:
        run: The run.
        exchange: The exchange's server, whose address, protection and timeout the file server has, too.
        start_state: ``state.h5`` of the start; empty without a state.

    Raises:
        ConfigError: The port after the ports of the exchange cannot be used.
    """
    dataset = run.config.dataset
    readable = [root_of(dataset)] if isinstance(dataset, Path) else []
    readable += [Path(start_state)] if start_state else []
    return FileServer(
        SharedFolders(
            tuple(path for path in readable if isinstance(path, Path)), (run.paths.outputs, run.paths.work / FAULTS)
        ),
        exchange.host,
        max(exchange.port, *exchange.more_ports, 0) + 1 if run.config.listen_port else 0,
        protection=exchange.protection,
        timeout_s=exchange.exchange_timeout_s,
    )


def shipped_settings(
    paths: RunPaths, settings: Mapping[str, Any], file_server: FileServer | None = None
) -> dict[str, Any]:
    """Return what a task needs besides its settings on a host that does not see the driver's folders.

    Args:
        paths: The run's folder.
        settings: The task's settings.
        file_server: The server of the larger files; None where every worker sees the driver's folders.
    """
    contents = prepared_files(paths.root)
    state = Path(settings["start_state"]) if settings["start_state"] else None
    # Plain values: an executor with an older deepspark has no class of the address, and is to say so itself.
    served: dict[str, Any] = {} if file_server is None else {FILE_SERVER: file_server.address.to_plain()}
    if state is not None and state.stat().st_size <= STATE_BYTES:
        contents[state] = regular_bytes(state, max_bytes=STATE_BYTES)
    elif state is not None and file_server is not None:
        served[STATE_SHA256] = sha256_of_file(state)
    files = {str(path.relative_to(paths.root)): content for path, content in contents.items()}
    return {FILES: files, MARK: write_mark(paths.work), **served}
