from __future__ import annotations

import socket
import subprocess
import threading
from pathlib import Path

import pytest

from deepspark_ops.exchange.server.launch import _ServerProcess


class PausedStopping(threading.Event):
    """Once armed, ``is_set`` lets ``stop`` begin between the check and the line after the check."""

    def __init__(self) -> None:
        super().__init__()
        self.is_armed = False
        self.stopper = threading.Thread()

    def is_set(self) -> bool:
        is_stopping = super().is_set()
        if self.is_armed:
            self.is_armed = False
            self.stopper.start()
            self.stopper.join(0.5)
        return is_stopping


def test_a_server_that_starts_again_during_stop_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopping, processes = PausedStopping(), []

    def spawn(_: _ServerProcess) -> subprocess.Popen[bytes]:
        # Ends with its standard input, as a server does.
        processes.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        stopping.is_armed = len(processes) == 2
        return processes[-1]

    monkeypatch.setattr(_ServerProcess, "_spawn", spawn)
    server = _ServerProcess({}, socket.create_server(("127.0.0.1", 0)), tmp_path / "events.jsonl", lambda: 0)
    monkeypatch.setattr(server, "_stopping", stopping)
    stopping.stopper = threading.Thread(target=server.stop, daemon=True)
    server.start()
    try:
        processes[0].kill()
        assert server._watcher is not None
        server._watcher.join(60.0)
        assert not server._watcher.is_alive(), "the watcher still waits for the server that started during stop"
        stopping.stopper.join(60.0)
        assert processes[1].poll() is not None
    finally:
        for process in processes:
            process.kill()
            process.wait()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.stdout.close()
