"""Compare ``evaluate`` and ``predict`` with the bare graph: ``python benchmarks/predict.py [--json]``.

  forward   the compiled net on a batch in memory, again and again; scores come back as numpy
  evaluate  every sample of an ingested dataset, as in the stage evaluate: read, transform, hash, score, sum, and write
            samples.parquet
  predict   every sample of the dataset through the exported SavedModel into a Parquet file, as ``deepspark predict``

Nets: cifar10_quick on raw 32x32 images in LMDB, and CaffeNet on 256x256 JPEGs in LMDB. The three contenders take turns
in a process with all cores. Figures are medians over the rounds: images per second, images per second of processor
time, and the peak memory of the process. The bar: ``evaluate`` and ``predict`` reach 0.9 of ``forward``. On a busy
machine, use the ratio of processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import cv2
import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from caffe_import.files.caffemodel import write_caffemodel  # noqa: E402
from caffe_import.net.initial_vector import initial_vector  # noqa: E402
from deepspark_ops.config.commands.predict import PredictConfig  # noqa: E402
from deepspark_ops.config.evaluate import EvaluateConfig  # noqa: E402
from deepspark_ops.config.export import ExportConfig  # noqa: E402
from deepspark_ops.config.ingest import IngestConfig  # noqa: E402
from deepspark_ops.config.train import TrainConfig  # noqa: E402
from deepspark_ops.evaluate.part_scores import score_range  # noqa: E402
from deepspark_ops.evaluate.tasks.choice import choose_tasks  # noqa: E402
from deepspark_ops.run_paths import RunPaths  # noqa: E402
from deepspark_ops.train.snapshots.state_file import RunState, write_run_state  # noqa: E402
from tests.reference.ingest_in_process import ingest  # noqa: E402

TARGET = 0.9
SOLVER = (
    'net: "{net}" base_lr: 0.01 lr_policy: "fixed" max_iter: 1 snapshot_prefix: "bench" test_iter: 1 test_interval: 9'
)


@dataclass(frozen=True)
class Net:
    """A net.

    Attributes:
        prototxt: File of the net.
        side: Pixels of a side of the square images.
        n_images: Images of a round.
        batch_size: Batch size of all three contenders.
        encoded: Whether the dataset holds JPEGs.
    """

    prototxt: str
    side: int
    n_images: int
    batch_size: int
    encoded: bool


NETS = {
    "cifar10_quick": Net("examples/cifar10/cifar10_quick_train_test.prototxt", 32, 20_000, 100, False),
    "caffenet": Net("tests/fixtures/nets/caffenet.prototxt", 256, 200, 50, True),
}

Round = Callable[[], int]
"""Contender's action; returns the number of images."""


class Rate(NamedTuple):
    """Images per second of time passed, and per second of processor time."""

    per_s: float
    per_cpu_s: float


def measure(one_round: Round) -> Rate:
    """Run a round."""
    start, cpu_start = time.perf_counter(), time.process_time()
    n_images = one_round()
    return Rate(n_images / (time.perf_counter() - start), n_images / (time.process_time() - cpu_start))


