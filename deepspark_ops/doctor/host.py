"""Checks of this host: versions, memory, disks, shared memory, the driver's address and ports."""

from __future__ import annotations

import os
import platform
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from caffe_import.extras import EXTRAS
from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.devices.host_cores import host_cores
from deepspark_ops.devices.host_gpus import gpu_names, host_gpus
from deepspark_ops.devices.memory_there import host_memory_bytes
from deepspark_ops.doctor.check import Check, failed
from deepspark_ops.doctor.meeting import listen_ports
from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.center.memory import SHARED_MEMORY, SHARED_MEMORY_SPARE_BYTES
from deepspark_ops.processes.cluster_network import choose_listen_address
from deepspark_ops.processes.spark_submit import (
    OLDEST_JAVA,
    java_text,
    mixed_pyspark,
    require_java,
)
from deepspark_ops.processes.versions import installed_versions
from deepspark_ops.sizes import size_text

PYTHONS = ((3, 11), (3, 13))
"""Oldest and newest Python in the project's tests."""
GIB = 2**30
JVM_BYTES = GIB
"""Spark's default memory of a JVM; a driver with a local master needs a JVM."""
WORKER_BYTES = 3 * GIB // 4
"""Memory of a worker with TensorFlow and a small net."""
LITTLE_DISK_BYTES = 5 * GIB
LITTLE_SHARED_BYTES = GIB // 4
_NEEDED = ("pyspark", "tensorflow")
_PROBE_BYTES = 1 << 20


def python_check(version: tuple[int, int] | None = None) -> Check:
    """Return whether the project is tested with this Python."""
    running_version = version or (sys.version_info[0], sys.version_info[1])
    text = f"Python {platform.python_version() if version is None else '.'.join(map(str, running_version))}"
    oldest, newest = (".".join(map(str, number)) for number in PYTHONS)
    if running_version < PYTHONS[0]:
        return Check("python", False, text, f"use Python {oldest} to {newest}")
    return Check(
        "python", True, text, "" if running_version <= PYTHONS[1] else f"tested with Python {oldest} to {newest} only"
    )


def package_checks(environment: Mapping[str, str]) -> list[Check]:
    """Return whether Spark and TensorFlow are installed, each once."""
    checks = []
    versions = installed_versions("pyspark", "pyspark-client", *_NEEDED)
    for name in _NEEDED:
        if name not in versions:
            remedy = f'pip install "deepspark[{EXTRAS[name]}]"'
            checks.append(Check(name, False, f"{name} is not installed in this Python", remedy))
            continue
        if name == "pyspark":
            checks.append(_spark_check(versions, environment))
        else:
            checks.append(Check(name, True, f"{name} {versions[name]}"))
    return checks


def _spark_check(versions: Mapping[str, str], environment: Mapping[str, str]) -> Check:
    if mixed := mixed_pyspark(versions):
        return failed("pyspark", mixed)
    return Check("pyspark", True, f"pyspark {versions['pyspark']}", _other_spark(versions["pyspark"], environment))


def _other_spark(version: str, environment: Mapping[str, str]) -> str:
    """Return the remedy for a second Spark that precedes the installed Spark; empty without a second Spark."""
    home = environment.get("SPARK_HOME", "")
    release = Path(home, "RELEASE")
    if home and release.is_file() and not (release_line := regular_text(release)).startswith(f"Spark {version}"):
        release_line = release_line.splitlines()[0] if release_line else "of unknown version"
        return f"SPARK_HOME={home} is {release_line}: unset it, or install that version of pyspark"
    return ""


def java_check(environment: Mapping[str, str]) -> Check:
    """Return whether Spark's Java exists and is new enough."""
    try:
        java = require_java(environment)
    except ConfigError as error:
        return failed("java", str(error), otherwise=f"install Java {OLDEST_JAVA} or newer")
    return Check("java", True, f"{java}: {java_text(java)}")


def memory_check(n_workers: int, *, is_local: bool, available: int | None = None) -> Check:
    """Return whether this host's free memory suffices for a driver, and for the workers of a local master.

    Args:
        n_workers: Workers of a run.
        is_local: Whether the workers run on this host.
        available: Free bytes; default: the kernel's figure.
    """
    total = host_memory_bytes()
    free = min(total, available_memory() if available is None else available)
    needed = JVM_BYTES + (n_workers * WORKER_BYTES if is_local else 0)
    text = f"{size_text(free)} free of {size_text(total)}, {host_cores()} cores"
    if free >= needed:
        return Check("memory", True, text)
    about = f"a driver{f' and {n_workers} workers' if is_local else ''} of a small net take about {size_text(needed)}"
    return Check("memory", free >= min(needed, JVM_BYTES), text, f"{about}: free some, or lower n_workers")


