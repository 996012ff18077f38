"""Training as a Spark application: N independent tasks around an exchange, watched by the driver.

The driver never imports TensorFlow. Started as ``python -m deepspark_ops.train.driver.spark_job CONFIG.json`` or by
spark-submit with the same file.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from py4j.protocol import Py4JError
from pyspark import SparkContext

from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError, DeepSparkError, TrainingFailed
from deepspark_ops.events import append_event, make_event
from deepspark_ops.exchange.server.launch import RunningExchange, start_exchange
from deepspark_ops.exchange.transport.link import ExchangeStatus
from deepspark_ops.processes.cluster_network import choose_listen_address, stays_on_host
from deepspark_ops.processes.spark_context import start_context
from deepspark_ops.processes.spark_failure import spark_failure
from deepspark_ops.processes.spark_submit import spark_conf
from deepspark_ops.processes.stage_process import stage_main
from deepspark_ops.train.driver.run_signals import RunSignals, watch_run
from deepspark_ops.train.driver.run_watch import RunWatch
from deepspark_ops.train.driver.tensorboard_file import TensorBoardFile
from deepspark_ops.train.setup.run_setup import (
    PreparedRun,
    Run,
    nothing_left_on_error,
    prepare_run,
    read_config,
)
from deepspark_ops.train.setup.strategy_plan import plan_strategy
from deepspark_ops.train.snapshots.snapshot import UNCHANGED, SnapshotWriter, vector_digest
from deepspark_ops.train.snapshots.start import (
    SPARK_SCRATCH,
    Start,
    exchange_settings,
    plan_start,
    restore_server,
    with_restored_step,
)
from deepspark_ops.train.worker.outcome import WorkerOutcome
from deepspark_ops.train.worker.task import rate_scale

_LOG = logging.getLogger(__name__)
_WATCH_S = 0.1
_SPARK_START_S = 300.0
_CANCEL_S = 10.0
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""TensorFlow has its own pool; a second one per worker would only fight for the same cores."""


def main(config_path: Path) -> None:
    """Run the stage.

    Raises:
        DeepSparkError, CaffeImportError: One message for the user.
    """
    signals = RunSignals()
    train(read_config(config_path), signals)


def train(config: TrainConfig, signals: RunSignals) -> None:
    """Train; a run that is finished already returns at once, an interrupted one goes on from its last snapshot.

    Raises:
        ConfigError, DataError, CaffeImportError: The user must correct something.
        TrainingFailed: The run ended without a result.
        SystemExit: A signal has stopped it, after a snapshot; the code is 128 + the signal's number.
    """
    with ExitStack() as stack:
        stack.enter_context(_sole_owner(config.run_dir))
        began = stack.enter_context(nothing_left_on_error(config.run_dir))
        prepared = prepare_run(config)
        run = prepared.run
        start = plan_start(run)
        run = with_restored_step(run, start.state)
        stack.callback(shutil.rmtree, run.paths.work, ignore_errors=True)
        if _is_done(run, start):
            return
        address = choose_listen_address(config.listen_address, config.master)
        spark = stack.enter_context(_SparkSide(run, address))
        exchange = stack.enter_context(
            start_exchange(
                exchange_settings(prepared, start),
                start.center,
                listen_address=address,
                listen_port=config.listen_port,
            )
        )
        start = replace(start, notes=(*start.notes, *restore_server(start, exchange.settings, exchange.center)))
        spark.refuse_if_it_must()
        began()
        if not stays_on_host(config.master):
            _LOG.info("workers connect to the %s", exchange.address.server)
        watch = _watch_of(run, start)
        try:
            _tell_start(watch, prepared, start, exchange)
            spark.submit(_task_settings(run, start, exchange))
            status = watch_run(lambda: watch.step(exchange.poll), lambda: spark.is_busy(_WATCH_S), exchange, signals)
            if signals.stopped_by is not None:
                _report_stop(run, watch, status, signals.stopped_by)
                sys.exit(128 + signals.stopped_by)
            _conclude(run, start, status, spark.outcomes(), exchange)
        except DeepSparkError as error:
            _tell_stage(run, "failed", start.clock, reason=str(error))
            raise
        finally:
            watch.finish()
        _tell_end(run, watch, status)


