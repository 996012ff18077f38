"""The server is killed once at every place between begin and end of what it does; see ``failing_server``."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.server import launch
from deepspark_ops.exchange.server.launch import start_exchange
from deepspark_ops.exchange.state.grants import Finished, Grant, Schedule, Wait
from deepspark_ops.exchange.state.leases import Lease
from deepspark_ops.exchange.state.messages import StopEarly
from deepspark_ops.exchange.state.pending_snapshot import PendingSnapshot
from deepspark_ops.exchange.transport.link import WorkerLink
from deepspark_ops.param_vector import Vector
from tests.integration.exchange.failing_server import FAILPOINTS, ROUND_FAILPOINTS, UNCERTAIN_FAILPOINTS
from tests.paths import ROOT
from tests.processes import wait_until
from tests.unit.deepspark_ops.exchange.exchange_run import CHUNK, N_PARAMS, make_settings

pytestmark = pytest.mark.slow

WANT = 4
CYCLES = 12
"""Grants in which a server comes to any place; it is not killed in more than these where it does not."""
EVERY_SECOND = list(FAILPOINTS)[::2]
"""With each kind of message once: before its line is in the journal, or after."""
SPANS = [slice(start, min(start + CHUNK, N_PARAMS)) for start in range(0, N_PARAMS, CHUNK)]


def steps(grant: Grant) -> np.ndarray:
    """Return the sum of a grant's steps: whole numbers, which float32 adds without rounding."""
    drawn = [np.random.default_rng((5, step)).integers(1, 9, N_PARAMS) for step in range(grant.start, grant.stop)]
    return np.sum(drawn, axis=0).astype(np.float32)


def chunks_off(center: Vector, old: Vector, expected: Vector) -> list[int]:
    """Return the chunks that are not as expected; each parameter has been moved once or not at all."""
    assert ((center == old) | (center == expected)).all()
    return [chunk for chunk, span in enumerate(SPANS) if not np.array_equal(center[span], expected[span])]


def acknowledge(link: WorkerLink, grant: Grant, *, by_request: bool) -> list[Grant]:
    """Acknowledge a grant at once, or return the grant for the next request."""
    if by_request:
        return [grant]
    assert link.acknowledge(grant)
    return []


def exact_run(folder: Path, monkeypatch: pytest.MonkeyPatch, names: Iterable[str], **changes: object) -> list[int]:
    """Work as the only one of two workers, and compare the center after every exchange with what was pushed.

    Returns:
        Chunks that were off once, in order: what a killed server was adding. What they became is taken from then on.
    """
    program, remaining = folder / "python", folder / "failpoints.json"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tests.integration.exchange.failing_server\n')
    program.chmod(0o700)
    remaining.write_text(json.dumps(list(names)))
    n_places = len(json.loads(remaining.read_text()))
    monkeypatch.setattr(launch.sys, "executable", str(program))
    monkeypatch.setattr(launch, "MAX_QUICK_DEATHS", 10_000)
    monkeypatch.setenv("FAILPOINTS", str(remaining))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), *sys.path)))
    schedule = Schedule(max_iter=10**6, test_interval=10**7, snapshot=WANT)
    fields = {"strategy": "downpour", "options": {"push_scale": 1.0}, "transport": "socket", **changes}
    settings = make_settings(folder, schedule=schedule, exchange_timeout_s=200.0, grant_timeout_s=200.0, **fields)
    expected = np.arange(N_PARAMS, dtype=np.float32)
    off: list[int] = []
    acknowledged: list[tuple[int, int]] = []
    n_deaths = last_death = 0
    with start_exchange(settings, expected) as running:
        link = connect(running.address, confirms_later=True)
        link.join(0)
        local = link.pull()
        by_request: list[Grant] = []
        read: list[Lease] = []
        n_checked = 0
        while not isinstance(answer := link.request_grant(WANT, done=by_request), Finished):
            by_request = []
            if isinstance(answer, Wait):
                time.sleep(answer.seconds)
                continue
            if len(acknowledged) > n_checked:
                n_checked = len(acknowledged)
                pending = PendingSnapshot(settings.work, acknowledged[-1][1])
                wait_until(pending.server.exists, "the center's copy on the disk")
                np.testing.assert_array_equal(np.fromfile(pending.center, np.float32), expected)
                if running.restarts > n_deaths:
                    n_deaths, last_death = running.restarts, len(acknowledged)
                if len(acknowledged) - last_death > CYCLES or (
                    not json.loads(remaining.read_text()) and n_deaths == n_places
                ):
                    running.control(StopEarly())
            if answer.state_for:
                link.send_state(answer.state_for, {"at": answer.start}, {"history": local[None, :]})
            if answer.count:
                lease = link.lease(read=read)
                assert lease is not None
                assert lease.id == 1 + (read[0].id if read else 0), "a repeated question has the answer of before"
                read = [lease]
                local, _ = link.exchange(local + steps(answer))
                link.heartbeat()  # its answer comes after the answer to the end of the exchange
                acknowledged.append((answer.start, answer.stop))
                old, expected = expected, expected + steps(answer)
                center = running.center.snapshot()
                off += chunks_off(center, old, expected)
                expected = center
            by_request = acknowledge(link, answer, by_request=len(acknowledged) % 2 == 0)
        link.leave()
        link.close()
        status = running.wait(60)
        assert json.loads(remaining.read_text()) == [], "not every place was come to"
        assert running.restarts == n_places
        np.testing.assert_array_equal(running.center.vector, expected)
        for iteration in status.snapshots:
            plain = json.loads(PendingSnapshot(settings.work, iteration).complete.read_text())
            assert (plain["iteration"], sorted(plain["workers"])) in [(iteration, ["0"]), (iteration, [])]
        n_steps = WANT * len(acknowledged)
        assert status.snapshots == tuple(range(WANT, n_steps + 1, WANT))
        assert (status.acknowledged, status.reissued_grants) == (n_steps, 0)
        assert acknowledged == [(start, start + WANT) for start in range(0, n_steps, WANT)]
        assert status.uncertain_chunks >= len(off)
        off.append(status.uncertain_chunks)
    return off


@pytest.mark.parametrize("names", [EVERY_SECOND, pytest.param(list(FAILPOINTS), marks=pytest.mark.long)], ids=len)
def test_what_was_acknowledged_is_in_the_center_once_wherever_the_server_is_killed(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *off, uncertain = exact_run(tmp_path, monkeypatch, names)
    assert (off, uncertain) == ([], 0)


def test_a_chunk_that_a_killed_server_was_adding_is_there_once_at_most_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *off, uncertain = exact_run(tmp_path, monkeypatch, UNCERTAIN_FAILPOINTS)
    assert len(off) == 2  # of the last two, all was added
    assert uncertain == len(UNCERTAIN_FAILPOINTS)


def test_a_round_moves_the_center_once_wherever_the_server_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *off, _ = exact_run(tmp_path, monkeypatch, ROUND_FAILPOINTS, strategy="local_sgd", options={})
    assert off == []
