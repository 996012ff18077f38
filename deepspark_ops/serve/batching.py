"""A queue that computes the samples of several requests in a single call of the net."""

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
"""Takes at least one sample."""
OnCall = Callable[[int, float], None]
"""Called after each graph call with the number of samples and the seconds."""


@dataclass(frozen=True)
class _Waiting:
    samples: Sequence[Parts]
    answer: Future[Answers]


class Batcher:
    """A thread that computes the samples of any number of other threads."""

    def __init__(
        self, compute: Compute, *, batch_size: int, wait_s: float, on_call: OnCall, are_apart: bool = False
    ) -> None:
        """Start the thread.

        Args:
            compute: The net.
            batch_size: Largest number of samples of a call.
            wait_s: Time for which the first request of a call waits for further requests.
            on_call: Called after each call, by the computing thread.
            are_apart: Whether no call holds samples of two requests.
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
        """Return a future with the rows of at least one sample; a failure of the net is the future's exception.

        Raises:
            RuntimeError: The batcher is closed.
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
        """Compute the waiting requests, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while requests := self._take():
            # A caller that went away has cancelled the future.
            if active := [request for request in requests if request.answer.set_running_or_notify_cancel()]:
                self._answer(active)

    def _take(self) -> list[_Waiting]:
        """Return at least one request for the next call; no request after the batcher is closed and all are done."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closed)
            deadline = time.monotonic() + self._wait_s
            most = 0 if self._are_apart else self._batch_size
            while not self._is_closed and self._n_waiting() < most:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    break
            requests: list[_Waiting] = []
            n_samples = 0
            while self._queue and (not requests or n_samples + len(self._queue[0].samples) <= most):
                requests.append(self._queue.popleft())
                n_samples += len(requests[-1].samples)
            return requests

    def _n_waiting(self) -> int:
        return sum(len(waiting.samples) for waiting in self._queue)

    def _answer(self, requests: Sequence[_Waiting]) -> None:
        try:
            rows = self._rows([sample for waiting in requests for sample in waiting.samples])
        except Exception as error:  # noqa: BLE001 - the thread's outermost loop; each request gets an answer
            if len(requests) == 1:
                requests[0].answer.set_exception(error)
                return
            for waiting in requests:  # a request with an error must not fail the other requests
                self._answer([waiting])
            return
        first = 0
        for waiting in requests:
            last = first + len(waiting.samples)
            waiting.answer.set_result({name: values[first:last] for name, values in rows.items()})
            first = last

    def _rows(self, samples: Sequence[Parts]) -> Answers:
        answers: list[Answers] = []
        for first in range(0, len(samples), self._batch_size):
            part = samples[first : first + self._batch_size]
            began = time.monotonic()
            answers.append(self._compute(part))
            self._on_call(len(part), time.monotonic() - began)
        if len(answers) == 1:
            return answers[0]
        return {name: np.concatenate([part[name] for part in answers]) for name in answers[0]}