def _is_done(run: Run, start: Start) -> bool:
    """Is there nothing left to train?

    Raises:
        ConfigError: The run has not trained anything and never will.
    """
    max_iter = run.solver.max_iter
    if start.clock < max_iter:
        return False
    if start.run_state is None:
        msg = f"max_iter={max_iter}: nothing to train from iteration {start.clock} on; raise max_iter"
        raise ConfigError(msg)
    _LOG.info("finished already: clock=%d max_iter=%d snapshots=%s", start.clock, max_iter, run.paths.snapshots)
    return True


def _watch_of(run: Run, start: Start) -> RunWatch:
    writer = SnapshotWriter(
        paths=run.paths,
        prefix=run.prefix,
        net=run.train_net,
        solver=run.solver,
        origin=start.origin,
        random_seed=run.random_seed,
        start_digest=vector_digest(start.center),
        unchanged=unchanged_text(run.config, max_iter=run.solver.max_iter),
        moves_late=plan_strategy(run.config).running.repeats_data,
    )
    board = TensorBoardFile(run.paths.tensorboard)
    return RunWatch(run.paths.events, board, writer, images_per_step=run.images_per_step(), first=start.clock)


def _tell_start(watch: RunWatch, prepared: PreparedRun, start: Start, exchange: RunningExchange) -> None:
    run, config = prepared.run, prepared.run.config
    _tell_stage(
        run,
        "started",
        start.clock,
        net=run.train_net.name,
        n_params=run.train_net.params.n_params,
        n_workers=config.n_workers,
        strategy=exchange.settings.running_strategy().name,
        max_iter=run.solver.max_iter,
    )
    for text in (*prepared.notes, *start.notes, *_decisions(run, start)):
        watch.note(text, clock=start.clock)


def _decisions(run: Run, start: Start) -> list[str]:
    """Return what the run chose by itself before it began, with reasons."""
    plan = plan_strategy(run.config)
    return [] if plan.running.repeats_data else [rate_scale(run, start.origin).reason]


def _task_settings(run: Run, start: Start, exchange: RunningExchange) -> dict[str, Any]:
    return {
        "run_dir": str(run.paths.root),
        "start_state": str(start.state) if start.state is not None else "",
        "origin": start.origin,
        "worker_tries": run.config.worker_tries,
        # The secret goes inside the task's closure, never into a file, a property or the environment.
        "address": exchange.address,
    }


def _conclude(
    run: Run, start: Start, status: ExchangeStatus, outcomes: list[WorkerOutcome], exchange: RunningExchange
) -> None:
    """Refuse to call a run without a result a success."""
    for outcome in outcomes:
        if outcome.ending == "refused":
            raise ConfigError(outcome.message)
        if outcome.ending == "failed":
            raise TrainingFailed(outcome.message)
        if outcome.ending == "given_up":
            _LOG.warning("given up after %d starts: %s", run.config.worker_tries, outcome.message)
    if not status.finished:
        lost = [outcome.message for outcome in outcomes if outcome.ending == "given_up"]
        msg = (
            f"{len(lost)} of {run.config.n_workers} workers given up after {run.config.worker_tries} starts each;"
            f" {status.acknowledged} of {run.solver.max_iter} minibatches are done, a retry goes on from the last"
            f" snapshot: {lost[0] if lost else 'no worker finished'}"
        )
        raise TrainingFailed(msg)
    if not any(status.exchanges):
        msg = "nobody ever exchanged with the center: the weights are what they were at the start"
        raise TrainingFailed(msg)
    if status.applied == 0:
        msg = (
            f"training changed no weight: {sum(status.exchanges)} exchanges were gathered and none was applied; lower"
            " updates_per_apply in strategy_options, or raise max_iter"
        )
        raise TrainingFailed(msg)
    if np.array_equal(exchange.center.vector, start.center):
        raise TrainingFailed(unchanged_text(run.config, max_iter=run.solver.max_iter))


