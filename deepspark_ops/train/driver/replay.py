"""Runs a recorded run again, each worker a thread of this process, and compares the center bit for bit. No Spark."""

from __future__ import annotations

import logging
import threading

from caffe_import.files.caffemodel import write_caffemodel
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError, TrainingFailed
from deepspark_ops.events import append_event, make_event
from deepspark_ops.exchange.replay.replay import ReplayedExchange
from deepspark_ops.exchange.transport.run_record import read_record
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.train.driver.record_summary import read_summary, summarize
from deepspark_ops.train.setup.run_setup import Run, prepare_run, read_config
from deepspark_ops.train.snapshots.start import exchange_settings, plan_start
from deepspark_ops.train.worker.process import run_worker
from deepspark_ops.train.worker.task import WorkerOutcome, WorkerTask

_LOG = logging.getLogger(__name__)
_SAME = ("n_workers", "strategy", "strategy_options", "comm_period", "moving_rate", "rate_scale", "order", "overlap")
"""Fields that a repeated run must have like the recorded one."""


def replay_run(config: TrainConfig) -> None:
    """Repeat the run of ``config.replay`` in ``config.run_dir``; its last snapshot is the center's.

    Raises:
        ConfigError: There is no whole record, or this run is not the same as the recorded one.
        TrainingFailed: A worker failed, or the center is another one.
    """
    assert config.replay is not None, "the caller looked"
    recorded = RunPaths(config.replay.absolute())
    summary = read_summary(recorded)
    workers = read_record(recorded.record, config.n_workers)
    prepared = prepare_run(config)
    run, start = prepared.run, plan_start(prepared.run)
    _check_same(run, read_config(recorded.config), recorded)
    found = summarize(run.paths, start.center, start.center)
    if (found.start, found.net) != (summary.start, summary.net):
        msg = f"replay={recorded.root}: another net or start; give the solver, seed and weights of the recorded run"
        raise ConfigError(msg)
    exchange = ReplayedExchange(exchange_settings(prepared, start), start.center, workers)
    tasks = [WorkerTask(run.paths.root, worker, 0, start.state, start.origin) for worker in range(config.n_workers)]
    _run_threads(exchange, tasks)
    center = exchange.center.snapshot()
    path = run.paths.snapshot(run.prefix, run.solver.max_iter, "caffemodel")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_caffemodel(path, run.train_net, center)
    is_same = summarize(run.paths, start.center, center) == summary
    text = f"replayed {config.replay}: the center is {'the same, bit for bit' if is_same else 'another one'} ({path})"
    append_event(run.paths.events, make_event("note", clock=run.solver.max_iter, text=text))
    if not is_same:
        raise TrainingFailed(text)
    _LOG.info("%s", text)


def _run_threads(exchange: ReplayedExchange, tasks: list[WorkerTask]) -> None:
    outcomes: dict[int, WorkerOutcome] = {}
    errors: list[BaseException] = []

    def work(task: WorkerTask) -> None:
        try:
            outcomes[task.worker] = run_worker(task, exchange.link(task.worker))
            if outcomes[task.worker].ending != "finished":
                exchange.fail(outcomes[task.worker].message)
        except BaseException as error:  # noqa: BLE001 - the thread's outermost loop; raised below
            errors.append(error)
            exchange.fail(str(error))

    threads = [threading.Thread(target=work, args=(task,), name=f"worker {task.worker}") for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    for outcome in outcomes.values():
        if outcome.ending != "finished":
            raise TrainingFailed(outcome.message)


def _check_same(run: Run, before: TrainConfig, recorded: RunPaths) -> None:
    for name in _SAME:
        if getattr(run.config, name) != getattr(before, name):
            msg = f"{name}={getattr(run.config, name)}: the recorded run {recorded.root} has {getattr(before, name)}"
            raise ConfigError(msg)
