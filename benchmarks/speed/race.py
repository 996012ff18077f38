"""Contenders as processes in turns: while a team's processes run a block of steps, all other processes sleep.

A busy machine slows all contenders alike, and ratios of medians stay fair.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

READY_S, BLOCK_S = 900, 600
"""Longest waits: for the compilation of a contender, and for a block."""
KINDS = ("step", "forward")
Blocks = Mapping[str, Mapping[str, Sequence["Block"]]]
"""Contender -> kind -> blocks."""


class ContenderError(Exception):
    """A contender ended, or did not answer in time."""


@dataclass(frozen=True)
class Mode:
    """Processes of a contender, and threads of each."""

    n_processes: int
    n_threads: int

    @property
    def name(self) -> str:
        """The mode in the JSON: ``2x1``."""
        return f"{self.n_processes}x{self.n_threads}"


@dataclass(frozen=True)
class Block:
    """Times of a block.

    Attributes:
        seconds: Of the slowest process.
        cpu_seconds: Of all processes.
    """

    seconds: float
    cpu_seconds: float


@dataclass
class Team:
    """The processes of a contender, pinned to cores; the end of the context ends the processes.

    Attributes:
        name: Name of the contender.
        command: Command of a process without the last argument, the number of threads.
        mode: Processes and threads.
        log: Standard error of the processes.
        environment: Variables beside this process's environment.
        first_core: Index of the first process's core; teams of one thread start faster on different cores.
        facts: First answer of a process, the peak memory of all, and the seconds until all were ready.
    """

    name: str
    command: Sequence[str]
    mode: Mode
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    first_core: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    _processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def __enter__(self) -> Self:
        cores = sorted(os.sched_getaffinity(0))
        threads = self.mode.n_threads
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": str(threads)} | self.environment
        self._started = time.monotonic()
        for number in range(self.mode.n_processes):
            first = self.first_core + number * threads
            share = [cores[k % len(cores)] for k in range(first, first + threads)]
            command = ["taskset", "-c", ",".join(map(str, share)), *self.command, str(threads)]
            with self.log.open("a") as log:
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
                )
            self._processes.append(process)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.wait()
            process.stdout.close()
            with suppress(BrokenPipeError):
                process.stdin.close()

    def wait_ready(self) -> None:
        """Wait until every process has warmed up."""
        answers = [self._answer(process, READY_S) for process in self._processes]
        peak_mib = sum(answer["peak_mib"] for answer in answers)
        self.facts = {**answers[0], "peak_mib": peak_mib, "ready_s": time.monotonic() - self._started}

    def block(self, kind: str, n_steps: int) -> Block:
        """Have every process do ``n_steps`` at once."""
        for process in self._processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # the process has ended: its answer is empty
                process.stdin.write(f"{kind} {n_steps}\n")
                process.stdin.flush()
        answers = [self._answer(process, BLOCK_S) for process in self._processes]
        return Block(
            max(answer["seconds"] for answer in answers),
            sum(answer["cpu_seconds"] for answer in answers),
        )

    def _answer(self, process: subprocess.Popen[str], limit_s: float) -> dict[str, Any]:
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], limit_s)[0]:
            msg = f"{self.name} has not answered for {limit_s:g} s; its log: {self.log}"
            raise ContenderError(msg)
        line = process.stdout.readline()
        if not line:
            last = self.log.read_text(errors="replace").strip().rpartition("\n")[2]
            msg = f"{self.name} ended with code {process.wait()}: {last}"
            raise ContenderError(msg)
        answer: dict[str, Any] = json.loads(line)
        return answer


def turns(names: Sequence[str], n_rounds: int) -> list[list[str]]:
    """Return the order of every round; rounds begin with different contenders, so neighbours change."""
    return [[*names[k % len(names) :], *names[: k % len(names)]] for k in range(n_rounds)]


def block_steps(seconds_per_step: float, block_s: float, multiple: int) -> int:
    """Return how many steps last about ``block_s``: a multiple of ``multiple``, at least once."""
    return multiple * max(1, round(block_s / seconds_per_step / multiple))


def interleave(
    teams: Mapping[str, Team], n_steps: Mapping[str, int], n_rounds: int
) -> tuple[Blocks, Mapping[str, ContenderError]]:
    """Run the blocks of all kinds in turns; the first round of each kind warms up and does not count.

    Returns:
        The blocks of each contender, and the errors of failed contenders, which take no further turn.
    """
    blocks: dict[str, dict[str, list[Block]]] = {name: {kind: [] for kind in KINDS} for name in teams}
    errors: dict[str, ContenderError] = {}
    for number, order in enumerate([list(teams), *turns(list(teams), n_rounds)]):
        for kind, name in product(KINDS, order):
            if name in errors:
                continue
            try:
                block = teams[name].block(kind, n_steps[kind])
            except ContenderError as error:
                errors[name] = error
            else:
                blocks[name][kind] += [block] if number else []
    return blocks, errors


def summary(
    team: Team, blocks: Mapping[str, Sequence[Block]], n_steps: Mapping[str, int], batch_size: int
) -> dict[str, Any]:
    """Return the medians of a contender, in samples per second of all processes together."""
    result: dict[str, Any] = dict(team.facts)
    for kind, timed in blocks.items():
        n_samples = team.mode.n_processes * n_steps[kind] * batch_size
        result[kind] = {
            "samples_per_s": median(n_samples / block.seconds for block in timed),
            "samples_per_cpu_s": median(n_samples / block.cpu_seconds for block in timed),
            "rounds": [round(n_samples / block.seconds, 2) for block in timed],
        }
    return result


def race(
    teams: Sequence[Team], leader: str, batch_size: int, *, multiple: int, block_s: float, n_rounds: int
) -> dict[str, Any]:
    """Start all teams, let the teams take turns, and return the medians by contender.

    The result of a failed contender is a ``failure``.

    Args:
        teams: The contenders.
        leader: The contender whose speed decides the number of steps of a block.
        batch_size: Samples of a step.
        multiple: The steps of a block are a multiple of this number.
        block_s: Seconds of the leader's block.
        n_rounds: Blocks of each kind that count.

    Raises:
        ContenderError: The leader failed.
    """
    results: dict[str, Any] = {}
    with ExitStack() as stack:
        started = {team.name: stack.enter_context(team) for team in teams}
        for name, team in list(started.items()):
            try:
                team.wait_ready()
            except ContenderError as error:
                if name == leader:
                    raise
                results[name] = {"failure": str(error)}
                del started[name]
        n_steps = {}
        for kind in KINDS:
            started[leader].block(kind, multiple)  # a graph of several steps is traced
            seconds = started[leader].block(kind, multiple).seconds / multiple
            n_steps[kind] = block_steps(seconds, block_s, multiple)
        blocks, errors = interleave(started, n_steps, n_rounds)
        if leader in errors:
            raise errors[leader]
        for name, team in started.items():
            is_whole = name not in errors
            results[name] = (
                summary(team, blocks[name], n_steps, batch_size) if is_whole else {"failure": str(errors[name])}
            )
    return {"n_steps": n_steps, "contenders": results}
