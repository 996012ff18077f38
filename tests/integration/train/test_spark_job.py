"""Training as real Spark applications, and by processes: what a user sees, what survives, what is refused."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.events import Event, read_events
from deepspark_ops.processes.spark_failure import JVM_ENDED
from deepspark_ops.run_paths import RunPaths
from tests.fake_smi import smi_folder
from tests.integration.train.in_process import CAFFE
from tests.processes import descendants, is_alive, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.tf, pytest.mark.slow]

TIMEOUT_S = 240.0
_JOBS: list[Job] = []


@pytest.fixture(autouse=True)
def _no_job_outlives_its_test() -> Iterator[None]:
    yield
    while _JOBS:
        _JOBS.pop().end()


class Job:
    """A training job as a process; reads the output line by line."""

    def __init__(self, folder: Path, *, engine: str = "spark", **config: object) -> None:
        values = {
            "solver": str(CAFFE / "solvers" / "sgd_testnet" / "solver.prototxt"),
            "run_dir": str(folder / "run"),
            "grant_timeout_s": 20.0,
            **config,
        }
        path = folder / "config.json"
        path.write_text(json.dumps(values))
        self.paths = RunPaths(Path(str(values["run_dir"])))
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"deepspark_ops.train.driver.{engine}_job", str(path)],
            cwd=CAFFE,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        _JOBS.append(self)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip("\n") for line in self.process.stdout)
        self.process.stdout.close()

    def wait(self) -> int:
        code = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        return code

    def end(self) -> None:
        """Leave nothing of a job whose test has failed."""
        if self.process.poll() is None:
            for pid in self.descendants():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.wait()

    def wait_for(self, pattern: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not any(re.search(pattern, line) for line in list(self.lines)):
            assert self.process.poll() is None, "\n".join(self.lines)
            assert time.monotonic() < deadline, "\n".join(self.lines)
            time.sleep(0.05)

    def events(self, kind: str) -> list[Event]:
        return [event for event in read_events(self.paths.events) if event.kind == kind]

    @property
    def error_lines(self) -> list[str]:
        return [line.split(" ", 1)[1] for line in self.lines if line.startswith(("ERROR:", "ERROR|"))]

    def descendants(self) -> dict[int, list[str]]:
        """Return pid -> command line of every process below the job's."""
        return descendants(self.process.pid)

    def worker_pids(self) -> list[int]:
        """Return the workers' processes: children of the driver, or forks of Spark's first daemon."""
        commands = self.descendants().items()
        if children := [pid for pid, command in commands if "deepspark_ops.train.worker" in command]:
            return sorted(children)
        daemons = [pid for pid, command in commands if "pyspark.daemon" in command]
        return sorted(daemons)[1:]


def training(folder: Path, overrides: str, *, engine: str = "spark", **config: object) -> Job:
    return Job(
        folder,
        engine=engine,
        overrides=f"test_interval: 1000 test_initialization: true display: 500 {overrides}",
        **config,
    )


# That a worker process is started again is also in test_exactness.py, bit for bit.
@pytest.mark.parametrize("engine", ["spark", pytest.param("process", marks=pytest.mark.long)])
def test_two_workers_leave_a_whole_run_though_one_is_killed_and_started_again(engine: str, tmp_path: Path) -> None:
    config: dict[str, Any] = {"n_workers": 2, "comm_period": 2, "grant_timeout_s": 200.0, "exchange_timeout_s": 200.0}
    job = training(tmp_path, "max_iter: 3000 snapshot: 1000", engine=engine, **config)
    job.wait_for(r"worker 0 loss clock=[1-9]")
    job.wait_for(r"worker 1 loss clock=[1-9]")
    killed, waiting = job.worker_pids()
    os.kill(waiting, signal.SIGSTOP)  # otherwise the other worker is done before the killed worker has started again
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: len(job.events("worker_joined")) == 3, "the killed worker's second start", TIMEOUT_S)
    os.kill(waiting, signal.SIGCONT)
    assert job.wait() == 0, "\n".join(job.lines)
    joined = [event.worker for event in job.events("worker_joined")]
    assert len(joined) == 3
    twice = max(set(joined), key=joined.count)
    assert [event.worker for event in job.events("worker_lost")] == [twice]
    assert any("start 2 of this worker" in event.data["text"] for event in job.events("note"))
    assert job.events("stage")[-1].data["status"] == "finished"
    for worker in (0, 1):
        pattern = rf"^INFO: worker {worker} loss clock=\d+/3000 loss=\S+ lr=\S+ images/s=\S+ comp="
        assert any(re.match(pattern, line) for line in job.lines), "\n".join(job.lines)
    assert re.match(r"INFO: finished: clock=3000 .*snapshots=\S+snap_iter_3000\.\*$", job.lines[-1])
    assert job.paths.snapshot_iterations() == [1000, 2000, 3000]
    assert {event.clock for event in job.events("evaluation")} == set(range(0, 3001, 1000))
    assert job.events("evaluation")[-1].data["accuracy"] == 1.0
    assert not job.paths.work.exists()
    assert len(list(job.paths.tensorboard.iterdir())) == 1
    assert not [path for path in Path("/dev/shm").glob("deepspark-*") if f"-{job.process.pid}-" in path.name]

    # The same config again: finished, at once and without Spark.
    second_job = training(tmp_path, "max_iter: 3000 snapshot: 1000", engine=engine, **config)
    assert second_job.wait() == 0
    assert [line for line in second_job.lines if not line.startswith("INFO: finished already: clock=3000")] == []


