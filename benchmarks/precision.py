"""Train in float32, bfloat16 and float16: ``python benchmarks/precision.py [--json] [--data cifar10_full.tar.gz]``.

Speed: each precision is a process that compiles, warms up and waits. All processes are pinned to the same cores and
take turns, so other programs slow all precisions alike. A round is some steps on numpy arrays in memory. Figures are
medians of the rounds: images per second, and images per second of processor time. The ratio of a round is the rate
divided by float32's rate in the same round, and the median over the rounds counts.

Accuracy (with --data): cifar10_quick by the example's first solver, with the same batches and seed in each precision.
The figure is the share of the 10,000 test images that the last parameters label rightly, computed in float32. The
archive holds JPEG files, train.txt and test.txt (examples/cifar10/README.md).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
PRECISIONS = ("float32", "bfloat16", "float16")
SOLVER = 'type: "SGD" base_lr: 1e-6 momentum: 0.9 weight_decay: 0.0005 lr_policy: "fixed" max_iter: 100000000'
CIFAR = "examples/cifar10/cifar10_quick"
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Net:
    """A net to train.

    Attributes:
        prototxt: File of the net.
        image: Caffe shape of a sample.
        n_classes: Labels are random from 0 to n_classes - 1.
        batch_size: Images per step, in place of the file's.
        calls: Graph calls per round.
        steps: Steps per graph call.
    """

    prototxt: str
    image: tuple[int, int, int]
    n_classes: int
    batch_size: int
    calls: int
    steps: int


NETS = {
    "cifar10_quick": Net(f"{CIFAR}_train_test.prototxt", (3, 32, 32), 10, 100, 3, 10),
    "caffenet": Net("tests/fixtures/nets/caffenet.prototxt", (3, 227, 227), 1000, 32, 1, 2),
}


def training_of(net: Net, precision: str, n_threads: int, solver: str) -> tuple[Any, Any]:
    """Return the compiled training step and the first state."""
    from caffe_import.devices.compute_plan import ComputePlan
    from caffe_import.files.prototxt import parse_solver, read_net
    from caffe_import.net.initial_vector import initial_vector
    from caffe_import.net.net_spec import build_net_spec
    from caffe_import.solver.solver_spec import solver_spec
    from caffe_import.tf_graph.train_step import compile_training

    message = read_net(ROOT / net.prototxt)
    for layer in message.layer:
        if layer.type == "Data":
            layer.data_param.batch_size = net.batch_size
    spec = build_net_spec(message, phase="TRAIN", sample_shapes=lambda _: (net.image, ()))
    plan = ComputePlan(precision=precision)  # type: ignore[arg-type]
    function = compile_training(spec, solver_spec(parse_solver(solver)), n_threads=n_threads, plan=plan)
    return function, function.initial_state(initial_vector(spec, seed=1))


def serve_speed(name: str, precision: str, n_threads: int) -> None:
    """Run as a contender: a round per input line; each output line has seconds and processor seconds."""
    net = NETS[name]
    function, state = training_of(net, precision, n_threads, SOLVER)
    rng = np.random.default_rng(0)
    shape = (net.steps, net.batch_size)
    feeds = {
        "data": rng.normal(0, 50, (*shape, *net.image)).astype(np.float32),
        "label": rng.integers(0, net.n_classes, shape).astype(np.float32),
    }

    def one_round(state: Any) -> Any:
        for _ in range(net.calls):
            state, outputs = function.run(
                state, step=0, n_steps=net.steps, rate_scale=1.0, seed=1, worker=0, feeds=feeds
            )
        if not np.isfinite(outputs.losses).all():
            msg = "the loss is not finite"
            raise ValueError(msg)
        return state

    state = one_round(state)
    print("ready", flush=True)
    for _ in sys.stdin:
        start, cpu_start = time.perf_counter(), time.process_time()
        state = one_round(state)
        print(time.perf_counter() - start, time.process_time() - cpu_start, flush=True)


def serve_accuracy(data: Path, precision: str, n_threads: int, n_steps: int) -> None:
    """Train cifar10_quick; print accuracy and the mean loss of the last 100 steps."""
    from caffe_import.files.prototxt import read_net
    from caffe_import.net.net_spec import build_net_spec
    from caffe_import.tf_graph.predict import compile_forward

    net = NETS["cifar10_quick"]
    (images, labels), (test_images, test_labels) = (read_split(data, split) for split in ("train", "test"))
    mean = images.mean(axis=0, dtype=np.float64).astype(np.float32)
    solver = (ROOT / f"{CIFAR}_solver.prototxt").read_text(encoding="utf-8")
    function, state = training_of(net, precision, n_threads, solver)
    order = np.random.default_rng(1)
    losses: list[float] = []
    for step in range(0, n_steps, net.steps):
        rows = order.integers(0, len(images), (net.steps, net.batch_size))
        feeds = {"data": images[rows] - mean, "label": labels[rows]}
        state, outputs = function.run(
            state, step=step, n_steps=net.steps, rate_scale=1.0, seed=1, worker=0, feeds=feeds
        )
        losses += outputs.losses.tolist()
    spec = build_net_spec(read_net(ROOT / net.prototxt), phase="TEST", sample_shapes=lambda _: (net.image, ()))
    forward = compile_forward(spec, n_threads=n_threads, outputs=("accuracy",))
    params, batch_accuracies = np.array(state.params_view()), []
    for first in range(0, len(test_images), net.batch_size):
        rows = slice(first, first + net.batch_size)
        feeds = {"data": test_images[rows] - mean, "label": test_labels[rows]}
        batch_accuracies.append(float(forward.run(params, feeds, layer_state={}, seed=0).blobs["accuracy"]))
    print(
        json.dumps({"accuracy": float(np.mean(batch_accuracies)), "last_loss": float(np.mean(losses[-100:]))}),
        flush=True,
    )


def read_split(archive: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return all images (N, 3, 32, 32), uint8 in BGR, and labels (N,), float32."""
    import cv2

    with tarfile.open(archive) as tar:
        members = ((member.name, tar.extractfile(member)) for member in tar)
        files = {name.removeprefix("./"): file.read() for name, file in members if file is not None}
    pairs = [line.rsplit(" ", 1) for line in files[f"{split}.txt"].decode().splitlines()]
    images = np.empty((len(pairs), 3, 32, 32), np.uint8)
    for row, (name, _) in enumerate(pairs):
        decoded = cv2.imdecode(np.frombuffer(files[name], np.uint8), cv2.IMREAD_COLOR)
        images[row] = np.moveaxis(decoded, 2, 0)
    return images, np.array([label for _, label in pairs], np.float32)


