"""Compare ingestion with a plain loop: ``python benchmarks/ingest.py [--json] [--photos FILE] [--cifar FILE]``.

The loop uses OpenCV and lmdb in one process, in the order of Caffe's convert_imageset. The loop reads and decodes a
file (cv2.imread), resizes the image, fills a Datum of caffe_pb2, writes to LMDB, and commits every 1,000 records.
Encoded has convert_imageset's meaning: a resized image is compressed anew, and an image that keeps its size keeps the
bytes of its file. Both are decoded. Ingestion is ``run_shard_task`` over the tasks of ``plan_images`` in the same
process, without Spark. The time includes all other work of a task: mean, digests, checks of headers and decoder,
syncing, and the shard's SHA-256.

Loop and ingestion read the same files in turns; OpenCV has no further threads. Figures per set and kind are medians of
the rounds: processor time (user and system), wall time, and the loop's processor time divided by ingestion's.
``raw_ratio`` and ``encoded_ratio`` are the smaller value of both sets. ``two_cores_ratio`` divides the wall time of all
photograph tasks in one process by the wall time in two processes. This ratio needs two idle cores.

``peak_mib``: highest resident memory of a process that runs one task, over large photographs and over many records.
Beside it is the memory of a process that has only imported a task's modules.

Sets: 200 photographs (photos.tar), each named five times, resized to 256x256; the first 20,000 images of 32x32 of
cifar10_full.tar.gz. The benchmark first unpacks archives, and reads folders directly. Without the options the benchmark
makes pictures of smoothed noise, in the sizes of the real sets.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import cv2
import lmdb
import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from caffe_import.proto import caffe_pb2  # noqa: E402
from deepspark_ops.config.ingest import IngestConfig  # noqa: E402
from deepspark_ops.ingest.image_plan import plan_images  # noqa: E402
from deepspark_ops.ingest.recipe import make_recipe  # noqa: E402
from deepspark_ops.ingest.shard_task import ShardTask, run_shard_task  # noqa: E402

PHOTO_SIZE = 256
PHOTO_REPEATS = 5
N_CIFAR = 20_000
_COMMIT_RECORDS = 1000
_MAP_BYTES = 2**33
_HELD = 4
"""Large photographs per megapixel size of the measurement of memory."""


@dataclass(frozen=True)
class Pictures:
    """A set to ingest.

    Attributes:
        name: In the report.
        list_file: ``path label`` lines, relative to ``folder``.
        folder: Of the files.
        size: Rows and columns to resize to; 0 keeps the size.
    """

    name: str
    list_file: Path
    folder: Path
    size: int

    def lines(self) -> list[tuple[str, int]]:
        """Return (path, label) of every picture."""
        pairs = (line.rsplit(" ", 1) for line in self.list_file.read_text(encoding="utf-8").splitlines())
        return [(path, int(label)) for path, label in pairs]


@dataclass(frozen=True)
class Cost:
    """Seconds of a pass over a set."""

    cpu_s: float
    wall_s: float
    n_records: int


def plain_loop(pictures: Pictures, output: Path, *, encoded: bool) -> int:
    """Convert a set as convert_imageset does; return the number of records."""
    environment = lmdb.open(str(output), map_size=_MAP_BYTES)
    transaction = environment.begin(write=True)
    n_records = 0
    for path, label in pictures.lines():
        file = f"{pictures.folder}/{path}"
        image = cv2.imread(file, cv2.IMREAD_COLOR)
        if pictures.size:
            image = cv2.resize(image, (pictures.size, pictures.size))
        if encoded:
            if pictures.size:
                content = cv2.imencode(".jpg", image)[1].tobytes()
            else:
                with open(file, "rb") as handle:
                    content = handle.read()
            datum = caffe_pb2.Datum(data=content, label=label, encoded=True)
        else:
            height, width, channels = image.shape
            datum = caffe_pb2.Datum(channels=channels, height=height, width=width, label=label)
            datum.data = image.transpose(2, 0, 1).tobytes()
            datum.encoded = False
        transaction.put(f"{n_records:08d}_{path}".encode(), datum.SerializeToString())
        n_records += 1
        if n_records % _COMMIT_RECORDS == 0:
            transaction.commit()
            transaction = environment.begin(write=True)
    transaction.commit()
    environment.close()
    return n_records


def plan_tasks(pictures: Pictures, output: Path, *, encoded: bool) -> tuple[ShardTask, ...]:
    """Return the tasks that ingestion would send to Spark."""
    config = IngestConfig(
        source=pictures.list_file,
        root_folder=pictures.folder,
        output=output,
        test_fraction=0,
        encoded=encoded,
        resize_height=pictures.size,
        resize_width=pictures.size,
    )
    return plan_images(config, make_recipe(config), output).tasks


def run_tasks(tasks: Sequence[ShardTask]) -> int:
    """Run the tasks in sequence; return the number of written records."""
    results = [run_shard_task(task) for task in tasks]
    if bad := [result.error for result in results if result.error is not None]:
        raise SystemExit(bad[0])
    return sum(result.n_samples for result in results)


def measured(work: Callable[[], int]) -> Cost:
    """Time a call; the call returns the number of records."""
    usage, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    n_records = work()
    wall, end_usage = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    cpu = end_usage.ru_utime + end_usage.ru_stime - usage.ru_utime - usage.ru_stime
    return Cost(cpu, wall, n_records)


def compare(pictures: Pictures, work: Path, *, encoded: bool, rounds: int) -> dict[str, Any]:
    """Return figures of loop and ingestion in turns. The first turn warms up and does not count."""
    costs: dict[str, list[Cost]] = {"loop": [], "plan": [], "tasks": []}
    tasks: list[ShardTask] = []

    def planned(output: Path) -> int:
        tasks[:] = plan_tasks(pictures, output, encoded=encoded)
        return sum(len(task.names) for task in tasks)

    turns: dict[str, Callable[[], int]] = {
        "loop": lambda: plain_loop(pictures, work / "loop", encoded=encoded),
        "plan": lambda: planned(work / "dataset"),
        "tasks": lambda: run_tasks(tasks),
    }
    for _ in range(rounds + 1):
        (work / "dataset").mkdir()
        for name, turn in turns.items():
            costs[name].append(measured(turn))
        for name in ("loop", "dataset"):
            shutil.rmtree(work / name)
    counts = {cost.n_records for of_one in costs.values() for cost in of_one}
    if len(counts) != 1:
        msg = f"{pictures.name}: loop and ingestion wrote {counts} records"
        raise SystemExit(msg)
    counted = {name: of_one[1:] for name, of_one in costs.items()}
    n_records = counts.pop()
    pairs = list(zip(counted["loop"], counted["tasks"], strict=True))
    figures: dict[str, Any] = {
        "records": n_records,
        "shards": len(tasks),
        "ratio": median(loop.cpu_s / ingestion.cpu_s for loop, ingestion in pairs),
        "wall_ratio": median(loop.wall_s / ingestion.wall_s for loop, ingestion in pairs),
    }
    for name, of_one in counted.items():
        figures[f"{name}_cpu_us"] = median(cost.cpu_s for cost in of_one) / n_records * 1e6
        figures[f"{name}_wall_us"] = median(cost.wall_s for cost in of_one) / n_records * 1e6
    return figures


def _serve(pipe: Any) -> None:
    """Run as one of two processes: read tasks, answer with seconds of processor time."""
    cv2.setNumThreads(1)
    while (tasks := pipe.recv()) is not None:
        pipe.send(measured(lambda: run_tasks(tasks)).cpu_s)


def compare_cores(pictures: Pictures, work: Path, *, rounds: int) -> dict[str, Any]:
    """Return the speedup of two processes that share all tasks over one process."""
    spawn = multiprocessing.get_context("spawn")
    pairs = [spawn.Pipe() for _ in range(2)]
    processes = [spawn.Process(target=_serve, args=(child_end,), daemon=True) for _, child_end in pairs]
    for process in processes:
        process.start()
    pipes = [parent_end for parent_end, _ in pairs]
    single_s, pair_s, cpu_single_s, cpu_pair_s = [], [], [], []
    for _ in range(rounds + 1):
        for shares in (1, 2):
            output = work / "cores"
            output.mkdir()
            tasks = plan_tasks(pictures, output, encoded=False)
            start = time.perf_counter()
            for i, pipe in enumerate(pipes[:shares]):
                pipe.send(tasks[i::shares])
            cpu = sum(pipe.recv() for pipe in pipes[:shares])
            (single_s if shares == 1 else pair_s).append(time.perf_counter() - start)
            (cpu_single_s if shares == 1 else cpu_pair_s).append(cpu)
            shutil.rmtree(output)
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send(None)
        process.join(30)
    wall = list(zip(single_s[1:], pair_s[1:], strict=True))
    return {
        "cores": len(os.sched_getaffinity(0)),
        "shards": len(tasks),
        "ratio": median(a / b for a, b in wall),
        "one_s": median(single_s[1:]),
        "two_s": median(pair_s[1:]),
        "cpu_ratio": median(cpu_pair_s[1:]) / median(cpu_single_s[1:]),
    }


def _report_peak(pipe: Any) -> None:
    cv2.setNumThreads(1)
    tasks = pipe.recv()
    n_records = run_tasks(tasks)
    # Not ru_maxrss, which begins with the value of the parent process.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    pipe.send((n_records, int(peak.split()[1]) / 1024))


def peak_memory(tasks: Sequence[ShardTask]) -> float:
    """Return the highest resident memory, MiB, of a new process that runs the tasks."""
    spawn = multiprocessing.get_context("spawn")
    parent_end, child_end = spawn.Pipe()
    process = spawn.Process(target=_report_peak, args=(child_end,), daemon=True)
    process.start()
    parent_end.send(tasks)
    _, peak = parent_end.recv()
    process.join(30)
    return float(peak)


def measure_memory(cifar: Pictures, work: Path) -> dict[str, float]:
    """Return peaks of tasks over photographs of 12 to 50 megapixels, and over 10,000 small records."""
    peaks = {"imports": peak_memory([])}
    for megapixels in (12, 50):
        folder = work / f"large-{megapixels}"
        folder.mkdir()
        width = int((megapixels * 1e6 * 4 / 3) ** 0.5)
        content = _smooth_jpeg(np.random.default_rng(megapixels), width, width * 3 // 4)
        for i in range(_HELD):
            (folder / f"{i}.jpg").write_bytes(content)
        list_file = _write_list(folder / "list.txt", [(f"{i}.jpg", i) for i in range(_HELD)])
        large = Pictures("large", list_file, folder, PHOTO_SIZE)
        output = folder / "dataset"
        output.mkdir()
        peaks[f"photographs_of_{megapixels}_megapixels"] = peak_memory(plan_tasks(large, output, encoded=False))
    output = work / "many"
    output.mkdir()
    peaks["records_of_one_task"] = peak_memory(plan_tasks(cifar, output, encoded=False)[:1])
    return {name: round(peak, 1) for name, peak in peaks.items()}


def _smooth_jpeg(rng: np.random.Generator, width: int, height: int) -> bytes:
    coarse = rng.integers(0, 256, (max(2, height // 16), max(2, width // 16), 3)).astype(np.uint8)
    return cv2.imencode(".jpg", cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC))[1].tobytes()


def _write_list(path: Path, pairs: Sequence[tuple[str, int]]) -> Path:
    path.write_text("".join(f"{name} {label}\n" for name, label in pairs), encoding="utf-8")
    return path


def _unpacked(source: Path, work: Path, name: str) -> Path:
    """Return the folder, or the folder of an unpacked archive."""
    if source.is_dir():
        return source
    with tarfile.open(source) as archive:
        archive.extractall(work / name, filter="data")
    return work / name


def photographs(source: Path | None, work: Path) -> Pictures:
    """Return 1,000 lines of photographs."""
    if source is None:
        folder, rng = work / "photos", np.random.default_rng(1)
        folder.mkdir()
        pairs = []
        for i in range(200):
            width, height = int(rng.integers(300, 700)), int(rng.integers(250, 550))
            (folder / f"{i:03d}.jpg").write_bytes(_smooth_jpeg(rng, width, height))
            pairs.append((f"{i:03d}.jpg", i % 2))
    else:
        folder = _unpacked(source, work, "photos")
        pairs = list(_listed(folder))[:200]
    return Pictures("photographs", _write_list(work / "photos.txt", pairs * PHOTO_REPEATS), folder, PHOTO_SIZE)


def small_images(source: Path | None, work: Path) -> Pictures:
    """Return 20,000 lines of small images."""
    if source is None:
        folder, rng = work / "cifar", np.random.default_rng(2)
        folder.mkdir()
        pairs = [(f"{i:05d}.jpg", i % 10) for i in range(N_CIFAR)]
        for name, _ in pairs:
            (folder / name).write_bytes(_smooth_jpeg(rng, 32, 32))
    else:
        folder = _unpacked(source, work, "cifar")
        pairs = list(_listed(folder))[:N_CIFAR]
    return Pictures("cifar", _write_list(work / "cifar.txt", pairs), folder, 0)


def _listed(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the lines of a folder's list: list.txt or train.txt, else every image below the folder with label 0."""
    for name in ("list.txt", "train.txt"):
        if (folder / name).is_file():
            yield from Pictures("", folder / name, folder, 0).lines()
            return
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in (".jpg", ".jpeg"):
            yield str(path.relative_to(folder)), 0


