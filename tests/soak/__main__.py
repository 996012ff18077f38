"""The command behind ``make soak``; see the package."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.soak.page import recoveries
from tests.soak.soak import Soak, soak


def main() -> None:
    """Soak; the exit code is 0 only if everything held."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Training under random faults")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0, help="default: by the clock")
    parser.add_argument("--strategy", default="easgd", help="of the exchange")
    parser.add_argument("--gap", type=float, default=2.5, help="mean seconds between two faults")
    parser.add_argument("--folder", type=Path, default=Path("build/soak"), help="for page and logs")
    options = parser.parse_args()
    seed = options.seed or time.time_ns() % 2**31
    _say(
        f"soak: seed={seed}, {options.minutes:g} minutes, strategy {options.strategy}; page: {options.folder}/soak.html"
    )
    plan = Soak(60.0 * options.minutes, seed, options.folder, strategy=options.strategy, gap_s=options.gap)
    line, held, results = soak(plan, _say)
    _say("seconds to recover, median/longest: worker that was hit | clock | longest stall")
    for recovery in recoveries(results):
        pairs = " | ".join(
            "-" if pair is None else f"{pair[0]:.2f}/{pair[1]:.2f}"
            for pair in (recovery.worker, recovery.clock, recovery.stall)
        )
        _say(f"  {recovery.kind} ({recovery.n}): {pairs}")
    _say(line)
    sys.exit(0 if held else 1)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
