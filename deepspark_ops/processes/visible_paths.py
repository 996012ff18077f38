"""Paths of the driver's host in tasks of Spark: a task on a host without the paths says so before its work."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from deepspark_ops.errors import ConfigError

NamedPaths = tuple[tuple[str, str], ...]
"""Option and path of each file and folder; travels to tasks."""


def named_paths(paths: Mapping[str, object]) -> NamedPaths:
    """Return the values of options that name files and folders on this host's disks, made absolute."""
    on_disk = {option: path for option, path in paths.items() if isinstance(path, Path) and os.path.exists(path)}
    return tuple((option, str(path.absolute())) for option, path in on_disk.items())


def unseen(paths: NamedPaths) -> str:
    """Return a message about paths that this host does not see; empty if it sees all."""
    missing = [f"{option}={path}" for option, path in paths if not os.path.exists(path)]
    if not missing:
        return ""
    return (
        f"host {socket.gethostname()} of the cluster does not see {', '.join(missing)}; this stage's tasks read and"
        " write on their hosts' disks: give paths on a file system that all hosts mount, or leave out master to compute"
        " on this host alone (docs/guides/cluster.md)"
    )


def require_visible(paths: NamedPaths) -> None:
    """Refuse a host that does not see the driver's files. Without the check, output would stay on that host's disk.

    Raises:
        ConfigError: Names the host and what to do.
    """
    if message := unseen(paths):
        raise ConfigError(message)
