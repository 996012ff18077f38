"""A plan of a worker that shows, tests and saves nothing; tests replace fields."""

from __future__ import annotations

from pathlib import Path

from deepspark_ops.exchange.comm_period import CommPeriod
from deepspark_ops.train.worker.loop.loop_plan import LoopPlan
from deepspark_ops.train.worker.rates.rate_scale import RateScale

PLAN = LoopPlan(
    worker=0,
    n_workers=1,
    comm_period=CommPeriod(4),
    rate_scale=RateScale(1.0, 0, 0, ""),
    images_per_step=8,
    origin=0,
    base_lr=0.5,
    solver_rate=lambda clock: 0.5,
    display=0,
    outputs=Path("outputs"),
    average_loss=1,
    n_test_nets=0,
    test_interval=0,
    test_initialization=True,
)
