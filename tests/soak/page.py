"""The page of a soak: each run with clock, faults and recoveries on a time axis; recoveries by kind."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from deepspark_ops.page_templates import template_environment
from tests.soak.faults import DRIVER, KINDS, SERVER
from tests.soak.run import RunResult

WIDTH, ROW, TOP, CHART = 960, 16, 8, 110


@dataclass(frozen=True)
class Recovery:
    """Of one kind of fault, seconds: median and longest; None where nothing was to recover, or nothing did."""

    kind: str
    n: int
    worker: tuple[float, float] | None
    clock: tuple[float, float] | None
    stall: tuple[float, float] | None


def recoveries(results: Sequence[RunResult]) -> list[Recovery]:
    """Return a recovery for each injected kind."""
    faults = [fault for result in results for fault in result.injected]
    rows = []
    for kind in KINDS:
        of_kind = [fault for fault in faults if fault.fault.kind == kind]
        if of_kind:
            rows.append(
                Recovery(
                    kind,
                    len(of_kind),
                    _median_and_max([fault.worker_s for fault in of_kind]),
                    _median_and_max([fault.clock_s for fault in of_kind]),
                    _median_and_max([fault.stall_s for fault in of_kind if fault.clock_s is not None]),
                )
            )
    return rows


def _median_and_max(values: Sequence[float | None]) -> tuple[float, float] | None:
    measured = [value for value in values if value is not None]
    return (statistics.median(measured), max(measured)) if measured else None


def write_page(path: Path, results: Sequence[RunResult], *, last_line: str, seed: int) -> None:
    """Write the page."""
    environment = template_environment("tests.soak")
    environment.filters["pair"] = lambda pair: "" if pair is None else f"{pair[0]:.2f} / {pair[1]:.2f}"
    text = environment.get_template("page.html.jinja").render(
        results=results,
        charts=[_chart(result) for result in results],
        recoveries=recoveries(results),
        last_line=last_line,
        seed=seed,
        width=WIDTH,
    )
    path.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Bar:
    """A fault on the axis: while it lasted, and until the run had recovered."""

    x: float
    y: float
    lasts: float
    recovers: float
    title: str
    ends: bool


def _chart(result: RunResult) -> dict[str, object]:
    """Return what the template draws of one run: the clock as a line, a row of bars for each kind of fault."""
    span = max(result.seconds, 1.0)
    kinds = [kind for kind in KINDS if any(fault.fault.kind == kind for fault in result.injected)]

    def x(at: float) -> float:
        return round(max(0.0, min(1.0, (at - result.begun) / span)) * WIDTH, 1)

    lines = [
        " ".join(f"{x(at)},{CHART - (CHART - TOP) * steps / result.plan.max_iter:.1f}" for at, steps in _thinned(line))
        for line in _rising(result.clock)
    ]
    bars = []
    for injected in result.injected:
        waited = max(injected.worker_s or 0.0, injected.clock_s or 0.0)
        target = {SERVER: "server", DRIVER: "driver"}.get(injected.fault.worker, f"worker {injected.fault.worker}")
        bars.append(
            Bar(
                x(injected.begun),
                CHART + TOP + ROW * kinds.index(injected.fault.kind),
                max(1.5, x(injected.ended) - x(injected.begun)),
                x(injected.ended + waited) - x(injected.ended),
                f"{injected.begun - result.begun:.1f} s: {injected.fault.kind} ({target}), "
                f"lasted {injected.ended - injected.begun:.2f} s, recovered after {waited:.2f} s",
                injected.clock_s is None,
            )
        )
    rows = [(CHART + TOP + ROW * i, kind) for i, kind in enumerate(kinds)]
    step = next(step for step in (1, 5, 10, 30, 60, 120, 300, 600, 3600) if span / step <= 12 or step == 3600)
    ticks = [(x(result.begun + at), at) for at in range(0, int(span) + 1, step)]
    height = CHART + TOP + ROW * len(kinds) + 24
    return {
        "lines": lines,
        "chart": CHART,
        "top": TOP,
        "bars": bars,
        "rows": rows,
        "ticks": ticks,
        "height": height,
        "row": ROW,
    }


def _rising(points: Sequence[tuple[float, int]]) -> list[Sequence[tuple[float, int]]]:
    """Return the clock of each driver: a new one begins at a snapshot."""
    falls = [i for i in range(1, len(points)) if points[i][1] < points[i - 1][1]]
    return [points[begin:end] for begin, end in pairwise([0, *falls, len(points)])]


def _thinned(points: Sequence[tuple[float, int]]) -> Sequence[tuple[float, int]]:
    every = max(1, len(points) // 600)
    return [*points[::every], *points[-1:]]
