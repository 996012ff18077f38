"""Measure the memory of a training's worker at its peak, by part: ``python benchmarks/worker_memory.py [--json]``.

Processes of this host train CaffeNet (``--net FILE``: another net) on random images. The kernel shows the memory of
each worker (``/proc/PID/smaps``), and the reading with the largest sum counts. TensorFlow's log shows the memory of its
allocator (``TF_CPP_VMODULE=bfc_allocator=1``). Linux, with oneDNN. MiB of each worker:

  libraries  files: code and constants, shared by all processes of the host
  center     the center in shared memory, shared by all workers of the host
  tensors    regions of TensorFlow's allocator, with gaps between tensors
  arrays     other mappings of at least a MiB: vectors of numpy, buffers of libraries
  heap       Python's objects, small arrays
  other      stacks of threads, small mappings
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from caffe_import.files.prototxt import format_message, parse_net, read_net
from caffe_import.proto import caffe_pb2
from deepspark_ops.config.train import TrainConfig

ROOT = Path(__file__).parents[1]
CAFFENET = ROOT / "tests/fixtures/nets/caffenet.prototxt"
SOLVER = """net: "net.prototxt" base_lr: 0.001 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.0005 display: 1
snapshot_prefix: "memory" max_iter: {max_iter} random_seed: 1
"""
DATA = """layer {{ name: "images" type: "DummyData" top: "data" top: "label" dummy_data_param {{
  shape {{ dim: {batch_size} dim: 3 dim: {size} dim: {size} }} shape {{ dim: {batch_size} }}
  data_filler {{ type: "gaussian" std: 50 }} data_filler {{ type: "constant" }} }} }}
"""
PARTS = ("libraries", "center", "tensors", "arrays", "heap", "other")
REGION = re.compile(r"bfc_allocator\.cc:\d+\] Allocated memory at 0x([0-9a-f]+) to 0x([0-9a-f]+)")
MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S{4} \S+ \S+ \d+ *(.*)")
LOOK_AGAIN = 1.01
"""Growth of a process since the last reading that makes the next reading."""
PAUSE_S = 0.1
LARGE_BYTES = 2**20


@dataclass(frozen=True)
class Mapping:
    """A mapping of a process: addresses, file, resident bytes."""

    first: int
    last: int
    file: str
    n_bytes: int


def written_config(folder: Path, options: argparse.Namespace) -> Path:
    """Write net, solver and config of the training; return the config's path."""
    message = read_net(options.net)
    trained = caffe_pb2.NetParameter(name=message.name)
    trained.layer.extend(parse_net(DATA.format(batch_size=options.batch_size, size=options.size)).layer)
    trained.layer.extend(layer for layer in message.layer if layer.type not in ("Data", "Accuracy"))
    (folder / "net.prototxt").write_text(format_message(trained))
    solver = folder / "solver.prototxt"
    solver.write_text(SOLVER.format(max_iter=options.minibatches))
    config = TrainConfig(
        solver=solver,
        run_dir=folder / "run",
        n_workers=options.workers,
        comm_period=options.comm_period,
        threads_per_worker=1,
        engine="process",
    )
    (folder / "config.json").write_text(config.model_dump_json())
    return folder / "config.json"


def mappings_of(pid: int) -> list[Mapping]:
    """Return the mappings of a process; no mappings after the end of the process."""
    mappings: list[Mapping] = []
    heading: re.Match[str] | None = None
    try:
        lines = Path(f"/proc/{pid}/smaps").read_text().splitlines()
    except OSError:
        return mappings
    for line in lines:
        heading = MAPPING.fullmatch(line) or heading
        if line.startswith("Rss:") and heading is not None:
            n_bytes = 1024 * int(line.split()[1])
            mappings.append(Mapping(int(heading[1], 16), int(heading[2], 16), heading[3], n_bytes))
    return mappings


def parts_of(mappings: Sequence[Mapping], regions: Sequence[tuple[int, int]]) -> Counter[str]:
    """Return the resident bytes by part; ``regions`` are addresses of TensorFlow's allocators of all processes."""
    parts: Counter[str] = Counter()
    for mapping in mappings:
        if mapping.file:
            path = mapping.file
            is_center = path.startswith("/dev/shm/")  # noqa: S108 - where the kernel has shared memory
            name = "center" if is_center else "libraries" if path.startswith("/") else "other"
            parts["heap" if path == "[heap]" else name] += mapping.n_bytes
            continue
        of_regions = sum(last - first for first, last in regions if mapping.first <= first < last <= mapping.last)
        tensors = min(mapping.n_bytes, of_regions)
        parts["tensors"] += tensors
        is_large = mapping.last - mapping.first >= LARGE_BYTES
        parts["arrays" if is_large else "other"] += mapping.n_bytes - tensors
    return parts


def resident_bytes(pid: int) -> int:
    """Return the resident bytes of a process; 0 after the end of the process."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0


def worker_pids(driver: int) -> Iterator[int]:
    """Yield the worker processes of a driver."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            command = path.with_name("cmdline").read_text()
        except OSError:
            continue  # the process has ended
        if parent == driver and "deepspark_ops.train.worker" in command.split("\0"):
            yield int(path.parent.name)


def looks_of_training(config: Path) -> list[Counter[str]]:
    """Train; return the parts of each worker at the largest reading."""
    looks: dict[int, list[Mapping]] = {}
    log = config.with_name("log")
    command = [sys.executable, "-m", "deepspark_ops.train.driver.process_job", str(config)]
    environment = {**os.environ, "TF_CPP_VMODULE": "bfc_allocator=1", "TF_CPP_MIN_LOG_LEVEL": "0"}
    with (
        log.open("wb") as output,
        subprocess.Popen(command, cwd=config.parent, stdout=output, stderr=output, env=environment) as training,
    ):
        largest: Counter[int] = Counter()
        while training.poll() is None:
            for pid in worker_pids(training.pid):
                if (n_bytes := resident_bytes(pid)) > LOOK_AGAIN * largest[pid] and (mappings := mappings_of(pid)):
                    largest[pid], looks[pid] = n_bytes, mappings
            time.sleep(PAUSE_S)
    text = log.read_text(errors="replace")
    if training.returncode:
        sys.exit(text)
    regions = [(int(match[1], 16), int(match[2], 16)) for match in REGION.finditer(text)]
    return [parts_of(mappings, regions) for mappings in looks.values()]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", type=Path, default=CAFFENET)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--size", type=int, default=227, help="height and width of the images")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minibatches", type=int, default=24)
    parser.add_argument("--comm-period", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deepspark-memory-") as folder:
        looks = looks_of_training(written_config(Path(folder), options))
    rows = [{"total": parts.total() >> 20, **{name: parts[name] >> 20 for name in PARTS}} for parts in looks]
    if options.json:
        print(json.dumps(rows))
        return
    for number, row in enumerate(rows):
        print(f"worker {number}: " + ", ".join(f"{name} {mib:,}" for name, mib in row.items()) + " MiB")


if __name__ == "__main__":
    main()
