"""Find the right defaults for many workers by runs of the virtual cluster: ``python benchmarks/defaults.py``.

A study varies one option. A cell is a run as ``deepspark simulate`` makes it (10 Gbit/s, 50 ms a minibatch), with the
same number of minibatches for every number of workers. Runs end before the accuracy reaches its limit, where all
variants would look alike. ``--out`` keeps the result of each run, so an interrupted benchmark goes on. A run whose
defaults have changed is made again.

``--write`` adds the results to ``docs/evidence/virtual_runs.jsonl``, where a later call on any machine reads them.
``--write`` also makes the tables of ``docs/evidence/strategies.md`` and ``docs/guides/choose_strategy.md`` (between
marks), the picture, and the table for ``deepspark plan`` and ``--strategy auto``.

  table          the perceptron on the table of examples/table_mlp; the table is made and ingested into --work
  lenet          LeNet on the digits of examples/digits, ingested into --work
  cifar10_quick  cifar10_quick on CIFAR-10, from the dataset that --cifar10 names (examples/cifar10/README.md)
  cifar10_short  the same with three tenths of the minibatches, for studies of many runs
  autoencoder, autoencoder_sgd, lstm, siamese  nets of other kinds for the study ``kinds``, on digits of 8x8 pixels
  residual8, residual8_adam  residual nets of 8 layers on CIFAR-10, for the study ``kinds``
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest import mock
from xml.sax.saxutils import escape

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.simulate import VirtualRunConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.evaluate.charts import Band, Line, line_chart
from deepspark_ops.exchange.strategies.base import Strategy, find_strategy
from deepspark_ops.exchange.strategies.measured import MEASURED_FILE
from deepspark_ops.processes.spark_submit import run_job
from deepspark_ops.run_paths import write_text_whole
from deepspark_ops.simulation.results import (
    CurvePoint,
    VirtualResult,
    digest_of_inputs,
    read_result,
    result_file,
    time_to,
    write_result,
)
from deepspark_ops.train.worker.rates import rate_scale
from deepspark_ops.train.worker.rates.rate_scale import RateScale, plan_rate_scale

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "evidence"
CHOICE_PAGE = ROOT / "docs" / "guides" / "choose_strategy.md"
RECORDED = DOCS / "virtual_runs.jsonl"
SEEDS = (1, 2, 3)
ASYNCHRONOUS = ("easgd", "downpour", "staleness", "softsync", "dcasgd", "async_diloco")
IN_ROUNDS = ("sync", "local_sgd", "diloco")
CHOSEN = ("easgd", "local_sgd", "sync")
CHOICE_WORKERS = (2, 4, 8, 16)
"""Columns and rows of the table of ``docs/guides/choose_strategy.md``."""
TESTS = 20
"""Tests in a run."""
PAIRS = "datasets/digit_pairs"
"""Folder of the siamese net's pairs, relative to the repository."""
TARGET_BELOW = 0.02
WIDTH, HEIGHT = 520, 250
COLOURS = ("#2878be", "#d98a1f", "#2f9270", "#a3559d", "#c0392b", "#1d2026", "#8a8f98", "#6b8e23", "#7a5230")
STYLE = (
    "text{font:11.5px Helvetica,Arial,sans-serif;fill:#1d2026}.tick,.axis{fill:#626873}"
    ".grid{stroke:#e4e2dd;stroke-width:1}.title{font-size:17px;font-weight:bold}.name{font-size:13px;font-weight:bold}"
    ".line{fill:none;stroke-width:2;stroke-linejoin:round}.band{fill-opacity:0.12;stroke:none}"
    + "".join(
        f".line-{i}{{stroke:{c}}}circle.line-{i}{{fill:{c};stroke:#fff}}.band.line-{i}{{fill:{c};stroke:none}}"
        for i, c in enumerate(COLOURS)
    )
)


@dataclass(frozen=True)
class Net:
    """A net to train.

    Attributes:
        title: Name in the tables.
        solver: File of the solver.
        minibatches: Length of a run.
        overrides: Solver fields of a run, without the length.
        target: Accuracy for the times; None: one worker's accuracy less two points.
        studies: Studies with this net; empty: all.
        data: Name of the dataset; empty: the net reads other files.
        longer: Number of workers -> minibatches and solver fields of a run that reaches the target.
    """

    title: str
    solver: str
    minibatches: int
    overrides: str = ""
    target: float | None = None
    studies: tuple[str, ...] = ()
    data: str = "cifar10"
    longer: Mapping[int, tuple[int, str]] = field(default_factory=dict)


