"""Hunts by coverage: atheris (libFuzzer) keeps inputs that reach new code, and damages such inputs further.

`make fuzz GUIDED=1` makes a separate environment for atheris. Each reader runs in a process of its own: libFuzzer ends
the process at a death, and has no other end than the process'.
"""

from __future__ import annotations

import argparse
import json
import mmap
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_COUNTS = struct.Struct("<QQ")  # inputs, refused
_MOST_BYTES = 1 << 16
_SLACK_S = 60.0


def hunt_guided(names: Sequence[str], *, seconds: float, seed: int, folder: Path, say: Callable[[str], None]) -> int:
    """Run the readers in turn for ``seconds`` together and return the number of findings.

    As ``hunt.hunt``, but the file alone names an input: the input depends on all inputs before.
    """
    say(f"fuzz: guided seed={seed} seconds={seconds:g} readers={len(names)}")
    folder.mkdir(parents=True, exist_ok=True)
    old_paths = set(folder.glob("*.json"))
    total = 0
    for name in names:
        began, n_inputs, n_refused, n_deaths = time.monotonic(), 0, 0, 0
        while (remaining_s := seconds / len(names) - (time.monotonic() - began)) > 1:
            counts, died = _process(name, remaining_s, seed + n_deaths, folder)
            n_inputs, n_refused, n_deaths = n_inputs + counts[0], n_refused + counts[1], n_deaths + bool(died)
        total += n_inputs
        new_paths = [path for path in set(folder.glob(f"{name}-guided-*.json")) - old_paths]
        say(f"{name}: inputs={n_inputs} refused={n_refused} findings={len(new_paths)} deaths={n_deaths}")
        for path in new_paths:
            say(f"FINDING {path.with_suffix('.bin')}: {json.loads(path.read_text())['detail']}")
    n_findings = len(set(folder.glob("*.json")) - old_paths)
    say(f"fuzz: inputs={total} findings={n_findings}")
    return n_findings


def _process(name: str, seconds: float, seed: int, folder: Path) -> tuple[tuple[int, int], str]:
    with tempfile.NamedTemporaryFile() as counted:
        counted.write(_COUNTS.pack(0, 0))
        counted.flush()
        command = [
            sys.executable,
            "-m",
            "tests.fuzz.guided",
            name,
            str(int(seconds)),
            str(seed),
            str(folder),
            counted.name,
        ]
        completed = subprocess.run(command, capture_output=True, timeout=seconds + _SLACK_S, check=False)
        n_inputs, n_refused = _COUNTS.unpack(Path(counted.name).read_bytes())
    died = (
        ""
        if not completed.returncode
        else f"exit code {completed.returncode}: {completed.stderr.decode(errors='replace')[-600:]}"
    )
    if died and not n_inputs:
        msg = f"{name}: {died}"
        raise RuntimeError(msg)
    return (n_inputs, n_refused), died


def main() -> None:
    """Fuzz one reader until the time is over; the process ends in libFuzzer."""
    parser = argparse.ArgumentParser()
    for argument in ("name", "seconds", "seed", "findings", "counted"):
        parser.add_argument(argument)
    arguments = parser.parse_args()

    import atheris

    with atheris.instrument_imports(include=["caffe_import", "deepspark_ops"]):
        from tests.fuzz import worker
        from tests.fuzz.corpus.table import READERS
        from tests.fuzz.hunt import made_corpus
    reader = READERS[arguments.name]
    scratch = Path(tempfile.mkdtemp(prefix="deepspark-fuzz-"))
    (scratch / "corpus").mkdir()
    (scratch / "read").mkdir()
    for number, content in enumerate(made_corpus(reader)):
        (scratch / "corpus" / str(number)).write_bytes(content)
    findings = Path(arguments.findings)
    finding_keys: set[tuple[str, ...]] = set()
    with Path(arguments.counted).open("r+b") as file:
        counts = mmap.mmap(file.fileno(), _COUNTS.size)
    n_inputs = n_refused = 0

    def test_one_input(content: bytes) -> None:
        nonlocal n_inputs, n_refused
        n_inputs += 1
        outcome = worker.one_input(reader, content, scratch / "read")
        if isinstance(outcome, dict):
            finding = worker.Finding(reader.name, int(arguments.seed), n_inputs, **outcome)
            if finding.key not in finding_keys:
                finding_keys.add(finding.key)
                path = findings / f"{reader.name}-guided-{arguments.seed}-{n_inputs}.bin"
                path.write_bytes(content)
                path.with_suffix(".json").write_text(json.dumps(vars(finding), indent=1))
        else:
            n_refused += outcome
        counts[:] = _COUNTS.pack(n_inputs, n_refused)

    worker.bound_this_process()
    prefix = findings / f"{reader.name}-death-"
    options = [
        f"-max_total_time={arguments.seconds}",
        f"-seed={arguments.seed}",
        f"-max_len={_MOST_BYTES}",
        "-timeout=60",
    ]
    atheris.Setup(
        [sys.argv[0], *options, "-rss_limit_mb=0", f"-artifact_prefix={prefix}", str(scratch / "corpus")],
        test_one_input,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
