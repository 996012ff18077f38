"""Plants each fault of ``faults/`` in a copy of the repository and sees the tests turn red.

    python -m tests.mutants [NAME ...] [--processes N]

The tests must pass in the copy before a fault is planted: a test that is red anyway sees nothing. The last line is
``mutants: SEEN of ALL seen``; the exit code is 0 only if all were.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

from tests.mutants.fault import FAULTS, Fault
from tests.paths import ROOT

TIMEOUT_S = 300.0
TESTS_FAILED = 1  # pytest's exit code; 2 and more mean that no test could say anything


def copy_repository(target: Path) -> None:
    """Copy the tracked files and the files that git would track: the tests of the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():  # a link to a folder, too
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


def run_tests(folder: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run pytest on ``tests`` in a copy; stop at the first failure."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout=120", *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


@contextmanager
def planted(folder: Path, fault: Fault) -> Iterator[None]:
    """Have the fault in a copy for as long as the block runs."""
    path = folder / fault.file
    text = path.read_text()
    path.write_text(text.replace(fault.old, fault.new, 1))
    try:
        yield
    finally:
        path.write_text(text)


def judge(folder: Path, fault: Fault) -> str:
    """Return ``seen``, or why the fault was not."""
    if fault.count() != 1:
        return f"{fault.file} has the text {fault.count()} times; it must name one place"
    clean = run_tests(folder, fault.tests)
    if clean.returncode:
        return f"its tests do not pass without the fault:\n{clean.stdout[-2000:]}{clean.stderr[-1000:]}"
    with planted(folder, fault):
        completed = run_tests(folder, fault.tests)
    if completed.returncode == TESTS_FAILED:
        return "seen"
    return (
        "NOT SEEN"
        if completed.returncode == 0
        else f"pytest ended with {completed.returncode}:\n{completed.stdout[-2000:]}"
    )


def main() -> int:
    """Run the faults, some at a time, and report each as it ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="faults to plant; default: all")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    faults = [fault for fault in FAULTS if not options.names or fault.name in options.names]
    with tempfile.TemporaryDirectory(prefix="deepspark-mutants-") as top:
        free: Queue[Path] = Queue()
        for index in range(options.processes):
            copy_repository(Path(top) / str(index))
            free.put(Path(top) / str(index))

        def is_seen(fault: Fault) -> bool:
            folder = free.get()
            try:
                judgement = judge(folder, fault)
            except subprocess.TimeoutExpired:
                judgement = f"no answer within {TIMEOUT_S:.0f} s"
            finally:
                free.put(folder)
            sys.stdout.write(f"{fault.name}: {judgement}\n")
            sys.stdout.flush()
            return judgement == "seen"

        with ThreadPoolExecutor(options.processes) as pool:
            n_seen = sum(pool.map(is_seen, faults))
    sys.stdout.write(f"mutants: {n_seen} of {len(faults)} seen\n")
    return 0 if n_seen == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
