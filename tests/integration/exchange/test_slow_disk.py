"""The run's folder is on a disk, NFS mostly, that takes longer for a center than a worker waits for an answer."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.server import launch
from deepspark_ops.exchange.server.launch import start_exchange
from deepspark_ops.exchange.state.grants import Finished, Grant, Schedule, Wait
from deepspark_ops.exchange.state.pending_snapshot import PendingSnapshot
from tests.paths import ROOT
from tests.unit.deepspark_ops.exchange.exchange_run import N_PARAMS, make_settings

pytestmark = pytest.mark.slow

WRITE_S, TIMEOUT_S = 2.0, 1.0
SLOW_SERVER = f"""
import time
from deepspark_ops.exchange.server import process
from deepspark_ops.exchange.state.pending_snapshot import PendingSnapshot

write = PendingSnapshot.write_center

def slowly(*arguments):
    time.sleep({WRITE_S})
    write(*arguments)

PendingSnapshot.write_center = slowly
process.main()
"""


def test_no_worker_waits_for_a_slow_disk_and_snapshots_are_of_their_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow.py").write_text(SLOW_SERVER)
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path / "slow.py"}"\n')
    program.chmod(0o700)
    monkeypatch.setattr(launch.sys, "executable", str(program))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), *sys.path)))
    settings = make_settings(
        tmp_path,
        strategy="downpour",
        options={"push_scale": 1.0},
        transport="socket",
        n_workers=1,
        schedule=Schedule(max_iter=4, snapshot=2),
        exchange_timeout_s=TIMEOUT_S,
    )
    start = np.arange(N_PARAMS, dtype=np.float32)
    with start_exchange(settings, start) as running:
        link = connect(running.address)
        link.join(0)
        local = link.pull()
        while not isinstance(answer := link.request_grant(2), Finished):
            if isinstance(answer, Wait):
                time.sleep(answer.seconds)  # as a worker does
                continue
            assert isinstance(answer, Grant)
            if answer.state_for:
                link.send_state(answer.state_for, {}, {})
            if answer.count:
                local, _ = link.exchange(local + np.float32(answer.stop))
            assert link.acknowledge(answer)
        link.leave()
        link.close()
        assert running.wait(60).snapshots == (2, 4)
    for iteration, moved in ((2, 2), (4, 2 + 4)):
        copied = np.fromfile(PendingSnapshot(settings.work, iteration).center, np.float32)
        np.testing.assert_array_equal(copied, start + np.float32(moved))