AUTOENCODER = "examples/autoencoder/autoencoder_solver.prototxt"
LSTM = "benchmarks/nets/lstm_digits_solver.prototxt"
RESIDUAL = "benchmarks/nets/residual8_solver.prototxt"
KINDS = ("kinds", "warm_up", "share", "limit", "overlap")
NETS = {
    "table": Net("perceptron, table", "examples/table_mlp/mlp_solver.prototxt", 2_000, data="risk"),
    "lenet": Net("LeNet, digits", "examples/digits/lenet_solver.prototxt", 600, data="digits"),
    "cifar10_quick": Net(
        "cifar10_quick, CIFAR-10",
        "examples/cifar10/solver.prototxt",
        5_000,
        target=0.73,
        longer={8: (6_000, "stepvalue: 4800"), 16: (7_200, "stepvalue: 6400")},
    ),
    "cifar10_short": Net(
        "cifar10_quick, CIFAR-10, 1,500 minibatches",
        "examples/cifar10/solver.prototxt",
        1_500,
        "stepvalue: 1200",
        studies=("moving_rate", "tau", "rate", "momentum"),
    ),
    "autoencoder": Net("autoencoder, Adam, loss", AUTOENCODER, 2_000, studies=KINDS, data="digits8"),
    "autoencoder_sgd": Net(
        "autoencoder, SGD, loss", AUTOENCODER, 2_000, 'type: "SGD" base_lr: 0.05', studies=KINDS, data="digits8"
    ),
    "lstm": Net(
        "LSTM, rows of digits", "benchmarks/nets/lstm_digits_solver.prototxt", 1_000, studies=KINDS, data="digits8"
    ),
    "siamese": Net("siamese pairs, loss", "examples/siamese/siamese_solver.prototxt", 1_500, studies=KINDS, data=""),
    "residual8": Net("residual net of 8 layers", RESIDUAL, 1_000, studies=KINDS),
    "residual8_adam": Net("the same, Adam", RESIDUAL, 1_000, 'type: "Adam" base_lr: 0.001', studies=KINDS),
}

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """A question, and the options that answer the question.

    Attributes:
        title: The question.
        workers: Numbers of workers.
        variants: Column of the table -> options of the column's runs, by the number of workers.
        base: Row of the table -> options of the row's runs.
        is_longer: Whether runs with several workers have the lengths of ``Net.longer``.
    """

    title: str
    workers: Sequence[int]
    variants: Mapping[str, Callable[[int], Fields]]
    base: Mapping[str, Fields] = field(default_factory=lambda: {"": {}})
    is_longer: bool = False


def same(**fields: Any) -> Callable[[int], Fields]:
    """Return options for any number of workers."""
    return lambda _n_workers: fields


