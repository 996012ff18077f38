"""Runs inputs of a reader in a forked child; the parent reports the child's death."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import mmap
import os
import random
import resource
import select
import signal
import struct
import tempfile
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tests.fuzz.mutate import mutated
from tests.fuzz.reader import OWN_ERRORS, Reader

INPUT_S = 5.0
"""Longest CPU time of one input; valid ones take milliseconds. Not of the clock: a busy machine is no finding."""
_KILL_CPU_S, _KILL_S = 20.0, 600.0
"""CPU time of one that cannot be interrupted; time by the clock of one that waits for something."""
MEMORY_BYTES = 1 << 30
"""What a child may map beyond what it had when it began."""
_COUNTERS = struct.Struct("<QQQ")  # the input begun last, inputs ended, inputs refused by an error of the project
_TRACE_LINES = 12


@dataclass(frozen=True)
class Finding:
    """An input that ended neither with a value nor with an error of the project.

    Attributes:
        reader: Its name.
        seed: Of the run.
        number: Of the input.
        kind: ``exception``, ``hang``, ``memory`` or ``death``.
        detail: The exception, or the signal.
        where: Innermost frame of the project, by which findings are told apart.
        trace: For reading.
    """

    reader: str
    seed: int
    number: int
    kind: str
    detail: str
    where: str = ""
    trace: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Findings of one key probably have one cause."""
        return self.reader, self.kind, self.detail.split(":")[0], self.where


@dataclass(frozen=True)
class Outcome:
    """Result of a call: the number of inputs, refusals and deaths, and the findings."""

    next_number: int
    n_inputs: int
    n_refused: int
    findings: tuple[Finding, ...]
    n_deaths: int = 0


class TooLong(BaseException):
    """Not an Exception: a reader must not take the timeout for damage."""


def content_of(reader: Reader, corpus: Sequence[bytes], seed: int, number: int) -> bytes:
    """Return an input by its numbers."""
    return mutated(corpus, random.Random(f"{seed}/{reader.name}/{number}"), reader.words)


def run_inputs(reader: Reader, corpus: Sequence[bytes], *, seed: int, start: int, seconds: float) -> Outcome:
    """Feed inputs from number ``start`` on for some seconds; a new child follows each dead child."""
    findings: list[Finding] = []
    deadline = time.monotonic() + seconds
    n_inputs = n_refused = n_deaths = 0
    while (remaining_s := deadline - time.monotonic()) > 0:
        number, ended, refused, new_findings, death = _run_child(reader, corpus, seed, start, remaining_s)
        n_inputs, n_refused, findings, start = (
            n_inputs + ended,
            n_refused + refused,
            findings + new_findings,
            number + 1,
        )
        if death is not None:
            n_inputs += 1
            if reader.may_die and death.kind == "death":
                n_deaths += 1
            else:
                findings.append(death)
    return Outcome(start, n_inputs, n_refused, tuple(findings), n_deaths)


def _run_child(
    reader: Reader, corpus: Sequence[bytes], seed: int, start: int, seconds: float
) -> tuple[int, int, int, list[Finding], Finding | None]:
    shared = mmap.mmap(-1, _COUNTERS.size)
    shared[:] = _COUNTERS.pack(max(0, start - 1), 0, 0)
    reading, writing = os.pipe()
    # Made here: a child that dies removes nothing.
    with tempfile.TemporaryDirectory(prefix="deepspark-fuzz-", dir=_memory_disk()) as folder:
        child = os.fork()
        if not child:
            os.close(reading)
            _child(reader, corpus, seed, start, seconds, shared, writing, Path(folder))
        os.close(writing)
        try:
            text, status, was_killed = _followed(child, reading, shared)
        except KeyboardInterrupt:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        finally:
            os.close(reading)
    number, ended, refused = _COUNTERS.unpack(shared)
    shared.close()
    findings = [Finding(**json.loads(line)) for line in text.decode().splitlines()]
    death = None
    if was_killed:
        death = Finding(reader.name, seed, number, "hang", "not to be interrupted")
    elif status:
        detail = signal.Signals(-status).name if status < 0 else f"exit code {status}"
        death = Finding(reader.name, seed, number, "death", detail)
    return number, ended, refused, findings, death


