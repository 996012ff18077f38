"""Time recovery from faults: ``python benchmarks/recovery.py [--json] [--rounds 3] [--faults worker,server]``.

Trains LeNet on the handwritten digits of examples/digits with two workers, and kills a process by SIGKILL. The run's
events then show the progress:

  worker    a worker's process; until a loss of the restarted worker
  server    the exchange server; until the first loss of minibatches after the kill
  executor  an executor's JVM with a worker (master local-cluster[2,1,1024]); until a loss of this worker
  jvm       the driver's JVM: the run fails and starts again at once, as Airflow's next try starts after a delay;
            until the new run's clock is beyond the snapshot
  driver    the driver's process, likewise

``others_s`` is the longest time without a loss of the other worker (a loss comes every ten minibatches). Spark or
TensorFlow starts anew after all faults but the server's, so times depend on the machine and its load. Compare with
``start_s``, from the start of the run to the first losses of both workers, and with the load average.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from deepspark_ops.config.ingest import IngestConfig  # noqa: E402
from deepspark_ops.events import Event, read_events  # noqa: E402
from deepspark_ops.run_paths import RunPaths  # noqa: E402
from tests.processes import descendants  # noqa: E402
from tests.reference.ingest_in_process import ingest  # noqa: E402

DIGITS = ROOT / "examples" / "digits"
TIMEOUT_S = 300.0
DISPLAY = 10
EXECUTORS = "local-cluster[2,1,1024]"
"""A worker's number is the number of its task; each worker has an executor."""