_TAUS: Mapping[str, Fields] = {f"tau {tau}": {"comm_period": tau} for tau in (1, 10)}
STUDIES = {
    "moving_rate": Study(
        "Moving rate of `easgd`",
        (4, 8, 16, 32),
        {
            "0.9/p": lambda p: {"moving_rate": min(0.45, 0.9 / p)},
            "0.3": same(moving_rate=0.3),
            "2.4/p": lambda p: {"moving_rate": min(0.3, 2.4 / p)},
            "0.45": same(moving_rate=0.45),
        },
        _TAUS,
    ),
    "tau": Study(
        "Minibatches between the exchanges of `easgd`",
        (4, 8),
        {f"tau {tau}": same(comm_period=tau) for tau in (1, 2, 4, 10)},
    ),
    "rate": Study(
        "Largest factor on the solver's rate",
        (4, 8),
        {f"at most {cap}": same(cap=float(cap)) for cap in (1, 2, 4, 6, 8)},
        {
            "easgd, tau 1": {"comm_period": 1},
            "sync": {"strategy": "sync"},
            **{f"downpour, tau {tau}": {"strategy": "downpour", "comm_period": tau} for tau in (3, 10)},
        },
    ),
    "momentum": Study(
        "Momentum of `downpour` on cifar10_quick, the rate raised so that a step comes to the same",
        (4,),
        {f"{m}": same(overrides=f"momentum: {m} base_lr: {0.01 * (1 - m):.3g}") for m in (0.9, 0.6)},
        {f"tau {tau}": {"strategy": "downpour", "comm_period": tau} for tau in (1, 3, 10)},
    ),
    "diloco": Study(
        "Outer rate and momentum of `diloco` and `async_diloco`",
        (4, 8),
        {
            f"{rate}, {momentum}": same(strategy_options=f"outer_rate: {rate} outer_momentum: {momentum}")
            for rate, momentum in ((0.7, 0.9), (0.7, 0.6), (0.7, 0.3), (0.7, 0.2), (0.4, 0.6), (0.7, 0.0))
        },
        {name: {"strategy": name, "comm_period": 10} for name in ("diloco", "async_diloco")},
    ),
    "strategies": Study(
        "Every strategy at its defaults",
        (2, 4, 8, 16, 32),
        {name: same(strategy=name) for name in ASYNCHRONOUS + IN_ROUNDS},
    ),
    "stragglers": Study(
        "One worker in eight three times slower",
        (8, 16),
        {name: same(strategy=name, stragglers=0.125) for name in ASYNCHRONOUS + IN_ROUNDS},
    ),
    "kinds": Study(
        "Nets of other kinds",
        (4, 8),
        {name: same(strategy=name) for name in ("easgd", "sync")},
    ),
    "warm_up": Study(
        "Warm-up of `easgd` for factors above 4, updates of each worker for each unit of the factor",
        (4, 8),
        {
            "12.5": same(constants={"UPDATES_PER_FACTOR": 12.5}),
            "the default": same(),
            "50": same(constants={"UPDATES_PER_FACTOR": 50}),
            "as for smaller factors": same(constants={"LONG_WARMUP_ABOVE": float("inf")}),
        },
    ),
    "share": Study(
        "Share of momentum from the center",
        (4, 8),
        {
            "0.25": same(strategy_options="momentum_from_center: 0.25"),
            "the default": same(),
            "1": same(strategy_options="momentum_from_center: 1"),
        },
    ),
    "limit": Study(
        "Largest factor on the rate of `easgd`",
        (16, 32),
        {**{f"at most {cap:g}": same(cap=cap) for cap in (6.5, 13.0, 26.0)}, "the default": same()},
    ),
    "overlap": Study(
        "Exchanges of `easgd` that overlap the steps",
        (2, 4, 8),
        {
            "without overlap": same(),
            "with overlap": same(overlap=True),
            "half the factor": lambda p: {"overlap": True, "cap": 0.5 * find_strategy("easgd").rate_factor(p)},
            "a quarter": lambda p: {"overlap": True, "cap": 0.25 * find_strategy("easgd").rate_factor(p)},
        },
        {f"tau {tau}": {"comm_period": tau} for tau in (1, 2, 4)},
    ),
    "longer": Study(
        "Runs that are long enough for the target",
        (8, 16),
        {name: same(strategy=name) for name in ASYNCHRONOUS + IN_ROUNDS},
        {"equal workers": {}, "one in eight three times slower": {"stragglers": 0.125}},
        is_longer=True,
    ),
}


@dataclass(frozen=True)
class Cell:
    """A run.

    Attributes:
        net: Key of NETS.
        study: Key of STUDIES.
        row: Key of the study's ``base``.
        variant: Column.
        workers: Number of workers.
        seed: Seed of net, data and times.
        minibatches: Clock at the end.
        options: Options of the run; ``cap`` bounds the strategy's ``rate_factor``, ``constants`` are ``rate_scale``'s.
    """

    net: str
    study: str
    row: str
    variant: str
    workers: int
    seed: int
    minibatches: int
    options: Fields


