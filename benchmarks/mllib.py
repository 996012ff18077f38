"""Train a multilayer perceptron beside Spark MLlib on the same data: ``python benchmarks/mllib.py --data table``.

  digits  784 inputs (digits of examples/digits, scaled to 28 x 28), 1,000 sigmoid units, 10 classes
  table   1,000,000 rows of 30 numbers, made here, 100 sigmoid units, 2 classes

MLlib's ``MultilayerPerceptronClassifier`` and this project train the same net. First MLlib fits with its own L-BFGS on
cached data. Then ``sync``, ``local_sgd`` and ``lbfgs`` train with the same number of threads until a test shows MLlib's
final accuracy. ``lbfgs`` has larger minibatches, because its minibatch is only a part of a pass over the training set.

MLlib's time is the time of ``fit`` alone. The time of this project is from the start of the stage's work to the test:
start of workers, TensorFlow and compilation count, and the start of Spark overlaps. A further column has the time of
training alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import numpy.typing as npt

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.events import Event, read_events
from deepspark_ops.processes.spark_submit import run_job
from deepspark_ops.run_paths import DatasetPaths, RunPaths
from deepspark_ops.shards.reader import open_dataset

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits" / "digits8x8-images-idx3-ubyte.gz"
MEAN, SCALE = 77.0, 0.0117
"""Mean and scale of the digits' pixels: pixels get a mean near 0 and a deviation near 1 on both sides."""
ROUNDING = 1e-6
"""Ours count an accuracy in float32."""
PART_ROWS, TRAIN_PARTS, TEST_PARTS, COLUMNS = 50_000, 20, 1, 30

Part = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]
"""Samples (n, inputs) and labels (n,)."""


class Lengths(NamedTuple):
    """Samples of a minibatch, minibatches of a run, and minibatches between two tests."""

    batch: int
    minibatches: int
    test_every: int


@dataclass(frozen=True)
class Task:
    """A learning task and the lengths of runs.

    Attributes:
        layers: Sizes: inputs, hidden units, classes.
        lengths: Lengths of stochastic runs.
        lbfgs_lengths: Lengths of runs of lbfgs, with a test after every pass.
        solver: The solver's fields of updates; lbfgs ignores them.
        data_layer: Prototxt of a data layer without the phase, with %(source)s and %(batch)d.
    """

    layers: tuple[int, int, int]
    lengths: Lengths
    lbfgs_lengths: Lengths
    solver: str
    data_layer: str

    def lengths_for(self, strategy: str) -> Lengths:
        """Return the lengths of a strategy's run."""
        return self.lbfgs_lengths if strategy == "lbfgs" else self.lengths


TASKS = {
    "digits": Task(
        layers=(784, 1_000, 10),
        lengths=Lengths(64, 2_500, 50),
        lbfgs_lengths=Lengths(360, 400, 4),
        solver='type: "Adam" base_lr: 0.003 momentum: 0.9 momentum2: 0.999',
        data_layer=f'type: "Data" transform_param {{ mean_value: {MEAN} scale: {SCALE} }}'
        ' data_param { source: "%(source)s" batch_size: %(batch)d backend: LMDB }',
    ),
    "table": Task(
        layers=(COLUMNS, 100, 2),
        lengths=Lengths(500, 10_000, 250),
        lbfgs_lengths=Lengths(10_000, 10_000, 100),
        solver="base_lr: 0.1 momentum: 0.9",
        data_layer='type: "HDF5Data" hdf5_data_param { source: "%(source)s" batch_size: %(batch)d }',
    ),
}

NET = """
name: "mlp"
layer { name: "data" top: "data" top: "label" include { phase: TRAIN } %(train)s }
layer { name: "data" top: "data" top: "label" include { phase: TEST } %(test)s }
layer { name: "hidden" type: "InnerProduct" bottom: "data" top: "hidden"
  inner_product_param { num_output: %(hidden)d weight_filler { type: "xavier" } } }
layer { name: "sigmoid" type: "Sigmoid" bottom: "hidden" top: "hidden" }
layer { name: "scores" type: "InnerProduct" bottom: "hidden" top: "scores"
  inner_product_param { num_output: %(classes)d weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "scores" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "scores" bottom: "label" top: "loss" }
"""
SOLVER = """
net: "%s" test_iter: 1 %s lr_policy: "fixed" max_iter: %d test_interval: %d display: 100
snapshot_prefix: "mlp" random_seed: 1
"""


