"""A multilayer perceptron beside Spark MLlib's on the same data. ``python benchmarks/mllib.py [--json]``.

784 inputs (digits of examples/digits, scaled to 28 x 28), 1,000 sigmoid units, 10 classes: the net that MLlib's
``MultilayerPerceptronClassifier`` builds. MLlib is fitted first, with its own L-BFGS and its data cached; then
``sync``, ``local_sgd`` and ``lbfgs`` train the same net with the same number of threads, and the time counts until a
test shows the accuracy that MLlib ended with.

MLlib's time is that of ``fit`` alone. Ours is that from the start of the stage's own work (Spark is starting by then)
to the test: start of workers, TensorFlow and compilation are in it; the time of training alone stands beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepspark_ops.config import IngestConfig, TrainConfig
from deepspark_ops.events import Event, read_events
from deepspark_ops.run_paths import DatasetPaths, RunPaths
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.spark_submit import run_job

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits" / "digits8x8-images-idx3-ubyte.gz"
HIDDEN, CLASSES = 1_000, 10
SCALE = 0.00390625
BATCH = 64
TEST_EVERY = 50
"""Minibatches of the clock between our tests; one takes a hundredth of a second."""

NET = """
name: "mlp"
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { scale: %(scale)r } data_param { source: "-" batch_size: %(batch)d backend: LMDB } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { scale: %(scale)r } data_param { source: "-" batch_size: %(test_batch)d backend: LMDB } }
layer { name: "hidden" type: "InnerProduct" bottom: "data" top: "hidden"
  inner_product_param { num_output: %(hidden)d weight_filler { type: "xavier" } } }
layer { name: "sigmoid" type: "Sigmoid" bottom: "hidden" top: "hidden" }
layer { name: "scores" type: "InnerProduct" bottom: "hidden" top: "scores"
  inner_product_param { num_output: %(classes)d weight_filler { type: "xavier" } } }
layer { name: "accuracy" type: "Accuracy" bottom: "scores" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "scores" bottom: "label" top: "loss" }
"""
SOLVER = """
net: "%s" test_iter: 1 base_lr: 0.1 momentum: 0.9 lr_policy: "fixed" max_iter: %d test_interval: %d display: 100
snapshot_prefix: "mlp" random_seed: 1
"""


@dataclass(frozen=True)
class Row:
    """One trainer.

    Attributes:
        trainer: ``mllib`` or the strategy.
        accuracy: On the test split; of ours, where the time was taken, or the best if it was not reached.
        seconds: Until then, with start and compilation; None if it was not reached.
        training_s: From the first minibatch to then.
        minibatches: Of the clock, until then; of MLlib 0.
    """

    trainer: str
    accuracy: float
    seconds: float | None
    training_s: float | None
    minibatches: int


def samples_of(dataset: Path, split: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return (images (n, 784) scaled, labels (n,)) of one split."""
    found = open_dataset(DatasetPaths(dataset).split(split))
    parts = [found.read(index, 0, shard.n_samples) for index, shard in enumerate(found.shards)]
    images = np.concatenate([part[0] for part in parts]).reshape(found.n_samples, -1)
    return images.astype(np.float64) * SCALE, np.concatenate([part[1] for part in parts]).astype(np.int64)


