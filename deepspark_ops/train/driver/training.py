"""A training from config to end, for any kind of workers. Knows neither Spark nor TensorFlow."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from deepspark_ops.config.shared_options.worker_count import WorkerRange
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.devices.dealing import devices_of_run
from deepspark_ops.devices.run_devices import RunDevices
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.exchange.server.launch import RunningExchange, start_exchange
from deepspark_ops.exchange.transport.link import ExchangeStatus
from deepspark_ops.processes.cluster_network import choose_listen_address, choose_protection, stays_on_host
from deepspark_ops.train.driver.early_stop import EarlyStop
from deepspark_ops.train.driver.run_end import check_result, is_done, keep_record, unchanged_text
from deepspark_ops.train.driver.run_folder import check_presence, removal_named, sole_owner
from deepspark_ops.train.driver.run_report import (
    report_end,
    report_missing,
    report_pages,
    report_stage,
    report_start,
    report_stop,
)
from deepspark_ops.train.driver.run_signals import RunSignals, watch_run
from deepspark_ops.train.driver.run_watch import RunWatch
from deepspark_ops.train.driver.tensorboard_file import TensorBoardFile
from deepspark_ops.train.driver.worker_slots import Slots, SlotWatch
from deepspark_ops.train.setup.folder_guard import nothing_left_on_error, prepared_files
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.setup.run_setup import prepare_run
from deepspark_ops.train.setup.strategy_plan import plan_strategy
from deepspark_ops.train.snapshots.snapshot import SnapshotWriter, vector_digest
from deepspark_ops.train.snapshots.start import (
    Start,
    exchange_settings,
    plan_start,
    restore_server,
    with_restored_step,
)
from deepspark_ops.train.worker.driver_versions import versions_of_training
from deepspark_ops.train.worker.outcome import WorkerOutcome
from deepspark_ops.train.worker.starts import ExchangesFile

_LOG = logging.getLogger(__name__)
_WATCH_S = 0.1


class Workers(AbstractContextManager["Workers"], Protocol):
    """Runs the workers of a training; leaving the ``with`` block ends the workers. Used by a single thread."""

    def await_start(self) -> None:
        """Wait until the cluster can start workers, or refuses to.

        Raises:
            ConfigError: The cluster cannot be used with these settings.
        """

    def pages(self) -> str:
        """Return the address of the cluster's pages about the workers, such as Spark's; empty without pages."""

    def submit(self, settings: Mapping[str, Any]) -> None:
        """Start the workers with the settings of ``spark_task.run_in_task``.

        Raises:
            DeepSparkError: The workers cannot be started.
        """

    def slots(self) -> Slots | None:
        """Return the cluster's slots now; None if every worker has a slot for certain.

        Raises:
            TrainingFailed: Workers are started again and again, and never reach their code.
        """

    def is_busy(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` for the end of all workers; return whether some go on."""

    def ended(self) -> list[WorkerOutcome]:
        """Return the outcomes so far, while other workers go on."""

    def outcomes(self) -> list[WorkerOutcome]:
        """Return how the workers ended.

        Raises:
            TrainingFailed: The workers could not be run to their ends.
        """


