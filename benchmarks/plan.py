"""Compare ``deepspark plan`` with measured runs: ``python benchmarks/plan.py [--json] [--nets lenet,cifar10_quick]``.

Runs 1, 2 and 4 workers on this machine, without Spark and Airflow. Each worker is a process with the real net, data,
worker loop and exchange. The clock shows images/s in the steady state. Then the script predicts images/s from three
inputs: the step time of the run with one worker, the rates of ``benchmarks/exchange.py``, and the number of cores. The
row of one worker checks the part of the exchange alone. The other rows check the prediction.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from exchange import compare
from strategies import NETS, ROOT, dataset_of

from deepspark_ops.config.commands.plan import PlanConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.events import read_events
from deepspark_ops.exchange.client import connect
from deepspark_ops.exchange.server.launch import RunningExchange, start_exchange
from deepspark_ops.exchange.transport.connection import ExchangeAddress
from deepspark_ops.param_vector import CHUNK_FLOATS
from deepspark_ops.planning.plan import make_plan
from deepspark_ops.planning.step_time import run_step_time
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.setup.run_setup import prepare_run
from deepspark_ops.train.snapshots.start import exchange_settings, plan_start

SPAWN = multiprocessing.get_context("spawn")
CORES = len(os.sched_getaffinity(0))
START_S = 90.0
EXCHANGE_ROUND_S = 0.1


@dataclass(frozen=True)
class Row:
    """Images/s of a number of workers; ``error`` is predicted / measured - 1.

    ``step_ms`` and ``worker_cores`` come from the run with one worker, and the other rows are predicted from both.
    """

    net: str
    workers: int
    comm_period: int
    step_ms: float
    worker_cores: float
    measured: float
    predicted: float
    error: float


def work(run_dir: str, worker: int, address: ExchangeAddress) -> None:
    """Run a worker in this process until the process is killed."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    from deepspark_ops.train.worker.process import run_worker
    from deepspark_ops.train.worker.task import WorkerTask

    run_worker(WorkerTask(Path(run_dir), worker, 0, None, 0), connect(address))


def measure(
    net: str, dataset: Path, n_workers: int, comm_period: int, seconds: float, folder: Path
) -> tuple[float, float]:
    """Return images/s of all workers in the steady state and the cores each kept busy; events stay in ``folder``."""
    config = TrainConfig(
        solver=ROOT / NETS[net].solver,
        overrides="max_iter: 10000000 snapshot: 0 test_interval: 10000000 test_initialization: false display: 50",
        dataset=dataset,
        run_dir=folder,
        n_workers=n_workers,
        comm_period=comm_period,
        threads_per_worker=1,
    )
    prepared = prepare_run(config)
    start = plan_start(prepared.run)
    with start_exchange(exchange_settings(prepared, start), start.center) as exchange:
        crew: list[BaseProcess] = [
            SPAWN.Process(target=work, args=(str(folder), i, exchange.address), daemon=True) for i in range(n_workers)
        ]
        try:
            for process in crew:
                process.start()
            wait_until_steady(prepared.run, exchange)
            began, first, worked = time.monotonic(), exchange.poll().acknowledged, cpu_seconds(crew)
            time.sleep(seconds)
            acknowledged, ended = exchange.poll().acknowledged - first, time.monotonic()
            busy = (cpu_seconds(crew) - worked) / (ended - began) / n_workers
        finally:
            for process in crew:
                process.kill()
                process.join()
    return acknowledged * prepared.run.images_per_step() / (ended - began), busy


def cpu_seconds(crew: list[BaseProcess]) -> float:
    """Return the processor time of the processes, summed over all threads."""
    fields = [Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split() for process in crew]
    return sum(int(process_fields[11]) + int(process_fields[12]) for process_fields in fields) / os.sysconf(
        "SC_CLK_TCK"
    )


