"""Workers that come and go with the hosts of a standalone cluster: 1, 4, 2, and each executor replaced."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.integration.train.test_cluster import REGISTERED, spark_class, standalone_master, worker_arguments
from tests.integration.train.test_spark_job import TIMEOUT_S, Job, training
from tests.processes import descendants, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.tf, pytest.mark.slow]

MAX_ITER = 18_000
RUN = f"max_iter: {MAX_ITER} iter_size: 5 snapshot: {MAX_ITER // 2}"
TIMEOUTS = {"grant_timeout_s": 200.0, "exchange_timeout_s": 10.0, "comm_period": 2}


@contextmanager
def host(folder: Path, name: str, master: str, *, cores: int) -> Iterator[None]:
    """Run a host of the cluster until the block ends."""
    start = worker_arguments(master, "127.0.0.1", folder / name, cores=cores)
    with spark_class(*start, log=folder / f"{name}.log", ready=REGISTERED, settings=folder / "conf"):
        yield


def kill_host(folder: Path, name: str) -> None:
    """Kill a host's daemon, executors and workers, as a spot node vanishes."""
    (daemon,) = [pid for pid, command in descendants(os.getpid()).items() if str(folder / name) in command]
    kill(list(descendants(daemon)))


def kill_executor(folder: Path, name: str) -> None:
    """Kill a host's executors and their workers; the host's daemon starts a new executor."""
    (daemon,) = [pid for pid, command in descendants(os.getpid()).items() if str(folder / name) in command]
    kill([pid for pid in descendants(daemon) if pid != daemon])


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def worker_pids(folder: Path, name: str) -> list[int]:
    """Return the Python workers of a host: forks of Spark's daemon."""
    (daemon,) = [pid for pid, command in descendants(os.getpid()).items() if str(folder / name) in command]
    return sorted(pid for pid, command in descendants(daemon).items() if "pyspark.daemon" in command)[1:]


def has_exchanged(job: Job, workers: range) -> bool:
    """Return whether the center has exchanges of all these workers."""
    assert job.process.poll() is None, "\n".join(job.lines)
    counts = job.paths.work / "starts" / "exchanges.json"
    return counts.exists() and all(json.loads(counts.read_text())[worker] for worker in workers)


def n_joined(job: Job) -> int:
    assert job.process.poll() is None, "\n".join(job.lines)
    return len(job.events("worker_joined"))


def assert_whole(job: Job) -> None:
    """Check clock, data and accuracy of a finished run."""
    assert job.wait() == 0, "\n".join(job.lines)
    end = job.events("stage")[-1]
    assert (end.data["status"], end.clock) == ("finished", MAX_ITER)
    assert job.paths.snapshot_iterations() == [MAX_ITER // 2, MAX_ITER]
    assert job.events("evaluation")[-1].data["accuracy"] == 1.0
    epochs = [(event.data["dataset"], event.data["epoch"], event.data["samples"]) for event in job.events("epoch")]
    assert len(epochs) > 3
    assert len({(dataset, epoch) for dataset, epoch, _ in epochs}) == len(epochs), "an epoch ends once"
    assert len({(dataset, samples) for dataset, _, samples in epochs}) == 1, "each record once an epoch"


def test_one_worker_then_four_then_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with standalone_master(tmp_path, "127.0.0.1", "") as master, ExitStack() as hosts:
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
        hosts.enter_context(host(tmp_path, "first", master, cores=1))
        job = training(tmp_path, RUN, n_workers="1..4", master=master, **TIMEOUTS)
        wait_until(lambda: n_joined(job) == 1, "a worker", TIMEOUT_S)
        (first,) = [event.worker for event in job.events("worker_joined")]
        wait_until(lambda: has_exchanged(job, range(first, first + 1)), "its exchange", TIMEOUT_S)
        (first_pid,) = worker_pids(tmp_path, "first")
        os.kill(first_pid, signal.SIGSTOP)  # otherwise a fast machine is done before the others have joined
        hosts.enter_context(host(tmp_path, "second", master, cores=1))
        hosts.enter_context(host(tmp_path, "third", master, cores=2))
        wait_until(lambda: n_joined(job) == 4, "four workers", TIMEOUT_S)
        os.kill(first_pid, signal.SIGCONT)
        wait_until(lambda: has_exchanged(job, range(4)), "exchanges of four workers", TIMEOUT_S)
        kill_host(tmp_path, "third")
        wait_until(lambda: len(job.events("worker_lost")) == 2, "the loss of two workers", TIMEOUT_S)
        assert_whole(job)
    assert Counter(event.worker for event in job.events("worker_joined")) == dict.fromkeys(range(4), 1)
    assert not [line for line in job.lines if line.startswith("WARNING") and "slot" in line], "a range has enough"
    assert job.events("stage")[0].data["fewest_workers"] == 1


def test_every_executor_is_replaced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with standalone_master(tmp_path, "127.0.0.1", "") as master, ExitStack() as hosts:
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
        for name in ("first", "second"):
            hosts.enter_context(host(tmp_path, name, master, cores=1))
        job = training(tmp_path, RUN, n_workers="2..2", master=master, **TIMEOUTS)
        wait_until(lambda: n_joined(job) == 2, "two workers", TIMEOUT_S)
        wait_until(lambda: has_exchanged(job, range(2)), "exchanges of both", TIMEOUT_S)
        for count, name in ((3, "first"), (4, "second")):
            kill_executor(tmp_path, name)
            wait_until(lambda n=count: n_joined(job) == n, "the replaced worker", TIMEOUT_S)
        assert_whole(job)
    assert Counter(event.worker for event in job.events("worker_joined")) == {0: 2, 1: 2}
    assert sorted(event.worker for event in job.events("worker_lost")) == [0, 1]
    assert any("start 2 of this worker" in event.data["text"] for event in job.events("note"))
