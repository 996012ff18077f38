"""Measure how long training waits for batches: ``python benchmarks/data_wait.py [--json] [--rounds N]``.

A worker trains on an ingested dataset, without Spark and sockets. A thread reads, decodes and transforms batches while
the net computes. The figure is the share of a step's time in which the worker waits for a batch (``data_s`` of the
events). The first event, with the compilation of the graph, does not count. The median of the rounds counts. Other
programs take cores from both threads, so use an idle machine.

  cifar10_quick  raw 32x32 images in LMDB, batches of 100
  caffenet       256x256 JPEGs in LMDB, batches of 32, cut to 227x227 at random positions

The bar: below 0.03 for both nets.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.predict import NETS, make_dataset  # noqa: E402
from caffe_import.files.prototxt import format_message, read_net  # noqa: E402
from deepspark_ops.config.train import TrainConfig  # noqa: E402
from tests.integration.train.in_process import run_in_process  # noqa: E402

TARGET = 0.03
SOLVER = (
    'net: "{net}" base_lr: 0.0001 momentum: 0.9 lr_policy: "fixed" max_iter: {n_steps} display: {display}'
    ' random_seed: 1 snapshot_prefix: "bench" snapshot_after_train: false'
)


@dataclass(frozen=True)
class Training:
    """What is trained.

    Attributes:
        n_images: Of the dataset.
        batch_size: Of a step.
        n_steps: Of a round; the first ``display`` are not looked at.
        display: Steps between two events.
    """

    n_images: int
    batch_size: int
    n_steps: int
    display: int


TRAININGS = {"cifar10_quick": Training(10_000, 100, 400, 100), "caffenet": Training(320, 32, 20, 5)}


def write_solver(work: Path, name: str) -> Path:
    """Write net and solver with the batch size and without tests."""
    training = TRAININGS[name]
    net = read_net(ROOT / NETS[name].prototxt)
    for layer in net.layer:
        if layer.type == "Data":
            layer.data_param.batch_size = training.batch_size
    (work / "net.prototxt").write_text(format_message(net))
    solver = work / "solver.prototxt"
    solver.write_text(SOLVER.format(net="net.prototxt", n_steps=training.n_steps, display=training.display))
    return solver


def data_wait(work: Path, solver: Path, dataset: Path, number: int) -> tuple[float, float]:
    """Train once; return the share of waiting in the time of a step, and images per second."""
    config = TrainConfig(solver=solver, dataset=dataset, run_dir=work / f"run{number}", n_workers=1)
    losses = [event.data for event in run_in_process(config).events("loss")][1:]
    waited = sum(data["data_s"] for data in losses)
    computed = sum(data["compute_s"] for data in losses)
    return waited / (waited + computed), median(data["images_per_s"] for data in losses)


def measure(name: str, n_rounds: int) -> Mapping[str, float]:
    """Return the median figures of a net."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        dataset = make_dataset(work, replace(NETS[name], n_images=TRAININGS[name].n_images))
        solver = write_solver(work, name)
        rounds = [data_wait(work, solver, dataset, number) for number in range(n_rounds)]
    return {
        "data_wait": round(median(share for share, _ in rounds), 4),
        "images_per_s": round(median(rate for _, rate in rounds), 1),
    }


def main() -> None:
    """Measure, print, and end with 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nets", default=",".join(TRAININGS), help="nets, separated by commas")
    options = parser.parse_args()
    figures_of_nets = {name: measure(name, options.rounds) for name in options.nets.split(",")}
    if options.json:
        print(json.dumps({"target": TARGET, "nets": figures_of_nets}, indent=1))
    else:
        for name, figures in figures_of_nets.items():
            print(f"{name}: waits {figures['data_wait']:.2%} of a step, {figures['images_per_s']:,.0f} images/s")
    sys.exit(any(figures["data_wait"] >= TARGET for figures in figures_of_nets.values()))


if __name__ == "__main__":
    main()
