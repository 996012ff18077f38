"""A worker's vectors by the center of its host, whose center exchanges with the root: a tree of centers."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from deepspark_ops.errors import ExchangeUnavailable
from deepspark_ops.exchange.center.host_center import HostCenter
from deepspark_ops.exchange.center.pushes import locked_positions, push_applier
from deepspark_ops.exchange.comm_period import RootPeriod
from deepspark_ops.exchange.transport.exchange import ExchangeEnd, Transfer
from deepspark_ops.exchange.transport.memory_transfer import MemoryTransfer, ServerCalls
from deepspark_ops.exchange.transport.transfer_plan import TransferPlan
from deepspark_ops.param_vector import Vector

_TURN_PAUSE_S = 0.005


class TreeTransfer(MemoryTransfer):
    """A ``Transfer`` to the center of the worker's host.

    EASGD Tree of Zhang, Choromanska and LeCun (2015) and of Zhang's thesis (2016), with two levels. Each edge of the
    tree is the symmetric exchange of EASGD, Algorithm 1, with a tau and an alpha of its own::

        worker and host:  e = alpha      (local - host);  local -= e;  host += e
        host and root:    d = alpha_root (host  - root);  host  -= d;  root += d

    So the sum of workers, hosts and root stays constant. A center heavier than its children moves by its share of the
    difference, on both levels. The workers of a host take turns with the host's exchange. With n workers and the host's
    tau T, each worker exchanges host and root at every (n T)-th exchange of its own, or at a later one if another
    worker is in its turn. The other workers go on meanwhile, and the host's center moves by -d after the root has
    taken d.
    """

    def __init__(
        self,
        plan: TransferPlan,
        host: HostCenter,
        session: str,
        calls: ServerCalls,
        root: Transfer,
        lock: AbstractContextManager[object] | None = None,
        pause: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Take the host's center, which the worker has entered.

        Args:
            plan: Strategy, chunks and buffers of the exchanges of worker and host.
            host: The host's center; the caller closes it.
            session: Session of this process as the worker.
            calls: Calls to the server.
            root: Transfer to the server's center; ``close`` closes it.
            lock: Lock during exchanges with the root; default: none.
            pause: Sleeps.
            now: Returns seconds.
        """
        super().__init__("tree", plan, host.center, session, calls)
        level = plan.strategy.root_level
        assert level is not None, "the strategy has a tree"
        self._host, self._root = host, root
        self.root_period = RootPeriod(level.comm_period or "auto", share=plan.strategy.most_exchange_share)
        root.plan.moving_rate = level.moving_rate
        self._lock = lock or nullcontext()
        self._pause = pause
        self._now = now
        self._present = host.present_workers()
        self._n_ahead = 0  # the worker's exchanges since its last exchange of host and root
        self._root_ended_s = now()
        self._remark: str | None = None  # the reason for a change of T, until the next report
        self._has_turn = False  # until the worker has exchanged host and root

    def copy_center(self, vector: Vector, *, as_start: bool) -> None:
        """See ``Transfer``: a worker starts at the host's center; tests see the root."""
        if as_start:
            super().copy_center(vector, as_start=True)
            return
        with self._lock:
            self._root.copy_center(vector, as_start=False)

    def end(self) -> ExchangeEnd:
        """See ``Transfer``; exchanges host and root where it is this worker's turn."""
        ended = super().end()
        self._n_ahead += 1
        if self._center.live_workers != len(self._present):
            self._present = self._host.present_workers()
        rank = self._present.index(self.plan.worker)
        sequence = self._context.ended_before + 1
        self._has_turn = self._has_turn or (sequence + rank) % (len(self._present) * self.root_period.value) == 0
        if self._has_turn:
            self._has_exchanged_host()
        remark, self._remark = self._remark, None
        return ended._replace(remark=remark)

    def flush(self, timeout_s: float) -> None:
        """See ``Transfer``."""
        for _ in range(round(timeout_s / _TURN_PAUSE_S) + 1):
            if not self._n_ahead or self._has_exchanged_host():
                return
            self._pause(_TURN_PAUSE_S)
        msg = (
            f"worker {self.plan.worker}: waited {timeout_s:g} s for another worker of this host to end the exchange of"
            " the host's center with the root; is that worker stopped?"
        )
        raise ExchangeUnavailable(msg)

    def close(self) -> None:
        """Release the root; the host's center stays the caller's."""
        self._root.close()

    def _has_exchanged_host(self) -> bool:
        """Exchange host and root; return False if another worker of the host does so now."""
        with self._host.root_turn() as is_mine:
            if is_mine:
                n_ahead, self._n_ahead, self._has_turn = self._n_ahead, 0, False
                self._present = self._host.present_workers()
                began = self._now()
                self._exchange_host()
                ended = self._now()
                reason = self.root_period.observe(
                    n_steps=n_ahead,
                    compute_s=len(self._present) * (began - self._root_ended_s),
                    exchange_s=ended - began,
                )
                self._root_ended_s, self._remark = ended, reason or self._remark
        return is_mine

    def _exchange_host(self) -> None:
        vectors = self._root.plan.vectors
        host, moved_host = vectors.take(), vectors.take()
        np.copyto(host, self._center.vector)
        with self._lock:
            self._root.begin()
            self._root.exchange_chunks(host, moved_host, measure=False)
            self._root.end()
        correction = np.subtract(moved_host, host, out=moved_host)
        plan, chunks = self.plan, self.plan.chunks
        apply = push_applier(self._center, chunks, plan.worker, self._context, plan.order[0])
        for position in locked_positions(self._center, plan.order):
            push = correction[chunks.spans[position]]
            chunks.clear_statistics(position, push)  # the server gathers BatchNorm's statistics from workers
            apply(position, push)
