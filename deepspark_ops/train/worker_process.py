"""One worker from its start to its end, as a Spark task runs it; knows TensorFlow through ``tf_model`` only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from caffe_import.errors import CaffeImportError
from deepspark_ops.errors import ConfigError, DataError, TrainingFailed
from deepspark_ops.events import make_event
from deepspark_ops.exchange.link import Welcome, WorkerLink
from deepspark_ops.exchange.strategies import find_strategy
from deepspark_ops.train.batches import LeasedBatches, NetFeed
from deepspark_ops.train.pacing import CommPeriod, RateScale, plan_rate_scale
from deepspark_ops.train.run_setup import Run, load_run
from deepspark_ops.train.snapshot import read_worker_state
from deepspark_ops.train.tf_model import TfModel
from deepspark_ops.train.worker_loop import LoopPlan, WorkerLoop

Ending = Literal["finished", "refused", "failed", "given_up"]


@dataclass(frozen=True)
class WorkerOutcome:
    """How a worker ended; travels to the driver as plain values.

    Attributes:
        worker: Its id.
        ending: ``finished``; ``refused``: the user must correct something; ``failed``: the run itself cannot go on;
            ``given_up``: it failed in every try.
        message: What to tell the user; empty if finished.
        steps: Minibatches it computed in its last try.
        exchanges: Exchanges it made in its last try.
    """

    worker: int
    ending: Ending
    message: str = ""
    steps: int = 0
    exchanges: int = 0

    @property
    def ends_the_run(self) -> bool:
        """Does no other worker make up for this one?"""
        return self.ending in ("refused", "failed")

    def to_plain(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


@dataclass(frozen=True)
class WorkerTask:
    """What a worker is told.

    Attributes:
        run_dir: The run's folder; driver and workers see the same one.
        worker: Its id.
        attempt: Earlier starts of it in this application.
        start_state: ``state.h5`` to take the own state from at the first attempt; None to begin with nothing.
        origin: Clock at which the run first began.
    """

    run_dir: Path
    worker: int
    attempt: int
    start_state: Path | None
    origin: int


def run_worker(task: WorkerTask, link: WorkerLink) -> WorkerOutcome:
    """Run one worker to the end of the run; the link is left and closed.

    What the user or the run itself did wrong is an outcome. Everything else is raised: another try may help.

    Raises:
        ExchangeUnavailable, ProtocolError, OSError: The server stayed silent, a disk, anything unforeseen.
    """
    welcome = link.join(task.worker)
    try:
        outcome = _train(task, link, welcome)
    except (ConfigError, DataError, CaffeImportError) as error:
        outcome = WorkerOutcome(task.worker, "refused", str(error))
    except TrainingFailed as error:
        outcome = WorkerOutcome(task.worker, "failed", str(error))
    if outcome.ends_the_run:
        # The driver learns of it now, not when the last of the other workers is done.
        data = {"reason": outcome.message, "ending": outcome.ending}
        link.send_event(make_event("worker_lost", clock=welcome.clock, worker=task.worker, **data))
    link.leave()
    link.close()
    return outcome


def _train(task: WorkerTask, link: WorkerLink, welcome: Welcome) -> WorkerOutcome:
    run = load_run(task.run_dir)
    try:
        is_first = task.attempt == 0
        state = read_worker_state(task.start_state, task.worker) if is_first and task.start_state else None
        if not is_first:
            note = f"start {task.attempt + 1} of this worker: it takes the center and an empty solver history"
            link.send_event(make_event("note", clock=welcome.clock, worker=task.worker, text=note))
        model = TfModel(run, worker=task.worker, center=link.pull(), state=state)
        tests = [
            NetFeed(layers, n_batches)
            for layers, n_batches in zip(run.test_layers(), run.solver.test_iter, strict=True)
        ]
        with LeasedBatches(
            link,
            run.train_layers(),
            tests,
            iter_size=run.solver.iter_size,
            seed=run.random_seed,
            worker=task.worker,
            first_step=model.updates if is_first else welcome.clock,
        ) as batches:
            summary = WorkerLoop(model, link, batches, loop_plan(run, task.worker, task.origin)).run()
        return WorkerOutcome(task.worker, "finished", "", summary.steps, summary.exchanges)
    finally:
        run.binding.close()


def loop_plan(run: Run, worker: int, origin: int) -> LoopPlan:
    """Return what the worker loop must know of a run."""
    solver, config = run.solver, run.config
    strategy = find_strategy(config.strategy).for_workers(config.n_workers)
    return LoopPlan(
        worker=worker,
        n_workers=config.n_workers,
        comm_period=CommPeriod(1 if strategy.requires.comm_period_one else config.comm_period),
        rate_scale=rate_scale(run, origin),
        images_per_step=run.images_per_step(),
        origin=origin,
        base_lr=solver.base_lr,
        display=solver.display,
        average_loss=solver.average_loss,
        n_test_nets=len(run.test_nets),
        test_interval=solver.test_interval,
        test_initialization=solver.test_initialization,
    )


def rate_scale(run: Run, origin: int) -> RateScale:
    """Return the run's factor on base_lr; the same for every worker and for the driver, which logs it."""
    config = run.config
    strategy = find_strategy(config.strategy).for_workers(config.n_workers)
    return plan_rate_scale(
        config.rate_scale,
        progress_per_step=strategy.progress_per_step(config.n_workers),
        n_workers=config.n_workers,
        origin=origin,
        max_iter=run.solver.max_iter,
    )