def available_memory(table: Path = Path("/proc/meminfo")) -> int:
    """Return the bytes that new processes could take without swapping."""
    for line in regular_text(table).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 2**63


def disk_check(name: str, folder: Path) -> Check:
    """Return whether a folder's disk is writable, with its free bytes; writes and removes a file."""
    where = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        free = free_bytes(where)
        with tempfile.TemporaryFile(dir=where) as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return Check(name, False, f"{where}: {error.strerror}", "make room there or make it writable, or give another")
    text = f"{where}: {size_text(free)} free"
    return Check(name, True, text, "little room for datasets and snapshots" if free < LITTLE_DISK_BYTES else "")


def shared_memory_check(folder: Path = SHARED_MEMORY) -> Check:
    """Return whether the exchange's center fits into shared memory.

    Without room in shared memory the center is a file of the run's folder.
    """
    else_where = "the center is a file in the run's folder then, and exchanges are slower"
    try:
        free = free_bytes(folder)
    except OSError as error:
        return Check("shared memory", True, f"{folder}: {error.strerror}", f"mount a tmpfs there; {else_where}")
    largest = max(0, free - SHARED_MEMORY_SPARE_BYTES) // 4
    text = f"{folder}: {size_text(free)} free, room for a net of {largest:,} parameters"
    if free >= LITTLE_SHARED_BYTES:
        return Check("shared memory", True, text)
    return Check("shared memory", True, text, f"make it larger (containers: --shm-size 1g); {else_where}")


def listen_checks(
    master: str,
    requested: str,
    port: int,
    n_servers: int = 1,
    *,
    choose: Callable[[str, str], str] = choose_listen_address,
) -> tuple[list[Check], str | None]:
    """Return the checks of the driver's address and ports, and the address; None if no address works.

    Args:
        master: Spark master.
        requested: ``listen_address``.
        port: ``listen_port``.
        n_servers: Servers of the exchange, one port each; the server of the driver's files has the next port.
        choose: Chooses the address as a training does.
    """
    name = "listen address"
    try:
        address = choose(requested, master)
    except ConfigError as error:
        return [failed(name, str(error))], None
    remedy = "give an address of this host as listen_address, and a free port or 0 as listen_port"
    if port:
        remedy += f"; the servers of exchange and files need ports {port} to {port + n_servers}"
    bound_ports = []
    for listen_port in listen_ports(port, n_servers):
        try:
            with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, listen_port))
                bound_ports.append(probe.getsockname()[1])
        except (OSError, OverflowError) as error:  # the second: the last port would be above 65535
            reason = error.strerror if isinstance(error, OSError) else None
            return [Check(name, False, f"{requested}, port {listen_port}: {reason or error}", remedy)], None
    if not port:
        shown = f"a port that the system chooses, e.g. {bound_ports[0]}"
    else:
        shown = f"ports {port} to {bound_ports[-1]}"
    return [Check(name, True, f"{address}, {shown}")], address


def gpus_check(environment: Mapping[str, str]) -> Check:
    """Return the GPUs that a process with this environment sees; a host without GPUs is no failure."""
    return Check(
        "GPUs",
        True,
        gpus_text(gpu_names(environment)) or host_gpus(environment).reason or "nvidia-smi does not name them",
    )


def gpus_text(names: Sequence[str]) -> str:
    """Return the GPUs of a host in a few words.

    Example:
        >>> gpus_text(["NVIDIA H200, 143771 MiB", "NVIDIA H200, 143771 MiB"])
        '2 x NVIDIA H200, 143771 MiB'
    """
    return "; ".join(f"{count} x {name}" if count > 1 else name for name, count in Counter(names).items())


def master_checks(endpoints: list[tuple[str, int]], *, timeout_s: float = 5.0) -> list[Check]:
    """Return whether each server in a Spark master's URL answers on its port."""
    checks = []
    for host, port in endpoints:
        name = f"master {host}:{port}"
        try:
            socket.create_connection((host, port), timeout_s).close()
        except OSError as error:
            problem = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
            remedy = "is the master running, are host and port those on its page, and does a firewall let this host by?"
            checks.append(Check(name, False, problem, remedy))
        else:
            checks.append(Check(name, True, "answers"))
    return checks


def free_bytes(folder: Path) -> int:
    """Return the bytes that are free for users on a folder's file system."""
    file_system = os.statvfs(folder)
    return file_system.f_bavail * file_system.f_frsize
