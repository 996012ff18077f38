"""The tables: accuracies and speedups of the results as Markdown, and as the package's file."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from benchmarks.defaults.runs import Runs
from benchmarks.defaults.studies import ASYNCHRONOUS, IN_ROUNDS, NETS, STUDIES, Cell, cells_of
from deepspark_ops.exchange.strategies.base import Strategy, find_strategy
from deepspark_ops.simulation.results import VirtualResult, time_to
from deepspark_ops.train.worker.rates.rate_scale import RateScale, plan_rate_scale

CHOSEN = ("easgd", "local_sgd", "sync")
CHOICE_WORKERS = (2, 4, 8, 16)
"""Columns and rows of the table of ``docs/guides/choose_strategy.md``."""
TARGET_BELOW = 0.02


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
    return {"format_version": 1, "made_by": "python -m benchmarks.defaults --write", "rows": rows}