class Training:
    """A LeNet run in a process."""

    def __init__(self, folder: Path, dataset: Path, master: str) -> None:
        """Start or continue the run."""
        config = {
            "solver": str(DIGITS / "lenet_solver.prototxt"),
            "overrides": f"max_iter: 1000000 test_interval: 1000000 display: {DISPLAY} snapshot: 100",
            "dataset": str(dataset),
            "run_dir": str(folder / "run"),
            "master": master,
            "n_workers": 2,
        }
        path = folder / "config.json"
        path.write_text(json.dumps(config))
        self.paths = RunPaths(folder / "run")
        self.log = folder / "log"
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "deepspark_ops.train.driver.spark_job", str(path)],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            )  # fmt: skip

    def losses(self, since: float = 0.0) -> list[Event]:
        """Return the losses of all workers after a time."""
        if not self.paths.events.exists():
            return []
        return [event for event in read_events(self.paths.events) if event.kind == "loss" and event.time > since]

    def until(self, read: Callable[[], Any], awaited: str, *, may_end: bool = False) -> Any:
        """Wait for a true value of ``read`` and return the value; ``event`` names the value in the message."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (value := read()):
            ended = self.process.poll() is not None and not may_end
            if ended or time.monotonic() > deadline:
                sys.exit(f"{awaited}: not seen; the end of the log:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.05)
        return value

    def pids(self, *words: str) -> list[int]:
        """Return the ids of processes below the driver whose command line has all of the words."""
        below = descendants(self.process.pid)
        return sorted(pid for pid, command in below.items() if all(word in " ".join(command) for word in words))

    def end(self) -> None:
        """Kill everything."""
        for pid in [*self.pids(), self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


def recovery(fault: str, dataset: Path, folder: Path) -> dict[str, float]:
    """Return the seconds from a fault to progress, and the longest silence of the other workers."""
    master = EXECUTORS if fault == "executor" else "local[2]"
    began = time.time()
    job = Training(folder, dataset, master)
    try:
        job.until(lambda: {event.worker for event in job.losses()} == {0, 1}, "both workers' first losses")
        start_s = max(next(loss.time for loss in job.losses() if loss.worker == worker) for worker in (0, 1)) - began
        job.until(job.paths.snapshot_iterations, "the first snapshot")
        time.sleep(2.0)
        return {"start_s": start_s, **_RECOVERIES[fault](job, dataset, folder)}
    finally:
        job.end()


def _of_part(*words: str, skip: int = 0) -> Callable[[Training, Path, Path], dict[str, float]]:
    def measure(job: Training, dataset: Path, folder: Path) -> dict[str, float]:
        pid = job.pids(*words)[skip]
        began = time.time()
        os.kill(pid, signal.SIGKILL)
        joined = job.until(lambda: _joined(job, began), "worker that joins again")
        first = job.until(
            lambda: [loss for loss in job.losses(joined.time) if loss.worker == joined.worker], "loss of that worker"
        )[0]
        other_times = [
            loss.time for loss in job.losses(began) if loss.worker != joined.worker and loss.time < first.time
        ]
        return {
            "seconds": first.time - began,
            "until_it_joined_s": joined.time - began,
            "others_s": _longest([began, *other_times, first.time]),
        }

    return measure


def _joined(job: Training, since: float) -> Event | None:
    events = read_events(job.paths.events)
    return next((event for event in events if event.kind == "worker_joined" and event.time > since), None)


def _of_server(job: Training, dataset: Path, folder: Path) -> dict[str, float]:
    (pid,) = job.pids("deepspark_ops.exchange.server.process")
    clock = job.losses()[-1].clock
    began = time.time()
    os.kill(pid, signal.SIGKILL)
    # A worker may still compute a grant of the killed server; the worker's next grant comes from the new server.
    job.until(lambda: job.pids("deepspark_ops.exchange.server.process") not in ([], [pid]), "a new server")
    restart_time = time.time()
    first = job.until(
        lambda: [loss for loss in job.losses(restart_time) if loss.clock > clock + 2 * DISPLAY], "a loss"
    )[0]
    return {"seconds": first.time - began, "others_s": first.time - began}


def _of_whole(*words: str) -> Callable[[Training, Path, Path], dict[str, float]]:
    def measure(job: Training, dataset: Path, folder: Path) -> dict[str, float]:
        pid = job.pids(*words)[0] if words else job.process.pid
        began = time.time()
        os.kill(pid, signal.SIGKILL)
        job.process.wait(TIMEOUT_S)
        ended = time.time()
        clock = job.paths.snapshot_iterations()[-1]
        next_run = Training(folder, dataset, "local[2]")
        try:
            first = next_run.until(lambda: [loss for loss in next_run.losses(ended) if loss.clock > clock], "a loss")[0]
        finally:
            next_run.end()
        return {"seconds": first.time - began, "until_it_ended_s": ended - began}

    return measure


def _longest(moments: Sequence[float]) -> float:
    return max(later - earlier for earlier, later in pairwise(moments))


_RECOVERIES: dict[str, Callable[[Training, Path, Path], dict[str, float]]] = {
    "worker": _of_part("pyspark.daemon", skip=1),  # the first is Spark's daemon, whose forks the workers are
    "server": _of_server,
    "executor": _of_part("CoarseGrainedExecutorBackend"),
    "jvm": _of_whole("java", "SparkSubmit"),
    "driver": _of_whole(),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--faults", default=",".join(_RECOVERIES), help=f"separated by commas, of {', '.join(_RECOVERIES)}"
    )
    options = parser.parse_args()
    figures: dict[str, Any] = {"rounds": options.rounds, "load_average": os.getloadavg()[0], "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as scratch:
        dataset = Path(scratch) / "dataset"
        source = DIGITS / "digits8x8-images-idx3-ubyte.gz"
        size = {"resize_height": 28, "resize_width": 28, "max_pixel": 16}
        ingest(IngestConfig(source=source, output=dataset, **size), Path(scratch) / "work")
        for fault in options.faults.split(","):
            rounds = []
            for number in range(options.rounds):
                folder = Path(scratch) / f"{fault}-{number}"
                folder.mkdir()
                rounds.append(recovery(fault, dataset, folder))
            names = rounds[0]
            figures[fault] = {name: round(median(round_figures[name] for round_figures in rounds), 2) for name in names}
            if not options.json:
                sys.stdout.write(f"{fault}: {figures[fault]}\n")
                sys.stdout.flush()
    if options.json:
        sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
