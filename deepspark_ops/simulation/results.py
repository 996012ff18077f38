"""The result of a run of a virtual cluster, and the result's file."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from caffe_import.file_access.regular_file import regular_text
from caffe_import.files.prototxt import format_message
from caffe_import.solver.loaded_solver import load_solver
from deepspark_ops.config.commands.simulate import VirtualRunConfig
from deepspark_ops.events import Event
from deepspark_ops.exchange.comm_period import MAX_COMM_PERIOD
from deepspark_ops.exchange.strategies.base import configure
from deepspark_ops.exchange.strategies.options import parse_strategy_options
from deepspark_ops.run_paths import write_text_whole
from deepspark_ops.run_view.chart_lines import is_share
from deepspark_ops.run_view.series import net_outputs
from deepspark_ops.shards.manifest import split_digests
from deepspark_ops.train.worker.rates import measured_rates, rate_scale, stable_rate
from deepspark_ops.train.worker.rates.stabiliser import LEAST_FALL

RESULT_VERSION: Final = 1


class Frozen(BaseModel):
    """Immutable plain values."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class CurvePoint(Frozen):
    """A test net on the center.

    Attributes:
        clock: Minibatches over all workers.
        virtual_s: Virtual seconds since the start.
        value: Of the figure.
    """

    clock: int
    virtual_s: float
    value: float


class VirtualResult(Frozen):
    """The course of one run.

    Attributes:
        strategy: As given; with one worker every strategy is plain training.
        workers: p.
        seed: Of net, data and times.
        figure: Output of the first test net that is told: its accuracy, else its first number.
        accuracy: The figure at the last test; None where the run failed.
        virtual_s: Virtual seconds until the last minibatch was done.
        clock: Minibatches over all workers.
        bytes: Of parameters that workers pushed and pulled.
        exchanges: Of all workers.
        comm_period: tau at the end, the longest of any worker.
        root_comm_period: tau of hosts, likewise; 0 without a tree of centers.
        staleness: Exchanges of others between two of one worker, mean; 0 where all exchange in one round.
        center_load: Share of the time in which the center was busy.
        exchange_share: Share of the workers' time with an exchange under way, waiting included.
        slow_workers: Stragglers among the workers.
        reissued_grants: Grants of dead workers that were given to others.
        host_s: Seconds that the run took here.
        digest: SHA-256 of the parameters at the end: equal ones are equal bit for bit.
        failure: Why it failed, e.g. a loss that is not finite; None if it did not.
        curve: The tests, by time.
    """

    strategy: str
    workers: int
    seed: int
    figure: str
    accuracy: float | None
    virtual_s: float
    clock: int
    bytes: int
    exchanges: int
    comm_period: int
    root_comm_period: int = 0
    staleness: float
    center_load: float
    exchange_share: float
    slow_workers: int
    reissued_grants: int
    host_s: float
    digest: str
    failure: str | None
    curve: tuple[CurvePoint, ...]

    @property
    def higher_is_better(self) -> bool:
        """Whether the figure is an accuracy, and no loss."""
        return is_share(self.figure)


def main_figure(tests: Sequence[Event]) -> str:
    """Return the reported output of a test net: the first output with an accuracy's name, else the first number.

    Empty without a test.
    """
    names = list(net_outputs(tests[0])) if tests else []
    return next((name for name in names if is_share(name)), names[0] if names else "")


def time_to(curve: Sequence[CurvePoint], target: float, *, higher_is_better: bool) -> float | None:
    """Return the virtual seconds until the first test with at least the target; None without such a test.

    Example:
        >>> curve = [CurvePoint(clock=c, virtual_s=s, value=v) for c, s, v in ((10, 1.0, 0.6), (20, 2.0, 0.8))]
        >>> [time_to(curve, target, higher_is_better=True) for target in (0.6, 0.7, 0.9)]
        [1.0, 2.0, None]
    """
    reached = [
        point.virtual_s
        for point in curve
        if not math.isnan(point.value) and (point.value >= target if higher_is_better else point.value <= target)
    ]
    return min(reached, default=None)


def result_file(folder: Path, config: VirtualRunConfig, inputs: str) -> Path:
    """Return the file of a run's result; every input of the result changes the file's name.

    Args:
        folder: Of the results.
        config: The run; where its result, solver and dataset lie is not looked at.
        inputs: ``digest_of_inputs`` of its solver, nets and data.
    """
    # Results from before these options keep their names.
    fields = VirtualRunConfig.model_fields
    later = {name for name in ("workers_per_host", "overlap") if getattr(config, name) == fields[name].default}
    options = config.model_dump_json(exclude={"result", "solver", "dataset", *later})
    digest = hashlib.sha256(f"{RESULT_VERSION} {inputs} {options} {_defaults_of(config)}".encode()).hexdigest()[:12]
    seed = "own" if config.seed is None else config.seed
    return folder / f"{config.strategy}-w{config.n_workers}-s{seed}-{digest}.json"


def _defaults_of(config: VirtualRunConfig) -> str:
    """Return the defaults of options that the run leaves open: other defaults would give another result."""
    p = config.n_workers
    parsed = parse_strategy_options(config.strategy, config.strategy_options, n_workers=p)
    strategy = configure(config.strategy, parsed.options).for_workers(p)
    alpha = strategy.default_moving_rate(p) if config.moving_rate is None else None
    is_auto = config.comm_period == "auto"
    period = (strategy.least_auto_period, strategy.most_exchange_share, MAX_COMM_PERIOD) if is_auto else ()
    strategy_values = (period, alpha, strategy.progress_per_step(p), strategy.rate_factor(p))
    warmup = _numbers_of(rate_scale)
    falls = (LEAST_FALL,) if strategy.momentum_from_center else ()
    measured = _numbers_of(measured_rates) if strategy.measured_rates else []
    root_level = () if strategy.root_level is None else (strategy.root_level,)
    overlapped = _numbers_of(stable_rate) if strategy.measured_rates and config.overlap else []
    return repr((strategy, strategy_values, warmup, *falls, *measured, *root_level, *overlapped))


def _numbers_of(module: ModuleType) -> list[float]:
    """Return the values of a module's numeric constants."""
    values = (getattr(module, name) for name in sorted(vars(module)) if name.isupper())
    return [value for value in values if isinstance(value, int | float)]


def digest_of_inputs(config: VirtualRunConfig) -> str:
    """Return the SHA-256 of solver, nets and the dataset's manifests.

    Raises:
        CaffeImportError: Solver or nets.
    """
    loaded = load_solver(config.solver, config.overrides)
    inputs = hashlib.sha256()
    for message in (loaded.spec.message, loaded.train_net, *loaded.test_nets):
        inputs.update(format_message(message).encode())
    if config.dataset is not None:
        for split, digest in split_digests(config.dataset).items():
            inputs.update(f"{split} {digest}\n".encode())
    return inputs.hexdigest()


def write_result(path: Path, result: VirtualResult) -> None:
    """Write the result whole or not at all."""
    plain = {"format_version": RESULT_VERSION, "result": result.model_dump()}
    write_text_whole(path, json.dumps(plain, indent=1))


def read_result(path: Path) -> VirtualResult | None:
    """Return the result of a file; None for a missing, damaged or older file: the run is repeated."""
    try:
        plain = json.loads(regular_text(path))
        return VirtualResult.model_validate(plain["result"]) if plain["format_version"] == RESULT_VERSION else None
    except (OSError, ValueError, KeyError, TypeError, ValidationError):
        return None
