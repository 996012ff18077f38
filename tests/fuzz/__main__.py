"""The command behind ``make fuzz``; see the package."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from tests.fuzz.corpus.table import READERS
from tests.fuzz.guided import hunt_guided
from tests.fuzz.hunt import hunt, made_corpus, stdout
from tests.fuzz.worker import content_of


def main() -> None:
    """Hunt, or repeat one input; the exit code is 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Damaged input for every reader")
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"default: all of {', '.join(READERS)}")
    parser.add_argument("--seconds", type=float, default=600.0, help="of all readers together")
    parser.add_argument("--seed", type=int, default=0, help="default: by the clock")
    parser.add_argument("--at-most", type=int, default=0, help="inputs of a reader; 0: until the time is over")
    parser.add_argument("--guided", action="store_true", help="by coverage, where atheris can be imported")
    parser.add_argument("--findings", type=Path, default=Path("build/fuzz"), help="folder for what is found")
    parser.add_argument("--repeat", nargs=3, metavar=("READER", "SEED", "NUMBER"), help="read one input again, here")
    options = parser.parse_args()
    if options.repeat:
        name, seed, number = options.repeat
        content = content_of(READERS[name], made_corpus(READERS[name]), int(seed), int(number))
        with tempfile.TemporaryDirectory() as folder:
            stdout(repr(READERS[name].read(content, Path(folder)))[:2000])
        return
    if unknown := set(options.readers) - set(READERS):
        parser.error(f"no reader {', '.join(sorted(unknown))}; allowed: {', '.join(READERS)}")
    readers = [READERS[name] for name in options.readers or READERS]
    seed = options.seed or time.time_ns() % 2**31
    if options.guided:
        names = [reader.name for reader in readers]
        raise SystemExit(
            hunt_guided(names, seconds=options.seconds, seed=seed, folder=options.findings, say=stdout) > 0
        )
    os.environ["OPENCV_LOG_LEVEL"] = "OFF"
    n_findings = hunt(
        readers, seconds=options.seconds, seed=seed, folder=options.findings, say=stdout, at_most=options.at_most
    )
    raise SystemExit(1 if n_findings else 0)


if __name__ == "__main__":
    main()