def unchanged_text(config: TrainConfig, *, max_iter: int) -> str:
    """Return what to tell the user of a run whose parameters are those of the start."""
    if not plan_strategy(config).running.repeats_data:
        return UNCHANGED
    return (
        f"training changed no weight: the first line search of {config.strategy} did not end within"
        f" max_iter={max_iter}. It measures several times over the whole training set, or over n_workers x comm_period"
        " minibatches: raise max_iter or lower comm_period"
    )


def _tell_stage(run: Run, state: str, clock: int, **data: Any) -> None:
    append_event(run.paths.events, make_event("stage", clock=clock, stage="train", status=state, **data))


def _tell_end(run: Run, watch: RunWatch, status: ExchangeStatus) -> None:
    rate = watch.images_per_s()
    speed = {"images_per_s": round(rate, 1)} if rate is not None else {}
    counts = {"exchanges": sum(status.exchanges), "reissued_grants": status.reissued_grants}
    _tell_stage(run, "finished", status.acknowledged, **speed, **counts, uncertain_chunks=status.uncertain_chunks)
    shown = "".join(f" {name}={value}" for name, value in speed.items())
    last = f"{run.prefix}_iter_{watch.written[-1]}.*" if watch.written else "none asked for"
    _LOG.info("finished: clock=%d%s snapshots=%s", status.acknowledged, shown, run.paths.snapshots / last)


def _report_stop(run: Run, watch: RunWatch, status: ExchangeStatus, number: signal.Signals) -> None:
    _tell_stage(run, "stopped", status.acknowledged, signal=number.name)
    if not watch.written:
        _LOG.info("stopped by %s at clock=%d: nothing to save since the start", number.name, status.acknowledged)
        return
    last = run.paths.snapshots / f"{run.prefix}_iter_{watch.written[-1]}.*"
    _LOG.info(
        "stopped by %s at clock=%d: snapshots=%s; the same command goes on from there",
        number.name,
        status.acknowledged,
        last,
    )


