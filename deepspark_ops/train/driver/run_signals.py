"""Signals to a run, with the default effects of Caffe's command: stop with a snapshot, or take a snapshot.

BVLC Caffe @9b89154, tools/caffe.cpp: ``sigint_effect`` is stop, ``sighup_effect`` is snapshot. SIGTERM comes from
Airflow or after a parent's death, and is a stop with less patience.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from deepspark_ops.exchange.server.launch import RunningExchange
from deepspark_ops.exchange.state.messages import StopEarly, StopNow, TakeSnapshot
from deepspark_ops.exchange.transport.link import ExchangeStatus

_LOG = logging.getLogger(__name__)
PATIENCE_S = {signal.SIGINT: 30.0, signal.SIGTERM: 3.0}
"""How long workers may take to finish their minibatches. Airflow kills a task 5 s after SIGTERM."""
_STATES_S = 2.0
"""How much longer answering workers may take to send their states."""
_LEAVE_S = 2.0
"""How long workers may take to leave a run that has ended."""
LAST_TASKS_S = 30.0
"""How long tasks may go on once all is done and no worker is left: Spark takes minutes to miss a silent host."""


class RunSignals:
    """Notes signals while a run trains. Before the training a signal ends the process, and so does a second signal.

    Used by the main thread: Python runs handlers there.

    Attributes:
        stopped_by: The signal that asks for the end; None without such a signal.
    """

    def __init__(self) -> None:
        """Take over SIGINT, SIGTERM and SIGHUP; ignored signals stay ignored (``nohup``)."""
        self.stopped_by: signal.Signals | None = None
        self._is_training = False
        self._wants_snapshot = False
        self._parent = os.getppid()
        for number, handler in ((signal.SIGINT, self._stop), (signal.SIGTERM, self._stop), (signal.SIGHUP, self._save)):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note signals until the block ends, for ``watch_run``."""
        self._is_training = True
        try:
            yield
        finally:
            self._is_training = False

    def take_snapshot_request(self) -> bool:
        """Return whether a snapshot was asked for since the last call."""
        wants_snapshot, self._wants_snapshot = self._wants_snapshot, False
        return wants_snapshot

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._is_training and self.stopped_by is None:
            self.stopped_by = signal.Signals(number)
            return
        if self._is_training and os.getppid() != self._parent:
            self._parent = os.getppid()  # the kernel's signal of the parent's death is not the user's second one
            return
        for ending in (signal.SIGINT, signal.SIGTERM):
            signal.signal(ending, signal.SIG_IGN)
        sys.exit(128 + number)

    def _save(self, number: int, frame: FrameType | None) -> None:
        self._wants_snapshot = True


def watch_run(
    step: Callable[[], ExchangeStatus],
    is_busy: Callable[[], bool],
    exchange: RunningExchange,
    signals: RunSignals,
    stop_reason: Callable[[], str],
) -> ExchangeStatus:
    """Watch a run until the workers have ended or the run was stopped; return the last status.

    A finished run waits for silent tasks no longer than ``LAST_TASKS_S``.

    Args:
        step: Looks once: shows events, writes snapshots, returns the exchange's status.
        is_busy: Waits a moment; returns whether workers still run.
        exchange: The run's.
        signals: The run's signals.
        stop_reason: Returns the reason to stop the run early; empty to go on.
    """
    done_at: float | None = None
    with signals.noted():
        while is_busy():
            if signals.stopped_by is not None:
                number = signals.stopped_by
                _LOG.info("%s: the run stops and takes a snapshot; a second signal ends it at once", number.name)
                return _stop(step, is_busy, exchange, PATIENCE_S[number])
            if reason := stop_reason():
                _LOG.info("%s: the run stops early and takes a snapshot", reason)
                return _stop(step, is_busy, exchange, PATIENCE_S[signal.SIGINT])
            if signals.take_snapshot_request():
                _LOG.info("SIGHUP: a snapshot is taken at the present clock")
                exchange.control(TakeSnapshot())
            status = step()
            if not status.finished or status.live_workers:
                done_at = None
            elif done_at is None:
                done_at = time.monotonic()
            elif time.monotonic() - done_at > LAST_TASKS_S:
                _LOG.warning(
                    "all is done, but not every worker's task has ended within %g s: ending them", LAST_TASKS_S
                )
                return status
        return step()


def _stop(
    step: Callable[[], ExchangeStatus], is_busy: Callable[[], bool], exchange: RunningExchange, patience_s: float
) -> ExchangeStatus:
    exchange.control(StopEarly())
    status = _wait_for_end(step, is_busy, patience_s)
    if status.finished:
        deadline = time.monotonic() + _LEAVE_S
        while is_busy() and time.monotonic() < deadline:  # a job that is cancelled fills the log with Java's stacks
            pass
        return step()
    _LOG.warning("the snapshot is taken without the workers that have not answered within %g s", patience_s)
    exchange.control(StopNow())
    status = _wait_for_end(step, is_busy, _STATES_S)
    if not status.finished:
        exchange.control(StopNow())
        status = step()
    return status


def _wait_for_end(step: Callable[[], ExchangeStatus], is_busy: Callable[[], bool], patience_s: float) -> ExchangeStatus:
    deadline = time.monotonic() + patience_s
    while not (status := step()).finished and time.monotonic() < deadline and is_busy():
        pass
    return status
