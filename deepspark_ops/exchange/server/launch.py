"""The driver's side: start the exchange servers, restart dead servers over the same center, remove everything."""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from deepspark_ops.errors import ConfigError, ExchangeUnavailable, ProtocolError
from deepspark_ops.events import append_event, make_event
from deepspark_ops.exchange.center.center import Center
from deepspark_ops.exchange.center.memory import remove_stale_centers
from deepspark_ops.exchange.server.coordinator import forget_run
from deepspark_ops.exchange.server.journal_folder import JournalFolder
from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.exchange.state.messages import Message
from deepspark_ops.exchange.transport.channel.base import Protection
from deepspark_ops.exchange.transport.connection import ExchangeAddress, ServerConnection
from deepspark_ops.exchange.transport.link import ExchangeStatus
from deepspark_ops.exchange.transport.listening.certificate import make_keys
from deepspark_ops.exchange.transport.listening.listener import listening_socket
from deepspark_ops.param_vector import Vector

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 120.0
"""A start takes less than a second, and longer on a busy host or with packages on a slow disk."""
STOP_TIMEOUT_S = 5.0
CLOCK_TIMEOUT_S = 2.0
"""Timeout for reading the clock for the line about a restart."""
QUICK_DEATH_S = 1.0
MAX_QUICK_DEATHS = 10
"""A server that dies so often within a second of its start is not started again; a killed server is."""
POLL_S = 0.2
_OTHER_PORT = (
    "another process may hold the port: use listen_port=0 (chosen by the system) or another one, and an address of this"
    " host"
)
REFUSED = b"refused: "
"""A server that cannot serve prints this in place of ``ready``, and then the reason as JSON."""


def start_exchange(
    settings: ExchangeSettings,
    initial: Vector,
    *,
    listen_address: str = "127.0.0.1",
    listen_port: int = 0,
    protection: Protection = "off",
) -> RunningExchange:
    """Start the servers of a run; the end of the context stops the servers.

    Args:
        settings: The run. What an earlier exchange left in ``settings.work`` is removed.
        initial: The center at the start, shape (n_params,), float32; copied.
        listen_address: Where to listen; workers on other hosts need an address that they can reach.
        listen_port: 0: chosen by the system; else the first server's, and the others take the ones after it.
        protection: Of every connection to the servers; shared memory is not concerned.

    Raises:
        ConfigError: Address or port cannot be used, or there is no room for the center.
        ExchangeUnavailable: The server does not start.
    """
    if initial.shape != (settings.n_params,):
        msg = f"initial center has shape {initial.shape}; settings say n_params={settings.n_params}"
        raise ConfigError(msg)
    for path in remove_stale_centers(settings.work):
        logger.info("removed %s, which no process holds any more", path)
    forget_run(settings)
    with ExitStack() as undo:
        listeners = []
        for index in range(settings.running_servers()):
            port = listen_port + index if listen_port else 0
            subject = f"listen_address={listen_address}, listen_port={port}"
            listeners.append(listening_socket(listen_address, port, subject=subject, remedy=_OTHER_PORT))
            undo.callback(listeners[-1].close)
        center = Center.create(initial, settings.center_shape(), run_id=settings.run_id, work=settings.work)
        undo.pop_all()
    running = RunningExchange(settings, center, listeners, protection)
    try:
        running.start()
    except BaseException:
        running.stop()
        raise
    return running


