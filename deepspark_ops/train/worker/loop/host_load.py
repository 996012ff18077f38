"""The load of a worker's host: processors, memory, network, disk and GPUs, for the charts of the page Training."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

REPORT_INTERVAL_S: Final = 5.0


@dataclass(frozen=True)
class Counters:
    """The kernel's sums since the host's start.

    Attributes:
        seconds: Monotonic time of the reading.
        network_bytes: Bytes sent and received by all devices but the loopback.
        disk_bytes: Bytes read from and written to disks; None if the kernel gives no numbers.
    """

    seconds: float
    network_bytes: int
    disk_bytes: int | None


class HostLoad:
    """Reports the load of this host, from one worker of a run on each host. Not thread-safe.

    A worker reports while its process holds an abstract socket with the run's name. The kernel releases the socket at
    the end of the process, and the next worker of the host takes over.
    """

    def __init__(self, run_dir: Path, *, now: Callable[[], float] = time.monotonic) -> None:
        """Begin; the first report is due after ``REPORT_INTERVAL_S``.

        Args:
            run_dir: The run's folder, which tells runs on the same host apart.
            now: Source of monotonic seconds.
        """
        digest = hashlib.sha256(os.fsencode(run_dir)).hexdigest()[:32]
        self._address = f"\0deepspark-host-load-{os.getuid()}-{digest}"
        self._now = now
        self._due = now() + REPORT_INTERVAL_S
        self._reporter: socket.socket | None = None
        self._before = Counters(now(), 0, None)
        self._becomes_reporter()

    def due_report(self) -> dict[str, Any] | None:
        """Return the fields of a ``host`` event; None before the next report, or if another worker reports.

        The fields are ``host``, the shares of 1 ``cpu``, ``memory``, ``gpu`` and ``gpu_memory``, and
        ``network_bytes_per_s`` and ``disk_bytes_per_s``. A field without a number is left out.
        """
        now = self._now()
        if now < self._due:
            return None
        self._due = now + REPORT_INTERVAL_S
        if self._reporter is None:
            self._becomes_reporter()
            return None
        before, self._before = self._before, read_counters(now)
        return {"host": socket.gethostname(), **read_shares(), **rates(before, self._before), **read_gpus()}

    def close(self) -> None:
        """Let another worker report."""
        if self._reporter is not None:
            self._reporter.close()
            self._reporter = None

    def _becomes_reporter(self) -> None:
        """Take the socket if no other worker has it, and begin the first interval."""
        if find_spec("psutil") is None:  # an executor's environment of an earlier version
            return
        reporter = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            reporter.bind(self._address)
        except OSError:
            reporter.close()
            return
        self._reporter = reporter
        self._before = read_counters(self._now())
        read_shares()  # the share of busy processors is that since the call before


def read_counters(seconds: float) -> Counters:
    """Return the kernel's sums, stamped with ``seconds``."""
    import psutil

    devices = psutil.net_io_counters(pernic=True)
    network = sum(counts.bytes_sent + counts.bytes_recv for name, counts in devices.items() if name != "lo")
    disk = psutil.disk_io_counters()
    return Counters(seconds, network, None if disk is None else disk.read_bytes + disk.write_bytes)


def rates(before: Counters, after: Counters) -> dict[str, float]:
    """Return bytes per second between two readings."""
    seconds = after.seconds - before.seconds
    per_s = {"network_bytes_per_s": (after.network_bytes - before.network_bytes) / seconds}
    if before.disk_bytes is not None and after.disk_bytes is not None:
        per_s["disk_bytes_per_s"] = (after.disk_bytes - before.disk_bytes) / seconds
    return {name: round(value, 1) for name, value in per_s.items()}


def read_shares() -> dict[str, float]:
    """Return the shares of busy processors since the last call, and of memory that is not available."""
    import psutil

    return {
        "cpu": round(psutil.cpu_percent() / 100, 4),
        "memory": round(psutil.virtual_memory().percent / 100, 4),
    }


def read_gpus() -> Mapping[str, float]:
    """Return the mean use of the host's GPUs and of their memory; empty without NVIDIA's library or without GPUs."""
    if find_spec("pynvml") is None:
        return {}
    import pynvml

    try:
        pynvml.nvmlInit()
        gpus = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
        used = [pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100 for gpu in gpus]
        memory = [info.used / info.total for info in map(pynvml.nvmlDeviceGetMemoryInfo, gpus)]
    except pynvml.NVMLError:
        return {}
    if not gpus:
        return {}
    return {"gpu": round(sum(used) / len(gpus), 4), "gpu_memory": round(sum(memory) / len(gpus), 4)}
