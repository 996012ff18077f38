"""Each granted step is done once by the clock, however often workers are killed, stand still and come back."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.events import read_events
from deepspark_ops.exchange.server.launch import start_exchange
from deepspark_ops.exchange.state.grants import Schedule
from tests.integration.exchange.step_worker import count_steps
from tests.unit.deepspark_ops.exchange.exchange_run import make_settings

SEED = 20


def trouble(
    folder: Path, *, n_steps: int, n_workers: int, every_s: float, pause_s: float, transport: str
) -> tuple[int, int]:
    """Run ``n_steps``; every ``every_s`` a worker is killed and begun anew at once, or stands still and comes back.

    Checks what was done by the books, and returns the numbers of kills and of standstills.
    """
    settings = make_settings(
        folder,
        n_params=n_steps,
        n_workers=n_workers,
        chunk=n_steps // 3,
        schedule=Schedule(n_steps, snapshot=n_steps // 4),
        strategy="downpour",
        options={"push_scale": 1.0},
        lock="striped",
        transport=transport,
        grant_timeout_s=0.4,
        exchange_timeout_s=20.0,
        datasets={},
    )
    spawn, chosen = multiprocessing.get_context("spawn"), random.Random(SEED)
    kills = stops = 0
    with ExitStack() as stack:
        running = stack.enter_context(start_exchange(settings, np.zeros(n_steps, np.float32)))

        def n_written(worker: int) -> int:
            path = folder / f"steps_{worker}"
            return path.stat().st_size if path.exists() else 0

        def start(worker: int) -> multiprocessing.process.BaseProcess:
            arguments = (running.address, worker, folder / f"steps_{worker}")
            counts[worker] = n_written(worker)
            process = spawn.Process(target=count_steps, args=arguments, kwargs={"want": 4, "pause_s": pause_s})
            process.start()
            stack.callback(process.kill)
            return process

        counts: dict[int, int] = {}
        processes = {worker: start(worker) for worker in range(n_workers)}
        deadline = time.monotonic() + 60 + 10 * n_steps * pause_s
        while not (status := running.poll()).finished:
            assert time.monotonic() < deadline, status
            time.sleep(every_s)
            worker = chosen.randrange(n_workers)
            process = processes[worker]
            # On a busy machine a process takes seconds to its first step: no worker is hit before its first step.
            if not process.is_alive() or process.pid is None or n_written(worker) == counts[worker]:
                continue
            if chosen.random() < 0.3:
                stops += 1
                os.kill(process.pid, signal.SIGSTOP)
                time.sleep(2 * settings.grant_timeout_s)
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGCONT)
            else:
                kills += 1
                process.kill()
                process.join(60)
                processes[worker] = start(worker)
        for process in processes.values():
            process.join(60)
            assert process.exitcode == 0
        status, center = running.poll(), running.center.snapshot()
    assert (status.acknowledged, status.clock) == (n_steps, n_steps)
    assert status.snapshots == tuple(n_steps * quarter // 4 for quarter in range(1, 5))
    acknowledged: Counter[int] = Counter()
    for path in folder.glob("steps_*"):
        for line in path.read_text().splitlines():
            acknowledged.update(range(*map(int, line.split())))
    assert max(acknowledged.values()) == 1, "a step counts once"
    # A worker may be killed between the server's answer and its line.
    assert n_steps - sum(acknowledged.values()) <= 4 * kills
    lost = [event for event in read_events(settings.events) if event.kind == "worker_lost"]
    # On a busy machine a worker is silent for too long by itself, too.
    n_silent = sum(event.data["reason"] == "silent" for event in lost)
    # What a killed or silent worker had pushed without an answer is done again: at most one grant each.
    assert center.min() >= 1, f"steps that are not in the center: {np.flatnonzero(center < 1)}"
    assert center.sum() - n_steps <= 4 * (kills + n_silent)
    assert np.array_equal(center, center.round())
    assert len(lost) >= (kills + stops) // 2, "some were not noticed before they were back"
    assert status.reissued_grants > 0
    return kills, stops


def test_steps_are_counted_over_kills_and_standstills(tmp_path: Path) -> None:
    kills, stops = trouble(tmp_path, n_steps=1_200, n_workers=3, every_s=0.3, pause_s=0.03, transport="socket")
    assert kills + stops >= 3


@pytest.mark.long
@pytest.mark.parametrize("transport", ["socket", "shm"])
def test_ten_thousand_steps_with_a_kill_every_two_seconds(tmp_path: Path, transport: str) -> None:
    kills, stops = trouble(tmp_path, n_steps=10_000, n_workers=4, every_s=2.0, pause_s=0.1, transport=transport)
    assert kills + stops >= 15