def fit_mllib(dataset: Path, n_threads: int, max_iter: int) -> Row:
    """Fit MLlib's classifier; its data are in memory before the clock starts."""
    from pyspark.ml.classification import MultilayerPerceptronClassifier
    from pyspark.ml.linalg import Vectors
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master(f"local[{n_threads}]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        frames = []
        for split in ("train", "test"):
            images, labels = samples_of(dataset, split)
            rows = [(Vectors.dense(image), float(label)) for image, label in zip(images, labels, strict=True)]
            frame = spark.createDataFrame(rows, ["features", "label"]).repartition(n_threads).cache()
            frame.count()
            frames.append(frame)
        layers = [len(images[0]), HIDDEN, CLASSES]
        classifier = MultilayerPerceptronClassifier(layers=layers, maxIter=max_iter, seed=1)
        began = time.monotonic()
        model = classifier.fit(frames[0])
        seconds = time.monotonic() - began
        scored = model.transform(frames[1])
        accuracy = scored.where(scored.prediction == scored.label).count() / frames[1].count()
    finally:
        spark.stop()
    return Row("mllib", accuracy, seconds, seconds, 0)


def train_ours(dataset: Path, folder: Path, strategy: str, *, n_workers: int, n_minibatches: int, target: float) -> Row:
    """Train with one strategy; see when a test first shows the target."""
    folder.mkdir(parents=True)
    n_test = open_dataset(DatasetPaths(dataset).split("test")).n_samples
    sizes = {"scale": SCALE, "batch": BATCH, "test_batch": n_test, "hidden": HIDDEN, "classes": CLASSES}
    (folder / "net.prototxt").write_text(NET % sizes, encoding="utf-8")
    solver = SOLVER % (folder / "net.prototxt", n_minibatches, TEST_EVERY)
    (folder / "solver.prototxt").write_text(solver, encoding="utf-8")
    config = TrainConfig(
        solver=folder / "solver.prototxt",
        dataset=dataset,
        run_dir=folder / "run",
        n_workers=n_workers,
        strategy=strategy,
        comm_period="auto" if strategy == "lbfgs" else 1,
    )
    run_job("deepspark_ops.train.spark_job", config, on_line=lambda level, text: None)
    return row_of(strategy, list(read_events(RunPaths(config.run_dir).events)), target)


def row_of(strategy: str, events: Sequence[Event], target: float) -> Row:
    """Return what a run's events say of the time to ``target``."""
    tests = [event for event in events if event.kind == "evaluation"]
    began, trained = events[0].time, tests[0].time
    for test in tests:
        if test.data["accuracy"] >= target:
            return Row(strategy, test.data["accuracy"], test.time - began, test.time - trained, test.clock)
    best = max(tests, key=lambda test: float(test.data["accuracy"]))
    return Row(strategy, best.data["accuracy"], None, None, best.clock)


def main() -> int:
    """Run it; prints a table or JSON. Returns 1 if a strategy did not reach MLlib's accuracy in less time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--workers", type=int, default=2, help="our workers, of one thread each, and MLlib's threads")
    parser.add_argument("--max-iter", type=int, default=100, help="MLlib's iterations")
    parser.add_argument(
        "--minibatches", type=int, default=2_500, help="length of our runs, of which the time is a part"
    )
    parser.add_argument("--strategies", default="sync,local_sgd,lbfgs", help="with commas")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deepspark-mllib-") as scratch:
        folder = Path(scratch)
        dataset = folder / "digits"
        ingest = IngestConfig(source=DIGITS, output=dataset, resize_height=28, resize_width=28, max_pixel=16)
        run_job("deepspark_ops.ingest.spark_job", ingest, on_line=lambda level, text: None)
        rows = [fit_mllib(dataset, given.workers, given.max_iter)]
        for strategy in given.strategies.split(","):
            rows.append(
                train_ours(
                    dataset,
                    folder / strategy,
                    strategy,
                    n_workers=given.workers,
                    n_minibatches=given.minibatches,
                    target=rows[0].accuracy,
                )
            )
    if given.json:
        sys.stdout.write(json.dumps({"rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    else:
        for row in rows:
            seconds = "not reached" if row.seconds is None else f"{row.seconds:.1f} s, training {row.training_s:.1f} s"
            sys.stdout.write(f"{row.trainer:10} accuracy {row.accuracy:.4f}  {seconds}\n")
    limit = rows[0].seconds or 0.0
    return int(any(row.seconds is None or row.seconds >= limit for row in rows[1:]))


if __name__ == "__main__":
    sys.exit(main())
