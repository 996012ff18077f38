"""A whole run in this process: everything but Spark and sockets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deepspark_ops.config.train import TrainConfig
from deepspark_ops.events import Event, read_events
from deepspark_ops.exchange.local_exchange import LocalExchange, LocalLink
from deepspark_ops.exchange.state.grants import Grant, GrantAnswer
from deepspark_ops.train.setup.run import PreparedRun
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
from deepspark_ops.train.worker.outcome import WorkerOutcome
from deepspark_ops.train.worker.process import run_worker
from deepspark_ops.train.worker.task import WorkerTask
from tests.paths import FIXTURES

CAFFE = FIXTURES / "caffe"


@dataclass(frozen=True)
class Finished:
    prepared: PreparedRun
    start: Start
    center: np.ndarray
    outcomes: list[WorkerOutcome]

    def events(self, kind: str) -> list[Event]:
        return [event for event in read_events(self.prepared.run.paths.events) if event.kind == kind]


class Death(Exception):
    """Raised to end a worker like a kill: the worker sends nothing after it."""


class MortalLink(LocalLink):
    """Dies in place of the first acknowledgement of steps behind a clock, once: computed and exchanged, not counted."""

    def __init__(self, exchange: LocalExchange, dies_at: int) -> None:
        super().__init__(exchange)
        self._dies_at = dies_at

    def request_grant(self, want: int, *, held: Grant | None = None, done: Sequence[Grant] = ()) -> GrantAnswer:
        self._die_behind(*done)
        return super().request_grant(want, held=held, done=done)

    def acknowledge(self, grant: Grant) -> bool:
        self._die_behind(grant)
        return super().acknowledge(grant)

    def _die_behind(self, *grants: Grant) -> None:
        if any(grant.stop > self._dies_at for grant in grants):
            raise Death


def run_in_process(
    config: TrainConfig,
    *,
    deaths: dict[int, int] | None = None,
    link_of: Callable[[LocalExchange, int], LocalLink] | None = None,
) -> Finished:
    """Run until every worker has ended.

    Args:
        config: Of the run.
        deaths: Worker -> clock at which it dies and does not come back.
        link_of: Makes a worker's link, in place of what ``deaths`` says.
    """
    prepared = prepare_run(config)
    start = plan_start(prepared.run)
    run = with_restored_step(prepared.run, start.state)
    exchange = LocalExchange(exchange_settings(prepared, start), start.center)
    restore_server(start, exchange.settings, exchange.center)
    outcomes: dict[int, WorkerOutcome] = {}

    def work(worker: int) -> None:
        task = WorkerTask(run.paths.root, worker, 0, start.state, start.origin)
        dies_at = (deaths or {}).get(worker)
        if link_of is not None:
            link = link_of(exchange, worker)
        else:
            link = exchange.link() if dies_at is None else MortalLink(exchange, dies_at)
        try:
            outcomes[worker] = run_worker(task, link)
        except Death:
            outcomes[worker] = WorkerOutcome(worker, "given_up", "died")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(config.n_workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    digest = vector_digest(start.center)
    writer = SnapshotWriter(
        run.paths,
        run.prefix,
        run.train_net,
        run.solver,
        start.origin,
        run.random_seed,
        digest,
        moves_late=plan_strategy(config).running.repeats_data,
    )
    for iteration in exchange.poll().snapshots:
        assert writer.is_pending(iteration)
        writer.assemble(iteration)
    center = exchange.center.snapshot()
    exchange.close()
    return Finished(prepared, start, center, [outcomes[i] for i in sorted(outcomes)])