class RunningExchange:
    """The watched server processes of a run. Thread-safe: one thread may poll while another stops the servers.

    Attributes:
        settings: The run.
        address: For ``client.connect``; holds the secret.
        center: The center, mapped in this process too.
    """

    def __init__(
        self,
        settings: ExchangeSettings,
        center: Center,
        listeners: Sequence[socket.socket],
        protection: Protection = "off",
    ) -> None:
        """Take over the center, and a listening socket for each server; ``start`` makes the processes."""
        self._journal = JournalFolder()
        self.settings = settings = replace(settings, journal_folder=self._journal.path)
        self.center = center
        host, port = listeners[0].getsockname()[:2]
        keys = make_keys(protection)
        self.address = ExchangeAddress(
            host,
            port,
            settings.run_id,
            keys.secret,
            settings.transport,
            settings.exchange_timeout_s,
            tuple(listener.getsockname()[1] for listener in listeners[1:]),
            protection,
            keys.certificate,
        )
        assert center.path is not None, "the driver's center is a file"
        plain = {
            "settings": settings.to_json(),
            "keys": keys.to_json(),
            "center_path": str(center.path),
            "center_token": center.token.hex(),
            "driver_pid": os.getpid(),
        }
        self._servers = [
            _ServerProcess({**plain, "index": i}, listener, settings.events, self._read_clock)
            for i, listener in enumerate(listeners)
        ]
        self._connection = ServerConnection(self.address, "driver")
        self._last_clock = 0
        self._poll_lock = threading.Lock()

    @property
    def pid(self) -> int:
        """Process id of the present first server."""
        return self.pids[0]

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the present servers."""
        return tuple(server.pid for server in self._servers)

    @property
    def restarts(self) -> int:
        """Number of restarts of servers."""
        return sum(server.restarts for server in self._servers)

    def start(self) -> None:
        """Start the servers and wait until all serve.

        Raises:
            ExchangeUnavailable: One does not.
        """
        for server in self._servers:
            server.start()

    def poll(self) -> ExchangeStatus:
        """Return the run's state; wait for a server during a restart.

        Raises:
            ExchangeUnavailable: No answer within ``exchange_timeout_s``, or a server keeps dying.
        """
        self._check_alive()
        with self._poll_lock:
            try:
                status = ExchangeStatus.from_json(self._connection.call({"call": "status"}))
            except ExchangeUnavailable:
                self._check_alive()
                raise
            self._last_clock = status.clock
            return status

    def _read_clock(self) -> int:
        """Return the run's clock; the last known clock if the first server does not answer soon."""
        impatient = replace(self.address, exchange_timeout_s=min(CLOCK_TIMEOUT_S, self.settings.exchange_timeout_s))
        connection = ServerConnection(impatient, "driver")
        try:
            return ExchangeStatus.from_json(connection.call({"call": "status"})).clock
        except (ExchangeUnavailable, ProtocolError):
            return self._last_clock
        finally:
            connection.close()

    def _check_alive(self) -> None:
        for server in self._servers:
            if server.given_up is not None:
                raise ExchangeUnavailable(server.given_up)

    def control(self, message: Message) -> None:
        """Send ``TakeSnapshot``, ``StopEarly`` or ``StopNow``.

        Raises:
            ExchangeUnavailable: No answer within ``exchange_timeout_s``.
        """
        with self._poll_lock:
            self._connection.call({"call": "control", "change": message.call})

    def wait(self, timeout_s: float) -> ExchangeStatus:
        """Return the state after the run has finished or failed.

        Raises:
            ExchangeUnavailable: Neither happened within ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        while not ((status := self.poll()).finished or status.failure):
            if time.monotonic() > deadline:
                msg = (
                    f"waited {timeout_s:g} s for the end of training: {status.acknowledged} of"
                    f" {self.settings.schedule.max_iter} steps are done, live workers: {list(status.live_workers)}"
                )
                raise ExchangeUnavailable(msg)
            time.sleep(POLL_S)
        return status

    def stop(self) -> None:
        """End the servers; remove processes, shared memory, listening ports and journal. May be called again."""
        for server in self._servers:
            server.stop()
        with self._poll_lock:
            self._connection.close()
        self.center.unlink()
        self.center.close()
        self._journal.remove()

    def __enter__(self) -> RunningExchange:
        """Return the running exchange."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()


