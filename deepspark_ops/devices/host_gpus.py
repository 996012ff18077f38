"""GPUs of this host, without TensorFlow: the GPUs in CUDA_VISIBLE_DEVICES, else the list of nvidia-smi."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
"""Environment: the GPUs that CUDA shows a process, comma-separated numbers or UUIDs."""
ORDER: Final = "CUDA_DEVICE_ORDER"
"""Environment: order of the numbers. nvidia-smi counts by PCI_BUS_ID; CUDA's default order is fastest first."""
NO_GPU: Final = "-1"
"""Value of CUDA_VISIBLE_DEVICES that hides all GPUs; some launchers drop an empty value."""
DISCOVERY_SCRIPT: Final = Path(__file__).with_name("gpu_discovery.sh")
"""Prints the host's GPUs in the form that Spark's executors and workers read."""
_INDEXES: Final = ("--query-gpu=index", "--format=csv,noheader")
_NAMES: Final = ("--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader")
_SMI_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class HostGpus:
    """GPUs for this process to assign.

    Attributes:
        addresses: Addresses in the form and order of CUDA_VISIBLE_DEVICES.
        reason: Reason of missing GPUs, a clause; empty if the host has GPUs.
    """

    addresses: tuple[str, ...]
    reason: str = ""


def host_gpus(environment: Mapping[str, str]) -> HostGpus:
    """Return the visible GPUs of a process with this environment.

    The value of CUDA_VISIBLE_DEVICES is not checked; TensorFlow reports GPUs that do not exist.
    """
    if VISIBLE in environment:
        return _named(environment[VISIBLE])
    try:
        answer = ask_nvidia_smi(_INDEXES, environment)
    except FileNotFoundError:
        return HostGpus((), "this host has no nvidia-smi on PATH, which comes with NVIDIA's driver")
    except (OSError, subprocess.TimeoutExpired) as error:
        return HostGpus((), f"nvidia-smi does not answer on this host ({error})")
    if answer.returncode:
        first_line = next(iter((answer.stdout + answer.stderr).strip().splitlines()), "nothing")
        return HostGpus(
            (), f"nvidia-smi ended with code {answer.returncode} on this host and said: {first_line.strip()}"
        )
    addresses = tuple(line.strip() for line in answer.stdout.splitlines() if line.strip().isdigit())
    return HostGpus(addresses) if addresses else HostGpus((), "nvidia-smi lists no GPU on this host")


def gpu_names(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return name and memory of each visible GPU of a process with this environment, from nvidia-smi.

    Example:
        ``("NVIDIA H200, 143771 MiB",)``; empty without GPUs, or if nvidia-smi does not answer.
    """
    addresses = host_gpus(environment).addresses
    if not addresses:
        return ()
    try:
        answer = ask_nvidia_smi(_NAMES, environment)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    rows = [[part.strip() for part in line.split(",", 3)] for line in answer.stdout.splitlines()]
    return tuple(
        f"{row[2]}, {row[3]}"
        for row in rows
        if len(row) == 4 and (row[0] in addresses or row[1].startswith(_uuids(addresses)))
    )


def _uuids(addresses: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses with a UUID or a prefix of a UUID; CUDA accepts both."""
    return tuple(address for address in addresses if address.startswith("GPU-"))


def ask_nvidia_smi(query: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run nvidia-smi with some options and return its result.

    Raises:
        OSError, subprocess.TimeoutExpired: nvidia-smi is not on the environment's PATH, or does not answer.
    """
    return subprocess.run(
        ("nvidia-smi", *query),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=_SMI_TIMEOUT_S,
        env=dict(environment),
    )


def without_gpus(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process without visible GPUs."""
    return {**environment, VISIBLE: NO_GPU}


def hide_gpus() -> None:
    """Hide every GPU from this process and the children; call before TensorFlow is imported."""
    os.environ.update(without_gpus(os.environ))


def _named(setting: str) -> HostGpus:
    """Return the GPUs of a setting. CUDA ignores the entries after the first unknown entry.

    Example:
        >>> _named("2, GPU-8a").addresses, _named("0,-1,1").addresses, _named("").reason
        (('2', 'GPU-8a'), ('0',), "CUDA_VISIBLE_DEVICES='' hides all GPUs of this host")
    """
    addresses: list[str] = []
    for entry in setting.split(","):
        name = entry.strip()
        if not name or name.startswith("-"):
            break
        addresses.append(name)
    return (
        HostGpus(tuple(addresses)) if addresses else HostGpus((), f"{VISIBLE}='{setting}' hides all GPUs of this host")
    )
