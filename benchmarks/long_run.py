"""Measure whether a training stays fast: ``python benchmarks/long_run.py SOLVER --dataset DATASET [--json]``.

``deepspark train`` runs for ``--minutes`` (30) and is then stopped. The figures are of each minute: images per second
of all workers, the shares of time of exchange and of waiting for data, and the memory of the largest worker. The first
minute has the compilation of the graph.

The bars: images/s of the last minute at least 0.95 of the second minute's, exchange below 0.02, data below 0.01. The
exit code is 1 below a bar.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.time_to_accuracy import DEEPSPARK, end  # noqa: E402
from deepspark_ops.events import Event, read_events  # noqa: E402

LEAST_RATE = 0.95
LEAST_MINUTES = 3
MOST_EXCHANGE = 0.02
MOST_WAIT = 0.01


@dataclass(frozen=True)
class Minute:
    """A minute of a training.

    Attributes:
        images_per_s: Of all workers.
        exchange: Share of the workers' time.
        wait: Share of the workers' time without data.
        memory_mib: Of the largest worker.
    """

    images_per_s: float
    exchange: float
    wait: float
    memory_mib: float


def minutes_of(events: Iterable[Event], n_workers: int) -> list[Minute]:
    """Return the whole minutes from the first step on; ``events`` are those of a run."""
    losses = [event for event in events if event.kind == "loss"]
    by_minute: dict[int, list[Mapping[str, float]]] = {}
    for event in losses:
        by_minute.setdefault(int((event.time - losses[0].time) // 60), []).append(event.data)
    return [_minute(by_minute[number], n_workers) for number in sorted(by_minute)[:-1]]


def _minute(losses: list[Mapping[str, float]], n_workers: int) -> Minute:
    seconds = [loss["compute_s"] + loss["data_s"] + loss["exchange_s"] for loss in losses]
    n_images = sum(loss["images_per_s"] * each for loss, each in zip(losses, seconds, strict=True))
    total = sum(seconds)
    return Minute(
        round(n_workers * n_images / total, 1),
        round(sum(loss["exchange_s"] for loss in losses) / total, 4),
        round(sum(loss["data_s"] for loss in losses) / total, 4),
        round(max(loss.get("memory_bytes", 0) for loss in losses) / 2**20, 1),
    )


def keeps_bars(minutes: list[Minute]) -> bool:
    """Return whether the training stays fast: from the second minute on."""
    later = minutes[1:]
    return (
        later[-1].images_per_s >= LEAST_RATE * later[0].images_per_s
        and max(minute.exchange for minute in later) < MOST_EXCHANGE
        and max(minute.wait for minute in later) < MOST_WAIT
    )


def train(solver: Path, dataset: Path, n_workers: int, minutes: float, folder: Path) -> list[Event]:
    """Train for some minutes; return the run's events."""
    command = [DEEPSPARK, "train", str(solver), "--dataset", str(dataset), "--run-dir", str(folder / "run")]
    command += ["--n-workers", str(n_workers), "--overrides", "max_iter: 100000000 test_interval: 1000000 snapshot: 0"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, start_new_session=True)
    try:
        process.wait(60 * minutes + 60)
    except subprocess.TimeoutExpired:
        pass
    else:
        msg = f"the training ended early with code {process.returncode}: {(folder / 'log').read_text()[-2000:]}"
        raise ChildProcessError(msg)
    finally:
        end(process)
    return list(read_events(folder / "run" / "events.jsonl"))


def main() -> int:
    """Train, print a row a minute; 0 if all bars hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("solver", type=Path)
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--n-workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=30, help=f"at least {LEAST_MINUTES}")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of lines")
    options = parser.parse_args()
    if options.minutes < LEAST_MINUTES:
        parser.error(f"--minutes {options.minutes:g}: must be at least {LEAST_MINUTES}")
    with tempfile.TemporaryDirectory(prefix="deepspark-long-") as work:
        events = train(options.solver, options.dataset, options.n_workers, options.minutes, Path(work))
    minutes = minutes_of(events, options.n_workers)
    if options.json:
        print(json.dumps({"minutes": [asdict(minute) for minute in minutes]}, indent=1))
    else:
        for number, minute in enumerate(minutes, 1):
            print(
                f"minute {number}: {minute.images_per_s:,.0f} images/s, exchange {minute.exchange:.2%},"
                f" waiting for data {minute.wait:.2%}, {minute.memory_mib:,.0f} MiB"
            )
    return 0 if keeps_bars(minutes) else 1


if __name__ == "__main__":
    sys.exit(main())
