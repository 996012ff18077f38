"""Training speed of this project beside Keras, on the same nets and cores: ``python benchmarks/training.py [--json]``.

Every contender is a process of its own that compiles, warms up and then waits; the rounds take turns, so that a busy
machine slows all of them. Each round is a second or two of training from numpy arrays in memory. Reported are the
medians over the rounds, in images per second of time and of processor time, and the ratios of medians.

  ours        one worker, 2 threads, 10 steps per graph call
  keras       ``fit`` with 2 threads, with jit_compile on or off, whichever was faster in a first round
  ours x2     two processes of one thread, each pinned to a core of its own, without exchange
  keras x2    the same with Keras

The solver is SGD with momentum; ours also applies the weight decay of Caffe's examples, Keras goes without.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
SOLVER = 'type: "SGD" base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: "fixed" max_iter: 100000000'
STEPS_PER_CALL = 10


@dataclass(frozen=True)
class Net:
    """One net to train.

    Attributes:
        prototxt: Its definition for this project.
        image: Caffe shape of a sample.
        batch_size: Images per step.
        steps: Steps per round.
        target: Ratio of ours to Keras that this project promises.
    """

    prototxt: str
    image: tuple[int, ...]
    batch_size: int
    steps: int
    target: float


NETS = {
    "lenet": Net("examples/digits/lenet_train_test.prototxt", (1, 28, 28), 64, 100, 1.1),
    "cifar10_quick": Net("examples/cifar10/cifar10_quick_train_test.prototxt", (3, 32, 32), 100, 20, 1.1),
    "mlp": Net("benchmarks/nets/mlp_train.prototxt", (784,), 100, 300, 1.05),
}

Round = Callable[[], None]


def prepare_ours(net: Net, n_threads: int) -> Round:
    """Compile the prototxt and return one round of training."""
    from caffe_import.files.prototxt import parse_solver, read_net
    from caffe_import.net.initial_vector import initial_vector
    from caffe_import.net.net_spec import build_net_spec
    from caffe_import.solver.solver_spec import solver_spec
    from caffe_import.tf_graph.train_step import compile_training

    spec = build_net_spec(read_net(ROOT / net.prototxt), phase="TRAIN", sample_shapes=lambda layer: (net.image, ()))
    shapes = dict(spec.inputs)
    if shapes["data"] != (net.batch_size, *net.image):
        msg = f"{net.prototxt} has data of shape {shapes['data']}, the benchmark expects {net.batch_size} images"
        raise ValueError(msg)
    function = compile_training(spec, solver_spec(parse_solver(SOLVER)), n_threads=n_threads)
    images, labels = samples(net)
    state = function.initial_state(initial_vector(spec, seed=1))

    def one_round() -> None:
        nonlocal state
        for first in range(0, net.steps, STEPS_PER_CALL):
            rows = slice(first, first + STEPS_PER_CALL)
            feeds = {"data": images[rows], "label": labels[rows]}
            n_steps = len(feeds["label"])
            state, outputs = function.run(
                state, step=state.updates, n_steps=n_steps, rate_scale=1.0, seed=1, worker=0, feeds=feeds
            )
        if not np.isfinite(outputs.losses).all():
            msg = "the loss is not finite"
            raise ValueError(msg)

    return one_round


def prepare_keras(name: str, net: Net, n_threads: int, *, jit: bool) -> Round:
    """Build the same net in Keras and return one round of ``fit``."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(n_threads)
    tf.config.threading.set_inter_op_parallelism_threads(n_threads)
    import keras
    from keras import layers

    stacks: Mapping[str, Sequence[Any]] = {
        "lenet": (
            layers.Conv2D(20, 5), layers.MaxPooling2D(2), layers.Conv2D(50, 5), layers.MaxPooling2D(2),
            layers.Flatten(), layers.Dense(500, activation="relu"), layers.Dense(10),
        ),
        "cifar10_quick": (
            layers.Conv2D(32, 5, padding="same"), layers.MaxPooling2D(3, 2, padding="same"), layers.ReLU(),
            layers.Conv2D(32, 5, padding="same", activation="relu"), layers.AveragePooling2D(3, 2, padding="same"),
            layers.Conv2D(64, 5, padding="same", activation="relu"), layers.AveragePooling2D(3, 2, padding="same"),
            layers.Flatten(), layers.Dense(64), layers.Dense(10),
        ),
        "mlp": (layers.Dense(1000, activation="relu"), layers.Dense(10)),
    }  # fmt: skip
    images, labels = samples(net)
    images = images.reshape(-1, *net.image)
    if len(net.image) == 3:
        images = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
    labels = labels.reshape(-1).astype(np.int32)
    model = keras.Sequential([keras.Input(images.shape[1:]), *stacks[name]])
    model.compile(
        optimizer=keras.optimizers.SGD(0.01, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit,
    )

    def one_round() -> None:
        model.fit(images, labels, batch_size=net.batch_size, epochs=1, shuffle=False, verbose=0)

    return one_round


def samples(net: Net) -> tuple[np.ndarray, np.ndarray]:
    """Return random images (steps, N, ...) and labels (steps, N), float32, the same in every process."""
    rng = np.random.default_rng(0)
    images = rng.random((net.steps, net.batch_size, *net.image), np.float32)
    return images, rng.integers(0, 10, (net.steps, net.batch_size)).astype(np.float32)


def serve(contender: str, name: str, n_threads: int) -> None:
    """Run as a contender's process: a round per input line, its seconds per output line."""
    net = NETS[name]
    if contender == "ours":
        one_round = prepare_ours(net, n_threads)
    else:
        one_round = prepare_keras(name, net, n_threads, jit=contender == "keras-jit")
    one_round()
    print("ready", flush=True)
    for _ in sys.stdin:
        start, cpu_start = time.perf_counter(), time.process_time()
        one_round()
        print(time.perf_counter() - start, time.process_time() - cpu_start, flush=True)


class Rate(NamedTuple):
    """Images per second of time passed, and per second of processor time, which a busy machine disturbs less."""

    per_s: float
    per_cpu_s: float


@dataclass
class Contender:
    """One or two processes that train one net; closes them when the ``with`` block ends."""

    contender: str
    net: str
    n_threads: int
    cores: Sequence[int | None] = (None,)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def __enter__(self) -> Contender:
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": str(self.n_threads)}
        command = [sys.executable, __file__, "--serve", self.contender, self.net, str(self.n_threads)]
        for core in self.cores:
            pinned = command if core is None else ["taskset", "-c", str(core), *command]
            self.processes.append(
                subprocess.Popen(
                    pinned, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                    env=environment,
                )
            )  # fmt: skip
        for process in self.processes:
            self._answer(process)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()

    def rate(self) -> Rate:
        """Train one round in every process at once; return the images of all together by time."""
        net = NETS[self.net]
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        answers = [self._answer(process).split() for process in self.processes]
        n_images = len(answers) * net.steps * net.batch_size
        wall, cpu = ([float(answer[k]) for answer in answers] for k in (0, 1))
        return Rate(n_images / max(wall), n_images / sum(cpu))

    def _answer(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            msg = f"{self.contender} on {self.net} ended with code {process.wait()}"
            raise RuntimeError(msg)
        return line.strip()


def faster_keras(name: str) -> tuple[str, dict[str, float]]:
    """Return which of Keras with and without XLA trains this net faster, and both rates."""
    rates = {}
    for contender in ("keras", "keras-jit"):
        with Contender(contender, name, 2) as process:
            rates[contender] = max(process.rate().per_s for _ in range(2))
    return max(rates, key=lambda contender: rates[contender]), rates


def compare(name: str, n_rounds: int) -> dict[str, Any]:
    """Run all contenders on one net in turns."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    keras, first_rates = faster_keras(name)
    with (
        Contender("ours", name, 2) as ours,
        Contender(keras, name, 2) as theirs,
        Contender("ours", name, 1, cores) as our_pair,
        Contender(keras, name, 1, cores) as their_pair,
    ):
        contenders = {"ours": ours, "keras": theirs, "ours x2": our_pair, "keras x2": their_pair}
        rounds = [{label: contender.rate() for label, contender in contenders.items()} for _ in range(n_rounds)]
    rates = {label: median(each[label].per_s for each in rounds) for label in rounds[0]}
    per_cpu_s = {label: median(each[label].per_cpu_s for each in rounds) for label in rounds[0]}
    return {
        "keras_mode": keras,
        "keras_first_round": first_rates,
        "images_per_s": rates,
        "images_per_cpu_s": per_cpu_s,
        "rounds": [{label: rate.per_s for label, rate in each.items()} for each in rounds],
        "ratio": rates["ours"] / rates["keras"],
        "ratio_x2": rates["ours x2"] / rates["keras x2"],
        "ratio_cpu": per_cpu_s["ours"] / per_cpu_s["keras"],
        "ratio_cpu_x2": per_cpu_s["ours x2"] / per_cpu_s["keras x2"],
        "target": NETS[name].target,
    }


def main() -> int:
    """Compare all nets; 0 if every ratio reaches its target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--nets", nargs="+", choices=sorted(NETS), default=list(NETS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve[0], options.serve[1], int(options.serve[2]))
        return 0
    results = {}
    for name in options.nets:
        results[name] = result = compare(name, options.rounds)
        if not options.json:
            rates = ", ".join(f"{label} {rate:,.0f}" for label, rate in result["images_per_s"].items())
            print(f"{name}: {rates} images/s; ratio {result['ratio']:.2f} (target {result['target']:.2f}, "
                  f"keras mode {result['keras_mode']}), pairs {result['ratio_x2']:.2f}; "
                  f"per processor second {result['ratio_cpu']:.2f}, pairs {result['ratio_cpu_x2']:.2f}")  # fmt: skip
    if options.json:
        print(json.dumps(results, indent=1))
    return 0 if all(result["ratio"] >= result["target"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
