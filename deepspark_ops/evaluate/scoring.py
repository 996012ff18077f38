"""Runs a trained or an exported net over all samples and sums the results."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.net.layer_registry import Shape
from deepspark_ops.evaluate.per_sample.each_batch import EachBatch
from deepspark_ops.evaluate.per_sample.slices import SliceSums
from deepspark_ops.evaluate.sample_scores import ScoredSamples
from deepspark_ops.evaluate.samples import Batch, SampleDigest, Samples
from deepspark_ops.evaluate.scores import ScoredBatch, ScoredResult
from deepspark_ops.evaluate.tasks.answers import require_target, targets_of
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport, ScoredOn, Speed
from deepspark_ops.evaluate.tasks.registry import sum_of
from deepspark_ops.evaluate.tasks.task_sum import ReportHead, TaskSum
from deepspark_ops.processes.ahead import mapped_ahead

PROGRESS_INTERVAL_S = 2.0
SPEED_STRETCHES = 5
SPEED_STRETCH_S = 0.1
SPEED_LIMIT_S = 2.0

Array = npt.NDArray[Any]
ROWS_AT_ONCE = 1_000
"""Samples that are counted at once: a batch of a small net takes numpy as long to call as to compute."""
BYTES_AT_ONCE = 16 * 2**20
"""Of answers and targets that wait to be counted; larger ones are counted batch by batch."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """A net ready for answers.

    Attributes:
        of_batch: Takes samples; returns blob -> (count, ...): outputs after their activation, targets that the net
            computes.
        n_at_once: Batches that may be answered at the same time, by threads.
    """

    of_batch: Callable[[Batch], Mapping[str, npt.NDArray[Any]]]
    n_at_once: int = 1


def score_samples(
    answer: Answer,
    samples: Samples,
    tasks: Sequence[ChosenTask],
    *,
    worst: int,
    start: int = 0,
    stop: int | None = None,
    each: EachBatch | None = None,
) -> tuple[tuple[TaskSum, ...], SampleDigest]:
    """Score every sample once, in order, or the samples from ``start`` to before ``stop``.

    ``worst`` samples are kept for the report. ``each`` takes samples once they are counted, with all answers.

    Returns:
        A sum for each result, and the samples' digest.

    Raises:
        DataError: A target that a task cannot have, or answers that are not finite.
        NetError: There is nothing to compare answers with.
    """
    for task in tasks:
        require_target(task)
    sums = tuple(sum_of(task, worst=worst) for task in tasks)
    digest = SampleDigest()
    waiting = _Waiting(sums, digest, each)
    began = logged = time.monotonic()
    with closing(answered_batches(answer, samples.batches(start, stop), digest)) as answered:
        for batch, values in answered:
            waiting.add(batch, values)
            if time.monotonic() - logged > PROGRESS_INTERVAL_S:
                logged = time.monotonic()
                _log.info("scored %s/%s samples", f"{batch.start + batch.count:,}", f"{samples.n_samples:,}")
    waiting.count()
    n_scored = min(stop, samples.n_samples) - start if stop is not None else samples.n_samples - start
    _log.info("scored %s samples in %.1f s", f"{n_scored:,}", time.monotonic() - began)
    return sums, digest


class _Waiting:
    """Consecutive batches, answered but not yet counted. For a single thread at a time."""

    def __init__(self, sums: Sequence[TaskSum], digest: SampleDigest, each: EachBatch | None) -> None:
        self._sums = sums
        self._digest = digest
        self._each = each
        self._starts: list[int] = []
        self._parts: list[list[tuple[list[Array], Array]]] = [[] for _ in sums]
        self._n_rows = self._n_bytes = 0

    def add(self, batch: Batch, values: Mapping[str, Array]) -> None:
        """Take a batch; count the waiting batches at ``ROWS_AT_ONCE`` rows or ``BYTES_AT_ONCE`` bytes."""
        results = [
            (
                [values[name] for name in task_sum.chosen.outputs],
                targets_of(task_sum.chosen, values, batch.stored, batch.feeds, batch.count),
            )
            for task_sum in self._sums
        ]
        if any(
            parts and _shapes(parts[0]) != _shapes(result) for parts, result in zip(self._parts, results, strict=True)
        ):
            self.count()  # samples of several sizes
        self._starts.append(batch.start)
        self._n_rows += batch.count
        for (answers, targets), parts in zip(results, self._parts, strict=True):
            self._n_bytes += targets.nbytes + sum(part.nbytes for part in answers)
            parts.append((answers, targets))
        if self._n_rows >= ROWS_AT_ONCE or self._n_bytes >= BYTES_AT_ONCE:
            self.count()

    def count(self) -> None:
        """Count what waits."""
        if not self._starts:
            return
        start, results = self._starts[0], []
        for task_sum, parts in zip(self._sums, self._parts, strict=True):
            answers = [joined(side) for side in zip(*(batch_answers for batch_answers, _ in parts), strict=True)]
            targets = joined([batch_targets for _, batch_targets in parts])
            task_sum.add(answers, targets, start=start)
            results.append(ScoredResult(answers, targets, task_sum.last()))
            parts.clear()
        if self._each is not None:
            content = joined([self._digest.of_batch(first) for first in self._starts])
            self._each(ScoredBatch(start, content, results))
        self._starts.clear()
        self._n_rows = self._n_bytes = 0


def _shapes(result: tuple[list[Array], Array]) -> list[Shape]:
    """Return the shapes of one sample's answers and target."""
    answers, targets = result
    return [values.shape[1:] for values in (*answers, targets)]


