"""Time of a minibatch on a free core: configured, measured by a run, or estimated from operations."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Final, Literal

from deepspark_ops.config.commands.plan import PlanConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.events import Event, read_events
from deepspark_ops.planning.net_size import NetSize
from deepspark_ops.run_paths import RunPaths

CORE_FLOPS: Final = 75e9
"""Default operations per second of one thread in training. Measured on two cores with AVX-512: LeNet 52e9,
cifar10_quick 100e9."""
StepSource = Literal["given", "run", "estimate"]


def step_time(config: PlanConfig, size: NetSize) -> tuple[float, StepSource, str]:
    """Return seconds of a minibatch, their source, and a note.

    An estimate is for ``threads_per_worker`` threads; for one thread if the option is ``auto``.
    """
    if config.step_ms is not None:
        return config.step_ms / 1e3, "given", ""
    if config.from_run is not None:
        return run_step_time(config.from_run, size.images_per_step), "run", ""
    if not size.step_flops:
        msg = f"{config.solver}: the net's operations are not known; say how long a minibatch takes (step_ms, from_run)"
        raise ConfigError(msg)
    n_threads = 1 if config.threads_per_worker == "auto" else config.threads_per_worker
    step_s = size.step_flops / (CORE_FLOPS * n_threads)
    note = (
        f"a minibatch is estimated to take {1e3 * step_s:.1f} ms: {size.step_flops / 1e9:.1f} GFLOP, three times the"
        f" forward pass, at {CORE_FLOPS / 1e9:.0f} GFLOP/s per thread; it may be off by a factor of two; give"
        " step_ms or from_run for a measured time"
    )
    return step_s, "estimate", note


def run_step_time(run_dir: Path, images_per_step: int) -> float:
    """Return the median seconds of a minibatch in a run, with waiting for data, without exchanges.

    A loss event holds seconds and images/s of its interval. Intervals with a part of the model's first call, which
    builds the graph, are left out. Each worker's first interval is left out, too, because older runs do not mark the
    call.

    Raises:
        ConfigError: The folder is no run, or the run has too few loss events.
    """
    path = RunPaths(run_dir).events
    if not run_dir.is_dir():
        msg = f'from_run={run_dir}: no such folder; give one that "deepspark train" wrote'
        raise ConfigError(msg)
    reported_workers: set[int] = set()
    step_times = []
    for event in read_events(path):
        if event.kind != "loss":
            continue
        if (
            event.worker in reported_workers
            and not event.data.get("first_call")
            and (step_s := _interval_step_time(event, images_per_step))
        ):
            step_times.append(step_s)
        reported_workers.add(event.worker)
    if not step_times:
        msg = f"from_run={run_dir}: {path.name} holds no worker's second loss line; give a run that trained for longer"
        raise ConfigError(msg)
    return median(step_times)


def _interval_step_time(event: Event, images_per_step: int) -> float:
    data = event.data
    try:
        busy_s = float(data["compute_s"]) + float(data["data_s"])
        n_steps = float(data["images_per_s"]) * (busy_s + float(data["exchange_s"])) / images_per_step
    except (KeyError, ValueError):
        return 0.0  # an event of an older release, without these numbers
    return busy_s / n_steps if n_steps else 0.0