def assert_sparks_pages_are_for_this_host_alone(job: Job) -> None:
    (address,) = [event.data["spark_ui"] for event in job.events("note") if "spark_ui" in event.data]
    assert any(line.endswith(f"Spark UI: {address}") for line in job.lines)
    with urllib.request.urlopen(f"{address}/environment/", timeout=TIMEOUT_S) as page:
        assert b"deepspark train run" in page.read()
    port = urllib.parse.urlsplit(address).port
    assert port is not None
    with socket.socket() as other, pytest.raises(ConnectionRefusedError):
        other.connect(("127.0.0.2", port))  # as any address of the host except the bound address


# Both engines count the starts by the same code; that Spark starts workers again is in the test above.
@pytest.mark.parametrize("engine", [pytest.param("spark", marks=pytest.mark.long), "process"])
def test_a_run_fails_after_a_worker_was_killed_in_every_try(engine: str, tmp_path: Path) -> None:
    job = training(
        tmp_path, "max_iter: 1000000", engine=engine, n_workers=2, worker_tries=1, spark_ui=engine == "spark"
    )
    job.wait_for(r"worker 0 loss clock=[1-9]")
    job.wait_for(r"worker 1 loss clock=[1-9]")
    if engine == "spark":
        assert_sparks_pages_are_for_this_host_alone(job)
    os.kill(job.worker_pids()[0], signal.SIGKILL)
    job.wait_for(r"worker [01] worker_lost clock=\d+ reason=its process was killed 1 times.* ending=given_up")
    (given_up,) = [event for event in job.events("worker_lost") if event.data.get("ending") == "given_up"]
    job.wait_for(rf"worker {1 - given_up.worker} loss clock=")
    assert job.process.poll() is None, "the other worker goes on"
    os.kill(job.worker_pids()[0], signal.SIGKILL)
    assert job.wait() == 1, "\n".join(job.lines)
    assert re.match(
        r"2 of 2 workers given up after 1 starts each without an exchange in between;"
        r" \d+ of 1000000 minibatches are done, a retry goes on from the"
        r" last snapshot: worker [01]: its process was killed 1 times",
        job.error_lines[-1],
    )


@pytest.mark.long
def test_a_host_without_the_python_is_one_message_and_not_a_start_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    job = training(tmp_path, "max_iter: 10", n_workers=2, worker_tries=2)
    assert job.wait() == 1, "\n".join(job.lines)
    assert re.match(
        r"Spark started workers' tasks \d+ times, and none came as far as the worker's code: .*/nowhere/python",
        job.error_lines[-1],
    )


@pytest.mark.parametrize("engine", [pytest.param("spark", marks=pytest.mark.long), "process"])
def test_killed_driver_goes_on_from_the_last_snapshot_and_leaves_nothing_behind(engine: str, tmp_path: Path) -> None:
    job = training(tmp_path, "max_iter: 60000 snapshot: 500", engine=engine, n_workers=1)
    job.wait_for(r"driver snapshot clock=500 ")
    below = job.descendants()
    (server,) = [pid for pid, command in below.items() if "deepspark_ops.exchange.server.process" in command]
    os.kill(server, signal.SIGSTOP)  # a stopped process handles no signal but SIGKILL
    job.process.kill()
    job.wait()
    deadline = time.monotonic() + 60
    while alive := [pid for pid in below if is_alive(pid)]:
        assert time.monotonic() < deadline, [below[pid] for pid in alive]
        time.sleep(0.1)

    last = job.paths.snapshot_iterations()[-1]
    unfinished = job.paths.snapshots / f".snap_iter_{last + 500}.state.h5.abcdefgh.tmp"
    unfinished.touch()
    second_job = training(tmp_path, f"max_iter: {last + 250} snapshot: 500", engine=engine, n_workers=1)
    assert second_job.wait() == 0, "\n".join(second_job.lines)
    assert any(f"going on from snap_iter_{last}.state.h5: clock {last}" in line for line in second_job.lines)
    assert second_job.paths.snapshot_iterations()[-1] == last + 250
    assert not unfinished.exists()


@pytest.mark.long
def test_a_killed_jvm_is_one_message_with_the_clock_that_was_reached(tmp_path: Path) -> None:
    job = training(tmp_path, "max_iter: 10000000 snapshot: 500", n_workers=1)
    job.wait_for(r"driver snapshot clock=500 ")
    (jvm,) = [pid for pid, command in job.descendants().items() if Path(command[0]).name == "java"]
    os.kill(jvm, signal.SIGKILL)
    assert job.wait() == 1
    assert job.error_lines == [f"{JVM_ENDED}: the same command goes on from the last snapshot"]
    assert not any("Traceback" in line or "py4j" in line for line in job.lines), "\n".join(job.lines)
    failed = job.events("stage")[-1]
    assert (failed.data["status"], failed.data["reason"]) == ("failed", job.error_lines[0])
    assert failed.clock >= 500, "the minibatches that were done, and not those of the start"