def write_photographs(folder: Path, net: Net) -> Path:
    """Write JPEGs of coloured blobs, which compress like photographs, and an image list."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    lines = []
    for at in range(net.n_images):
        coarse = rng.integers(0, 256, (max(4, net.side // 8), max(4, net.side // 8), 3), dtype=np.uint8)
        image = cv2.resize(coarse, (net.side, net.side), interpolation=cv2.INTER_CUBIC)
        noisy = np.clip(image.astype(np.int16) + rng.integers(-12, 13, image.shape), 0, 255).astype(np.uint8)
        cv2.imwrite(str(folder / f"{at}.jpg"), noisy)
        lines.append(f"{at}.jpg {at % 10}")
    (folder / "list.txt").write_text("\n".join(lines) + "\n")
    return folder / "list.txt"


def make_dataset(work: Path, net: Net) -> Path:
    """Ingest the images as training set and as test set."""
    images = write_photographs(work / "images", net)
    dataset = work / "dataset"
    config = IngestConfig(source=images, test_source=images, output=dataset, encoded=net.encoded, shuffle=False)
    ingest(config, work / "ingest")
    return dataset


def make_run(work: Path, net: Net, dataset: Path) -> RunPaths:
    """Make a run's folder with a snapshot of the fillers' weights."""
    from deepspark_ops.train.setup.run_setup import prepare_run

    solver = work / "solver.prototxt"
    solver.write_text(SOLVER.format(net=ROOT / net.prototxt))
    prepared = prepare_run(TrainConfig(solver=solver, dataset=dataset, run_dir=work / "run", n_workers=1)).run
    prepared.binding.close()
    run = RunPaths(work / "run")
    weights = initial_vector(prepared.train_net, 1)
    write_caffemodel(run.snapshot("bench", 1, "caffemodel"), prepared.train_net, weights)
    state = RunState(clock=1, origin=0, n_params=prepared.train_net.params.n_params, random_seed=1)
    write_run_state(run.snapshot("bench", 1, "state.h5"), state, {})
    return run


def make_bundle(run: RunPaths) -> Path:
    """Export the snapshot."""
    from deepspark_ops.export.bundle import write_bundle

    write_bundle(ExportConfig(run_dir=run.root, formats="saved_model,caffe"), on_step=lambda _: None)
    return run.bundle


def contenders(work: Path, net: Net, n_threads: int) -> dict[str, Round]:
    """Make dataset, run and bundle; return the three contenders before their first run."""
    dataset = make_dataset(work, net)
    run = make_run(work, net, dataset)
    evaluate = open_evaluation(run, net, n_threads)
    return {**evaluate, "predict": open_prediction(work, make_bundle(run), dataset, net, n_threads)}


def open_evaluation(run: RunPaths, net: Net, n_threads: int) -> dict[str, Round]:
    """Return ``forward`` and ``evaluate`` of a run."""
    from deepspark_ops.evaluate.tf_predict import open_answers as open_run_answers
    from deepspark_ops.evaluate.trained_net import open_run

    config = EvaluateConfig(run_dir=run.root, batch_size=net.batch_size, devices="cpu")
    trained = open_run(config).__enter__()  # for the life of the process
    samples, tasks = trained.samples, choose_tasks(trained.net)
    ready = open_run_answers(trained, tasks, config, n_threads=n_threads)
    answer = ready.answer
    feeds = samples.read(0, net.batch_size).feeds

    def forward() -> int:
        for _ in range(net.n_images // net.batch_size):
            ready.answers(feeds)
        return net.n_images // net.batch_size * net.batch_size

    def evaluate() -> int:
        for layer in samples.layers:
            layer.samples.close()  # drop the memory cache of earlier rounds
        with tempfile.TemporaryDirectory() as rows:
            score_range(config, samples, tasks, answer, Path(rows))
        return samples.n_samples

    return {"forward": forward, "evaluate": evaluate}


def open_prediction(work: Path, bundle: Path, dataset: Path, net: Net, n_threads: int) -> Round:
    """Return ``predict`` of a bundle."""
    from deepspark_ops.predict.answers import open_answers

    config = PredictConfig(
        bundle=bundle,
        input=dataset,
        output=work / "answers.parquet",
        batch_size=net.batch_size,
        threads=n_threads,
        devices="cpu",
    )
    write = open_answers(config, on_step=lambda _: None)
    return lambda: write().n_records


def compare(name: str, n_rounds: int, n_images: int | None = None) -> dict[str, Any]:
    """Run the three contenders of a net in turns; ``n_images`` replaces the net's number of a round."""
    net = NETS[name] if n_images is None else replace(NETS[name], n_images=max(n_images, NETS[name].batch_size))
    n_threads = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="deepspark-predict-") as work:
        turns = contenders(Path(work), net, n_threads)
        for one_round in turns.values():
            one_round()  # graphs are traced, files and memory are warm for all three
        rounds = [{label: measure(one_round) for label, one_round in turns.items()} for _ in range(n_rounds)]
    per_s = {label: median(each[label].per_s for each in rounds) for label in turns}
    per_cpu_s = {label: median(each[label].per_cpu_s for each in rounds) for label in turns}
    return {
        "n_threads": n_threads,
        "images_per_s": per_s,
        "images_per_cpu_s": per_cpu_s,
        "evaluate_ratio": median(each["evaluate"].per_s / each["forward"].per_s for each in rounds),
        "predict_ratio": median(each["predict"].per_s / each["forward"].per_s for each in rounds),
        "evaluate_ratio_cpu": median(each["evaluate"].per_cpu_s / each["forward"].per_cpu_s for each in rounds),
        "predict_ratio_cpu": median(each["predict"].per_cpu_s / each["forward"].per_cpu_s for each in rounds),
        "most_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "target": TARGET,
    }


def as_line(name: str, result: Mapping[str, Any]) -> str:
    """Return a net's figures as a line."""
    rates = ", ".join(f"{label} {rate:,.0f}" for label, rate in result["images_per_s"].items())
    return (
        f"{name}: {rates} images/s; of forward: evaluate {result['evaluate_ratio']:.2f}, predict "
        f"{result['predict_ratio']:.2f} (target {TARGET}); per processor second {result['evaluate_ratio_cpu']:.2f}, "
        f"{result['predict_ratio_cpu']:.2f}; at most {result['most_memory_mib']:,} MiB"
    )


def main() -> int:
    """Compare all nets; 0 if every ratio reaches the target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a line per net")
    parser.add_argument("--nets", nargs="+", choices=sorted(NETS), default=list(NETS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--images", type=int, help="images of a round, at least a batch; default: 20,000 of 32x32, 200 of 256x256"
    )
    options = parser.parse_args()
    results = {}
    for name in options.nets:
        results[name] = compare(name, options.rounds, options.images)
        if not options.json:
            print(as_line(name, results[name]))
    if options.json:
        print(json.dumps(results, indent=1))
    smallest = [min(figures["evaluate_ratio"], figures["predict_ratio"]) for figures in results.values()]
    return 0 if min(smallest) >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