def config_of(cell: Cell) -> VirtualRunConfig:
    """Return a run's config without dataset and result file; call this function under ``capped``."""
    net = NETS[cell.net]
    every = max(1, cell.minibatches // TESTS)
    length = f"max_iter: {cell.minibatches} test_interval: {every} test_initialization: false"
    fields = {
        "strategy": "easgd",
        **{name: value for name, value in cell.options.items() if name not in ("cap", "constants")},
        "solver": ROOT / net.solver,
        "overrides": " ".join(filter(None, (length, net.overrides, cell.options.get("overrides")))),
        "n_workers": cell.workers,
        "seed": cell.seed,
        "step_ms": 50.0,
        "network": "10gbit,200us",
        "result": Path(),
    }
    return parse_config(VirtualRunConfig, fields)


@contextmanager
def capped(options: Fields) -> Iterator[None]:
    """Apply a cell's ``cap`` and ``constants`` within the block."""
    with ExitStack() as patches:
        if "cap" in options:
            kind = type(find_strategy(options.get("strategy", "easgd")))
            patches.enter_context(
                mock.patch.object(
                    kind, "rate_factor", lambda strategy, p: min(options["cap"], 1 / strategy.progress_per_step(p))
                )
            )
        for name, value in options.get("constants", {}).items():
            patches.enter_context(mock.patch.object(rate_scale, name, value))
        yield


def cells_of(study: str, nets: Sequence[str], seeds: Sequence[int], workers: Sequence[int]) -> Iterator[Cell]:
    """Yield the runs of a study, net by net: first one worker, then ascending numbers of workers."""
    definition = STUDIES[study]
    for net in nets:
        length = NETS[net].minibatches
        if (NETS[net].studies and study not in NETS[net].studies) or (definition.is_longer and not NETS[net].longer):
            continue
        for seed in seeds:
            yield Cell(net, study, "", "", 1, seed, length, {"strategy": "easgd"})
        for p in definition.workers:
            if workers and p not in workers:
                continue
            length, fields = NETS[net].longer[p] if definition.is_longer else (NETS[net].minibatches, "")
            length_options = {"overrides": fields} if fields else {}
            for seed in seeds:
                for row, base in definition.base.items():
                    for variant, of in definition.variants.items():
                        yield Cell(net, study, row, variant, p, seed, length, {**base, **of(p), **length_options})


def run_cell(config: VirtualRunConfig, options: Fields, niceness: int) -> float:
    """Make a run in a new process, write the result, and return the seconds. A failure of the run is a result."""
    os.nice(niceness)
    os.chdir(ROOT)
    from deepspark_ops.simulation.virtual_run import run_virtual

    with capped(options):
        result = run_virtual(config, config.result.with_suffix(".run"))
    write_result(config.result, result)
    return result.host_s


@dataclass
class Runs:
    """Folders of results and datasets.

    Attributes:
        out: Folder of the results of this machine.
        work: Folder of the datasets that this benchmark ingests.
        cifar10: Dataset of cifar10_quick.
        recorded: File name -> result in ``docs/evidence``, from any machine.
    """

    out: Path
    work: Path
    cifar10: Path | None
    recorded: Mapping[str, VirtualResult] = field(default_factory=dict)
    _inputs: dict[str, str] = field(default_factory=dict)

    def file(self, cell: Cell) -> Path:
        """Return the file of a cell's result; the name has the net's digest, and no digest of the dataset."""
        with capped(cell.options):
            config = config_of(cell)
            inputs = f"{config.solver} {config.overrides}"
            if inputs not in self._inputs:
                self._inputs[inputs] = digest_of_inputs(config)
            return result_file(self.out, config, self._inputs[inputs])

    def config(self, cell: Cell) -> VirtualRunConfig:
        """Return a cell's config with dataset and result file."""
        with capped(cell.options):
            dataset = dataset_of(cell.net, self.work, self.cifar10)
            return config_of(cell).model_copy(update={"dataset": dataset, "result": self.file(cell)})

    def results(self, cells: Sequence[Cell]) -> list[VirtualResult]:
        """Return the results of the cells that have a result."""
        results = [self.recorded.get(file.name) or read_result(file) for file in map(self.file, cells)]
        return [result for result in results if result is not None]


def read_recorded(path: Path) -> dict[str, VirtualResult]:
    """Return the results of ``write_recorded`` by file name; a missing file has no results."""
    results = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        plain = json.loads(line)
        name = plain.pop("file")
        curve = [dict(zip(CurvePoint.model_fields, point, strict=True)) for point in plain["curve"]]
        results[name] = VirtualResult.model_validate({**plain, "curve": curve})
    return results


def write_recorded(path: Path, runs: Runs) -> None:
    """Write the results of all cells, a line each, without results of former defaults."""
    lines = {}
    for study in STUDIES:
        for cell in cells_of(study, list(NETS), SEEDS, ()):
            name = runs.file(cell).name
            for result in runs.results([cell]) if name not in lines else ():
                curve = [[point.clock, round(point.virtual_s, 3), point.value] for point in result.curve]
                lines[name] = json.dumps({"file": name, **result.model_dump(exclude={"curve"}), "curve": curve})
    write_text_whole(path, "".join(f"{line}\n" for line in lines.values()))


def run_all(cells: Sequence[Cell], runs: Runs, processes: int, niceness: int) -> None:
    """Make the missing runs, each in a process with TensorFlow loaded."""
    missing = {(config := runs.config(cell)).result: (config, cell) for cell in cells if not runs.results([cell])}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["deepspark_ops.simulation.virtual_run", "__main__"])
    runs.out.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(processes, context, max_tasks_per_child=1) as pool:
        waiting = iter(missing.values())
        running = {pool.submit(run_cell, config, cell.options, niceness): cell for config, cell in waiting}
        for n_done, future in enumerate(as_completed(running), start=1):
            cell = running[future]
            name = f"{cell.net} {cell.study} {cell.row} {cell.variant} p={cell.workers} seed {cell.seed}"
            print(f"{n_done}/{len(missing)} {name}: {future.result():.0f} s", file=sys.stderr, flush=True)


