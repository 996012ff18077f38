"""A worker's side of the exchange; ``WorkerLink`` is all that a worker loop needs to know."""

from __future__ import annotations

from deepspark_ops.exchange.grants import Finished, Grant, GrantAnswer, Wait
from deepspark_ops.exchange.leases import Lease
from deepspark_ops.exchange.link import ExchangeReport, ExchangeStatus, Welcome, WorkerLink

__all__ = [
    "ExchangeReport",
    "ExchangeStatus",
    "Finished",
    "Grant",
    "GrantAnswer",
    "Lease",
    "Wait",
    "Welcome",
    "WorkerLink",
]