@dataclass(frozen=True)
class Row:
    """A trainer's figures.

    Attributes:
        trainer: ``mllib`` or the strategy.
        accuracy: On the test split, at the end of ``seconds``; the best accuracy if the run missed MLlib's.
        seconds: Time to MLlib's accuracy, with start and compilation; None if the run missed this accuracy.
        training_s: Likewise, from the first minibatch.
        minibatches: Clock at MLlib's accuracy; 0 for MLlib.
    """

    trainer: str
    accuracy: float
    seconds: float | None
    training_s: float | None
    minibatches: int


def table_part(index: int) -> Part:
    """Return a part of the table, equal in every call: normal numbers, labelled by a net of 20 hidden units.

    Labels near the boundary are random: no model reaches 1, and a linear boundary reaches 0.90.
    """
    teacher, rng = np.random.default_rng(0), np.random.default_rng((1, index))
    inward, outward = teacher.standard_normal((COLUMNS, 20)), teacher.standard_normal(20)
    rows = rng.standard_normal((PART_ROWS, COLUMNS)).astype(np.float32)
    score = np.tanh(rows @ inward / 3.0) @ outward
    labels = rng.random(PART_ROWS) < 1.0 / (1.0 + np.exp(-4.0 * score))
    return rows, labels.astype(np.int64)


class Digits:
    """The ingested digits; MLlib reads the output of the net's transform."""

    def __init__(self, folder: Path) -> None:
        """Ingest the digits."""
        self.dataset = folder / "digits"
        ingest = IngestConfig(source=DIGITS, output=self.dataset, resize_height=28, resize_width=28, max_pixel=16)
        run_job("deepspark_ops.ingest.spark_job", ingest, on_line=lambda level, text: None)

    def parts(self, split: str) -> list[Part]:
        """Return a split, shard by shard."""
        dataset = open_dataset(DatasetPaths(self.dataset).split(split))
        parts = [dataset.read(index, 0, shard.n_samples) for index, shard in enumerate(dataset.shards)]
        return [
            ((images.reshape(len(images), -1) - np.float32(MEAN)) * np.float32(SCALE), labels.astype(np.int64))
            for images, labels in parts
        ]

    def source(self, split: str) -> str:
        """Return the source of a data layer: empty, because the stage inserts the dataset."""
        return "-"


class Table:
    """The table as HDF5 files, read by the net's own layers."""

    dataset = None

    def __init__(self, folder: Path) -> None:
        """Write the files and the lists of files."""
        self._lists = {"train": folder / "train.txt", "test": folder / "test.txt"}
        for split, listed in self._lists.items():
            names = []
            for number, (rows, labels) in enumerate(self.parts(split)):
                names.append(f"{split}_{number}.h5")
                with h5py.File(folder / names[-1], "w") as file:
                    file["data"], file["label"] = rows, labels.astype(np.float32)
            listed.write_text("".join(f"{folder / name}\n" for name in names), encoding="utf-8")

    def parts(self, split: str) -> Iterator[Part]:
        """Return a split, part by part."""
        first, count = (0, TRAIN_PARTS) if split == "train" else (TRAIN_PARTS, TEST_PARTS)
        return map(table_part, range(first, first + count))

    def source(self, split: str) -> str:
        """Return the source of a data layer."""
        return str(self._lists[split])


Data = Digits | Table


def fit_mllib(task: Task, data: Data, n_threads: int, max_iter: int) -> Row:
    """Fit MLlib's classifier; the data are in memory before the clock starts."""
    from pyspark.ml.classification import MultilayerPerceptronClassifier
    from pyspark.ml.linalg import Vectors
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master(f"local[{n_threads}]").config("spark.ui.enabled", "false")
    spark = session.config("spark.driver.memory", "6g").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        frames = []
        for split in ("train", "test"):
            frame = None
            for rows, labels in data.parts(split):
                plain = zip(rows.astype(float), labels.tolist(), strict=True)
                part = spark.createDataFrame(
                    [(Vectors.dense(row), float(label)) for row, label in plain], ["features", "label"]
                )
                frame = part if frame is None else frame.union(part)
            assert frame is not None
            frame = frame.repartition(n_threads).cache()
            frame.count()
            frames.append(frame)
        classifier = MultilayerPerceptronClassifier(layers=list(task.layers), maxIter=max_iter, seed=1)
        began = time.monotonic()
        model = classifier.fit(frames[0])
        seconds = time.monotonic() - began
        scored = model.transform(frames[1])
        accuracy = scored.where(scored.prediction == scored.label).count() / frames[1].count()
    finally:
        spark.stop()
    return Row("mllib", accuracy, seconds, seconds, 0)