@pytest.mark.parametrize("engine", [pytest.param("spark", marks=pytest.mark.long), "process"])
def test_mistake_found_by_a_worker_ends_the_run_with_its_message(engine: str, tmp_path: Path) -> None:
    # Readable for the driver, gone when the workers open it.
    job = training(tmp_path, "max_iter: 3000", engine=engine, n_workers=1)
    job.wait_for("driver stage clock=0")
    (job.paths.root / "net.prototxt").write_text('layer { name: "x" tipe: "Data" }')
    assert job.wait() == 2, "\n".join(job.lines)
    assert 'unknown field "tipe"' in "\n".join(job.error_lines)


@pytest.fixture(scope="module")
def shared_gpu_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Return the run of two workers that share a GPU unseen by TensorFlow, with another deepspark."""
    folder = tmp_path_factory.mktemp("shared_gpu")
    metadata = folder / "path" / "deepspark-0.0.7.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: deepspark\nVersion: 0.0.7\n")
    (folder / "spark-defaults.conf").write_text(f"spark.executorEnv.PYTHONPATH {folder / 'path'}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(folder))
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        patch.setenv("PATH", f"{smi_folder(folder / 'bin', '0')}:{os.environ['PATH']}")
        job = training(folder, "max_iter: 300", n_workers=2, share_gpus=True, threads_per_worker=1)
    try:
        job.wait()
        yield job
    finally:
        job.end()


def test_two_workers_without_a_gpu_each_are_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", f"{smi_folder(tmp_path / 'bin', '0')}:{os.environ['PATH']}")
    refused = training(tmp_path, "max_iter: 10", n_workers=2)
    assert refused.wait() == 2
    (message,) = refused.error_lines
    assert message.startswith("n_workers=2, gpus_per_worker=1: they need 2 GPUs, and this host has 1 (GPU 0); use at")
    assert not any("Spark" in line for line in refused.lines), "the JVM says which log profile it uses"
    assert not refused.paths.root.exists()


@pytest.mark.long
def test_gpus_of_the_host_are_dealt_out_and_workers_that_may_do_without_go_on_on_the_cpu(shared_gpu_job: Job) -> None:
    job = shared_gpu_job
    assert job.process.returncode == 0, "\n".join(job.lines)
    assert job.events("stage")[0].data["devices"] == ["GPU 0, 1 thread"] * 2
    devices = job.events("worker_devices")
    assert {event.worker for event in devices} == {0, 1}
    for event in devices:
        assert f"INFO: worker {event.worker}: CPU, 1 thread" in job.lines
        assert (event.data["device"], event.data["gpus"], event.data["n_threads"]) == ("cpu", [], 1)
        assert "CUDA_VISIBLE_DEVICES='0'" in event.data["note"], "what the driver dealt is what TensorFlow looked at"
    notes = [event for event in job.events("note") if "TensorFlow sees too few GPUs" in event.data["text"]]
    assert len(notes) == 1


@pytest.mark.long
def test_executors_with_another_version_train_and_the_log_names_the_difference(shared_gpu_job: Job) -> None:
    job = shared_gpu_job
    assert job.process.returncode == 0, "\n".join(job.lines)
    difference = f"deepspark 0.0.7 (driver: {version('deepspark')})"
    text = f"other versions on {socket.gethostname()}: {difference}; "
    warnings = [event for event in job.events("note") if event.data["text"].startswith(text)]
    assert {(event.worker, event.data.get("warning")) for event in warnings} == {(0, True), (1, True)}
    assert any(difference in line for line in job.lines)


def test_port_taken_is_one_message(tmp_path: Path) -> None:
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        port = occupied.getsockname()[1]
        job = training(tmp_path, "max_iter: 10", engine="process", listen_port=port)
        assert job.wait() == 2
    (message,) = job.error_lines
    assert f"listen_port={port}" in message
    assert not job.paths.root.exists()


def test_a_setting_that_spark_refuses_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "conf"
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text("spark.executor.memory 10m\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(settings))
    job = training(tmp_path, "max_iter: 10", n_workers=1)
    assert job.wait() == 2, "\n".join(job.lines)
    assert len(job.error_lines) == 1
    message = (
        r"^Spark refuses spark\.executor\.memory=10m: Executor memory 10485760 must be at least \d+\..*; put it right"
    )
    assert re.match(message, job.error_lines[0])
    assert not job.paths.events.exists()


def test_loopback_with_a_remote_master_is_one_message_before_spark_starts(tmp_path: Path) -> None:
    job = training(tmp_path, "max_iter: 10", master="spark://192.0.2.9:7077", listen_address="127.0.0.1")
    assert job.wait() == 2
    (message,) = job.error_lines
    assert message.startswith("listen_address=127.0.0.1: a loopback address, which workers of master=spark://192.0.2.9")
    assert not any("Spark" in line for line in job.lines), "the JVM says which log profile it uses"
    assert not job.paths.root.exists()
