"""Measure the gain of a second worker and the cost of exchanges: ``python benchmarks/scaling.py [--json]``.

``--net`` without names trains no net. ``--scripted N`` (1,000; 0: none) connects scripted workers to the real server
(``many_workers.py``): grants in clear and in TLS, and exchanges of a small vector. ``--snapshot N`` (100; 0: none)
takes a snapshot of LeNet with N scripted workers: the driver's memory and seconds (``large_snapshot.py``).

    python benchmarks/scaling.py --json --net --seconds 20

The worker loop, the reading of a raw LMDB and the exchange server are real, without Spark and Airflow. A worker is a
process, pinned to a core, with one TensorFlow thread and fixed tau. Each case is measured for some seconds after the
warm-up of the workers. The rounds take one and two workers in turn, and ratios are medians.

  scaling         images/s of two workers / images/s of one worker
  exchange_share  share of the two workers' time, with waits for data: grants, exchanges, acknowledgements
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from large_snapshot import large_snapshot
from many_workers import N_PARAMS, SPAWN, START_LIMIT_S, many_workers

from caffe_import.files.datum import encode_datum
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.events import read_events
from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.server.launch import start_exchange
from deepspark_ops.exchange.transport.connection import ExchangeAddress
from deepspark_ops.train.driver.run_watch import Throughput
from deepspark_ops.train.setup.run_setup import prepare_run
from deepspark_ops.train.snapshots.start import exchange_settings, plan_start
from deepspark_ops.train.worker.task import WorkerTask

ROOT = Path(__file__).parents[1]
CORES = sorted(os.sched_getaffinity(0))
POLL_S = 0.1
LENET_PARAMS = 431_080


@dataclass(frozen=True)
class Net:
    """A net to train.

    Attributes:
        prototxt: File of the net; data layers read random images.
        image: Caffe shape of a sample.
        n_classes: Labels are smaller than this number.
        n_images: Images in the LMDB.
        base_lr: Small: random labels teach nothing.
        batch_size: Replaces the net's batch size if a batch would take a core half a minute.
    """

    prototxt: str
    image: tuple[int, int, int]
    n_classes: int
    n_images: int
    base_lr: float
    batch_size: int | None = None


NETS = {
    "lenet": Net("examples/digits/lenet_train_test.prototxt", (1, 28, 28), 10, 6_400, 1e-4),
    "cifar10_quick": Net("examples/cifar10/cifar10_quick_train_test.prototxt", (3, 32, 32), 10, 5_000, 1e-6),
    "caffenet": Net("tests/fixtures/nets/caffenet.prototxt", (3, 256, 256), 1_000, 600, 1e-6, 16),
}


@dataclass(frozen=True)
class Case:
    """A measurement."""

    net: str
    n_workers: int
    images_per_s: float
    exchange_share: float
    exchange_p99_ms: float


def write_images(folder: Path, net: Net) -> None:
    """Write random images as Caffe's raw LMDB."""
    rng = np.random.default_rng(0)
    with lmdb.open(str(folder), map_size=4 << 30) as environment, environment.begin(write=True) as records:
        for i in range(net.n_images):
            image = rng.integers(0, 256, net.image, dtype=np.uint8)
            records.put(f"{i:08d}".encode(), encode_datum(image, int(rng.integers(net.n_classes))))


def solver_for(name: str, folder: Path) -> Path:
    """Write the net with random images as data, and a solver without an end."""
    net = NETS[name]
    images = folder / "images"
    if not images.exists():
        write_images(images, net)
    text = (ROOT / net.prototxt).read_text(encoding="utf-8")
    text = re.sub(r'source: "[^"]*"', f'source: "{images}"', text)
    text = re.sub(r'mean_file: "[^"]*"', "", text)
    if net.batch_size is not None:
        text = re.sub(r"batch_size: \d+", f"batch_size: {net.batch_size}", text)
    (folder / "net.prototxt").write_text(text, encoding="utf-8")
    solver = folder / "solver.prototxt"
    solver.write_text(
        f'net: "{folder / "net.prototxt"}" type: "SGD" base_lr: {net.base_lr} momentum: 0.9 lr_policy: "fixed"'
        " test_iter: 1 test_interval: 1000000000 test_initialization: false max_iter: 1000000000 display: 20"
        ' random_seed: 1 snapshot_prefix: "scaling" snapshot_after_train: false\n',
        encoding="utf-8",
    )
    return solver


def worker_process(task: WorkerTask, address: ExchangeAddress, core: int) -> None:
    """Train until the parent ends this process."""
    os.sched_setaffinity(0, {core})
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    from deepspark_ops.train.worker.process import run_worker

    run_worker(task, connect(address))


def config_for(name: str, n_workers: int, folder: Path, **options: Any) -> TrainConfig:
    """Return the config of a run in a new folder."""
    return TrainConfig(
        solver=solver_for(name, folder),
        run_dir=Path(tempfile.mkdtemp(prefix=f"{n_workers}-", dir=folder)) / "run",
        n_workers=n_workers,
        rate_scale="none",
        **options,
    )


