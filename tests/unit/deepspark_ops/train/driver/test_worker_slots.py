from __future__ import annotations

import pytest

from deepspark_ops.errors import TrainingFailed
from deepspark_ops.train.driver.worker_slots import LOOK_EVERY_S, TELL_S, Slots, SlotWatch


class Run:
    """A run that is looked at every second; ``taken`` is the cluster's supply from a second on."""

    def __init__(self, n_workers: int = 3, min_workers: int = 1, wait_s: float = 100.0, needs: str = "") -> None:
        self.seconds = 0.0
        self.looks = 0
        self.watch = SlotWatch(
            n_workers=n_workers,
            min_workers=min_workers,
            wait_s=wait_s,
            master="spark://a:7077",
            needs=needs,
            now=lambda: self.seconds,
        )

    def go(self, seconds: float, slots: Slots | None) -> list[tuple[float, str]]:
        """Return (second, text) of what was told meanwhile."""
        messages, until = [], self.seconds + seconds
        while self.seconds < until:
            self.seconds += 0.5
            if text := self.watch.look(lambda: self._slots(slots)):
                messages.append((self.seconds, text))
        return messages

    def _slots(self, slots: Slots | None) -> Slots | None:
        self.looks += 1
        return slots


def test_too_few_slots_are_told_once_within_thirty_seconds_and_again_at_the_end() -> None:
    run = Run()
    assert TELL_S < 30.0
    ((second, text),) = run.go(200, Slots(2, 2, 1))
    assert second <= TELL_S + 2 * LOOK_EVERY_S
    assert text == (
        "2 of 3 workers have a slot; the cluster offers 2 slots in 1 executor (master=spark://a:7077); the run goes on"
        " with those, the others join when they get one"
    )
    assert run.watch.at_end() == (
        "at most 2 of 3 workers had a slot at once: master=spark://a:7077 offered 2 slots in 1 executor; give"
        " --n-workers 2, or more cores"
    )
    assert run.looks <= 201, "the cluster is asked once a second"


def test_a_cluster_that_gives_every_worker_its_slot_is_not_talked_of() -> None:
    run = Run()
    assert run.go(TELL_S - 2, Slots(1, 1, 1)) == []
    assert run.go(100, Slots(3, 3, 3)) == []
    # A worker that is started again, or has left at the end, lacks no slot.
    assert run.go(100, Slots(2, 3, 3)) == []
    assert run.watch.at_end() is None


def test_slots_that_come_later_are_told() -> None:
    run = Run(n_workers=2, needs="1 GPU (docs/guides/devices.md)")
    ((_, text),) = run.go(60, Slots(0, 0, 0))
    assert text == (
        "0 of 2 workers have a slot; the cluster offers no executor (master=spark://a:7077, and each needs 1 GPU"
        " (docs/guides/devices.md)); still waiting; with fewer than min_workers=1 it fails after 100 s"
    )
    ((second, text),) = run.go(60, Slots(1, 1, 1))
    assert text.startswith("1 of 2 workers have a slot; the cluster offers 1 slot in 1 executor")
    assert second <= 60 + 2 * LOOK_EVERY_S
    ((_, text),) = run.go(60, Slots(2, 2, 1))
    assert text == "all 2 workers have a slot now"
    assert run.watch.at_end() is None


def test_fewer_than_min_workers_fail_after_the_stated_wait() -> None:
    run = Run(min_workers=3, wait_s=50.0)
    ((_, text),) = run.go(49, Slots(2, 2, 1))
    assert text.endswith("; with fewer than min_workers=3 it fails after 50 s")
    with pytest.raises(
        TrainingFailed, match=r"^2 of 3 workers have a slot; fewer than min_workers=3 had one for min_w"
    ):
        run.go(2, Slots(2, 2, 1))


def test_the_wait_for_min_workers_begins_anew_when_there_were_enough() -> None:
    run = Run(min_workers=2, wait_s=50.0)
    run.go(49, Slots(1, 1, 1))
    run.go(2, Slots(2, 2, 1))
    run.go(49, Slots(1, 1, 1))
    with pytest.raises(TrainingFailed, match="min_workers=2"):
        run.go(3, Slots(1, 1, 1))


def test_a_run_shorter_than_a_look_says_nothing_at_its_end() -> None:
    run = Run(n_workers=2)
    assert run.go(1, Slots(1, 2, 1)) == []
    assert run.watch.at_end() is None
    short = Run(n_workers=2)
    assert short.go(1, Slots(1, 1, 1)) == []
    assert short.watch.at_end() is not None


def test_where_each_worker_has_a_slot_by_itself_nothing_is_watched() -> None:
    run = Run(min_workers=3, wait_s=10.0)
    assert run.go(300, None) == []
    assert run.watch.at_end() is None


def test_a_cluster_that_does_not_count_slots_is_told_by_its_executors() -> None:
    run = Run()
    ((_, text),) = run.go(30, Slots(1, None, 2))
    assert "the cluster offers 2 executors (master" in text