def train(config: TrainConfig, signals: RunSignals, prepare_workers: Callable[[Run, RunDevices, str], Workers]) -> None:
    """Train; a finished run returns at once, an interrupted run goes on from the last snapshot.

    Args:
        config: The run's options.
        signals: The user's requests meanwhile.
        prepare_workers: Takes the run, its devices and the address that the driver listens on.

    Raises:
        ConfigError, DataError, CaffeImportError: The user must correct something.
        TrainingFailed: The run ended without a result.
        SystemExit: A signal has stopped it, after a snapshot; the code is 128 + the signal's number.
    """
    with ExitStack() as stack:
        stack.enter_context(sole_owner(config.run_dir))
        earlier = prepared_files(config.run_dir)
        began = stack.enter_context(nothing_left_on_error(config.run_dir, earlier))
        prepared = prepare_run(config)
        run = prepared.run
        start = plan_start(run)
        run = with_restored_step(run, start.state)
        stack.callback(shutil.rmtree, run.paths.work, ignore_errors=True)
        if is_done(run, start):
            keep_record(run.paths, earlier)
            return
        address = choose_listen_address(config.listen_address, config.master)
        protection = choose_protection(
            config.tls, config.master, listen_address=address, insecure_network=config.insecure_network
        )
        if protection.warning:
            _LOG.warning("%s", protection.warning)
        devices = devices_of_run(config, run.solver, os.environ)
        workers = stack.enter_context(prepare_workers(run, devices, address))
        exchange = stack.enter_context(
            start_exchange(
                exchange_settings(prepared, start),
                start.center,
                listen_address=address,
                listen_port=config.listen_port,
                protection=protection.kind,
            )
        )
        start = replace(start, notes=(*start.notes, *restore_server(start, exchange.settings, exchange.center)))
        workers.await_start()
        began()
        if not stays_on_host(config.master):
            how = {"tls": "by TLS 1.3", "mac": "in clear, with a MAC", "off": "in clear"}[protection.kind]
            _LOG.info("workers connect to the %s %s", exchange.address.server, how)
        watch, slots, exchanges = _watch_of(run, start), _slots_of(run, devices), ExchangesFile(run.paths.work)

        def step() -> ExchangeStatus:
            check_presence(run.paths.root)
            ended = workers.ended()  # before the events: a worker's event comes before its end
            status = watch.step(exchange.poll)
            watch.report_ended(ended)
            exchanges.see(status.exchanges, is_end=status.finished)
            if not status.finished and (text := slots.look(workers.slots)):
                watch.warn(text, clock=status.acknowledged)
            return status

        stack.enter_context(removal_named(run.paths.root, lambda: watch.clock))
        try:
            strategy = exchange.settings.running_strategy().name
            report_start(watch, prepared, start, strategy=strategy, devices=devices)
            report_pages(watch, start, workers.pages(), is_local=stays_on_host(config.master))
            workers.submit(_task_settings(run, start, exchange, devices))
            early_stop = watch.early_stop
            status = watch_run(step, lambda: workers.is_busy(_WATCH_S), exchange, signals, lambda: early_stop.reason)
            if signals.stopped_by is not None:
                report_stop(run, watch, status, signals.stopped_by)
                sys.exit(128 + signals.stopped_by)
            has_changed = not np.array_equal(exchange.center.vector, start.center)
            max_iter = run.solver.max_iter
            check_result(run.config, status, workers.outcomes(), max_iter=max_iter, has_changed=has_changed)
            if text := slots.at_end():
                watch.warn(text, clock=status.acknowledged)
            if not isinstance(run.config.n_workers, WorkerRange):
                report_missing(watch, status)
        except DeepSparkError as error:
            report_stage(run, "failed", watch.clock, reason=str(error), **watch.speed())
            raise
        finally:
            watch.finish()
        report_end(run, watch, status)


def snapshot_writer(run: Run, start: Start) -> SnapshotWriter:
    """Return the writer of a run's snapshots."""
    return SnapshotWriter(
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


def _watch_of(run: Run, start: Start) -> RunWatch:
    writer = snapshot_writer(run, start)
    board = TensorBoardFile(run.paths.tensorboard)
    return RunWatch(
        run.paths.events,
        board,
        writer,
        images_per_step=run.images_per_step(),
        first=start.clock,
        early_stop=EarlyStop(run.config.stop_below, start.clock),
    )


def _slots_of(run: Run, devices: RunDevices) -> SlotWatch:
    config, requested = run.config, devices.requested
    needs = ""
    if requested.is_required:
        needs = f"{requested.per_worker} GPU{'s' if requested.per_worker > 1 else ''} (docs/guides/devices.md)"
    return SlotWatch(
        n_workers=config.fewest_workers if isinstance(config.n_workers, WorkerRange) else config.n_workers,
        min_workers=config.fewest_workers,
        wait_s=config.min_workers_wait_s,
        master=config.master,
        needs=needs,
    )


def _task_settings(run: Run, start: Start, exchange: RunningExchange, devices: RunDevices) -> dict[str, Any]:
    return {
        "run_dir": str(run.paths.root),
        "work": str(run.paths.work),
        "start_state": str(start.state) if start.state is not None else "",
        "origin": start.origin,
        "n_workers": run.config.n_workers,
        "worker_tries": run.config.worker_tries,
        "devices": devices.to_plain(),
        "versions": versions_of_training(),
        # The secret goes inside the task's closure, never into a file, a property or the environment.
        "address": exchange.address,
    }
