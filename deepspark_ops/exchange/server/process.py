"""The exchange server: a process with a thread for each connection, and no lock on the center.

``launch.start_exchange`` starts ``python -m deepspark_ops.exchange.server.process``. Settings and keys come as a line
of JSON on standard input, the listening socket is an inherited descriptor. The server prints ``ready``, or the reason
why the server cannot start, and serves until the end of standard input: the driver stops the server or dies. The server
imports numpy and the standard library only.

A run may have several servers. All map the same center, and each has a key range. The first server holds the run state;
the others serve pulls and pushes only. A restarted server continues from its own worker counters in the center.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deepspark_ops.errors import DeepSparkError, TrainingFailed
from deepspark_ops.exchange.center.buffers import aligned_vector
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.chunks import Chunks
from deepspark_ops.exchange.center.worker_counters import session_number
from deepspark_ops.exchange.server.coordinator import Coordinator, remove_journal
from deepspark_ops.exchange.server.snapshot_gathering import WriterThread
from deepspark_ops.exchange.server.vector_session import VectorSession
from deepspark_ops.exchange.server.worker_session import WorkerSession
from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.exchange.transport import wire
from deepspark_ops.exchange.transport.compression import CODES, PushCoder
from deepspark_ops.exchange.transport.listening.gate import Gate, ServerKeys
from deepspark_ops.exchange.transport.listening.listener import Listener
from deepspark_ops.exchange.transport.wire import Connection
from deepspark_ops.param_vector import Vector
from deepspark_ops.processes.parent_death import signal_at_parent_death

logger = logging.getLogger(__name__)

PUSH_BUFFERS = 16
"""Number of free buffers for later chunks. More buffers exist only while more chunks are received at the same time, at
most a buffer for each connected worker."""
TIMER_S = 0.2
"""Interval between checks for silent and disconnected workers."""
THREAD_STACK_BYTES = 512 << 10


class ExchangeServer:
    """Serves the connections of workers and driver."""

    def __init__(
        self, settings: ExchangeSettings, keys: ServerKeys, center: Center, listener: socket.socket, index: int = 0
    ) -> None:
        """Take over the listening socket; the server accepts connections from ``start`` on.

        Args:
            settings: The run.
            keys: The run's.
            center: Opened as this server's.
            listener: Listening already.
            index: Which server of the run; the first, 0, holds the run state.
        """
        self.settings = settings
        self.center = center
        self.index = index
        center.use_locks(settings.running_lock(), settings.exchange_timeout_s)
        self.coordinator = Coordinator(settings, center, writes_in_turn=WriterThread()) if index == 0 else None
        self.strategy = settings.running_strategy()
        if settings.check_pushes:
            center.check_pushes(self.strategy)
        self.moving_rate = settings.alpha()
        self.chunks = Chunks(settings.n_params, settings.chunk, self.strategy, settings.statistics)
        self.wire_dtype = CODES[settings.running_wire_dtype()]
        n_floats = min(settings.chunk, settings.n_params)
        self.coder = None
        if self.wire_dtype != wire.FLOAT32:
            self.coder = PushCoder(settings.running_wire_dtype(), n_floats)
            n_floats += (n_floats + 1) // 2
        self.buffers = _BufferStore(n_floats)
        limit_bytes = max(4 * settings.chunk, 4 * settings.statistics.n_values, wire.STATE_PIECE_BYTES)
        gate, timeout_s = Gate(settings.run_id, keys), settings.exchange_timeout_s
        self._listener = Listener(listener, gate, self._serve, limit_bytes=limit_bytes, timeout_s=timeout_s)
        self._lock = threading.Lock()
        self._members: dict[int, VectorSession] = {}
        self._gone: list[tuple[float, int, str]] = []
        self._stopping = threading.Event()

    def start(self) -> None:
        """Accept connections."""
        threading.stack_size(THREAD_STACK_BYTES)
        self._listener.start()
        if self.coordinator is not None:
            threading.Thread(target=self._expire, args=(self.coordinator,), name="expiry timer", daemon=True).start()

    def stop(self) -> None:
        """Accept no more connections, and close every connection."""
        self._stopping.set()
        self._listener.stop()

    def order(self, worker: int) -> tuple[int, ...]:
        """Return the positions of this server's chunks in a worker's order."""
        settings = self.settings
        return tuple(self.chunks.order(worker, settings.n_workers, self.index, settings.running_servers()))

    def check_session(self, worker: int, session: str) -> None:
        """Refuse a process other than the present process of ``worker``.

        Raises:
            ProtocolError: Says why.
        """
        self.settings.check_worker(worker)
        if self.coordinator is not None:
            self.coordinator.check_session(worker, session)
        else:
            self.center.check_session(worker, session_number(session))

    def enter(self, member: VectorSession) -> None:
        """Make ``member`` the worker's only connection: close an older connection and wait for its end."""
        with self._lock:
            older_member = self._members.get(member.worker)
            self._members[member.worker] = member
        if older_member is not None and older_member is not member:
            older_member.connection.close()
            older_member.ended.wait(self.settings.exchange_timeout_s)

    def exit(self, member: VectorSession) -> None:
        """Note the end of a connection; the worker has some seconds to connect again."""
        with self._lock:
            if self._members.get(member.worker) is member:
                del self._members[member.worker]
                if member.session and self.coordinator is not None:
                    patience = min(self.settings.exchange_timeout_s, self.settings.grant_timeout_s)
                    self._gone.append((time.monotonic() + patience, member.worker, member.session))
        member.ended.set()

    def _serve(self, connection: Connection) -> None:
        """Serve a connection from the first frame to the last, in the connection's thread."""
        coordinator = self.coordinator
        try:
            served = (
                VectorSession(self, connection) if coordinator is None else WorkerSession(self, connection, coordinator)
            )
            served.run()
        except TrainingFailed as error:
            logger.debug("connection of %s: %s", connection.peer, error)  # SharedState.fail has logged it
        except (DeepSparkError, OSError):
            raise
        except Exception as error:
            # The outermost loop of this thread: a fault of this program. Other connections go on; the first server
            # reports it to the driver, at any other the worker's connection breaks.
            logger.exception("connection of %s", connection.peer)
            if coordinator is not None:
                coordinator.fail(f"exchange server: {type(error).__name__}: {error}; see its log above")

    def _expire(self, coordinator: Coordinator) -> None:
        """Take back grants and leases of silent and disconnected workers, in the timer's thread."""
        while not self._stopping.wait(TIMER_S):
            try:
                coordinator.expire()
                for worker, session in self._overdue():
                    coordinator.lose(worker, session, "its connection ended")
            except DeepSparkError as error:
                coordinator.fail(str(error))
            except Exception as error:
                # The outermost loop of this thread: without the loop, the steps of lost workers stay granted.
                logger.exception("expiry timer")
                coordinator.fail(f"exchange server: {type(error).__name__}: {error}; see its log above")

    def _overdue(self) -> list[tuple[int, str]]:
        """Return worker and session of connections that ended too long ago."""
        now = time.monotonic()
        with self._lock:
            overdue = [gone for gone in self._gone if gone[0] <= now]
            self._gone = [gone for gone in self._gone if gone[0] > now]
            return [(worker, session) for _, worker, session in overdue if not self._is_back(worker, session)]

    def _is_back(self, worker: int, session: str) -> bool:
        member = self._members.get(worker)
        return member is not None and member.session == session


