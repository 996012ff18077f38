"""The driver's reports of a run to log and events: start, stop, end and failure."""

from __future__ import annotations

import logging
import signal
from typing import Any

from deepspark_ops.config.shared_options.worker_count import WorkerRange
from deepspark_ops.devices.run_devices import RunDevices
from deepspark_ops.events import append_event, make_event
from deepspark_ops.exchange.transport.link import ExchangeStatus
from deepspark_ops.train.driver.run_watch import RunWatch
from deepspark_ops.train.setup.run import PreparedRun, Run
from deepspark_ops.train.setup.staged_reading import fetched_text
from deepspark_ops.train.setup.strategy_plan import plan_strategy
from deepspark_ops.train.snapshots.start import Start
from deepspark_ops.train.worker.task import exchange_line

_LOG = logging.getLogger(__name__)


def report_start(watch: RunWatch, prepared: PreparedRun, start: Start, *, strategy: str, devices: RunDevices) -> None:
    """Report net, start and the run's choices; ``strategy`` is the name of the strategy that runs."""
    run, config = prepared.run, prepared.run.config
    report_stage(
        run,
        "started",
        start.clock,
        net=run.train_net.name,
        n_params=run.train_net.params.n_params,
        n_workers=config.n_workers,
        **({"fewest_workers": config.fewest_workers} if isinstance(config.n_workers, WorkerRange) else {}),
        strategy=strategy,
        max_iter=run.solver.max_iter,
        **({"devices": devices.lines()} if devices.dealt else {}),
    )
    for text in (*prepared.notes, *start.notes, *_decisions(run, start)):
        watch.note(text, clock=start.clock)


def report_pages(watch: RunWatch, start: Start, address: str, *, is_local: bool) -> None:
    """Report where Spark's own pages are while the run lives; nothing without an address."""
    if not address:
        return
    watch.note(f"Spark UI: {address}", clock=start.clock, spark_ui=address)
    if not is_local:
        _LOG.warning("the Spark UI asks for no login: whoever reaches %s sees this application's settings", address)


def _decisions(run: Run, start: Start) -> list[str]:
    """Return the run's own choices before the start, with reasons."""
    plan = plan_strategy(run.config)
    return [] if plan.running.repeats_data else [exchange_line(run, start.origin)]


def report_stage(run: Run, status: str, clock: int, **data: Any) -> None:
    """Append the event of the stage: ``started``, ``finished``, ``stopped`` or ``failed``."""
    append_event(run.paths.events, make_event("stage", clock=clock, stage="train", status=status, **data))


def report_end(run: Run, watch: RunWatch, status: ExchangeStatus) -> None:
    """Report a finished run."""
    speed = watch.speed()
    counts = {**_exchanged(status), **_fetched(run, watch, status), "reissued_grants": status.reissued_grants}
    if any(status.refused_pushes):
        counts["refused_pushes"] = sum(status.refused_pushes)
    early = {"early_stop": watch.early_stop.reason} if watch.early_stop.reason else {}
    if early:
        watch.note(f"stopped early: {watch.early_stop.reason}", clock=status.acknowledged)
    counts["uncertain_chunks"] = status.uncertain_chunks
    report_stage(run, "finished", status.acknowledged, **speed, **counts, **early)
    shown = "".join(f" {name}={value}" for name, value in speed.items())
    last = run.paths.snapshots / f"{run.prefix}_iter_{watch.written[-1]}.*" if watch.written else "none"
    _LOG.info("finished: clock=%d%s snapshots=%s", status.acknowledged, shown, last)


def report_missing(watch: RunWatch, status: ExchangeStatus) -> None:
    """Warn of lost workers that did not come back: the other workers have done their part."""
    missing, n_workers = watch.missing(status), len(status.exchanges)
    for worker, lost in missing.items():
        text = (
            f"worker {worker} was lost at minibatch {lost.clock} ({lost.data.get('reason')}) and did not come back;"
            f" the run ended with {n_workers - len(missing)} of {n_workers} workers"
        )
        watch.warn(text, clock=status.acknowledged)


def report_stop(run: Run, watch: RunWatch, status: ExchangeStatus, number: signal.Signals) -> None:
    """Report that a signal has stopped the run, and where the run goes on."""
    counts = {**watch.speed(), **_exchanged(status), **_fetched(run, watch, status)}
    report_stage(run, "stopped", status.acknowledged, signal=number.name, **counts)
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


def _fetched(run: Run, watch: RunWatch, status: ExchangeStatus) -> dict[str, int]:
    """Note the shards that the run fetched from a store, and return their counts; empty if all data are on a disk."""
    if not watch.fetched_shards:
        return {}
    text = fetched_text(run, watch.fetched_shards, watch.fetched_bytes)
    watch.note(text, clock=status.acknowledged)
    _LOG.info("%s", text)
    return {"fetched_shards": watch.fetched_shards, "fetched_bytes": watch.fetched_bytes}


def _exchanged(status: ExchangeStatus) -> dict[str, int]:
    return {"exchanges": sum(status.exchanges), "moved_bytes": status.moved_bytes}
