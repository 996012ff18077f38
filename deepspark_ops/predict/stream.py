"""Answers of a net for all inputs, chunk by chunk, into a file; for classes and for blobs."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

from deepspark_ops.errors import DataError
from deepspark_ops.predict.pixel_range import PixelWatch, SeenPixels
from deepspark_ops.predict.record import Inputs
from deepspark_ops.predict.samples import BundleForm, Parts, Sample
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


@dataclass
class AnswerCount:
    """Figures of a call so far, or of a part of a call.

    Attributes:
        n_records: Rows.
        n_errors: Rows that have an error instead of an answer.
        first_errors: First errors, ``id: error``.
        remarks: Difference between inputs and training samples -> number of inputs.
        pixels: Pixels of the images, by the bundle's input; see ``PixelWatch``.
    """

    n_records: int = 0
    n_errors: int = 0
    first_errors: list[str] = field(default_factory=list)
    remarks: Counter[str] = field(default_factory=Counter)
    pixels: dict[str, SeenPixels] = field(default_factory=dict)

    def add(self, chunk: Sequence[Sample], watch: PixelWatch) -> None:
        """Count the next samples; ``watch`` goes on from ``pixels``."""
        self.n_records += len(chunk)
        self.remarks.update(sample.remark for sample in chunk if sample.remark)
        watch.add(sample.values for sample in chunk if sample.values is not None)
        errors = [f"{sample.id}: {sample.error}" for sample in chunk if sample.values is None]
        self.n_errors += len(errors)
        self.first_errors += errors[: _SHOWN_ERRORS - len(self.first_errors)]

    def merge(self, other: AnswerCount) -> None:
        """Add the figures of the next part."""
        self.n_records += other.n_records
        self.n_errors += other.n_errors
        self.first_errors += other.first_errors[: _SHOWN_ERRORS - len(self.first_errors)]
        self.remarks += other.remarks
        for name, pixels in other.pixels.items():
            self.pixels[name] = self.pixels.get(name, SeenPixels()).merge(pixels)

    def summary(self, output: DataPath, form: BundleForm, seconds: float) -> Summary:
        """Return the figures of the call; ``seconds``: since the first input."""
        remarks = {**self.remarks, **PixelWatch(form, self.pixels).remarks()}
        return Summary(output, self.n_records, self.n_errors, tuple(self.first_errors), seconds, remarks)


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
        of = f"of {self.n_records:,} inputs"
        texts = [f"{count:,} {of}: {remark}" for remark, count in self.remarks.items()]
        if self.n_errors:
            texts.append(
                f"{self.n_errors:,} {of} cannot be used; column error of their rows says why\n{self._errors()}"
            )
        return texts

    def log_to(self, log: logging.Logger) -> None:
        """Log the warnings and the result."""
        for text in self.warnings():
            log.warning("%s", text)
        log.info("%s", self.text())

    def require_answer(self) -> None:
        """Refuse inputs without a single answer.

        Raises:
            DataError: No input can be used.
        """
        if self.n_errors == self.n_records:
            msg = f"no input can be used ({self.n_errors:,} of {self.n_records:,} failed):\n{self._errors()}"
            raise DataError(msg)

    def _errors(self) -> str:
        more = self.n_errors - len(self.first_errors)
        lines = [*self.first_errors, *([f"and {more:,} more"] if more else [])]
        return "\n".join(f"  {line}" for line in lines)


class Progress:
    """Counts answers and reports the count from time to time. For one thread."""

    def __init__(
        self, total: int | None, on_step: OnStep, form: BundleForm, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin to count; ``total`` is None if unknown, ``form`` is of the samples."""
        self._total = total
        self._on_step = on_step
        self._form = form
        self._clock = clock
        self._began = self._reported = clock()
        self.count = AnswerCount()
        self._watch = PixelWatch(form, self.count.pixels)

    def add(self, chunk: Sequence[Sample]) -> None:
        """Count the next samples."""
        self.count.add(chunk, self._watch)
        now = self._clock()
        if now - self._reported >= REPORT_S:
            self._reported = now
            of = "" if self._total is None else f"/{self._total:,}"
            n_records = self.count.n_records
            self._on_step(f"answered {n_records:,}{of} inputs, {n_records / (now - self._began):.0f}/s")

    def summary(self, output: DataPath) -> Summary:
        """Return the figures so far."""
        return self.count.summary(output, self._form, self._clock() - self._began)


def answer_chunk(chunk: Sequence[Sample], answer: Answer, columns: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Return a chunk's rows by column; the row of an unusable sample has an error alone."""
    usable = [values for sample in chunk if (values := sample.values) is not None]
    answered = answer(usable) if usable else {name: () for name in columns}
    rows: dict[str, Sequence[Any]] = {}
    for name in columns:
        if len(usable) == len(chunk):
            rows[name] = answered[name]
        else:
            usable_values = iter(answered[name])
            rows[name] = [None if sample.values is None else next(usable_values) for sample in chunk]
    rows["id"] = [sample.id for sample in chunk]
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
    if not progress.count.n_records:
        msg = f"no input: the {inputs.description} is empty"
        raise DataError(msg)