# ------------------------------------------------------------------------------------------------------------- tables


def table(study: str, nets: Sequence[str], seeds: Sequence[int], runs: Runs, *, of_times: bool = False) -> list[str]:
    """Return a study as Markdown: a row per net, tau and number of workers, a column per variant, means over the seeds.

    Cells are accuracies, or speedups over one worker. A net without results has no rows.
    """
    definition = STUDIES[study]
    has_rows = list(definition.base) != [""]
    head = ["net", *(["with"] if has_rows else []), "workers", *definition.variants]
    lines = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    for net in nets:
        cells = list(cells_of(study, [net], seeds, ()))
        single_cells = [cell for cell in cells if cell.workers == 1]

        def text(row_cells: Sequence[Cell], single_cells: Sequence[Cell] = single_cells) -> str:
            return speedup_text(row_cells, single_cells, runs) if of_times else accuracy_text(runs.results(row_cells))

        rows = []
        for row in definition.base:
            for p in definition.workers:
                values = [
                    text([c for c in cells if (c.row, c.workers, c.variant) == (row, p, v)])
                    for v in definition.variants
                ]
                if any(values):
                    rows.append(f"| | {row + ' | ' if has_rows else ''}{p} | {' | '.join(values)} |")
        if rows:
            first = f"{'' if not has_rows else '| '}1 | {' | '.join([text(single_cells)] * len(definition.variants))}"
            lines += [f"| {NETS[net].title} | {first} |", *rows]
    return lines


def table_of_choice(nets: Sequence[str], seeds: Sequence[int], runs: Runs) -> list[str]:
    """Return accuracy and times faster of the strategies in CHOSEN as Markdown: a row per net and number of workers."""
    lines = [f"| net | workers | {' | '.join(f'`{name}`' for name in CHOSEN)} |", "| --- | ---: | --- | --- | --- |"]
    for net in nets:
        cells = list(cells_of("strategies", [net], seeds, ()))
        single_cells = [cell for cell in cells if cell.workers == 1]
        if not runs.results(single_cells):
            continue
        lines.append(
            f"| {NETS[net].title} | 1 | {' | '.join([accuracy_text(runs.results(single_cells))] * len(CHOSEN))} |"
        )
        for p in CHOICE_WORKERS:
            texts = []
            for name in CHOSEN:
                strategy_cells = [cell for cell in cells if (cell.workers, cell.variant) == (p, name)]
                times = speedup_text(strategy_cells, single_cells, runs)
                accuracy = accuracy_text(runs.results(strategy_cells))
                texts.append(f"{accuracy}, {times}" if accuracy else "not measured")
            lines.append(f"| | {p} | {' | '.join(texts)} |")
    return lines


