"""Every record once in each epoch over all workers, though workers and the server are killed in the middle."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter, defaultdict
from multiprocessing.synchronize import Barrier
from pathlib import Path

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.events import read_events
from deepspark_ops.exchange.server.launch import start_exchange
from deepspark_ops.exchange.state.grants import Schedule
from deepspark_ops.exchange.state.leases import DatasetOrder
from tests.integration.train.counting_worker import count
from tests.processes import wait_until
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images
from tests.unit.deepspark_ops.exchange.exchange_run import initial_vector, make_settings

N_RECORDS = 1_000
N_EPOCHS = 4
BATCH = 7  # no piece and no shard is a whole number of these


def test_records_of_each_epoch_are_counted_over_kills(tmp_path: Path) -> None:
    source = write_images(tmp_path / "d", N_RECORDS, n_classes=N_RECORDS, size=(2, 2))
    config = IngestConfig(source=source, output=tmp_path / "set", test_fraction=0.0, samples_per_shard=300)
    manifest = ingest(config, tmp_path / "work")["train"]
    counts = tuple(shard.n_samples for shard in manifest.shards)
    assert len(counts) > 3
    settings = make_settings(
        tmp_path,
        n_workers=3,
        schedule=Schedule(10**9),
        datasets={"train": DatasetOrder(counts, "shuffled", 5, piece_samples=32)},
    )
    spawn = multiprocessing.get_context("spawn")
    logs = [tmp_path / f"worker_{number}" for number in range(4)]
    begin, death = spawn.Barrier(3), spawn.Event()

    def start(worker: int, log: Path, begin: Barrier | None, **options: object) -> multiprocessing.process.BaseProcess:
        process = spawn.Process(
            target=count,
            args=(running.address, worker, tmp_path / "set/train", log, begin),
            kwargs={"batch": BATCH, "n_epochs": N_EPOCHS, **options},
        )
        process.start()
        return process

    with start_exchange(settings, initial_vector()) as running:
        dying = start(0, logs[0], begin, dies_after=20)
        # The others leave records to the dying worker, however slowly it comes to read them.
        other_processes = [start(worker, logs[worker], begin, pause=(40, death)) for worker in (1, 2)]
        dying.join(120)
        assert dying.exitcode == -signal.SIGKILL
        death.set()
        n_restarts = running.restarts
        os.kill(running.pid, signal.SIGKILL)
        wait_until(lambda: running.restarts > n_restarts, "a new server")
        restarted = start(0, logs[3], None)
        for process in (*other_processes, restarted):
            process.join(120)
            assert process.exitcode == 0
    used: dict[int, Counter[int]] = defaultdict(Counter)
    for log in logs:
        for line in log.read_text().splitlines():
            epoch, *labels = map(int, line.split())
            used[epoch].update(labels)
    assert logs[0].read_text()  # the worker did finish pieces before its death
    for epoch in range(N_EPOCHS):
        assert sum(used[epoch].values()) == N_RECORDS
        assert set(used[epoch].values()) == {1}
    epochs = [event.data for event in read_events(settings.events) if event.kind == "epoch"]
    # The server may have been killed between an epoch's end and its event.
    assert {data["samples"] for data in epochs} == {N_RECORDS}