def measure(name: str, n_workers: int, comm_period: int, folder: Path, warm_s: float, seconds: float) -> Case:
    """Train a net with some workers and measure for some seconds."""
    prepared = prepare_run(config_for(name, n_workers, folder, comm_period=comm_period))
    run, start = prepared.run, plan_start(prepared.run)
    throughput = Throughput(run.images_per_step())
    with start_exchange(exchange_settings(prepared, start), start.center) as exchange:
        tasks = [WorkerTask(run.paths.root, worker, 0, start.state, start.origin) for worker in range(n_workers)]
        workers = [
            SPAWN.Process(target=worker_process, args=(task, exchange.address, CORES[i % len(CORES)]), daemon=True)
            for i, task in enumerate(tasks)
        ]
        for worker in workers:
            worker.start()
        try:
            limit = time.monotonic() + START_LIMIT_S
            while min(exchange.poll().exchanges) < 2 and time.monotonic() < limit:
                if not all(worker.is_alive() for worker in workers):
                    msg = f"{name}: a worker ended; its message is above"
                    raise SystemExit(msg)
                time.sleep(POLL_S)
            time.sleep(warm_s)
            began, ends, at_start = time.time(), time.monotonic() + seconds, exchange.poll().acknowledged
            while time.monotonic() < ends:
                # From an acknowledgement to a later one: a grant of a large net takes a good part of the time.
                if (acknowledged := exchange.poll().acknowledged) > at_start:
                    throughput.see(time.monotonic(), acknowledged)
                time.sleep(POLL_S)
        finally:
            for worker in workers:
                worker.terminate()
                worker.join()
    events = [event for event in read_events(run.paths.events) if event.time >= began]
    losses = [event.data for event in events if event.kind == "loss"]
    spent = {part: sum(data[part] for data in losses) for part in ("compute_s", "data_s", "exchange_s")}
    slowest = [event.data["p99_ms"] for event in events if event.kind == "exchange"]
    rate = throughput.images_per_s()
    return Case(
        name,
        n_workers,
        round(rate, 1) if rate is not None else 0.0,
        round(spent["exchange_s"] / max(1e-9, sum(spent.values())), 5),
        max(slowest, default=0.0),
    )


def main() -> None:
    """Measure and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--net", nargs="*", choices=list(NETS), default=["lenet", "cifar10_quick"])
    parser.add_argument("--tau", type=int, default=10, help="minibatches between exchanges")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=float, default=20.0, help="seconds before measuring")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of one measurement")
    parser.add_argument("--scripted", type=int, default=1000, help="scripted workers at one server")
    parser.add_argument("--snapshot", type=int, default=100, help="scripted workers of LeNet in a snapshot")
    options = parser.parse_args()
    scripted = scripted_rows(options.scripted, options.seconds, options.snapshot)
    if not options.json:
        print(*scripted.items(), sep="\n", flush=True)
    cases: list[Case] = []
    for name in options.net:
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(options.rounds):
                for n_workers in (1, 2):
                    case = measure(name, n_workers, options.tau, Path(folder), options.warm, options.seconds)
                    cases.append(case)
                    if not options.json:
                        print(case, flush=True)
    figures = {"tau": options.tau, **summary(cases), "scripted": scripted, "cases": [asdict(case) for case in cases]}
    if options.json:
        json.dump(figures, sys.stdout, indent=2)
        print()
    else:
        print({key: value for key, value in figures.items() if key != "cases"})


def scripted_rows(n_workers: int, seconds: float, n_in_snapshot: int) -> dict[str, dict[str, Any]]:
    """Measure scripted workers; by case."""
    rows: dict[str, dict[str, Any]] = {}
    if n_workers:
        rows["grants"] = asdict(many_workers(n_workers, seconds))
        rows["grants_in_tls"] = asdict(many_workers(n_workers, seconds, protection="tls"))
        rows["exchanges"] = asdict(many_workers(n_workers // 2, seconds, exchanges=N_PARAMS))
    if n_in_snapshot:
        rows["lenet"] = asdict(many_workers(n_in_snapshot, seconds, exchanges=LENET_PARAMS))
        with tempfile.TemporaryDirectory() as folder:
            config = config_for("lenet", n_in_snapshot, Path(folder), transport="socket")
            rows["snapshot"] = asdict(large_snapshot(prepare_run(config), n_in_snapshot))
    return rows


def summary(cases: list[Case]) -> dict[str, object]:
    """Return the figures that have bars, by net."""
    figures: dict[str, object] = {}
    for name in dict.fromkeys(case.net for case in cases):
        single, double = ([c for c in cases if (c.net, c.n_workers) == (name, n)] for n in (1, 2))
        ratios = [b.images_per_s / a.images_per_s for a, b in zip(single, double, strict=True)]
        figures[name] = {
            "images_per_s_1": statistics.median(case.images_per_s for case in single),
            "images_per_s_2": statistics.median(case.images_per_s for case in double),
            "scaling": round(statistics.median(ratios), 3),
            "exchange_share": statistics.median(case.exchange_share for case in double),
            "exchange_p99_ms": statistics.median(case.exchange_p99_ms for case in double),
        }
    return figures


if __name__ == "__main__":
    main()