def table_of_defaults() -> list[str]:
    """Return what the strategies of this package do with each number of workers, as Markdown."""
    counts = STUDIES["strategies"].workers
    factor = f"factor on the rate, {_listed(counts)} workers"
    lines = [
        f"| strategy | tau from | {factor} | warm-up of 5,000 minibatches | alpha |",
        "| --- | ---: | --- | --- | --- |",
    ]
    for name in ASYNCHRONOUS + IN_ROUNDS:
        strategy = find_strategy(name)
        running = {p: strategy.for_workers(p) for p in counts}
        scales = [_scale(strategy_of_workers, p) for p, strategy_of_workers in running.items()]
        cells = (
            f"`{name}`",
            strategy.least_auto_period,
            _listed([scale.target for scale in scales]),
            _listed([scale.warmup for scale in scales]),
            _listed(
                [strategy_of_workers.default_moving_rate(p) for p, strategy_of_workers in running.items()]
                if strategy.has_moving_rate
                else []
            ),
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def _scale(strategy: Strategy, workers: int) -> RateScale:
    progress, factor = strategy.progress_per_step(workers), strategy.rate_factor(workers)
    return plan_rate_scale(
        "auto", progress_per_step=progress, factor=factor, n_workers=workers, origin=0, max_iter=5_000
    )


def _listed(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.2g}" if value < 1 else f"{value:,.0f}" for value in values)


def accuracy_text(results: Sequence[VirtualResult]) -> str:
    """Return the mean in per cent, with half the range of several seeds, and the number of failed seeds.

    A loss is a number of three digits.
    """
    sound = [result.accuracy for result in results if result.accuracy is not None]
    if not sound:
        return "diverged" if results else ""
    failed = f", {len(results) - len(sound)} diverged" if len(sound) < len(results) else ""
    if all(result.higher_is_better for result in results):
        return f"{with_range([100 * value for value in sound])}{failed}"
    return f"{with_range(sound, '#.3g')}{failed}"


def speedup_text(cells: Sequence[Cell], single_cells: Sequence[Cell], runs: Runs) -> str:
    """Return the speedup over one worker, or ``never`` if half of the seeds do not reach the target."""
    n_runs = len(runs.results(cells))
    if not n_runs:
        return ""
    faster = speedups(cells, single_cells, runs)
    if faster is None:
        return "never"
    return with_range(faster) + (f" ({len(faster)} of {n_runs})" if len(faster) < n_runs else "")


def with_range(values: Sequence[float], digits: str = ".1f") -> str:
    """Return the mean, with half the range of several values."""
    mean, spread = format(fmean(values), digits), (max(values) - min(values)) / 2
    decimals = len(mean.partition(".")[2])
    return f"{mean} ± {spread:.{decimals}f}" if len(values) > 1 else mean


# ---------------------------------------------------------------------------------------- page, picture, package's file


def speedups(cells: Sequence[Cell], single_cells: Sequence[Cell], runs: Runs) -> list[float] | None:
    """Return a strategy's speedup over one worker at the target, for each seed that reaches the target.

    Return None if half of the seeds or more never reach the target. The target is the net's target, or two points below
    one worker's mean accuracy at the end. The compared time is one worker's mean time to the target.
    """
    single = runs.results(single_cells)
    ends = [result.accuracy for result in single if result.accuracy is not None]
    results = runs.results(cells)
    if not ends or not results:
        return None
    target = NETS[single_cells[0].net].target or fmean(ends) - TARGET_BELOW
    lone, times = (
        [time_to(result.curve, target, higher_is_better=True) for result in group] for group in (single, results)
    )
    single_times = [seconds for seconds in lone if seconds is not None]
    reached = [seconds for seconds in times if seconds is not None]
    if not single_times or 2 * len(reached) <= len(results):
        return None
    return [fmean(single_times) / seconds for seconds in reached]


def best_speedups(
    study: str, net: str, name: str, workers: int, seeds: Sequence[int], runs: Runs
) -> list[float] | None:
    """Return a strategy's ``speedups`` with the faster of both lengths of runs; None without such runs.

    Args:
        study: ``strategies`` or ``stragglers``.
        net: Key of NETS.
        name: The strategy.
        workers: Number of workers.
        seeds: Seeds of the runs.
        runs: The results.
    """
    row = tuple(STUDIES["longer"].base)[study == "stragglers"]
    equal = list(cells_of(study, [net], seeds, [workers]))
    single_cells = [cell for cell in equal if cell.workers == 1]
    lengths = (
        [cell for cell in equal if (cell.variant, cell.workers) == (name, workers)],
        [cell for cell in cells_of("longer", [net], seeds, [workers]) if (cell.row, cell.variant) == (row, name)],
    )
    return max(filter(None, (speedups(cells, single_cells, runs) for cells in lengths)), key=fmean, default=None)


def picture(nets: Sequence[str], seeds: Sequence[int], runs: Runs) -> str:
    """Return the SVG of time to target against workers: every strategy a line, a band over seeds; a row per net."""
    names = ASYNCHRONOUS + IN_ROUNDS
    nets = [net for net in nets if not NETS[net].studies]
    parts: list[str] = []
    for study, x in (("strategies", 0), ("stragglers", 1)):
        for y, net in enumerate(nets):
            lines, bands = [], []
            for number, name in enumerate(names):
                points = []
                for p in STUDIES[study].workers:
                    if values := best_speedups(study, net, name, p, seeds, runs):
                        points.append((float(p), fmean(values), min(values), max(values)))
                if points:
                    points.insert(0, (1.0, 1.0, 1.0, 1.0))  # a single worker by definition
                    style = f"line-{number}"
                    lines.append(Line(name, [(p, mean) for p, mean, _, _ in points], style, has_marks=True))
                    bands.append(Band([(p, low, high) for p, _, low, high in points], style))
            if not lines:
                continue
            to = f"{NETS[net].target:.0%}" if NETS[net].target else "its accuracy less 2 points"
            title = f"{NETS[net].title}, to {to}{': one in eight slow' if x else ''}"
            chart = line_chart(
                lines, label=title, x_label="workers", y_format=lambda value: f"{value:g}", width=WIDTH, height=HEIGHT,
                has_log_x=True, x_ticks=(1, *STUDIES["strategies"].workers), bands=bands,
            )  # fmt: skip
            left, top = 20 + x * (WIDTH + 20), 84 + y * (HEIGHT + 34)
            parts.append(f'<text class="name" x="{left}" y="{top}">{escape(title)}</text>')
            parts.append(f'<svg x="{left}" y="{top + 8}" width="{WIDTH}" height="{HEIGHT}">{chart}</svg>')
    for number, name in enumerate(names):
        left = 20 + 118 * number
        parts.append(f'<line class="line line-{number}" x1="{left}" x2="{left + 24}" y1="52" y2="52"/>')
        parts.append(f'<text x="{left + 30}" y="56">{name}</text>')
    width, height = 2 * (WIDTH + 20) + 20, 84 + len(nets) * (HEIGHT + 34)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' role="img"><style>{STYLE}</style><rect width="100%" height="100%" fill="#ffffff"/>'
        '<text class="title" x="20" y="30">Times faster than one worker to nearly its accuracy</text>'
    )
    return "".join([head, *parts, "</svg>"]) + "\n"