def joined(parts: Sequence[Array]) -> Array:
    """Return parts as a single array; a single part is returned unchanged."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def answered_batches(
    answer: Answer, batches: Iterable[Batch], digest: SampleDigest
) -> Generator[tuple[Batch, Mapping[str, Array]], None, None]:
    """Yield batches with the net's answers, in order, and add them to ``digest``; a thread reads, others compute.

    The thread ends with the generator, or when the generator is closed.
    """

    def read() -> Iterator[Batch]:
        for batch in batches:
            digest.add(batch)
            yield batch

    return mapped_ahead(read(), answer.of_batch, n_threads=answer.n_at_once, name="net")


def report_of(
    sums: Sequence[TaskSum],
    scored: ScoredOn,
    names: tuple[str, ...] = (),
    speed: Speed | None = None,
    slices: Sequence[SliceSums] = (),
) -> MetricsReport:
    """Return the report of a net's results; the report of the main result contains the further results.

    Blobs in ``scored`` are replaced by each result's own. ``names`` are of the main result; names of further results
    are not known.
    """

    def head(task_sum: TaskSum, **further: Any) -> ReportHead:
        blobs = {"score_blob": ",".join(task_sum.chosen.outputs), "target_blob": task_sum.chosen.target}
        return ReportHead(scored.model_copy(update=blobs), **further)

    def with_slices(at: int, metrics_report: MetricsReport, about: ReportHead) -> MetricsReport:
        return metrics_report.model_copy(update={"slices": slices[at].result(about)}) if slices else metrics_report

    further_reports = tuple(
        with_slices(at, further_sum.metrics(head(further_sum)), head(further_sum))
        for at, further_sum in enumerate(sums[1:], start=1)
    )
    metrics = sums[0].metrics(head(sums[0], names=names, speed=speed, others=further_reports))
    metrics = with_slices(0, metrics, head(sums[0], names=names))
    for task_sum, result in zip(sums, metrics.results(), strict=True):
        blob = f" of {result.scored.score_blob}" if len(sums) > 1 else ""
        _log.info("%s%s: %s", result.kind, blob, task_sum.line(result))
    return metrics


def measure_speed(
    forward: Callable[[], Any], *, batch_size: int, device: str, clock: Callable[[], float] = time.perf_counter
) -> Speed:
    """Time a forward pass on a full batch, compiled by an earlier call, for half a second, a large net two seconds.

    Passes are timed in some stretches of time. The fastest pass of each stretch counts: other work on the machine
    disturbed this pass least. The spread of the stretches shows how exact the figure is.
    """
    began = clock()
    fastest: list[float] = []
    while len(fastest) < SPEED_STRETCHES and (not fastest or clock() - began < SPEED_LIMIT_S):
        first = now = clock()
        best = float("inf")
        while now - first < SPEED_STRETCH_S:
            start = clock()
            forward()
            now = clock()
            best = min(best, now - start)
        fastest.append(best)
    machine = f"{platform.node()}, {len(os.sched_getaffinity(0))} processors, {device}"
    return Speed(
        images_per_s=round(batch_size / min(fastest), 1),
        batch_size=batch_size,
        machine=machine,
        slowest_images_per_s=round(batch_size / max(fastest), 1),
    )


def scored_samples(
    metrics: MetricsReport, total: TaskSum, digest: SampleDigest, groups: npt.NDArray[np.uint64] | None
) -> ScoredSamples:
    """Return the answers of the main result for ``samples.h5``; ``groups`` as of ``sample_groups``."""
    answers = total.samples()
    return ScoredSamples(
        dataset_digest=metrics.scored.dataset_digest,
        weights_digest=metrics.scored.weights_digest,
        n_classes=total.chosen.n_classes,
        answers=answers,
        content=digest.content()[answers.index],
        task=metrics.task,
        group=None if groups is None else groups[answers.index],
    )