class _BufferStore:
    """Chunk buffers for all connections. No thread waits for a buffer: a buffer waits for a worker's network."""

    def __init__(self, n_floats: int) -> None:
        self._n_floats = max(n_floats, wire.STATE_PIECE_BYTES // 4)
        self._free: deque[Vector] = deque(maxlen=PUSH_BUFFERS)  # drops the oldest buffer where there are more

    @contextmanager
    def borrow(self, n_floats: int) -> Iterator[Vector]:
        """Give a float32 vector, shape (n_floats,), with arbitrary content."""
        try:
            buffer = self._free.pop()
        except IndexError:
            buffer = aligned_vector(self._n_floats)
        try:
            yield buffer[:n_floats]
        finally:
            self._free.append(buffer)

    @contextmanager
    def borrow_bytes(self) -> Iterator[memoryview]:
        """Give room for a piece of state."""
        with self.borrow(wire.STATE_PIECE_BYTES // 4) as buffer:
            yield wire.number_bytes(buffer)


def _leave_signals_to_driver() -> None:
    """Ignore signals to the process group (Ctrl-C in a terminal, a kill by Airflow): the driver ends the server."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _ask_for_drivers_end() -> int:
    """Make the kernel send SIGCONT when the driver's starting thread ends; call this in the main thread.

    SIGCONT continues a stopped process; besides SIGKILL no other signal reaches a stopped process. A killed server
    would leave the center in shared memory until the next run starts.

    Returns:
        File descriptor of a pipe that can be read after the signal. Any thread may receive the signal of a process that
        is continued, so Python's handler writes to a pipe.
    """
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCONT, lambda *_: None)  # without a handler in Python nothing is written
    signal_at_parent_death(signal.SIGCONT)
    return wake


def _wait_for_drivers_end(driver_pid: int, wake: int) -> None:
    """Return at the end of standard input, or after any death of the driver.

    Standard input ends with the driver, unless a fork of the driver holds the other end.
    """
    stdin = sys.stdin.fileno()
    # Another parent: the whole driver has died, not only the thread that started this process.
    while os.getppid() == driver_pid:
        readable, _, _ = select.select([stdin, wake], [], [])
        if wake in readable:
            os.read(wake, select.PIPE_BUF)
        if stdin in readable and not os.read(stdin, select.PIPE_BUF):
            return


def main() -> None:
    """Run the server until standard input ends."""
    gc.freeze()  # objects of the imports live to the end, and the collector need not visit them
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s exchange server: %(message)s")
    plain = json.loads(sys.stdin.buffer.readline())
    settings = ExchangeSettings.from_json(plain["settings"])
    index = plain["index"]
    listener = socket.socket(fileno=plain["listener_fd"])
    try:
        center = Center.open(Path(plain["center_path"]), bytes.fromhex(plain["center_token"]), server=index)
        server = ExchangeServer(settings, ServerKeys.from_json(plain["keys"]), center, listener, index)
    except DeepSparkError as error:
        sys.stdout.write(f"refused: {json.dumps(str(error))}\n")
        return
    try:
        _leave_signals_to_driver()
        wake = _ask_for_drivers_end()  # before "ready": a server that is stopped right afterwards must end, too
        server.start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        _wait_for_drivers_end(plain["driver_pid"], wake)
    finally:
        center.unlink()
        server.stop()
        remove_journal(settings)  # a killed driver does not


if __name__ == "__main__":
    main()