def measured(nets: Sequence[str], seeds: Sequence[int], runs: Runs) -> dict[str, Any]:
    """Return the package's table of the strategies at their defaults, for ``deepspark plan`` and ``auto``."""
    rows = []
    for study, stragglers in (("strategies", 0.0), ("stragglers", 0.125)):
        for net in nets:
            cells = list(cells_of(study, [net], seeds, ()))
            single_cells = [cell for cell in cells if cell.workers == 1]
            single = [result.accuracy for result in runs.results(single_cells) if result.accuracy is not None]
            for name in ASYNCHRONOUS + IN_ROUNDS:
                for p in STUDIES[study].workers:
                    row_cells = [cell for cell in cells if (cell.variant, cell.workers) == (name, p)]
                    ends = [result.accuracy for result in runs.results(row_cells) if result.accuracy is not None]
                    if not ends or not single:
                        continue
                    faster = best_speedups(study, net, name, p, seeds, runs)
                    rows.append({
                        "net": NETS[net].title, "strategy": name, "workers": p, "stragglers": stragglers,
                        "minibatches": NETS[net].minibatches, "seeds": len(ends),
                        "lost_points": round(100 * (fmean(single) - fmean(ends)), 2),
                        "times_faster": round(fmean(faster), 2) if faster else None,
                    })  # fmt: skip
    return {"format_version": 1, "made_by": "python benchmarks/defaults.py --write", "rows": rows}


def put_between_marks(text: str, name: str, lines: Sequence[str]) -> str:
    """Return the page with a study's lines between the study's marks.

    Raises:
        ValueError: The page lacks these marks.
    """
    begin, end = f"<!-- {name} begin -->", f"<!-- {name} end -->"
    head, _, tail = text.partition(begin)
    _, end_mark, foot = tail.partition(end)
    if not end_mark:
        msg = f"no {begin} ... {end}"
        raise ValueError(msg)
    return "\n".join([f"{head}{begin}", *lines, f"{end}{foot}"])