def run(arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Return the report."""
    cv2.setNumThreads(1)
    sets = [photographs(arguments.photos, work), small_images(arguments.cifar, work)]
    report: dict[str, Any] = {"opencv": cv2.__version__, "lmdb": ".".join(map(str, lmdb.version())), "sets": {}}
    for pictures in sets:
        for kind in ("raw", "encoded"):
            figures = compare(pictures, work, encoded=kind == "encoded", rounds=arguments.rounds)
            report["sets"][f"{pictures.name}_{kind}"] = figures
    for kind in ("raw", "encoded"):
        report[f"{kind}_ratio"] = min(
            figures["ratio"] for name, figures in report["sets"].items() if name.endswith(f"_{kind}")
        )
    report["two_cores"] = compare_cores(sets[0], work, rounds=arguments.rounds)
    report["two_cores_ratio"] = report["two_cores"]["ratio"]
    report["peak_mib"] = measure_memory(sets[1], work)
    return report


def print_report(report: dict[str, Any]) -> None:
    """Print the report for people."""
    for name, figures in report["sets"].items():
        print(
            f"{name}: {figures['records']:,} records, {figures['shards']} shards; microseconds of processor a record:"
            f" loop {figures['loop_cpu_us']:.1f}, tasks {figures['tasks_cpu_us']:.1f} (and {figures['plan_cpu_us']:.1f}"
            f" on the driver); ratio {figures['ratio']:.2f}, of wall time {figures['wall_ratio']:.2f}"
        )
    print(f"raw_ratio {report['raw_ratio']:.2f}, encoded_ratio {report['encoded_ratio']:.2f}")
    cores = report["two_cores"]
    print(
        f"two_cores_ratio {cores['ratio']:.2f} ({cores['shards']} shards, {cores['one_s']:.2f} s and"
        f" {cores['two_s']:.2f} s; two processes used {cores['cpu_ratio']:.2f} of the processor time of one)"
    )
    print("highest resident memory, MiB: " + ", ".join(f"{name} {mib}" for name, mib in report["peak_mib"].items()))


def main() -> None:
    """Parse the command line and print."""
    parser = argparse.ArgumentParser(description="Ingestion beside a plain OpenCV and lmdb loop.")
    parser.add_argument(
        "--photos", type=Path, help="photos.tar or a folder of photographs; default: generated photographs"
    )
    parser.add_argument("--cifar", type=Path, help="cifar10_full.tar.gz or a folder; default: generated images")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=Path, help="folder for scratch files; default: the system's")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.work, prefix="deepspark-ingest-") as work:
        report = run(arguments, Path(work))
    if arguments.json:
        print(json.dumps(report))
    else:
        print_report(report)


if __name__ == "__main__":
    main()
