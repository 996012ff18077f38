from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from deepspark_ops.train.worker.loop.host_load import REPORT_INTERVAL_S, Counters, HostLoad, rates, read_gpus
from tests.paths import ROOT
from tests.unit.deepspark_ops.train.worker.loop.test_progress import progress_with


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> float:
        return self.seconds

    def pass_interval(self) -> None:
        self.seconds += REPORT_INTERVAL_S


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def loads(tmp_path: Path, clock: Clock) -> Iterator[list[HostLoad]]:
    """Two workers of one run on this host."""
    both = [HostLoad(tmp_path, now=clock.now) for _ in range(2)]
    yield both
    for load in both:
        load.close()


def test_one_worker_of_a_host_reports_once_in_an_interval(loads: list[HostLoad], clock: Clock) -> None:
    assert [load.due_report() for load in loads] == [None, None]
    clock.pass_interval()
    first, second = (load.due_report() for load in loads)
    assert first is not None
    assert second is None
    assert loads[0].due_report() is None
    assert first["host"] == socket.gethostname()
    assert 0.0 <= first["cpu"] <= 1.0
    assert first["memory"] == pytest.approx(psutil.virtual_memory().percent / 100, abs=0.05)
    assert first["network_bytes_per_s"] >= 0.0


def test_the_next_worker_takes_over(loads: list[HostLoad], clock: Clock) -> None:
    loads[0].close()
    clock.pass_interval()
    assert loads[1].due_report() is None  # its interval begins
    clock.pass_interval()
    assert loads[1].due_report() is not None


def test_runs_on_one_host_report_apart(loads: list[HostLoad], clock: Clock, tmp_path: Path) -> None:
    other = HostLoad(tmp_path / "other", now=clock.now)
    clock.pass_interval()
    assert other.due_report() is not None
    other.close()


def test_a_killed_worker_leaves_its_place(tmp_path: Path, clock: Clock) -> None:
    script = (
        "import sys; from pathlib import Path; from deepspark_ops.train.worker.loop.host_load import HostLoad; "
        "load = HostLoad(Path(sys.argv[1])); print(load._reporter is not None, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout.readline() == "True\n"
        load = HostLoad(tmp_path, now=clock.now)
        clock.pass_interval()
        assert load.due_report() is None
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    clock.pass_interval()
    assert load.due_report() is None
    clock.pass_interval()
    assert load.due_report() is not None
    load.close()


def test_rates_are_bytes_by_seconds() -> None:
    old_counters, new_counters = Counters(10.0, 1_000, 500), Counters(14.0, 9_000, 540)
    assert rates(old_counters, new_counters) == {"network_bytes_per_s": 2_000.0, "disk_bytes_per_s": 10.0}
    assert rates(Counters(10.0, 0, None), new_counters) == {"network_bytes_per_s": 2_250.0}


FAKE = """
from types import SimpleNamespace
class NVMLError(Exception): pass
def nvmlInit():
    if {fails}: raise NVMLError("driver not loaded")
def nvmlDeviceGetCount(): return {count}
def nvmlDeviceGetHandleByIndex(number): return number
def nvmlDeviceGetUtilizationRates(gpu): return SimpleNamespace(gpu=(80, 30)[gpu])
def nvmlDeviceGetMemoryInfo(gpu): return SimpleNamespace(used=(3, 1)[gpu], total=4)
"""


@pytest.mark.parametrize(
    ("fails", "count", "expected"),
    [(False, 2, {"gpu": 0.55, "gpu_memory": 0.5}), (False, 0, {}), (True, 2, {})],
)
def test_gpus_by_nvidias_library(
    fails: bool, count: int, expected: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text(FAKE.format(fails=fails, count=count))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    assert read_gpus() == expected
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)


def test_the_loop_sends_a_due_report_with_its_clock(tmp_path: Path, clock: Clock) -> None:
    load = HostLoad(tmp_path, now=clock.now)
    progress, sent = progress_with(display=0, host_load=load)
    progress.step_done(7, 1.0)
    clock.pass_interval()
    progress.step_done(8, 1.0)
    progress.step_done(9, 1.0)
    load.close()
    assert [(event.kind, event.clock, event.data["host"]) for event in sent] == [("host", 8, socket.gethostname())]
