"""The driver's task for a worker, and the run's plan for the worker loop. No framework."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from caffe_import.solver.lr_policies import learning_rate
from deepspark_ops.devices.assigned import AssignedDevices
from deepspark_ops.exchange.comm_period import AgreedPeriod, CommPeriod, FixedSet, LossBudget, ScheduledPeriod
from deepspark_ops.exchange.strategies.base import ExchangeContext
from deepspark_ops.train.data.repeated_data import steps_of_a_share
from deepspark_ops.train.host_files.on_host import DriverFiles
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.setup.strategy_plan import StrategyPlan, plan_strategy
from deepspark_ops.train.snapshots.worker_state import WorkerState
from deepspark_ops.train.worker.loop.center_watch import WatchPlan, watched_blobs
from deepspark_ops.train.worker.loop.loop_plan import LoopPlan
from deepspark_ops.train.worker.net.gradient_models import works_on_gradients
from deepspark_ops.train.worker.rates.rate_scale import RateScale, plan_rate_scale
from deepspark_ops.train.worker.rates.stabiliser import stabiliser_plan

MOST_NEW_STARTS = 3
"""Times that a worker's process of elastic averaging begins again at the center after a loss that is not finite. Faulty
samples spoil few minibatches; a rate that is too large spoils each new start."""


@dataclass(frozen=True)
class WorkerTask:
    """The driver's task for a worker.

    Attributes:
        run_dir: The run's folder, the same for driver and workers.
        worker: The worker's id.
        attempt: Earlier starts of the worker in this application.
        start_state: ``state.h5`` with the worker's state for the first attempt; None to begin with an empty state.
        origin: Clock at which the run first began.
        devices: The worker's devices.
        fault_before: Fatal signal of the worker's process before, from its note; see ``fault_file``.
        version_note: Warning that names versions other than the driver's; empty without a difference.
        driver_files: The driver's files; None where every worker sees the driver's folders.
    """

    run_dir: Path
    worker: int
    attempt: int
    start_state: Path | None
    origin: int
    devices: AssignedDevices = field(default_factory=AssignedDevices)
    fault_before: str = ""
    version_note: str = ""
    driver_files: DriverFiles | None = None


def loop_plan(run: Run, worker: int, origin: int) -> LoopPlan:
    """Return the plan of a run for the worker loop."""
    solver, config = run.solver, run.config
    plan = plan_strategy(config)
    comm_period = _comm_period(run, plan)
    return LoopPlan(
        worker=worker,
        n_workers=config.n_workers,
        comm_period=comm_period,
        rate_scale=rate_scale(run, origin),
        images_per_step=run.images_per_step(),
        origin=origin,
        base_lr=solver.base_lr,
        solver_rate=partial(learning_rate, solver),
        display=solver.display,
        outputs=run.paths.outputs,
        average_loss=solver.average_loss,
        n_test_nets=len(run.test_nets),
        test_interval=solver.test_interval,
        test_initialization=solver.test_initialization,
        snapshot=solver.snapshot,
        searches=plan.running.repeats_data,
        most_new_starts=MOST_NEW_STARTS if plan.running.has_moving_rate else 0,
        waits_in_rounds=plan.running.round == "all",
        overlaps=config.overlap and plan.running.has_moving_rate,
        asks_ahead=config.n_workers > 1 and plan.running.round != "all" and comm_period.is_known_ahead,
        moving_rates=plan.moving_rates,
        stabiliser=stabiliser_plan(run, comm_period),
        statistics=run.statistics(),
        watch=_watch_plan(run, plan, worker),
    )


def _watch_plan(run: Run, plan: StrategyPlan, worker: int) -> WatchPlan | None:
    """Return the watch of a worker; worker 0 reports on the center."""
    if not run.config.watch:
        return None
    has_distance = run.config.n_workers > 1 and not works_on_gradients(plan.running)
    return WatchPlan(run.config.watch, watched_blobs(run.train_net.params.entries), worker == 0, has_distance)


def with_state(plan: LoopPlan, state: WorkerState | None, *, attempt: int) -> LoopPlan:
    """Return the plan of a worker's process: with the stabiliser's state from a snapshot, or for a later start.

    Args:
        plan: The worker's plan.
        state: The worker's state in the snapshot; None without a state.
        attempt: Earlier starts of the worker. A later start takes the center, which is trained already.
    """
    begins_trained = plan.stabiliser.begins_trained or attempt > 0
    earlier = None if state is None else state.stabiliser
    return replace(plan, stabiliser=replace(plan.stabiliser, begins_trained=begins_trained, state=earlier))


def _comm_period(run: Run, plan: StrategyPlan) -> CommPeriod:
    period = plan.comm_period
    if isinstance(period, tuple):
        return ScheduledPeriod(period, 0)
    if plan.running.repeats_data:
        return FixedSet(steps_of_a_share(run) if period == "auto" else period)
    if plan.running.loss_budget and period != "auto":
        return LossBudget(period)
    if plan.running.agrees_on_period and period == "auto":
        return AgreedPeriod(plan.running.least_auto_period, plan.running.most_exchange_share)
    return CommPeriod(period, least=plan.running.least_auto_period, share=plan.running.most_exchange_share)


def exchange_line(run: Run, origin: int) -> str:
    """Return a line for the log: the exchange of a run's workers, their rate, and the bound of the rate."""
    plan = plan_strategy(run.config)
    running, p = plan.running, run.config.n_workers
    scale = rate_scale(run, origin).reason
    if p == 1:
        return scale
    parts = [f"strategy {running.name}, {p} workers"]
    if running.has_moving_rate:
        alpha = plan.moving_rate or running.default_moving_rate(p)
        share = running.center_share(ExchangeContext(p))
        scheduled = " at first, as scheduled" if plan.moving_rates else ""
        parts.append(f"alpha {alpha:.3g} of a worker and {alpha * share:.3g} of the center{scheduled}")
    period = plan.comm_period
    parts.append(
        f"tau chosen by measured times, at least {running.least_auto_period}" if period == "auto"
        else f"tau {period}" if isinstance(period, int) else f"tau {period[0][1]:g} at first, as scheduled"
    )  # fmt: skip
    if (level := running.root_level) is not None:
        parts.append(f"tau of hosts {level.comm_period or 'chosen by measured times'}")
    comm_period = _comm_period(run, plan)
    stabiliser = stabiliser_plan(run, comm_period)
    if run.config.overlap:
        share = stabiliser.stable_share()
        parts.append(f"overlap with tau {comm_period.value}: stable up to {share:.2g} of the rate of a worker alone")
    if stabiliser.momentum_from_center:
        parts.append(f"{stabiliser.momentum_from_center:g} of the momentum from the center")
    if groups := stabiliser.groups:
        parts.append(f"rates of {' and '.join(group.name for group in groups)} bounded by measured curvature")
    parts += [f"{group.name} up to {group.most:g} times the rate" for group in groups if group.most > 1.0]
    return "; ".join([*parts, scale])


def rate_scale(run: Run, origin: int) -> RateScale:
    """Return the run's factor on base_lr, the same for every worker and for the driver's log."""
    config, plan = run.config, plan_strategy(run.config)
    factors = tuple(plan.running.rate_factor(p) for p in range(1, config.n_workers + 1))
    scale = plan_rate_scale(
        config.rate_scale,
        progress_per_step=plan.running.progress_per_step(config.n_workers),
        factor=factors[-1],
        n_workers=config.n_workers,
        origin=origin,
        max_iter=run.solver.max_iter,
    )
    if config.rate_scale != "auto" or scale.target == 1.0:
        return scale
    return replace(scale, of_workers=factors)
