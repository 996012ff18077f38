"""A run small enough for tests: settings, and a worker that adds fixed updates instead of training."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deepspark_ops.exchange.settings import ExchangeSettings
from deepspark_ops.exchange.state.grants import Finished, Grant, Schedule, Wait
from deepspark_ops.exchange.state.leases import DatasetOrder
from deepspark_ops.exchange.transport.link import ExchangeReport, WorkerLink
from deepspark_ops.param_vector import Vector

N_PARAMS = 1_000
CHUNK = 300


def make_settings(folder: Path, **changes: Any) -> ExchangeSettings:
    """Return settings of a run in ``folder``; ``changes`` replace fields."""
    fields: dict[str, Any] = {
        "run_id": 0x5EED,
        "n_params": N_PARAMS,
        "n_workers": 2,
        "schedule": Schedule(max_iter=40, test_interval=10, snapshot=20),
        "work": folder / "work",
        "events": folder / "events.jsonl",
        "datasets": {"train": DatasetOrder((30, 50), piece_samples=20)},
        "chunk": CHUNK,
        "exchange_timeout_s": 30.0,
    }
    return ExchangeSettings(**{**fields, **changes})


def initial_vector(n_params: int = N_PARAMS) -> Vector:
    return np.random.default_rng(11).standard_normal(n_params).astype(np.float32)


def update_of(step: int, n_params: int = N_PARAMS) -> Vector:
    """Return the addition of the clock's step ``step`` to a worker's parameters."""
    return np.random.default_rng((12, step)).standard_normal(n_params).astype(np.float32)


@dataclass
class WorkerRun:
    """Steps and exchanges of a worker."""

    pulled: Vector
    local: Vector
    grants: list[Grant] = field(default_factory=list)
    reports: list[ExchangeReport] = field(default_factory=list)
    lost_grants: list[Grant] = field(default_factory=list)


def sum_before_and_after(runs: list[WorkerRun], center: Vector, n_steps: int) -> tuple[Any, Any]:
    """Return, per element in float64, what workers and center hold together, and what they must hold.

    Elastic exchanges keep the sum of worker and center: the initial sum and every step's update.
    """
    held = center.astype(np.float64) + sum(run.local.astype(np.float64) for run in runs)
    first = initial_vector(len(center)).astype(np.float64) + sum(run.pulled.astype(np.float64) for run in runs)
    return held, first + sum(update_of(step, len(center)).astype(np.float64) for step in range(n_steps))


def work(
    link: WorkerLink,
    worker: int,
    *,
    want: int = 4,
    between: Callable[[Grant], None] | None = None,
    joined: Callable[[], object] | None = None,
) -> WorkerRun:
    """Join, do what the grants say, leave; ``joined`` is called after joining, ``between`` before a grant's steps."""
    link.join(worker)
    if joined is not None:
        joined()
    pulled = link.pull()
    run = WorkerRun(pulled, pulled)
    while not isinstance(answer := link.request_grant(want), Finished):
        if isinstance(answer, Wait):
            time.sleep(answer.seconds)
            continue
        if answer.state_for:
            link.send_state(answer.state_for, {"at": answer.start}, {"history": run.local[None, :]})
        if between is not None:
            between(answer)
        if answer.count:
            moved = run.local
            for step in range(answer.start, answer.stop):
                moved = moved + update_of(step, len(moved))
            run.local, report = link.exchange(moved)
            run.reports.append(report)
        (run.grants if link.acknowledge(answer) else run.lost_grants).append(answer)
    link.leave()
    link.close()
    return run
