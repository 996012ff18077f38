"""The run's folder is on a disk, NFS mostly, that takes longer for a center than a worker takes for its run."""

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

SLOW_SERVER = """
import sys
import time
from pathlib import Path
from deepspark_ops.exchange.server import process
from deepspark_ops.exchange.state.pending_snapshot import PendingSnapshot

write = PendingSnapshot.write_center

def slowly(*arguments):
    while not Path(sys.argv[1]).exists():
        time.sleep(0.02)
    write(*arguments)

PendingSnapshot.write_center = slowly
process.main()
"""


def test_no_worker_waits_for_a_slow_disk_and_snapshots_are_of_their_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow.py").write_text(SLOW_SERVER)
    program, disk_goes_on = tmp_path / "python", tmp_path / "disk_goes_on"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path / "slow.py"}" "{disk_goes_on}"\n')
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
    )
    start = np.arange(N_PARAMS, dtype=np.float32)
    with start_exchange(settings, start) as running:
        link = connect(running.address)
        link.join(0)
        local = link.pull()
        while not isinstance(answer := link.request_grant(2), Finished):
            if isinstance(answer, Wait):
                if not disk_goes_on.exists():
                    assert running.poll().exchanges == (2,), "both, while the disk writes neither snapshot"
                    assert running.poll().snapshots == ()
                    disk_goes_on.touch()
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
        assert disk_goes_on.exists()
        assert running.wait(60).snapshots == (2, 4)
    for iteration, moved in ((2, 2), (4, 2 + 4)):
        copied = np.fromfile(PendingSnapshot(settings.work, iteration).center, np.float32)
        np.testing.assert_array_equal(copied, start + np.float32(moved))
