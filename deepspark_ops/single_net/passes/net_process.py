"""The caller's side of the process for passes. No framework."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from caffe_import.errors import NetError
from caffe_import.file_access.regular_file import regular_bytes
from caffe_import.net.layer_registry import Phase
from caffe_import.proto import caffe_pb2
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.processes.spark_submit import job_variables
from deepspark_ops.single_net.passes.messages import is_readable, receive, send
from deepspark_ops.single_net.passes.shared_arrays import SharedArrays

MODULE: Final = "deepspark_ops.single_net.passes"
PASS_TIMEOUT_S: Final = 3_600.0
"""Time limit of a pass."""
_LOOK_S: Final = 0.2
_LINES_SHOWN: Final = 5


class NetProcessFailed(DeepSparkError):
    """The process that computes a net ended or failed; the next call starts another process."""


@dataclass(frozen=True)
class OpenNet:
    """A net of the process.

    Attributes:
        message: The net, with Input layers instead of data layers.
        phase: Phase of the net.
        params: Parameters of the net.
        blobs: Blobs of the net.
    """

    message: caffe_pb2.NetParameter
    phase: Phase
    params: SharedArrays
    blobs: SharedArrays


class NetProcess:
    """A process that computes nets on shared arrays. The process starts at the first call; one thread at a time.

    An interrupted call ends the process: values in shared arrays are kept, the state of recurrent layers is lost.
    """

    def __init__(self, devices: str = "auto") -> None:
        """Start nothing yet; ``devices`` is ``auto``, ``cpu`` or ``gpu``."""
        self._devices = devices
        self._nets: dict[int, OpenNet] = {}
        self._ids = itertools.count()
        self._running: _Running | None = None

    def open(self, net: OpenNet) -> int:
        """Register a net and return its number."""
        number = next(self._ids)
        self._nets[number] = net
        if self._running is not None:
            self._open_in_process(number, net)
        return number

    def close(self, number: int) -> None:
        """Forget a net."""
        self._nets.pop(number, None)
        if self._running is not None:
            self._ask({"do": "close", "net": number})

    def forward(self, net: int, start: int, end: int, seed: int) -> Mapping[str, list[int]]:
        """Compute layers ``start`` to ``end``; return the shapes of blobs with fewer values than declared."""
        answer = self._call({"do": "forward", "net": net, "start": start, "end": end, "seed": seed})
        shapes: Mapping[str, list[int]] = answer["shapes"]
        return shapes

    def backward(self, net: int, start: int | None, end: int) -> None:
        """Compute gradients from layer ``start`` down to ``end``."""
        self._call({"do": "backward", "net": net, "start": start, "end": end})

    def end(self) -> None:
        """End the process; the next call starts another process."""
        if self._running is not None:
            self._running.end()
            self._running = None

    def _call(self, head: dict[str, Any]) -> dict[str, Any]:
        if self._running is None or not self._running.is_alive():
            self._running = _Running()
            self._ask({"do": "start", "devices": self._devices})
            for number, net in self._nets.items():
                self._open_in_process(number, net)
        return self._ask(head)

    def _open_in_process(self, number: int, net: OpenNet) -> None:
        handles = (net.params.handle, net.blobs.handle)
        self._ask({"do": "open", "net": number, "phase": net.phase}, net.message.SerializeToString(), handles)

    def _ask(self, head: dict[str, Any], content: bytes = b"", handles: tuple[int, ...] = ()) -> dict[str, Any]:
        assert self._running is not None, "started by _call"
        try:
            answer = self._running.ask({"id": next(self._ids), **head}, content, handles)
        except BaseException:
            self.end()
            raise
        if "mistake" in answer:
            raise NetError(answer["mistake"])
        if "failure" in answer:
            raise NetProcessFailed(answer["failure"])
        return answer


class _Running:
    """The process and the channel to it."""

    def __init__(self) -> None:
        self._channel, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._log = tempfile.NamedTemporaryFile(prefix="deepspark-net-", suffix=".log")
        with child_end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(child_end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **job_variables(os.environ)},
                pass_fds=(child_end.fileno(),),
                process_group=0,  # Ctrl-C must reach only the caller
            )
        self._end = weakref.finalize(self, _end_process, self._channel, self._process, self._log)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, head: dict[str, Any], content: bytes, handles: tuple[int, ...]) -> dict[str, Any]:
        """Send a request and return its answer.

        Raises:
            NetProcessFailed: The process ended, or did not answer in time.
        """
        deadline = time.monotonic() + PASS_TIMEOUT_S
        try:
            send(self._channel, head, content, handles)
        except OSError:
            raise self._failure(head["do"]) from None
        while not is_readable(self._channel, _LOOK_S):
            if time.monotonic() > deadline:
                msg = f"{head['do']}: the process that computes the net gave no answer within {PASS_TIMEOUT_S:g} s"
                raise NetProcessFailed(msg)
        answer = receive(self._channel)
        if answer is None or answer.head.get("id") != head["id"]:
            raise self._failure(head["do"])
        return answer.head

    def _failure(self, request: str) -> NetProcessFailed:
        self._channel.close()
        try:
            code: int | None = self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            code = None
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        lines = regular_bytes(Path(self._log.name)).decode("utf-8", "replace").splitlines()[-_LINES_SHOWN:]
        msg = "\n".join([f"{request}: the process that computes the net ended with {how}", *lines])
        return NetProcessFailed(msg)

    def end(self) -> None:
        self._end()


def _end_process(channel: socket.socket, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    channel.close()
    process.kill()
    process.wait()
    log.close()
