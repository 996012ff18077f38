"""The connection of a worker and the exchange server, with network faults that the kernel here cannot make."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

PIECE_BYTES = 1 << 16
_POLL_S = 0.05
_RESET = struct.pack("ii", 1, 0)


@dataclass
class Condition:
    """How a link is at present.

    Attributes:
        delay_s: Each piece is late by this.
        bytes_per_s: Each direction carries at most this; 0 for no limit.
        is_held: Pieces wait until this ends; those of other links pass them.
        is_half_open: What is sent vanishes, and neither side hears of it; such a connection stays dead when this ends.
        is_down: Connections break at once.
        n_stopped: Pieces that waited or vanished.
    """

    delay_s: float = 0.0
    bytes_per_s: float = 0.0
    is_held: bool = False
    is_half_open: bool = False
    is_down: bool = False
    n_stopped: int = 0


class Proxy:
    """Listens on a port of its own and passes bytes on to a server. Thread-safe."""

    def __init__(self, server: tuple[str, int]) -> None:
        """Listen."""
        self.condition = Condition()
        self.n_connections = 0
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1_024)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._pairs: list[_Pair] = []
        self._is_over = threading.Event()
        self._acceptor = threading.Thread(target=self._accept, daemon=True, name=f"proxy {self.port}")
        self._acceptor.start()

    def cut(self) -> None:
        """Break every present connection; both sides hear of it at once."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.reset()

    def damage(self, kind: str, seed: int) -> None:
        """Change the next piece of some length: ``flip`` a bit, ``drop`` the piece, or send the piece ``twice``."""
        with self._lock:
            for pair in self._pairs:
                pair.damage = (kind, seed)

    def close(self) -> None:
        """Break everything and listen no more."""
        self._is_over.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self._acceptor.join(5.0)

    def _accept(self) -> None:
        while not self._is_over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.condition.is_down:
                _reset(client)
                continue
            try:
                server = socket.create_connection(self._server, 5.0)
            except OSError:
                _reset(client)
                continue
            pair = _Pair(self.condition, client, server)
            with self._lock:
                self.n_connections += 1
                self._pairs = [*(other for other in self._pairs if not other.is_over), pair]
            pair.start()


class _Pair:
    """A connection of a worker, and the proxy's connection to the server."""

    def __init__(self, condition: Condition, client: socket.socket, server: socket.socket) -> None:
        self.damage: tuple[str, int] | None = None
        self.is_over = False
        self._n_ended = 0
        self._lock = threading.Lock()
        self._condition = condition
        self._ends = (client, server)
        self._is_dead = condition.is_half_open
        for end in self._ends:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.settimeout(None)

    def start(self) -> None:
        client, server = self._ends
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def reset(self) -> None:
        self.is_over = True
        for end in self._ends:
            _reset(end)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                if self._condition.is_half_open:
                    self._is_dead = True
                if self._is_dead:
                    self._condition.n_stopped += 1
                    continue
                for part in self._after_damage(piece):
                    self._wait(len(part))
                    target.sendall(part)
        if self._is_dead:
            return
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
        with self._lock:
            self._n_ended += 1
            if self._n_ended == len(self._ends):
                self.is_over = True
                for end in self._ends:
                    end.close()

    def _wait(self, n_bytes: int) -> None:
        """Take the time that the link takes for this many bytes."""
        condition = self._condition
        if condition.delay_s:
            time.sleep(condition.delay_s)
        if condition.bytes_per_s:
            time.sleep(min(1.0, n_bytes / condition.bytes_per_s))
        condition.n_stopped += condition.is_held
        while condition.is_held and not self.is_over:
            time.sleep(_POLL_S)

    def _after_damage(self, piece: bytes) -> tuple[bytes, ...]:
        if self.damage is None or len(piece) < 64:
            return (piece,)
        (kind, seed), self.damage = self.damage, None
        if kind == "drop":
            return ()
        if kind == "twice":
            return (piece, piece)
        changed = bytearray(piece)
        changed[random.Random(seed).randrange(len(piece))] ^= 1 << seed % 8
        return (bytes(changed),)


def _reset(sock: socket.socket) -> None:
    """Close with RST: what is on the way is lost."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
