"""Facts of an executor and of its connection to the driver. Runs in a Spark task; loads no framework."""

from __future__ import annotations

import os
import platform
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deepspark_ops.devices.host_cores import host_cores
from deepspark_ops.devices.host_gpus import gpu_names
from deepspark_ops.devices.memory_there import host_memory_bytes
from deepspark_ops.doctor.meeting import visit
from deepspark_ops.processes.versions import installed_versions


def look(addresses: Sequence[tuple[str, int]], token: bytes, home: str, marker: str) -> dict[str, Any]:
    """Return facts as plain values.

    Args:
        addresses: Addresses of the driver, one for each server of an exchange.
        token: Token of the meeting.
        home: Folder that every executor must see.
        marker: Name of a file that the driver wrote into ``home``.
    """
    facts: dict[str, Any] = {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "package": str(Path(__file__).resolve().parents[2]),
        "versions": installed_versions("pyspark", "tensorflow", "numpy"),
        "memory_bytes": host_memory_bytes(),
        "cores": host_cores(),
        "gpus": list(gpu_names(os.environ)),
        "home": _home_problem(Path(home), marker),
        "unreachable": "",
        "offset_s": 0.0,
        "offset_error_s": 0.0,
    }
    for host, port in addresses:
        try:
            facts["offset_s"], facts["offset_error_s"] = visit(host, port, token)
        except OSError as error:
            problem = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
            facts["unreachable"] = problem if len(addresses) == 1 else f"port {port}: {problem}"
            break
    return facts


def _home_problem(home: Path, marker: str) -> str:
    """Return the reason why this executor cannot use the common folder; empty if the folder works."""
    if not (home / marker).exists():
        return "does not see what the driver writes there" if home.is_dir() else "is not there"
    try:
        with tempfile.TemporaryFile(dir=home):
            return ""
    except OSError as error:
        return f"cannot be written as user {os.getuid()}: {error.strerror}"
