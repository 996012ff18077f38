"""Measure the overhead of a virtual cluster: ``python benchmarks/simulate.py SOLVER --dataset D``.

Each number of ``--workers`` is a run in a new process. Figures, from each worker's third period on: the share of
processor time in which nets compute (bar: 0.9), and milliseconds of processor time a minibatch. The third figure is the
peak memory of the process in MiB (bar: 4,096 with 64 workers of cifar10_quick).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.simulate import VirtualRunConfig


def measure(solver: Path, dataset: Path, n_workers: int, comm_period: int | str, steps: int) -> dict[str, Any]:
    """Make the run and return the figures."""
    from deepspark_ops.simulation.virtual_run import VirtualModel, run_virtual
    from deepspark_ops.train.worker.net.tf_model import TfModel

    times, computing, counts = [0.0, 0.0], 0.0, [0, 0]
    real = TfModel.run

    def run(model: VirtualModel, **options: Any) -> Any:
        nonlocal computing
        began = time.process_time()
        report = real(model, **options)
        ended = time.process_time()
        counts[0] += 1
        if counts[0] == 2 * n_workers:  # the first calls optimise graphs
            times[0] = ended
        elif counts[0] > 2 * n_workers:
            computing += ended - began
            counts[1] += options["n_steps"]
            times[1] = ended
        return report

    TfModel.run = run  # type: ignore[method-assign, assignment]
    with tempfile.TemporaryDirectory() as folder:
        config = parse_config(
            VirtualRunConfig,
            {
                "solver": solver,
                "dataset": dataset,
                "overrides": f"max_iter: {steps} test_interval: {steps} test_initialization: false",
                "strategy": "easgd",
                "n_workers": n_workers,
                "comm_period": comm_period,
                "step_ms": 50.0,
                "result": Path(folder, "result.json"),
            },
        )
        run_virtual(config, Path(folder, "run"))
    return {
        "workers": n_workers,
        "computing_share": round(computing / (times[1] - times[0]), 3),
        "step_ms": round(1e3 * computing / counts[1], 2),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> int:
    """Print a line of JSON for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("solver", type=Path)
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--workers", default="1,4", help="numbers of workers, separated by commas")
    parser.add_argument("--comm-period", default="auto")
    parser.add_argument("--steps", type=int, default=6, help="minibatches of each worker")
    options = parser.parse_args()
    period = options.comm_period if options.comm_period == "auto" else int(options.comm_period)
    context = multiprocessing.get_context("spawn")
    for count in map(int, options.workers.split(",")):
        with context.Pool(1) as pool:
            steps = max(60, options.steps * count)
            print(json.dumps(pool.apply(measure, (options.solver, options.dataset, count, period, steps))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
