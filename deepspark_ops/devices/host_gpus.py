"""The GPUs of this host, found without TensorFlow: what CUDA_VISIBLE_DEVICES leaves, else what nvidia-smi lists."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
"""Environment: the GPUs that CUDA shows a process, numbers or UUIDs with commas between them."""
ORDER: Final = "CUDA_DEVICE_ORDER"
"""Environment: what the numbers count. PCI_BUS_ID is how nvidia-smi counts; CUDA's own default is the fastest first."""
NO_GPU: Final = "-1"
"""Value of CUDA_VISIBLE_DEVICES that shows none; an empty one gets lost on the way through some launchers."""
DISCOVERY_SCRIPT: Final = Path(__file__).with_name("gpu_discovery.sh")
"""Prints the host's GPUs as Spark's executors and workers want to read them."""
_INDEXES: Final = ("--query-gpu=index", "--format=csv,noheader")
_NAMES: Final = ("--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader")
_SMI_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class HostGpus:
    """GPUs that this process may give away.

    Attributes:
        addresses: As CUDA_VISIBLE_DEVICES takes them, in its order.
        reason: Why there are none, a clause; empty if there are some.
    """

    addresses: tuple[str, ...]
    reason: str = ""


def host_gpus(environment: Mapping[str, str]) -> HostGpus:
    """Return the GPUs that a process with this environment sees.

    A setting of CUDA_VISIBLE_DEVICES is taken as it is; whether there are such GPUs TensorFlow finds out.
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
        said = next(iter((answer.stdout + answer.stderr).strip().splitlines()), "nothing")
        return HostGpus((), f"nvidia-smi ended with code {answer.returncode} on this host and said: {said.strip()}")
    found = tuple(line.strip() for line in answer.stdout.splitlines() if line.strip().isdigit())
    return HostGpus(found) if found else HostGpus((), "nvidia-smi lists no GPU on this host")


def gpu_names(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return name and memory of each GPU that a process with this environment sees, as nvidia-smi has them.

    Example:
        ``("NVIDIA H200, 143771 MiB",)``; empty where there is none, or nvidia-smi does not answer.
    """
    seen = host_gpus(environment).addresses
    if not seen:
        return ()
    try:
        answer = ask_nvidia_smi(_NAMES, environment)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    rows = [[part.strip() for part in line.split(",", 3)] for line in answer.stdout.splitlines()]
    return tuple(
        f"{row[2]}, {row[3]}" for row in rows if len(row) == 4 and (row[0] in seen or row[1].startswith(_uuids(seen)))
    )


def _uuids(addresses: Sequence[str]) -> tuple[str, ...]:
    """Return those addresses that are the beginning of a UUID, as CUDA takes them."""
    return tuple(address for address in addresses if address.startswith("GPU-"))


def ask_nvidia_smi(query: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run nvidia-smi with some options and return what it said.

    Raises:
        OSError, subprocess.TimeoutExpired: There is no nvidia-smi on the environment's PATH, or it does not answer.
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
    """Return the environment of a process that is to see no GPU."""
    return {**environment, VISIBLE: NO_GPU}


def hide_gpus() -> None:
    """Keep this process and its children off every GPU; called before TensorFlow is imported."""
    os.environ.update(without_gpus(os.environ))


def _named(setting: str) -> HostGpus:
    """Return the GPUs of a setting. CUDA ignores whatever stands behind the first entry that it does not know.

    Example:
        >>> _named("2, GPU-8a").addresses, _named("0,-1,1").addresses, _named("").reason
        (('2', 'GPU-8a'), ('0',), "CUDA_VISIBLE_DEVICES='' hides all GPUs of this host")
    """
    found: list[str] = []
    for entry in setting.split(","):
        name = entry.strip()
        if not name or name.startswith("-"):
            break
        found.append(name)
    return HostGpus(tuple(found)) if found else HostGpus((), f"{VISIBLE}='{setting}' hides all GPUs of this host")