def write_all(runs: Runs) -> None:
    """Write results, the tables of both pages, the picture and the package's file, of all nets and seeds."""
    nets, seeds = list(NETS), SEEDS
    write_recorded(RECORDED, runs)
    page = DOCS / "strategies.md"
    text = put_between_marks(page.read_text(encoding="utf-8"), "defaults", ["", *table_of_defaults(), ""])
    for study in STUDIES:
        if f"<!-- {study} begin -->" not in text:
            continue
        text = put_between_marks(text, study, ["", *table(study, nets, seeds, runs), ""])
        if f"<!-- {study}_times begin -->" in text:
            times = table(study, nets, seeds, runs, of_times=True)
            text = put_between_marks(text, f"{study}_times", ["", *times, ""])
    write_text_whole(page, text)
    choice = put_between_marks(
        CHOICE_PAGE.read_text(encoding="utf-8"), "choice", ["", *table_of_choice(nets, seeds, runs), ""]
    )
    write_text_whole(CHOICE_PAGE, choice)
    write_text_whole(DOCS / "strategies.svg", picture(nets, seeds, runs))
    rows = json.dumps(measured(nets, seeds, runs), indent=1)
    write_text_whole(MEASURED_FILE, f"{rows}\n")


# --------------------------------------------------------------------------------------------------------------- data


def dataset_of(net: str, work: Path, cifar10: Path | None) -> Path | None:
    """Return a net's dataset, and ingest a missing dataset; None for a net that reads other files."""
    data = NETS[net].data
    if data == "cifar10":
        if cifar10 is None:
            sys.exit("--cifar10 PATH is needed: an ingested CIFAR-10 (examples/cifar10/README.md)")
        return cifar10
    if not data:
        if not (ROOT / PAIRS / "train.txt").exists():
            run_job_file(ROOT / "examples/siamese/make_pairs.py", ROOT / PAIRS)
        return None
    folder = work / data
    if (folder / "dataset.json").exists():
        return folder
    if data == "risk":
        source = work / "table.parquet"
        run_job_file(ROOT / "examples/table_mlp/make_table.py", source)
        config = IngestConfig(source=source, output=folder, feature_columns="f*", label_column="risk")
    else:
        source = ROOT / "examples/digits/digits8x8-images-idx3-ubyte.gz"
        size = {"resize_height": 28, "resize_width": 28} if data == "digits" else {}
        config = parse_config(IngestConfig, {"source": source, "output": folder, "max_pixel": 16, **size})
    run_job("deepspark_ops.ingest.spark_job", config, on_line=lambda level, text: None)
    return folder


def run_job_file(script: Path, *arguments: object) -> None:
    """Run a script of the examples."""
    import subprocess

    subprocess.run([sys.executable, script, *map(str, arguments)], check=True)


def main() -> int:
    """Make what is missing, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", default=",".join(STUDIES), help="studies, separated by commas")
    parser.add_argument("--nets", default="table,lenet", help=f"separated by commas, of {', '.join(NETS)}")
    parser.add_argument("--workers", default="", help="only these numbers of workers, separated by commas")
    parser.add_argument(
        "--only", default="", help="only rows and columns with this regular expression, e.g. 'tau 1, 0.3'"
    )
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)), help="separated by commas")
    parser.add_argument("--processes", type=int, default=1, help="runs at the same time, a core each")
    parser.add_argument("--nice", type=int, default=0, help="niceness of the runs")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "runs" / "defaults" / "results", help="results of this machine"
    )
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "defaults", help="folder of the datasets")
    parser.add_argument("--cifar10", type=Path, help="ingested dataset of CIFAR-10")
    parser.add_argument(
        "--write",
        action="store_true",
        help="write both pages on strategies, the picture, the results and the package's file",
    )
    parser.add_argument("--dry", action="store_true", help="make no runs")
    options = parser.parse_args()
    nets, seeds = options.nets.split(","), [int(seed) for seed in options.seeds.split(",")]
    workers = [int(count) for count in options.workers.split(",")] if options.workers else []
    runs = Runs(options.out, options.work, options.cifar10, read_recorded(RECORDED))
    for study in options.studies.split(","):
        cells = [
            cell
            for cell in cells_of(study, nets, seeds, workers)
            if cell.workers == 1 or re.search(options.only, f"{cell.row}, {cell.variant}")
        ]
        if not options.dry:
            run_all(cells, runs, options.processes, options.nice)
        print("\n".join([f"\n{STUDIES[study].title}\n", *table(study, nets, seeds, runs)]))
    if options.write:
        write_all(runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