class _SparkSide:
    """The Spark application: started in the background, one job, stopped at the end. Used by one thread."""

    def __init__(self, run: Run, listen_address: str) -> None:
        """Begin to start Spark, its driver on ``listen_address``; ``submit`` waits for it."""
        self._run = run
        self._listen_address = listen_address
        self._context: SparkContext | None = None
        self._error: Exception | None = None
        self._plain: list[dict[str, Any]] = []
        self._scratch = run.paths.work / SPARK_SCRATCH
        self._scratch.mkdir(parents=True, exist_ok=True)
        # Python starts a JVM: several seconds in which the exchange gets ready.
        self._starter = self._in_background(self._start)
        self._job: threading.Thread | None = None

    def __enter__(self) -> _SparkSide:
        """Return itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Cancel what runs and stop Spark; nothing of it stays behind."""
        self._starter.join(_SPARK_START_S)
        if self._context is not None:
            # A JVM that was killed with us cannot be told anything any more.
            with suppress(Py4JError, OSError):
                self._context.cancelAllJobs()
                self._context.stop()
        if self._job is not None:
            self._job.join(_CANCEL_S)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def refuse_if_it_must(self) -> None:
        """Wait until Spark has started or failed.

        Raises:
            ConfigError: The cluster cannot be used as it is.
        """
        self._starter.join(_SPARK_START_S)
        if isinstance(self._error, ConfigError):
            raise self._error

    def submit(self, settings: Mapping[str, Any]) -> None:
        """Start the workers.

        Raises:
            DeepSparkError: Spark did not start.
        """
        self._starter.join(_SPARK_START_S)
        if self._error is not None:
            raise self._error
        if self._context is None:
            msg = f"Spark with master={self._run.config.master} was not ready after {_SPARK_START_S:g} s"
            raise TrainingFailed(msg)
        n_workers = self._run.config.n_workers
        tasks = self._context.parallelize(range(n_workers), n_workers).mapPartitionsWithIndex(_worker_task(settings))
        self._job = self._in_background(lambda: self._plain.extend(tasks.collect()))

    def is_busy(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` for the job's end; return whether it goes on."""
        assert self._job is not None, "submit comes first"
        self._job.join(timeout_s)
        return self._job.is_alive()

    def outcomes(self) -> list[WorkerOutcome]:
        """Return how the workers ended.

        Raises:
            TrainingFailed: Spark gave the job up.
        """
        if self._error is not None:
            why = spark_failure(self._error, master=self._run.config.master, task="worker")
            msg = f"Spark gave the training job up: {why}"
            raise TrainingFailed(msg) from self._error
        return [WorkerOutcome(**plain) for plain in self._plain]

    def _in_background(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - the thread's outermost loop; the main thread raises it
                self._error = error

        thread = threading.Thread(target=run, name="spark", daemon=True)
        thread.start()
        return thread

    def _start(self) -> None:
        config = self._run.config
        # The variable and not spark.local.dir, which Spark answers with a warning in every log.
        os.environ.setdefault("SPARK_LOCAL_DIRS", str(self._scratch))
        self._context = start_context(
            master_for(config.master, n_workers=config.n_workers, tries=config.worker_tries),
            _properties(config),
            listen_address=self._listen_address,
            insecure_network=config.insecure_network,
        )


def _properties(config: TrainConfig) -> dict[str, str]:
    return {
        **spark_conf(),
        "spark.app.name": f"deepspark train {config.run_dir.name}",
        # One more than we use: the last start says "given up", where Spark would end the job and with it all workers.
        "spark.task.maxFailures": str(config.worker_tries + 1),
        **{f"spark.executorEnv.{name}": "1" for name in _ONE_THREAD},
    }


def master_for(master: str, *, n_workers: int, tries: int) -> str:
    """Return the Spark master to use: a plain local one never starts a task again and may have too few slots.

    Example:
        >>> master_for("local[*]", n_workers=2, tries=4), master_for("spark://a:7077", n_workers=2, tries=4)
        ('local[2, 5]', 'spark://a:7077')
    """
    return f"local[{n_workers}, {tries + 1}]" if re.fullmatch(r"local(\[.*\])?", master) else master


def _worker_task(settings: Mapping[str, Any]) -> Callable[[int, Iterable[int]], Iterator[dict[str, Any]]]:
    def run(worker: int, _: Iterable[int]) -> Iterator[dict[str, Any]]:
        # Imported in the worker's process: the driver stays without TensorFlow.
        from pyspark import TaskContext

        from deepspark_ops.train.worker.spark_task import run_in_task

        context = TaskContext.get()
        assert context is not None, "runs inside a Spark task"
        yield run_in_task(settings, worker, context.attemptNumber())

    return run


@contextmanager
def _sole_owner(run_dir: Path) -> Iterator[None]:
    """Hold the run's folder: two drivers in one folder would write over each other.

    Raises:
        ConfigError: Another process holds it.
    """
    was_there = run_dir.exists()
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        handle = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        msg = f"run_dir={run_dir}: {error.strerror}; a folder that can be written is needed"
        raise ConfigError(msg) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            msg = f"run_dir={run_dir}: another process is training there; wait for it or give another run_dir"
            raise ConfigError(msg) from error
        yield
    finally:
        os.close(handle)
        if not was_there:
            with suppress(OSError):  # not empty: it is a run's folder now
                run_dir.rmdir()


if __name__ == "__main__":
    sys.exit(stage_main(main))
