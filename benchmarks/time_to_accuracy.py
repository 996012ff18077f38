"""Measure seconds from the command to a test with an accuracy: ``python benchmarks/time_to_accuracy.py [--json]``.

``deepspark train`` with one and two workers runs beside PyTorch and Keras scripts, written as their users do, on both
cores of the machine. All have the same samples, first weights, solver, rates of every minibatch and test points.
Ingestion runs before; the scripts read the same samples as arrays. A contender ends at the last target, or with the
schedule. The order of the contenders changes from round to round. Figures are medians of the rounds.

  lenet          LeNet on the digits to 97.5 %, a test every 50 minibatches
  cifar10_quick  to 70 % and 73 %, a test every 250 minibatches; needs --cifar10 cifar10_full.tar.gz

Needs the peers' environment: ``make .venv/peers/.installed``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.speed.nets import NETS, write_for_peers  # noqa: E402
from benchmarks.speed.race import turns  # noqa: E402
from caffe_import.files.prototxt import read_net, read_solver  # noqa: E402
from caffe_import.solver.lr_policies import learning_rate  # noqa: E402
from caffe_import.solver.solver_spec import solver_spec  # noqa: E402
from deepspark_ops.events import read_events  # noqa: E402
from deepspark_ops.shards.reader import open_dataset  # noqa: E402

TARGET = 1.5
"""Smallest ratio: seconds of the best peer / seconds of this project."""
LIMIT_S = 3600
DEEPSPARK = str(Path(sys.executable).with_name("deepspark"))
PEERS = {
    "torch": ("torch_accuracy.py", "contiguous"),
    "torch channels_last": ("torch_accuracy.py", "channels_last"),
    "keras tensorflow": ("keras_accuracy.py", "tensorflow"),
    "keras tensorflow_xla": ("keras_accuracy.py", "tensorflow_xla"),
    "keras jax": ("keras_accuracy.py", "jax"),
}


@dataclass(frozen=True)
class Course:
    """A training, and the accuracies to reach.

    Attributes:
        solver: The solver's file.
        targets: Accuracies, ascending.
        test_interval: Minibatches from test to test.
        test_batch_size: Images of a batch of the test.
    """

    solver: str
    targets: tuple[float, ...]
    test_interval: int
    test_batch_size: int


COURSES = {
    "lenet": Course("examples/digits/lenet_solver.prototxt", (0.975,), 50, 60),
    "cifar10_quick": Course("examples/cifar10/solver.prototxt", (0.70, 0.73), 250, 100),
}


def ingest(name: str, cifar10: Path | None, dataset: Path) -> None:
    """Ingest the net's samples by the command."""
    digits = ROOT / "examples" / "digits" / "digits8x8-images-idx3-ubyte.gz"
    source = [str(digits), "--resize-height", "28", "--resize-width", "28", "--max-pixel", "16"]
    if name == "cifar10_quick":
        source = [f"{cifar10}::train.txt", "--test-source", f"{cifar10}::test.txt"]
    command = [DEEPSPARK, "ingest", *source, "--output", str(dataset)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def write_for_scripts(name: str, dataset: Path, folder: Path) -> None:
    """Write samples, net, first weights and plan of the scripts."""
    course, net = COURSES[name], NETS[name]
    write_for_peers(name, folder)
    for split in ("train", "test"):
        with open_dataset(dataset / split) as samples:
            parts = [samples.read(k, 0, shard.n_samples) for k, shard in enumerate(samples.shards)]
        for column, arrays in zip(("data", "label"), zip(*parts, strict=True), strict=True):
            np.save(folder / f"{split}_{column}.npy", np.concatenate(arrays))
    transform = read_net(ROOT / net.definition).layer[0].transform_param
    images = np.load(folder / "train_data.npy")
    has_mean = transform.HasField("mean_file")
    np.save(folder / "mean.npy", images.mean(0, dtype=np.float64).astype(np.float32) if has_mean else np.float32(0))
    solver = solver_spec(read_solver(ROOT / course.solver))
    plan = {
        "rates": [learning_rate(solver, step) for step in range(solver.max_iter)],
        "momentum": solver.momentum,
        "weight_decay": solver.weight_decay,
        "scale": transform.scale,
        "batch_size": net.batch_size,
        "test_batch_size": course.test_batch_size,
        "test_interval": course.test_interval,
    }
    (folder / "plan.json").write_text(json.dumps(plan))


def first_times(tests: Iterator[tuple[float, float]], targets: Sequence[float], started: float) -> list[float | None]:
    """Return the seconds from ``started`` to the first test of each target; stop reading after the last target.

    Args:
        tests: Time and accuracy of each test, as the tests come.
        targets: Accuracies, ascending.
        started: Seconds since the epoch.
    """
    times: list[float | None] = [None] * len(targets)
    for moment, accuracy in tests:
        times = [
            moment - started if seconds is None and accuracy >= target else seconds
            for seconds, target in zip(times, targets, strict=True)
        ]
        if None not in times:
            break
    return times


def script_tests(process: subprocess.Popen[str]) -> Iterator[tuple[float, float]]:
    """Yield the printed tests of a script, at least one."""
    assert process.stdout is not None
    line = None
    for line in process.stdout:
        test = json.loads(line)
        yield test["time"], test["accuracy"]
    if line is None:
        msg = f"{process.args} printed no test"
        raise ChildProcessError(msg)


def run_tests(process: subprocess.Popen[str], events: Path) -> Iterator[tuple[float, float]]:
    """Yield the tests of a run from the run's events."""
    n_read, ends = 0, time.monotonic() + LIMIT_S
    while time.monotonic() < ends:
        has_ended = process.poll() is not None
        tests = [event for event in read_events(events) if event.kind == "evaluation"] if events.exists() else []
        yield from ((event.time, event.data["accuracy"]) for event in tests[n_read:])
        n_read = len(tests)
        if has_ended:
            return
        time.sleep(0.05)
    msg = f"the run of {events.parent} has not ended after {LIMIT_S} s"
    raise TimeoutError(msg)


def seconds_to(name: str, contender: str, dataset: Path, folder: Path) -> list[float | None]:
    """Train once; return the seconds to each target."""
    course, run = COURSES[name], folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    if contender in PEERS:
        script, variant = PEERS[contender]
        python = str(ROOT / ".venv" / "peers" / "bin" / "python")
        n_threads = str(len(os.sched_getaffinity(0)))
        command = [python, str(ROOT / "benchmarks" / "peers" / script), str(folder), variant, n_threads]
    else:
        overrides = f"test_interval: {course.test_interval} test_initialization: false"
        command = [DEEPSPARK, "train", str(ROOT / course.solver)]
        command += ["--dataset", str(dataset), "--run-dir", str(run), "--n-workers", contender.split()[1]]
        command += ["--overrides", overrides]
    with (folder / "log").open("w") as log:
        started = time.time()
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE if contender in PEERS else log, stderr=log, text=True,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}, start_new_session=True, cwd=ROOT,
        )  # fmt: skip
    try:
        tests = script_tests(process) if contender in PEERS else run_tests(process, run / "events.jsonl")
        times = first_times(tests, course.targets, started)
        if None in times:
            subprocess.CompletedProcess(command, process.wait(60)).check_returncode()
    except (ChildProcessError, subprocess.CalledProcessError) as error:
        error.add_note((folder / "log").read_text()[-2000:])
        raise
    finally:
        end(process)
    return times