class Rate(NamedTuple):
    """Images per second, and images per second of processor time. Other programs disturb processor time less."""

    per_s: float
    per_cpu_s: float


@dataclass
class Contender:
    """A process that trains a net in a precision; the end of the ``with`` block closes the process."""

    net: str
    precision: str
    cores: Sequence[int]
    process: subprocess.Popen[str] = field(init=False)

    def __enter__(self) -> Contender:
        self.process = subprocess.Popen(
            pinned(self.cores, "--serve-speed", self.net, self.precision, str(len(self.cores))),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment(),
        )  # fmt: skip
        self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def rate(self) -> Rate:
        """Train a round and return the rate."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        wall, cpu = map(float, self._answer().split())
        net = NETS[self.net]
        n_images = net.calls * net.steps * net.batch_size
        return Rate(n_images / wall, n_images / cpu)

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            msg = f"{self.net} in {self.precision} ended with code {self.process.wait()}"
            raise RuntimeError(msg)
        return line.strip()


def environment() -> dict[str, str]:
    """Return the environment of every process."""
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}


def pinned(cores: Sequence[int], *arguments: str) -> list[str]:
    """Return the command of this file on some cores."""
    return ["taskset", "-c", ",".join(map(str, cores)), sys.executable, __file__, *arguments]


def compare_speed(name: str, precisions: Sequence[str], cores: Sequence[int], n_rounds: int) -> dict[str, Any]:
    """Run all precisions of a net in turns."""
    with ExitStack() as stack:
        contenders = {p: stack.enter_context(Contender(name, p, cores)) for p in precisions}
        rounds = [{p: contender.rate() for p, contender in contenders.items()} for _ in range(n_rounds)]

    def over_rounds(value: Callable[[Mapping[str, Rate], str], float]) -> dict[str, float]:
        return {p: median(value(each, p) for each in rounds) for p in precisions}

    return {
        "images_per_s": over_rounds(lambda each, p: each[p].per_s),
        "images_per_cpu_s": over_rounds(lambda each, p: each[p].per_cpu_s),
        "ratio": over_rounds(lambda each, p: each[p].per_s / each[precisions[0]].per_s),
        "ratio_cpu": over_rounds(lambda each, p: each[p].per_cpu_s / each[precisions[0]].per_cpu_s),
        "rounds": [{p: rate.per_s for p, rate in each.items()} for each in rounds],
    }


def accuracies(data: Path, precisions: Sequence[str], cores: Sequence[int], n_steps: int) -> dict[str, Any]:
    """Train cifar10_quick in each precision in sequence."""
    figures: dict[str, Any] = {"minibatches": n_steps}
    for precision in precisions:
        command = pinned(cores, "--serve-accuracy", str(data), precision, str(len(cores)), str(n_steps))
        figures[precision] = json.loads(subprocess.check_output(command, env=environment(), stderr=subprocess.DEVNULL))
    return figures


def main() -> int:
    """Compare all precisions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--nets", nargs="*", choices=sorted(NETS), default=list(NETS))
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2, help="threads of each process, pinned to as many cores")
    parser.add_argument("--data", type=Path, help="archive of CIFAR-10 JPEG files, for the accuracies")
    parser.add_argument("--steps", type=int, default=2000, help="minibatches of 100 for the accuracies")
    parser.add_argument("--serve-speed", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--serve-accuracy", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_speed:
        name, precision, n_threads = options.serve_speed
        serve_speed(name, precision, int(n_threads))
        return 0
    if options.serve_accuracy:
        data, precision, *numbers = options.serve_accuracy
        serve_accuracy(Path(data), precision, *map(int, numbers))
        return 0
    cores = sorted(os.sched_getaffinity(0))[: options.threads]
    say: Callable[[str], None] = (lambda _: None) if options.json else partial(print, flush=True)
    results: dict[str, Any] = {"threads": len(cores)}
    for name in options.nets:
        results[name] = figures = compare_speed(name, options.precisions, cores, options.rounds)
        for precision in options.precisions:
            say(
                f"{name} {precision}: {figures['images_per_s'][precision]:,.1f} images/s,"
                f" {figures['ratio'][precision]:.2f} times float32"
                f" ({figures['ratio_cpu'][precision]:.2f} by processor time)"
            )
    if options.data is not None:
        results["accuracy"] = figures = accuracies(options.data, options.precisions, cores, options.steps)
        for precision in options.precisions:
            say(
                f"cifar10_quick {precision}: accuracy {figures[precision]['accuracy']:.4f} after {options.steps}"
                f" minibatches, loss {figures[precision]['last_loss']:.4f}"
            )
    if options.json:
        print(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