def _followed(child: int, reading: int, shared: mmap.mmap) -> tuple[bytes, int, bool]:
    """Return the findings of a child, the manner of its end, and whether a kill was needed."""
    text = b""
    last, since, used_s, was_killed = -1, time.monotonic(), 0.0, False
    while True:
        if select.select([reading], [], [], 1.0)[0]:
            part = os.read(reading, 1 << 16)
            if not part:
                break
            text += part
        begun = _COUNTERS.unpack(shared)[0]
        if begun != last:
            last, since, used_s = begun, time.monotonic(), _cpu_s(child)
        elif time.monotonic() - since > _KILL_S or _cpu_s(child) - used_s > _KILL_CPU_S:
            os.kill(child, signal.SIGKILL)
            was_killed = True
    return text, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), was_killed


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _child(
    reader: Reader,
    corpus: Sequence[bytes],
    seed: int,
    start: int,
    seconds: float,
    shared: mmap.mmap,
    writing: int,
    folder: Path,
) -> NoReturn:
    code = 1
    try:
        faulthandler.disable()  # the parent tells how it ended
        silence = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(silence, stream)
        bound_this_process()
        _feed(reader, corpus, seed, start, seconds, shared, writing, folder)
        code = 0
    finally:
        os._exit(code)


def _feed(
    reader: Reader,
    corpus: Sequence[bytes],
    seed: int,
    start: int,
    seconds: float,
    shared: mmap.mmap,
    writing: int,
    folder: Path,
) -> None:
    deadline = time.monotonic() + seconds
    finding_keys: set[tuple[str, ...]] = set()
    number, n_refused = start, 0
    while time.monotonic() < deadline:
        shared[:] = _COUNTERS.pack(number, number - start, n_refused)
        outcome = one_input(reader, content_of(reader, corpus, seed, number), folder)
        if isinstance(outcome, dict):
            finding = Finding(reader.name, seed, number, **outcome)
            if finding.key not in finding_keys:
                finding_keys.add(finding.key)
                os.write(writing, (json.dumps(vars(finding)) + "\n").encode())
        elif outcome:
            n_refused += 1
        number += 1
    shared[:] = _COUNTERS.pack(max(0, number - 1), number - start, n_refused)


def bound_this_process() -> None:
    """Let this process end at an input that takes too much memory or time by an exception."""
    warnings.simplefilter("error", RuntimeWarning)  # numpy's warning about converted numbers
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_mapped() + MEMORY_BYTES,) * 2)
    signal.signal(signal.SIGPROF, _too_long)


def one_input(reader: Reader, content: bytes, folder: Path) -> bool | dict[str, Any]:
    """Read an input; return whether the reader refused the input, or the fields of a finding."""
    try:
        signal.setitimer(signal.ITIMER_PROF, INPUT_S)
        try:
            return _ended(reader, content, folder)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except TooLong as error:  # which may come at any place above, wherever a long call of a library ends
        return {"kind": "hang", "detail": f"more than {INPUT_S:g} s of CPU", **_frame_fields(error)}


def _ended(reader: Reader, content: bytes, folder: Path) -> bool | dict[str, Any]:
    try:
        reader.read(content, folder)
    except OWN_ERRORS:
        return True
    except MemoryError as error:
        return {"kind": "memory", "detail": f"more than {MEMORY_BYTES >> 20} MiB", **_frame_fields(error)}
    except Exception as error:  # noqa: BLE001 - whatever comes out is what is looked for
        return {"kind": "exception", "detail": f"{type(error).__name__}: {error}"[:300], **_frame_fields(error)}
    return False


def _frame_fields(error: BaseException) -> dict[str, str]:
    frames = traceback.extract_tb(error.__traceback__)
    own_frames = [
        frame for frame in frames if "/caffe_import/" in frame.filename or "/deepspark_ops/" in frame.filename
    ]
    inner = (own_frames or list(frames))[-1]
    trace = "".join(traceback.format_exception(error)[-_TRACE_LINES:])
    return {"where": f"{Path(inner.filename).name}:{inner.lineno}", "trace": trace.encode("utf-8", "replace").decode()}


def _too_long(*_: object) -> NoReturn:
    raise TooLong


def _mapped() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _memory_disk() -> str | None:
    with contextlib.suppress(OSError):
        if os.access("/dev/shm", os.W_OK):
            return "/dev/shm"
    return None
