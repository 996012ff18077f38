"""A worker's versions beside the driver's versions. Loads no framework."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Final

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.transport.channel.handshake import VERSION
from deepspark_ops.processes.versions import differing_names, running_versions

_PROTOCOL: Final = "protocol"
_REMEDY: Final = "give driver and executors one environment (docs/guides/cluster.md)"


def versions_of_training() -> dict[str, str]:
    """Return name -> version of this process: Python, libraries, and the protocol of the exchange."""
    return {**running_versions(), _PROTOCOL: str(VERSION)}


def version_note(worker: int, driver: Mapping[str, str]) -> str:
    """Return a warning that names the versions that differ from the driver's; empty without a difference.

    Args:
        worker: The worker's id, for messages.
        driver: The driver's ``versions_of_training``; empty from a driver that is too old to have one.

    Raises:
        ConfigError: Driver and worker have different protocols of the exchange.
    """
    versions = versions_of_training()
    names = differing_names(versions, driver)
    different = ", ".join(f"{name} {versions[name]} (driver: {driver[name]})" for name in names)
    host = socket.gethostname()
    if driver.get(_PROTOCOL) != versions[_PROTOCOL]:
        different = different or f"{_PROTOCOL} {versions[_PROTOCOL]} (driver: an older deepspark)"
        msg = f"worker {worker} on {host} cannot work with this driver: {different}; {_REMEDY}"
        raise ConfigError(msg)
    return f"other versions on {host}: {different}; {_REMEDY}" if names else ""
