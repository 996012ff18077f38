"""A worker's requests for grants: the next grant is requested while the worker computes. No framework, no socket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from deepspark_ops.exchange.state.grants import Grant, GrantAnswer
from deepspark_ops.exchange.transport.link import WorkerLink
from deepspark_ops.train.worker.loop.loop_plan import LoopPlan


class GrantRequests:
    """Requests a grant after another, and acknowledges exchanged grants. Used by the worker's thread.

    On a busy host an answer takes longer than the exchange itself (LeNet, two workers on two cores: 0.9 and 0.45 ms),
    because the server waits for a core. So a request runs beside the last steps of the grant before.
    """

    def __init__(self, link: WorkerLink, plan: LoopPlan) -> None:
        """Request by ``link``, whose other calls stay the caller's; with ``plan.asks_ahead`` also in a thread."""
        self._link = link
        self._plan = plan
        self._thread = plan.time.thread() if plan.asks_ahead else None
        self._ahead: Future[GrantAnswer] | None = None
        self._answer: GrantAnswer | None = None
        self._last: Grant | None = None
        self._exchanged: list[Grant] = []

    def next(self) -> GrantAnswer:
        """Return the next grant, or the reason for none.

        Raises:
            ExchangeUnavailable, ProtocolError: As the link's request.
        """
        if self._ahead is not None:
            self.fetch()
        answer, self._answer = self._answer, None
        if not isinstance(answer, Grant):  # since the request ahead, steps may have become free
            answer = self._request()()
        if isinstance(answer, Grant):
            self._last = answer
        return answer

    def ask_ahead(self) -> None:
        """Begin to request the next grant; called before the last steps of the present grant.

        Not before a snapshot: the grant after a snapshot asks for the state that the worker has at the snapshot.
        """
        if self._thread is not None and self._last is not None and not self._plan.is_snapshot(self._last.stop):
            self._ahead = self._thread.submit(self._request())

    def fetch(self) -> None:
        """Have an answer at hand before an exchange in the background: by socket, the exchange fills the connection.

        Raises:
            ExchangeUnavailable, ProtocolError: As the link's request.
        """
        ahead, self._ahead = self._ahead, None
        if self._answer is None:
            self._answer = self._request()() if ahead is None else ahead.result()

    def exchanged(self, grants: Sequence[Grant]) -> None:
        """Note grants whose steps are in the center; the next request acknowledges the grants."""
        self._exchanged += grants

    def acknowledge(self) -> bool:
        """Acknowledge the exchanged grants at once; return whether there were any.

        Raises:
            ExchangeUnavailable, ProtocolError: As the link's call.
        """
        grants, self._exchanged = self._exchanged, []
        for grant in grants:
            self._link.acknowledge(grant)
        return bool(grants)

    def close(self) -> None:
        """Wait for a request under way and end the thread."""
        if self._thread is not None:
            self._thread.shutdown()

    def _request(self) -> Callable[[], GrantAnswer]:
        """Return a call of the link, for any thread; the call acknowledges the grants exchanged so far."""
        grants, self._exchanged = self._exchanged, []
        return partial(self._link.request_grant, self._plan.comm_period.value, held=self._last, done=grants)
