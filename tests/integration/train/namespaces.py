"""Network namespaces with cables to a bridge of this host. Cables can be cut and slowed. Also Spark's programs in the
namespaces.

Each namespace has an address and a /dev/shm of its own: only the cable leads to other namespaces.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

NETWORK = "198.18.93"
"""Of the addresses that nobody has: they are set apart for measurements (RFC 2544)."""
HOST = f"{NETWORK}.1"


class Room:
    """A network namespace with one cable.

    Attributes:
        address: Its own.
    """

    def __init__(self, number: int, bridge: str) -> None:
        self.address = f"{NETWORK}.{10 + number}"
        self._name, self._cable, self._bridge = f"{bridge}-room{number}", f"{bridge}c{number}", bridge

    def open(self, stack: ExitStack) -> None:
        """Make the namespace until the stack ends; a process left inside keeps only the unnamed namespace."""
        _run("ip", "netns", "add", self._name)
        stack.callback(_run, "ip", "netns", "del", self._name)
        _run("ip", "link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self._name)
        # A process that still runs in the namespace keeps the cable, whose name the next test's cable has.
        stack.callback(_run, "ip", "link", "del", self._cable)
        _run("ip", "link", "set", self._cable, "master", self._bridge, "up")
        _run("ip", "-n", self._name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _run("ip", "-n", self._name, "link", "set", device, "up")

    def cut(self) -> None:
        """Cut the cable: no packet passes, and no end gets a message."""
        _run("ip", "link", "set", self._cable, "down")

    def join(self) -> None:
        """The cable is whole again."""
        _run("ip", "link", "set", self._cable, "up")

    def limit(self, *, kbit_per_s: int) -> None:
        """Limit the rate of the cable in each direction."""
        filter_ = ["root", "tbf", "rate", f"{kbit_per_s}kbit", "burst", "16kbit", "latency", "2s"]
        try:
            _run("tc", "qdisc", "replace", "dev", self._cable, *filter_)
            _run("tc", "-n", self._name, "qdisc", "replace", "dev", "eth0", *filter_)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"this kernel cannot slow a device: {_reason(error)}")

    def moved_bytes(self) -> int:
        """Return the bytes that have passed the cable, in both directions."""
        statistics = Path("/sys/class/net") / self._cable / "statistics"
        return sum(int((statistics / f"{direction}_bytes").read_text()) for direction in ("rx", "tx"))

    def command(self, *command: str) -> list[str]:
        """Return what runs a command in here."""
        return ["ip", "netns", "exec", self._name, *command]

    def program(self, folder: Path, hidden: Sequence[Path] = ()) -> Path:
        """Return a program that runs Spark's classes in here, where ``hidden`` folders of this host are empty."""
        path, spark = folder / f"spark-class-{self._name}", Path(sys.executable).with_name("spark-class")
        # `ip netns exec` gives its program mounts of its own, so that the host keeps its /dev/shm.
        mounts = [f"mount -t tmpfs tmpfs {shlex.quote(str(path))} && " for path in (Path("/dev/shm"), *hidden)]
        inner = f'{"".join(mounts)}exec {shlex.quote(str(spark))} "$@"'
        command = shlex.join(self.command("sh", "-c", inner))
        path.write_text(f'#!/bin/sh\nexec {command} spark-class "$@"\n')
        path.chmod(0o700)
        return path


@contextmanager
def rooms(n: int) -> Iterator[list[Room]]:
    """Make namespaces with cables to the bridge ``HOST``; skip the test without the right."""
    bridge = f"ds{os.getpid()}"
    with ExitStack() as stack:
        try:
            _remove_leftovers()
            _run("ip", "link", "add", bridge, "type", "bridge")
            stack.callback(_run, "ip", "link", "del", bridge)
            _run("ip", "addr", "add", f"{HOST}/24", "dev", bridge)
            _run("ip", "link", "set", bridge, "up")
            created = [Room(number, bridge) for number in range(n)]
            for room in created:
                room.open(stack)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces cannot be made here (root, iproute2): {_reason(error)}")
        yield created


def _remove_leftovers() -> None:
    """Remove the namespaces and bridges of killed tests: a second bridge with the address ``HOST`` gets no packet."""
    for kind, folder in (("netns", Path("/run/netns")), ("link", Path("/sys/class/net"))):
        for path in sorted(folder.glob("ds[0-9]*")):
            process = re.match(r"ds(\d+)(-room\d+)?$", path.name)
            if process and not Path("/proc", process[1]).exists():
                _run("ip", kind, "del", path.name)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _reason(error: OSError | subprocess.CalledProcessError) -> str:
    return (getattr(error, "stderr", None) or b"").decode().strip() or str(error)
