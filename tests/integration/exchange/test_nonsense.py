"""Members of a run that push nonsense: the server refuses and counts the pushes, the center stays, the others go on."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.errors import PushRefused
from deepspark_ops.events import Event, read_events
from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.server.launch import start_exchange
from deepspark_ops.exchange.transport.connection import Transport
from deepspark_ops.param_vector import StatisticBlobs
from tests.processes import wait_until
from tests.unit.deepspark_ops.exchange.exchange_run import CHUNK, initial_vector, make_settings


def notes(path: Path) -> list[Event]:
    return [event for event in read_events(path) if event.kind == "note"]


@pytest.mark.parametrize("transport", ["socket", "shm"])
@pytest.mark.parametrize("strategy", ["easgd", "downpour"])
def test_nonsense_is_refused_and_the_others_go_on(
    tmp_path: Path, transport: Transport, strategy: str, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings(tmp_path, strategy=strategy)
    with start_exchange(settings, initial_vector()) as running:
        address = replace(running.address, transport=transport)
        with closing(connect(address)) as broken, closing(connect(address)) as honest:
            broken.join(1)
            local = broken.pull().copy()
            # In shared memory a sample is looked at: the first chunk, which for worker 1 is the third.
            nonsense = slice(2 * CHUNK, None) if transport == "shm" else slice(CHUNK, 2 * CHUNK)
            begin = nonsense.start
            local[nonsense] = np.nan
            honest.join(0)
            with pytest.raises(
                PushRefused, match=rf"worker 1: push of parameters \[{begin}, {begin + CHUNK}\) refused"
            ):
                broken.exchange(local)
            np.testing.assert_array_equal(running.center.vector, initial_vector())
            honest.exchange(honest.pull() + np.float32(1.0))
            assert np.isfinite(running.center.vector).all()
            status = running.poll()
            assert (status.exchanges, status.refused_pushes) == ((1, 0), (0, 1))
            # A new process takes the worker's place and begins at the center.
            with closing(connect(address)) as restarted:
                restarted.join(1)
                restarted.exchange(restarted.pull())
            assert running.poll().exchanges == (1, 1)
        wait_until(lambda: notes(settings.events), "the event")
        refusals = notes(settings.events)
        wait_until(lambda: "worker 1: a push that is not finite" in capfd.readouterr().err, "a line of the log")
    assert [(event.worker, event.data["refused_pushes"]) for event in refusals] == [(1, 1)]


def test_the_check_can_be_switched_off(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, check_pushes=False)
    with start_exchange(settings, initial_vector()) as running:
        for worker, transport in enumerate(("socket", "shm")):
            with closing(connect(replace(running.address, transport=transport))) as link:
                link.join(worker)
                link.exchange(np.full_like(link.pull(), np.nan))
        assert running.poll().refused_pushes == (0, 0)
        assert not np.isfinite(running.center.vector).any()


@pytest.mark.parametrize("transport", ["socket", "shm"])
def test_statistics_that_are_not_finite_are_refused(tmp_path: Path, transport: Transport) -> None:
    statistics = StatisticBlobs.from_json([[0, 1, 1, 2, 2, 0.5]])
    initial = initial_vector()
    initial[:3] = (4.0, 1.0, 1.0)
    settings = make_settings(tmp_path, statistics=statistics)
    with start_exchange(settings, initial) as running:
        with closing(connect(replace(running.address, transport=transport))) as link:
            link.join(0)
            local = link.pull().copy()
            local[0] = np.nan
            with pytest.raises(PushRefused, match="worker 0: BatchNorm's statistics refused: some are not finite"):
                link.exchange(local)
        assert running.center.vector[:3].tolist() == [4.0, 1.0, 1.0]
        assert running.poll().refused_pushes == (1, 0)