def end(process: subprocess.Popen[str]) -> None:
    """End a contender and all processes below."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def compare(name: str, n_rounds: int, cifar10: Path | None, contenders: Sequence[str]) -> dict[str, Any]:
    """Let the contenders take turns on a net."""
    course = COURSES[name]
    with tempfile.TemporaryDirectory(prefix="deepspark-accuracy-") as work:
        folder, dataset = Path(work), Path(work) / "dataset"
        ingest(name, cifar10, dataset)
        write_for_scripts(name, dataset, folder)
        rounds: list[dict[str, list[float | None]]] = []
        for order in turns(contenders, n_rounds):
            rounds.append({})
            for contender in order:
                rounds[-1][contender] = seconds_to(name, contender, dataset, folder)
                print(f"{name}: {contender} {rounds[-1][contender]}", file=sys.stderr, flush=True)
    return {
        f"{target:.1%}": {contender: middle([each[contender][k] for each in rounds]) for contender in contenders}
        for k, target in enumerate(course.targets)
    }


def middle(times: Sequence[float | None]) -> float | None:
    """Return the median; None where half of the rounds or more did not reach the target."""
    reached = [seconds if seconds is not None else float("inf") for seconds in times]
    return round(seconds, 1) if (seconds := median(reached)) < float("inf") else None


def best_ratio(times: Mapping[str, float | None]) -> float | None:
    """Return the best peer's seconds / our best seconds; None if a side never reached the target."""
    run_times = [seconds for name, seconds in times.items() if name not in PEERS and seconds is not None]
    peer_times = [seconds for name, seconds in times.items() if name in PEERS and seconds is not None]
    return min(peer_times) / min(run_times) if run_times and peer_times else None


def main() -> int:
    """Compare; 0 if every target was reached as much sooner as promised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--nets", default="lenet", help="separated by commas")
    parser.add_argument("--cifar10", type=Path, help="cifar10_full.tar.gz")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contenders", default=",".join(["ours 1", "ours 2", *PEERS]), help="separated by commas")
    options = parser.parse_args()
    names = options.nets.split(",")
    if "cifar10_quick" in names and options.cifar10 is None:
        parser.error("cifar10_quick needs --cifar10 cifar10_full.tar.gz")
    contenders = options.contenders.split(",")
    results = {name: compare(name, options.rounds, options.cifar10, contenders) for name in names}
    ratios = {(name, at): best_ratio(times) for name, targets in results.items() for at, times in targets.items()}
    if options.json:
        print(json.dumps({"load_average": os.getloadavg()[0], "target": TARGET, "nets": results}, indent=1))
    else:
        for (name, at), ratio in ratios.items():
            shown = ", ".join(f"{contender} {seconds} s" for contender, seconds in results[name][at].items())
            print(f"{name} to {at}: {shown}; best peer / ours {'-' if ratio is None else f'{ratio:.2f}'}")
    return 0 if all(ratio is not None and ratio >= TARGET for ratio in ratios.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