class _DiedAtStart(ExchangeUnavailable):
    """A server ended before ``ready``; perhaps a kill ended the server, and another server may live."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class _ServerProcess:
    """One server. A dead server is started again over the same center and the same socket.

    Attributes:
        restarts: How often it was started again.
        given_up: Why it is not started any more; None while it is.
    """

    def __init__(
        self, plain: Mapping[str, Any], listener: socket.socket, events: Path, read_clock: Callable[[], int]
    ) -> None:
        """Start nothing yet.

        Args:
            plain: The process's settings, all but the socket's descriptor.
            listener: The listening socket; taken over.
            events: The run's ``events.jsonl``.
            read_clock: Returns the run's clock, soon.
        """
        self.restarts = 0
        self.given_up: str | None = None
        self._plain = plain
        self._listener = listener
        self._events = events
        self._read_clock = read_clock
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._process_lock = threading.Lock()  # a server that has started again is either stopped or not kept
        self._watcher: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Process id of the present process."""
        assert self._process is not None, "start comes first"
        return self._process.pid

    def start(self) -> None:
        """Start the process, wait for ``ready``, and watch the process.

        Raises:
            ExchangeUnavailable: It does not serve.
        """
        self._process = self._spawn()
        self._watcher = threading.Thread(target=self._watch, name="exchange watcher", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """End the process and close its socket. May be called again."""
        with self._process_lock:
            self._stopping.set()
            process, self._process = self._process, None
        if process is not None:
            _end(process)
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join(START_TIMEOUT_S)
        self._listener.close()

    def _spawn(self) -> subprocess.Popen[bytes]:
        descriptor = self._listener.fileno()
        process = subprocess.Popen(
            [sys.executable, "-m", "deepspark_ops.exchange.server.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(descriptor,),
            # The server computes with numpy alone and needs no GPU. glibc would keep a heap for every few threads, and
            # in each heap the largest size that past connections needed.
            env={"MALLOC_ARENA_MAX": "2", **os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({**self._plain, "listener_fd": descriptor}).encode() + b"\n")
            process.stdin.flush()
            is_silent = not self._has_output(process.stdout)
            line = b"" if is_silent else process.stdout.readline()
        except BrokenPipeError:
            is_silent, line = False, b""
        if line.startswith(REFUSED):
            _end(process)
            raise ExchangeUnavailable(json.loads(line[len(REFUSED) :]))
        if line.strip() != b"ready":
            _end(process)
            problem = f"did not get ready: it ended with code {process.returncode}"
            if is_silent:
                problem = f"did not get ready within {START_TIMEOUT_S:g} s and was ended"
            elif line:
                problem = f"did not get ready: it said {line[:80]!r}"
            msg = f"the exchange server {problem}; its log is above"
            raise ExchangeUnavailable(msg) if is_silent or line else _DiedAtStart(msg, process.returncode)
        return process

    def _has_output(self, stdout: IO[bytes]) -> bool:
        """Wait for a line of a starting process or the end of the process; False after the time limit or ``stop``."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and not self._stopping.is_set():
            if select.select([stdout], [], [], POLL_S)[0]:
                return True
        return False

    def _watch(self) -> None:
        """Start a dead server again, over the same center and the same socket."""
        quick_deaths = 0
        while (process := self._process) is not None:
            born = time.monotonic()
            code = process.wait()
            if self._stopping.is_set():
                return
            quick_deaths = quick_deaths + 1 if time.monotonic() - born < QUICK_DEATH_S else 0
            _close_pipes(process)
            fresh = None
            while fresh is None:
                if quick_deaths >= MAX_QUICK_DEATHS:
                    self.given_up = f"the exchange server died {quick_deaths} times right after its start, code {code}"
                    logger.error("%s", self.given_up)
                    return
                logger.warning("the exchange server ended with code %d; starting it again over the same center", code)
                try:
                    fresh = self._spawn()
                except _DiedAtStart as error:
                    quick_deaths, code = quick_deaths + 1, error.code
                    self.restarts += 1
                    if self._stopping.is_set():
                        return
                except ExchangeUnavailable as error:
                    if self._stopping.is_set():
                        return
                    self.given_up = str(error)
                    logger.error("%s", error)  # noqa: TRY400  # one line for the user; poll raises the error
                    return
            self.restarts += 1
            if not self._is_kept(fresh):
                _end(fresh)
                return
            self._tell_restart(code)

    def _is_kept(self, fresh: subprocess.Popen[bytes]) -> bool:
        """Keep a restarted process, unless ``stop`` was called meanwhile."""
        with self._process_lock:
            if self._stopping.is_set():
                return False
            self._process = fresh
            return True

    def _tell_restart(self, code: int) -> None:
        """Append the restart to the run's events; the run's page marks the moment."""
        text = f"the exchange server serves again: start {self.restarts + 1}, after an end with code {code}"
        event = make_event("note", clock=self._read_clock(), text=text, server_start=self.restarts + 1)
        try:
            append_event(self._events, event)
        except OSError as error:
            logger.warning("%s: cannot append (%s)", self._events, error.strerror)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server by closing its standard input; kill the server after a timeout."""
    assert process.stdin is not None
    try:
        process.stdin.close()
    except BrokenPipeError:
        logger.debug("the exchange server had ended before it was stopped")
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _close_pipes(process)


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None and not pipe.closed:
            try:
                pipe.close()
            except BrokenPipeError:
                logger.debug("unsent settings of a dead exchange server are dropped")
