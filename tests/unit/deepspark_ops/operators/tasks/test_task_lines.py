"""Lines, groups and order of a task's log."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from deepspark_ops.operators.tasks.task_lines import Group, TaskLines

INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR
Written = Callable[..., list[str]]


@pytest.fixture
def written(caplog: pytest.LogCaptureFixture) -> Written:
    caplog.set_level(INFO)

    def write(*records: tuple[int, str], first: Group | None = "preflight", message: str = "") -> list[str]:
        lines = TaskLines(logging.getLogger("task"), first=first)
        for level, text in records:
            lines.line(level, text)
        lines.end(message)
        return caplog.messages

    return write


def test_a_training_is_folded_into_four_groups(written: Written) -> None:
    assert written(
        (INFO, "driver stage clock=0 stage=train status=started max_iter=9"),
        (INFO, "driver clock=0: rate_scale 3"),
        (INFO, "worker 0 worker_joined clock=0"),
        (INFO, "worker 0: CPU, 1 thread"),
        (INFO, "driver server clock=3 exchanges/s=7"),
        (INFO, "worker 0 loss clock=4/9 loss=1"),
        (INFO, "driver server clock=6 exchanges/s=8"),
        (INFO, "driver snapshot clock=9 weights=w"),
        (INFO, "driver stage clock=9 stage=train status=finished"),
        (INFO, "finished: clock=9 snapshots=s"),
    ) == [
        "::group::preflight",
        "driver stage clock=0 stage=train status=started max_iter=9",
        "driver clock=0: rate_scale 3",
        "::endgroup::",
        "::group::workers",
        "worker 0 worker_joined clock=0",
        "worker 0: CPU, 1 thread",
        "worker 0 loss clock=4/9 loss=1",
        "driver snapshot clock=9 weights=w",
        "::endgroup::",
        "::group::exchange",
        "driver server clock=3 exchanges/s=7",
        "driver server clock=6 exchanges/s=8",
        "::endgroup::",
        "::group::result",
        "driver stage clock=9 stage=train status=finished",
        "finished: clock=9 snapshots=s",
        "::endgroup::",
    ]


def test_warnings_stand_outside_the_groups(written: Written) -> None:
    assert written((INFO, "worker 0 loss clock=4"), (WARNING, "worker 1 worker_lost"), (INFO, "driver clock=5: t")) == [
        "::group::workers",
        "worker 0 loss clock=4",
        "::endgroup::",
        "worker 1 worker_lost",
        "::group::workers",
        "driver clock=5: t",
        "::endgroup::",
    ]


def test_the_message_of_the_end_is_left_to_whoever_tells_it(written: Written) -> None:
    assert written(
        (INFO, "worker 0 loss clock=4"),
        (INFO, "driver server clock=4"),
        (ERROR, "an earlier one"),
        (ERROR, "the message"),
        (ERROR, "of two lines"),
        message="the message\nof two lines",
    ) == [
        "::group::workers",
        "worker 0 loss clock=4",
        "::endgroup::",
        "an earlier one",
        "::group::exchange",
        "driver server clock=4",
        "::endgroup::",
    ]


def test_an_error_that_is_not_the_end_is_written_in_its_place(written: Written) -> None:
    assert written((ERROR, "worker 1 broke"), (INFO, "it was started again"), first=None) == [
        "worker 1 broke",
        "it was started again",
    ]
    assert "driver server clock=1" in written((INFO, "driver server clock=1"), first=None)
