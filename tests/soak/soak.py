"""A whole soak: an undisturbed run for comparison, then runs of the same length under faults until the time is over."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.soak.faults import Fault, draw_faults
from tests.soak.page import recoveries, write_page
from tests.soak.run import N_WORKERS, Plan, RunResult, make_digits, run_once
from tests.soak.workers import worker_template

PILOT_STEPS = 300
SHARE_OF_ONE_RUN = 6.0
"""An undisturbed run takes this part of the whole time, at most ``LONGEST_RUN_S``: so many fit in, with it."""
LONGEST_RUN_S = 240.0
WITHIN = 0.01
"""How far below the undisturbed run's accuracy that of a disturbed one may be."""


@dataclass(frozen=True)
class Soak:
    """What to do.

    Attributes:
        seconds: How long; a run that has begun is ended.
        seed: Of the faults.
        folder: For the page, logs and runs.
        strategy: Of the exchange.
        max_iter: Of each run; 0 to measure how many steps a run of some minutes has.
        gap_s: Mean time between two faults.
        within: How far below the undisturbed accuracy that of the others may be.
    """

    seconds: float
    seed: int
    folder: Path
    strategy: str = "easgd"
    max_iter: int = 0
    gap_s: float = 2.5
    within: float = WITHIN


def soak(settings: Soak, say: Callable[[str], None]) -> tuple[str, bool, list[RunResult]]:
    """Return the last line, whether everything held, and the runs; the undisturbed one first."""
    settings.folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deepspark-soak-") as scratch, worker_template() as context:
        folder = Path(scratch)
        dataset = make_digits(folder)

        def run(name: str, max_iter: int, *, number: int = 0) -> RunResult:
            def faults(driver: int) -> Iterator[Fault]:
                # Every other driver lives for three turns, so that something is seen of a long life.
                seed, turn = settings.seed + number + 1_000 * driver, 2 * (driver % 2)
                return draw_faults(seed, N_WORKERS, gap_s=settings.gap_s, turn=turn)

            plan = Plan(name, max_iter, settings.strategy, faults=faults if number else None)
            expected = results[0].files if number else None
            result = run_once(plan, context, dataset, folder, expected)
            (settings.folder / f"{name}.log").write_bytes((folder / f"{name}.log").read_bytes())
            workers_log = folder / f"{name}.ledgers" / "workers.log"
            (settings.folder / f"{name}.workers.log").write_bytes(workers_log.read_bytes())
            say(_line(result))
            for finding in result.findings:
                say(f"  {finding}")
            return result

        results: list[RunResult] = []
        max_iter = settings.max_iter
        if not max_iter:
            pilot = run("pilot", PILOT_STEPS)
            run_s = min(LONGEST_RUN_S, settings.seconds / SHARE_OF_ONE_RUN)
            max_iter = max(PILOT_STEPS, int(run_s * PILOT_STEPS / max(pilot.seconds, 0.1)))
        results.append(run("undisturbed", max_iter))
        while len(results) < 2 or time.monotonic() - begun < settings.seconds:
            result = run(f"run_{len(results)}", max_iter, number=len(results))
            gap = results[0].accuracy - result.accuracy
            if gap > settings.within:
                result.findings.append(f"accuracy is {100 * gap:.2f} points below the undisturbed run's")
                say(f"  {result.findings[-1]}")
            results.append(result)
    findings = [finding for result in results for finding in result.findings]
    line = _last_line(results, n_findings=len(findings), seed=settings.seed, seconds=time.monotonic() - begun)
    write_page(settings.folder / "soak.html", results, last_line=line, seed=settings.seed)
    return line, not findings, results


def _line(result: RunResult) -> str:
    kinds = len({fault.fault.kind for fault in result.injected})
    return (
        f"{result.plan.name}: {result.plan.strategy}, {result.acknowledged} steps in {result.seconds:.0f} s,"
        f" {len(result.injected)} faults of {kinds} kinds, {result.n_starts} starts of workers,"
        f" {result.n_server_starts} of the server, {result.n_driver_starts} of the driver,"
        f" accuracy {100 * result.accuracy:.2f} %"
    )


def _last_line(results: list[RunResult], *, n_findings: int, seed: int, seconds: float) -> str:
    disturbed = results[1:]
    n_faults, lost = sum(len(result.injected) for result in disturbed), sum(result.lost for result in results)
    growth = max((g.share for result in disturbed for g in result.growths), default=0.0)
    stall = max((recovery.stall[1] for recovery in recoveries(disturbed) if recovery.stall), default=0.0)
    return (
        f"soak: faults={n_faults} lost={lost} accuracy={100 * min(r.accuracy for r in disturbed):.2f}"
        f" undisturbed={100 * results[0].accuracy:.2f} runs={len(disturbed)}"
        f" steps={sum(result.acknowledged for result in disturbed)} growth={100 * growth:.1f}%"
        f" longest_stall_s={stall:.1f} findings={n_findings} seconds={seconds:.0f} seed={seed}"
    )
