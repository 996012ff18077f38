from __future__ import annotations

import threading

import pytest

from deepspark_ops.train.driver import executor_wait
from deepspark_ops.train.driver.executor_wait import await_executors


class Cluster:
    """Executors that come as time goes on: a second with each look."""

    def __init__(self, *counts: int) -> None:
        self.counts = list(counts)
        self.looks = 0
        self.is_over = threading.Event()

    def n_executors(self) -> int:
        self.looks += 1
        if self.looks == len(self.counts):
            self.is_over.set()
        return self.counts[self.looks - 1]

    def wait(self, monkeypatch: pytest.MonkeyPatch) -> bool:
        monkeypatch.setattr(executor_wait, "POLL_S", 0.0)
        monkeypatch.setattr(executor_wait, "SETTLED_S", 3.0)
        return await_executors(self.n_executors, self.is_over, now=lambda: float(self.looks))


def test_the_last_executor_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(0, 1, 1, 2, 3, 3, 3, 3, 3, 3)
    assert cluster.wait(monkeypatch)
    assert cluster.looks == 8


def test_none_at_all_is_waited_for_until_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(*[0] * 20)
    assert not cluster.wait(monkeypatch)


def test_one_that_comes_late_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(*[0] * 10, *[2] * 10)
    assert cluster.wait(monkeypatch)
