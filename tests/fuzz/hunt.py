"""Gives each reader its share of the time, keeps what is found, and says what was done."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.reader import Reader
from tests.fuzz.worker import Finding, content_of, run_inputs

_ROUND_S = 20.0


@dataclass
class Tally:
    """Counts of the inputs of a reader."""

    reader: Reader
    corpus: tuple[bytes, ...]
    next_number: int = 0
    n_inputs: int = 0
    n_refused: int = 0
    n_deaths: int = 0
    seconds: float = 0.0
    findings: dict[tuple[str, ...], Finding] = field(default_factory=dict)

    def line(self) -> str:
        """Return a line with the counts."""
        deaths = f" deaths={self.n_deaths} ({self.reader.may_die})" if self.n_deaths else ""
        return (
            f"{self.reader.name}: inputs={self.n_inputs} refused={self.n_refused} findings={len(self.findings)}"
            f" inputs/s={self.n_inputs / max(self.seconds, 1e-9):.0f}{deaths}"
        )


def hunt(
    readers: Sequence[Reader], *, seconds: float, seed: int, folder: Path, say: Callable[[str], None], at_most: int = 0
) -> int:
    """Run all readers in turn for ``seconds`` together, or until Ctrl-C, and return how many findings there are.

    Args:
        readers: At least one.
        seconds: Of all together.
        seed: Names the inputs, with reader and number.
        folder: Gets a file of each finding, made when there is one.
        say: Takes lines; the last is ``fuzz: inputs=N findings=M``.
        at_most: Inputs of a reader after which others get its time; 0 for no end.
    """
    say(f"fuzz: seed={seed} seconds={seconds:g} readers={len(readers)}")
    end = time.monotonic() + seconds
    tallies = [Tally(reader, made_corpus(reader)) for reader in readers]
    try:
        while (remaining_s := end - time.monotonic()) > 0:
            open_ones = [tally for tally in tallies if not at_most or tally.n_inputs < at_most]
            if not open_ones:
                break
            share = min(_ROUND_S, max(0.05, remaining_s / len(open_ones)))
            for tally in open_ones:
                if time.monotonic() < end:
                    _round(tally, share, seed, folder, say)
    except KeyboardInterrupt:
        say(f"fuzz: stopped {end - time.monotonic():.0f} s before the end")
    for tally in tallies:
        say(tally.line())
    n_findings = sum(len(tally.findings) for tally in tallies)
    say(f"fuzz: inputs={sum(tally.n_inputs for tally in tallies)} findings={n_findings}")
    return n_findings


def made_corpus(reader: Reader) -> tuple[bytes, ...]:
    """Return valid inputs that the reader reads."""
    with tempfile.TemporaryDirectory(prefix="deepspark-fuzz-") as folder:
        corpus_folder = Path(folder, "made")
        corpus_folder.mkdir()
        corpus = tuple(reader.corpus(corpus_folder))
        scratch = Path(folder, "read")
        scratch.mkdir()
        for content in corpus:
            reader.read(content, scratch)
    return corpus


def _round(tally: Tally, seconds: float, seed: int, folder: Path, say: Callable[[str], None]) -> None:
    began = time.monotonic()
    batch = run_inputs(tally.reader, tally.corpus, seed=seed, start=tally.next_number, seconds=seconds)
    tally.seconds += time.monotonic() - began
    tally.next_number = batch.next_number
    tally.n_inputs += batch.n_inputs
    tally.n_refused += batch.n_refused
    tally.n_deaths += batch.n_deaths
    for finding in batch.findings:
        if finding.key not in tally.findings:
            tally.findings[finding.key] = finding
            say(f"FINDING {_saved(finding, tally, folder)}: {finding.kind}: {finding.detail} at {finding.where}")


def _saved(finding: Finding, tally: Tally, folder: Path) -> Path:
    """Write the input and what it did; return the input's file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{finding.reader}-{finding.seed}-{finding.number}.bin"
    path.write_bytes(content_of(tally.reader, tally.corpus, finding.seed, finding.number))
    path.with_suffix(".json").write_text(json.dumps(vars(finding), indent=1))
    return path


def stdout(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
