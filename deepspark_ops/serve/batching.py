"""Samples of requests that arrive together go through the net together."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from deepspark_ops.predict.record import Values
from deepspark_ops.predict.samples import Parts

Answers = Mapping[str, Values]
"""Output -> (n, ...), a row for each sample."""
Compute = Callable[[Sequence[Parts]], Answers]
"""Takes samples, at least one."""
OnCall = Callable[[int, float], None]
"""Called after each graph call with its samples and seconds."""


@dataclass(frozen=True)
class _Waiting:
    samples: Sequence[Parts]
    answer: Future[Answers]


class Batcher:
    """One thread that computes, fed by any number of others."""

    def __init__(
        self, compute: Compute, *, batch_size: int, wait_s: float, on_call: OnCall, are_apart: bool = False
    ) -> None:
        """Start the thread.

        Args:
            compute: The net.
            batch_size: Samples of a call at most.
            wait_s: How long the first request of a call waits for others.
            on_call: Called after each call, by the computing thread.
            are_apart: Whether each request has calls of its own.
        """
        self._compute = compute
        self._batch_size = batch_size
        self._wait_s = wait_s
        self._on_call = on_call
        self._are_apart = are_apart
        self._queue: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
        self._thread.start()

    def submit(self, samples: Sequence[Parts]) -> Future[Answers]:
        """Return what will hold the rows of the samples, at least one; a failure of the net is its exception.

        Raises:
            RuntimeError: It is closed.
        """
        waiting = _Waiting(samples, Future())
        with self._changed:
            if self._is_closed:
                msg = "the batcher is closed"
                raise RuntimeError(msg)
            self._queue.append(waiting)
            self._changed.notify()
        return waiting.answer

    def close(self, timeout_s: float = 30.0) -> None:
        """Compute what waits, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while taken := self._take():
            # A caller that went away has cancelled what it waited for.
            wanted = [one for one in taken if one.answer.set_running_or_notify_cancel()]
            if wanted:
                self._answer(wanted)

    def _take(self) -> list[_Waiting]:
        """Return the next requests that fit into one call, at least one; none once it is closed and all are done."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closed)
            deadline = time.monotonic() + self._wait_s
            most = 0 if self._are_apart else self._batch_size
            while not self._is_closed and self._n_waiting() < most:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    break
            taken: list[_Waiting] = []
            n_samples = 0
            while self._queue and (not taken or n_samples + len(self._queue[0].samples) <= most):
                taken.append(self._queue.popleft())
                n_samples += len(taken[-1].samples)
            return taken

    def _n_waiting(self) -> int:
        return sum(len(waiting.samples) for waiting in self._queue)

    def _answer(self, taken: Sequence[_Waiting]) -> None:
        try:
            rows = self._rows([sample for waiting in taken for sample in waiting.samples])
        except Exception as error:  # noqa: BLE001 - the thread's outermost loop; each request gets its own
            if len(taken) == 1:
                taken[0].answer.set_exception(error)
                return
            for waiting in taken:  # one request's fault is not the others'
                self._answer([waiting])
            return
        first = 0
        for waiting in taken:
            last = first + len(waiting.samples)
            waiting.answer.set_result({name: values[first:last] for name, values in rows.items()})
            first = last

    def _rows(self, samples: Sequence[Parts]) -> Answers:
        found: list[Answers] = []
        for first in range(0, len(samples), self._batch_size):
            part = samples[first : first + self._batch_size]
            began = time.monotonic()
            found.append(self._compute(part))
            self._on_call(len(part), time.monotonic() - began)
        if len(found) == 1:
            return found[0]
        return {name: np.concatenate([part[name] for part in found]) for name in found[0]}