def write_solver(folder: Path, task: Task, data: Data, lengths: Lengths) -> Path:
    """Write net and solver; returns the solver's path."""
    sizes = {"train": lengths.batch, "test": sum(len(labels) for _, labels in data.parts("test"))}
    layers = {split: task.data_layer % {"source": data.source(split), "batch": size} for split, size in sizes.items()}
    net, solver = folder / "net.prototxt", folder / "solver.prototxt"
    net.write_text(NET % (layers | {"hidden": task.layers[1], "classes": task.layers[2]}), encoding="utf-8")
    solver.write_text(SOLVER % (net, task.solver, lengths.minibatches, lengths.test_every), encoding="utf-8")
    return solver


def train_ours(
    task: Task, data: Data, folder: Path, strategy: str, *, n_workers: int, lengths: Lengths, target: float
) -> Row:
    """Train with a strategy; return the row of the first test that shows the target."""
    folder.mkdir(parents=True)
    config = TrainConfig(
        solver=write_solver(folder, task, data, lengths),
        dataset=data.dataset,
        run_dir=folder / "run",
        n_workers=n_workers,
        strategy=strategy,
        comm_period="auto" if strategy == "lbfgs" else 1,
    )
    run_job("deepspark_ops.train.driver.spark_job", config, on_line=lambda level, text: None)
    return row_of(strategy, list(read_events(RunPaths(config.run_dir).events)), target)


def row_of(strategy: str, events: Sequence[Event], target: float) -> Row:
    """Return what a run's events say of the time to ``target``."""
    tests = [event for event in events if event.kind == "evaluation"]
    began, trained = events[0].time, tests[0].time
    for test in tests:
        if test.data["accuracy"] >= target - ROUNDING:
            return Row(strategy, test.data["accuracy"], test.time - began, test.time - trained, test.clock)
    best = max(tests, key=lambda test: float(test.data["accuracy"]))
    return Row(strategy, best.data["accuracy"], None, None, best.clock)


def main() -> int:
    """Train and print a table or JSON. Return 1 if a strategy did not reach MLlib's accuracy in less time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--data", choices=sorted(TASKS), default="digits", help="the task")
    parser.add_argument(
        "--workers", type=int, default=2, help="DeepSpark's workers (a thread each), and MLlib's threads"
    )
    parser.add_argument("--max-iter", type=int, default=100, help="MLlib's iterations")
    parser.add_argument("--strategies", default="sync,local_sgd,lbfgs", help="separated by commas")
    options = parser.parse_args()
    task = TASKS[options.data]
    with tempfile.TemporaryDirectory(prefix="deepspark-mllib-") as scratch:
        folder = Path(scratch)
        data: Data = Digits(folder) if options.data == "digits" else Table(folder)
        rows = [fit_mllib(task, data, options.workers, options.max_iter)]
        for strategy in options.strategies.split(","):
            rows.append(
                train_ours(
                    task,
                    data,
                    folder / strategy,
                    strategy,
                    n_workers=options.workers,
                    lengths=task.lengths_for(strategy),
                    target=rows[0].accuracy,
                )
            )
    if options.json:
        sys.stdout.write(json.dumps({"data": options.data, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    else:
        for row in rows:
            seconds = "not reached" if row.seconds is None else f"{row.seconds:.1f} s, training {row.training_s:.1f} s"
            sys.stdout.write(f"{row.trainer:10} accuracy {row.accuracy:.4f}  {seconds}\n")
    limit = rows[0].seconds or 0.0
    return int(any(row.seconds is None or row.seconds >= limit for row in rows[1:]))


if __name__ == "__main__":
    sys.exit(main())
