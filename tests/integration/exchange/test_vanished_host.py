"""A worker's host that is gone from the network, between frames: both kernels notice, without a word from anybody.

A proxy cannot be in between, since its host would answer: the worker is in a network namespace, whose cable is cut.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deepspark_ops.events import read_events
from deepspark_ops.exchange.server.launch import start_exchange
from tests.integration.train.namespaces import HOST, rooms
from tests.processes import wait_until
from tests.unit.deepspark_ops.exchange.exchange_run import initial_vector, make_settings

pytestmark = pytest.mark.cluster

TIMEOUT_S = 6.0
LIMIT_S = 60.0
"""A tenth of what a worker that computes may be silent."""


def test_a_host_that_vanished_is_noticed_between_frames(tmp_path: Path) -> None:
    settings = make_settings(
        tmp_path, transport="socket", exchange_timeout_s=TIMEOUT_S, grant_timeout_s=10 * LIMIT_S, n_workers=1
    )
    with rooms(1) as (room,), start_exchange(settings, initial_vector(), listen_address=HOST) as running:
        address_fields = {
            name: getattr(running.address, name)
            for name in ("host", "port", "run_id", "transport", "exchange_timeout_s")
        }
        command = room.command(sys.executable, "-m", "tests.integration.exchange.waiting_worker")
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            try:
                worker.stdin.write(json.dumps({**address_fields, "secret": running.address.secret.hex()}) + "\n")
                worker.stdin.flush()
                assert worker.stdout.readline() == "working\n"
                time.sleep(2 * TIMEOUT_S)  # it computes: nothing is said, and nothing breaks
                assert worker.poll() is None
                assert running.poll().live_workers == (0,)
                room.cut()
                begun = time.monotonic()
                wait_until(lambda: worker.poll() is not None, "the worker's connection to break", LIMIT_S)
                assert time.monotonic() - begun > TIMEOUT_S / 3  # shorter silence is borne
                assert worker.stdout.read() in {"Connection timed out\n", "No route to host\n"}
                wait_until(lambda: _lost(settings.events), "the server to give the worker up", LIMIT_S)
            finally:
                worker.kill()
        assert _lost(settings.events) == [(0, "its connection ended")]


def _lost(events: Path) -> list[tuple[int, str]]:
    return [(event.worker, event.data["reason"]) for event in read_events(events) if event.kind == "worker_lost"]