def wait_until_steady(run: Run, exchange: RunningExchange) -> None:
    """Wait for the second loss line of every worker: graphs are compiled, caches filled."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        reporters = [event.worker for event in read_events(run.paths.events) if event.kind == "loss"]
        if all(reporters.count(worker) >= 2 for worker in range(run.config.n_workers)):
            return
        time.sleep(0.3)
    msg = f"no steady state within {START_S:g} s: {exchange.poll()}"
    raise RuntimeError(msg)


def foretell(
    net: str, dataset: Path, step_s: float, busy: float, counts: list[int], comm_period: int
) -> dict[int, float]:
    """Return the predicted images/s by number of workers."""
    probe = make_plan(PlanConfig(solver=ROOT / NETS[net].solver, dataset=dataset, workers="1", step_ms=1e3 * step_s))
    row, server = compare("shm", probe.n_params, 1, CHUNK_FLOATS, EXCHANGE_ROUND_S)
    report = make_plan(
        PlanConfig(
            solver=ROOT / NETS[net].solver,
            dataset=dataset,
            workers=",".join(map(str, counts)),
            comm_period=comm_period,
            transport="shm",
            host_cores=CORES,
            worker_cores=busy,
            step_ms=1e3 * step_s,
            memory_gbytes_per_s=row.exchange / 1e9,
            control_us=server["control_call_us"],
        )
    )
    return {row.workers: row.images_per_s for row in report.rows}


def compare_net(net: str, dataset: Path, options: argparse.Namespace) -> list[Row]:
    """Measure and predict a net."""
    counts = sorted({1, *(int(count) for count in options.workers.split(","))})
    measured: dict[int, float] = {}
    step_s = busy = 0.0
    folder = Path(tempfile.mkdtemp(prefix="deepspark-plan-"))
    try:
        for count in counts:
            run_dir = folder / str(count)
            measured[count], cores = measure(net, dataset, count, options.comm_period, options.seconds, run_dir)
            if count == 1:
                step_s, busy = run_step_time(run_dir, NETS[net].batch_size), cores
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    predicted = foretell(net, dataset, step_s, busy, counts, options.comm_period)
    return [
        Row(net, count, options.comm_period, round(1e3 * step_s, 3), round(busy, 3), round(measured[count], 1),
            round(predicted[count], 1), round(predicted[count] / measured[count] - 1, 4))
        for count in counts
    ]  # fmt: skip


def main() -> int:
    """Compare; 0 if every prediction is within the tolerance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--nets", default="lenet", help=f"separated by commas, of {', '.join(NETS)}")
    parser.add_argument("--workers", default="1,2,4", help="numbers of workers, separated by commas; 1 always runs")
    parser.add_argument("--comm-period", type=int, default=10, help="tau")
    parser.add_argument("--seconds", type=float, default=12.0, help="seconds of each measurement")
    parser.add_argument("--tolerance", type=float, default=0.15, help="largest accepted error")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "plan", help="folder of the ingested digits")
    parser.add_argument("--digits", type=Path, help="ingested dataset of the digits")
    parser.add_argument("--cifar10", type=Path, help="ingested dataset of CIFAR-10")
    options = parser.parse_args()
    rows: list[Row] = []
    for net in options.nets.split(","):
        for row in compare_net(net, dataset_of(net, options), options):
            rows.append(row)
            if not options.json:
                comparison = (
                    f"measured {row.measured:9,.0f} images/s, predicted {row.predicted:9,.0f} ({row.error:+.1%})"
                )
                print(
                    f"{row.net:14} {row.workers} workers: {comparison}; a minibatch {row.step_ms:.2f} ms,"
                    f" {row.worker_cores:.2f} cores",
                    flush=True,
                )
    worst = max(abs(row.error) for row in rows)
    summary: dict[str, Any] = {"cores": CORES, "worst_error": worst, "rows": [asdict(row) for row in rows]}
    print(json.dumps(summary, indent=1) if options.json else f"worst error {worst:.1%}, {CORES} cores")
    return 0 if worst <= options.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
