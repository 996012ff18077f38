"""Answers of a net for all inputs, chunk by chunk, into a file; for classes and for blobs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

from deepspark_ops.errors import DataError
from deepspark_ops.predict.pixel_range import PixelWatch
from deepspark_ops.predict.record import Inputs
from deepspark_ops.predict.samples import Parts, Sample
from deepspark_ops.processes.ahead import mapped_ahead
from deepspark_ops.stores.store_path import DataPath

Answer = Callable[[Sequence[Parts]], Mapping[str, Sequence[Any]]]
"""Takes at least one sample, of any shape; returns a value per column and sample, vectors as one array (n, k)."""
OnStep = Callable[[str], None]
REPORT_S = 2.0
_SHOWN_ERRORS = 5


class RowOutput(Protocol):
    """Takes rows and writes them."""

    def add(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Add rows: a value per column and row; vectors as one array (n, k) or an array per row; None for nothing."""


@dataclass(frozen=True)
class Summary:
    """Figures of a call.

    Attributes:
        output: The file.
        n_records: Rows of the file.
        n_errors: Rows that have an error instead of an answer.
        first_errors: First errors, ``id: error``.
        seconds: Time from the first input to the last answer.
        remarks: Difference between inputs and training samples -> number of inputs.
    """

    output: DataPath
    n_records: int
    n_errors: int
    first_errors: tuple[str, ...]
    seconds: float
    remarks: Mapping[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """Return the result in one line."""
        rate = self.n_records / max(self.seconds, 1e-9)
        return f"output={self.output} rows={self.n_records} errors={self.n_errors} rows_per_s={rate:.0f}"

    def warnings(self) -> list[str]:
        """Return a text for each remark, with the number of inputs, and a text about inputs without an answer."""
        remarks = [f"{count:,} of {self.n_records:,} inputs: {remark}" for remark, count in self.remarks.items()]
        return [*remarks, *([self.errors_text()] if self.n_errors else [])]

    def errors_text(self) -> str:
        """Return the number of inputs that could not be used, and the first errors."""
        counts = f"{self.n_errors:,} of {self.n_records:,} inputs cannot be used"
        return f"{counts}; column error of their rows says why\n{self._error_lines()}"

    def require_answer(self) -> None:
        """Refuse inputs without a single answer.

        Raises:
            DataError: No input can be used.
        """
        if self.n_errors == self.n_records:
            msg = f"none of the {self.n_records:,} inputs can be used:\n{self._error_lines()}"
            raise DataError(msg)

    def _error_lines(self) -> str:
        more = self.n_errors - len(self.first_errors)
        lines = [*self.first_errors, *([f"and {more:,} more"] if more else [])]
        return "\n".join(f"  {line}" for line in lines)


class Progress:
    """Counts answers and reports the count from time to time. For one thread."""

    def __init__(
        self,
        total: int | None,
        on_step: OnStep,
        *,
        watch: PixelWatch | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to count; ``total`` is None if unknown. ``watch`` judges the range of the images."""
        self._total = total
        self._on_step = on_step
        self._watch = watch
        self._clock = clock
        self._began = self._reported = clock()
        self.n_records = 0
        self.errors: list[str] = []
        self.n_errors = 0
        self._remarks = Counter[str]()

    def add(self, chunk: Sequence[Sample]) -> None:
        """Count the next samples."""
        self.n_records += len(chunk)
        self._remarks.update(sample.remark for sample in chunk if sample.remark)
        if self._watch is not None:
            self._watch.add(sample.values for sample in chunk if sample.values is not None)
        bad = [sample for sample in chunk if sample.values is None]
        self.n_errors += len(bad)
        room = max(0, _SHOWN_ERRORS - len(self.errors))
        self.errors += [f"{sample.id}: {sample.error}" for sample in bad[:room]]
        now = self._clock()
        if now - self._reported >= REPORT_S:
            self._reported = now
            of = "" if self._total is None else f"/{self._total:,}"
            self._on_step(f"answered {self.n_records:,}{of} inputs, {self.n_records / (now - self._began):.0f}/s")

    def summary(self, output: DataPath) -> Summary:
        """Return the figures so far."""
        seconds = self._clock() - self._began
        remarks = {**self._remarks, **({} if self._watch is None else self._watch.remarks())}
        return Summary(output, self.n_records, self.n_errors, tuple(self.errors), seconds, remarks)


def answer_chunk(chunk: Sequence[Sample], answer: Answer, columns: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Return a chunk's rows by column; the row of an unusable sample has an error alone.

    Args:
        chunk: Samples in their order.
        answer: The net.
        columns: Names of the columns of the answer.
    """
    usable = [values for sample in chunk if (values := sample.values) is not None]
    answered = answer(usable) if usable else {name: () for name in columns}
    rows: dict[str, Sequence[Any]] = {}
    for name in columns:
        if len(usable) == len(chunk):
            rows[name] = answered[name]
        else:
            usable_values = iter(answered[name])
            rows[name] = [None if sample.values is None else next(usable_values) for sample in chunk]
    rows["id"] = [sample.id.encode("utf-8", "replace").decode() for sample in chunk]
    rows["error"] = [sample.error or None for sample in chunk]
    return rows


def refuse_errors(chunk: Sequence[Sample]) -> None:
    """Refuse the first sample that cannot be used.

    Raises:
        DataError: A sample cannot be used.
    """
    for sample in chunk:
        if sample.values is None:
            msg = f"{sample.id}: {sample.error}; nothing was written (strict); without strict it is a row with an error"
            raise DataError(msg)


def answer_all(
    inputs: Inputs,
    chunks: Callable[[Inputs], Iterable[Sequence[Sample]]],
    answer: Answer,
    output: RowOutput,
    columns: Sequence[str],
    *,
    strict: bool,
    progress: Progress,
    n_at_once: int = 1,
) -> None:
    """Write a row for every input. A thread reads, ``n_at_once`` threads compute chunks, the caller's writes.

    Raises:
        DataError: ``strict``, and an input cannot be used; or no input exists.
    """

    def rows_of(chunk: Sequence[Sample]) -> dict[str, Sequence[Any]]:
        if strict:
            refuse_errors(chunk)
        return answer_chunk(chunk, answer, columns)

    with closing(mapped_ahead(chunks(inputs), rows_of, n_threads=n_at_once, name="net")) as answered:
        for chunk, rows in answered:
            output.add(rows)
            progress.add(chunk)
    if not progress.n_records:
        msg = f"no input: the {inputs.description} is empty"
        raise DataError(msg)
