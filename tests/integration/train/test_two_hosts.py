"""Two hosts with two workers each, which share nothing but a cable each: a tree of centers.

The hosts are namespaces of this machine, with a network, a shared memory, and empty folders in place of dataset, runs
and copies. Takes minutes, and needs the right to make namespaces (root has the right); `make test-cluster` runs the
file.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

import deepspark_ops as ds
from tests.integration.train.namespaces import HOST, Room, rooms
from tests.integration.train.test_bare_hosts import DIGITS
from tests.integration.train.test_cluster import REGISTERED, spark_class, standalone_master, worker_arguments
from tests.integration.train.test_elastic import has_exchanged, worker_pids
from tests.integration.train.test_spark_job import Job
from tests.processes import descendants, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.tf, pytest.mark.slow, pytest.mark.timeout(1200)]

_LOG = logging.getLogger(__name__)
MAX_ITER = 400
ROOT_PERIOD = 2
"""Two workers a host times this: a host exchanges once for four exchanges of workers."""
LIMIT_S = 500.0


class TwoHosts:
    """A master on this host, and a Spark worker with two cores in each namespace."""

    def __init__(self, folder: Path, hosts: Sequence[Room]) -> None:
        self.hosts = hosts
        self._folder = folder
        self._runs, self._digits, self._copies = (folder / name for name in ("runs", "digits", "copies"))
        for path in (self._runs, self._copies):
            path.mkdir()
        options = {"resize_height": 28, "resize_width": 28, "max_pixel": 16}
        images = DIGITS / "digits8x8-images-idx3-ubyte.gz"
        ds.ingest(images, self._digits, engine="process", progress=False, **options)

    def open(self, stack: ExitStack) -> None:
        """Start Spark's programs until the stack ends."""
        settings = f"spark.authenticate true\nspark.authenticate.secret {secrets.token_hex(32)}\n"
        self._master = stack.enter_context(standalone_master(self._folder, HOST, settings))
        for host in self.hosts:
            start = worker_arguments(self._master, host.address, self._folder / host.address, cores=2)
            program = host.program(self._folder, [self._runs, self._digits, self._copies])
            log, settings_folder = self._folder / f"{host.address}.log", self._folder / "conf"
            stack.enter_context(
                spark_class(*start, log=log, ready=REGISTERED, settings=settings_folder, program=program)
            )

    def train(self, name: str, **options: object) -> Job:
        """Begin a training with four workers, two on each host."""
        folder = self._folder / name
        folder.mkdir()
        fields = {
            "solver": str(DIGITS / "lenet_solver.prototxt"),
            "dataset": str(self._digits),
            "run_dir": str(self._runs / name),
            "staging_folder": str(self._copies),
            "master": self._master,
            "n_workers": 4,
            "strategy": "easgd",
            "comm_period": 1,
            "exchange_timeout_s": 60.0,
            "grant_timeout_s": 300.0,
            "overrides": f"max_iter: {MAX_ITER} test_interval: {MAX_ITER} snapshot: {MAX_ITER}",
        }
        return Job(folder, **{**fields, **options})

    def shared_memory(self, host: Room) -> list[str]:
        """Return the files of centers in a host's shared memory."""
        (daemon,) = [pid for pid, words in descendants(os.getpid()).items() if self._work_of(host) in words]
        return [path.name for path in Path(f"/proc/{daemon}/root/dev/shm").glob("deepspark-*.center")]

    def signal_workers(self, host: Room, number: signal.Signals) -> None:
        """Send a signal to all workers of a host."""
        pids = worker_pids(self._folder, host.address)
        assert len(pids) == 2, pids
        for pid in pids:
            os.kill(pid, number)

    def _work_of(self, host: Room) -> str:
        return str(self._folder / host.address)


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoHosts]:
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        hosts = TwoHosts(folder, stack.enter_context(rooms(2)))
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("SPARK_CONF_DIR", str(folder / "conf"))
        hosts.open(stack)
        yield hosts


def finished(job: Job) -> float:
    """See a run end completely; return the accuracy of the last test."""
    job.process.wait(LIMIT_S)
    assert job.wait() == 0, "\n".join(job.lines)
    end = job.events("stage")[-1]
    assert (end.data["status"], end.clock) == ("finished", MAX_ITER), "\n".join(job.lines)
    test = job.events("evaluation")[-1]
    assert test.clock == MAX_ITER
    return float(test.data["accuracy"])


def transports(job: Job) -> Counter[str]:
    return Counter(event.data["transport"] for event in job.events("worker_joined"))


TREE = {"center": "tree", "root_comm_period": ROOT_PERIOD}


def measured(two_hosts: TwoHosts, center: str, **options: object) -> tuple[float, float]:
    """Train; return the bytes on the cables by minibatch, and the accuracy."""
    old_bytes = [host.moved_bytes() for host in two_hosts.hosts]
    job = two_hosts.train(center, **options)
    accuracy = finished(job)
    moved = [host.moved_bytes() - start for host, start in zip(two_hosts.hosts, old_bytes, strict=True)]
    assert transports(job) == {"socket" if center == "flat" else "tree": 4}
    assert any("by TLS 1.3" in line for line in job.lines)
    assert min(moved) > sum(moved) / 4, "both hosts have two workers"
    _LOG.info("%s: %.0f bytes a minibatch, accuracy %.4f", center, sum(moved) / MAX_ITER, accuracy)
    return sum(moved) / MAX_ITER, accuracy


@pytest.fixture(scope="module")
def flat(two_hosts: TwoHosts) -> tuple[float, float]:
    return measured(two_hosts, "flat")


def test_the_cables_carry_a_quarter_of_the_bytes_and_the_net_is_as_good(
    two_hosts: TwoHosts, flat: tuple[float, float]
) -> None:
    n_bytes, accuracy = measured(two_hosts, "tree", strategy_options=TREE)
    assert flat[0] / n_bytes >= 3.5, (flat, n_bytes)
    assert accuracy >= flat[1] - 0.02, (flat, accuracy)


def test_a_host_whose_center_and_workers_are_killed_begins_anew_at_the_root(two_hosts: TwoHosts) -> None:
    job = two_hosts.train("killed", strategy_options=TREE)
    wait_until(lambda: _goes_on(job) and has_exchanged(job, range(4)), "exchanges of all workers", LIMIT_S)
    other, host = two_hosts.hosts
    two_hosts.signal_workers(other, signal.SIGSTOP)  # otherwise a fast machine is done before the workers are back
    (center,) = two_hosts.shared_memory(host)
    two_hosts.signal_workers(host, signal.SIGKILL)
    wait_until(lambda: _goes_on(job) and len(job.events("worker_joined")) == 6, "the host's new workers", LIMIT_S)
    wait_until(lambda: two_hosts.shared_memory(host) == [center], "a new center of the same name", LIMIT_S)
    two_hosts.signal_workers(other, signal.SIGCONT)
    assert finished(job) > 0.95
    assert transports(job) == {"tree": 6}
    assert len(job.events("worker_lost")) == 2
    assert [two_hosts.shared_memory(host) for host in two_hosts.hosts] == [[], []]


def _goes_on(job: Job) -> bool:
    assert job.process.poll() is None, "\n".join(job.lines)
    return True
