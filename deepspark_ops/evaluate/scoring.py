"""Runs a net over all samples and sums its results; whatever the net is, a trained one or an exported one."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from deepspark_ops.evaluate.per_sample.each_batch import EachBatch, ScoredBatch
from deepspark_ops.evaluate.per_sample.slices import SliceSums
from deepspark_ops.evaluate.sample_scores import ScoredSamples
from deepspark_ops.evaluate.samples import Batch, SampleDigest, Samples
from deepspark_ops.evaluate.tasks.answers import require_target, targets_of
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport, ScoredOn, Speed
from deepspark_ops.evaluate.tasks.registry import sum_of
from deepspark_ops.evaluate.tasks.task_sum import ReportHead, TaskSum
from deepspark_ops.processes.ahead import ahead

PROGRESS_INTERVAL_S = 2.0
SPEED_PASSES = 50
SPEED_LIMIT_S = 2.0

Answer = Callable[[Batch], Mapping[str, npt.NDArray[Any]]]
"""Takes samples; returns blob -> (count, ...): outputs after their activation, targets that the net computes."""

_log = logging.getLogger(__name__)


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
    """Score every sample once, in order, or those from ``start`` to before ``stop``.

    Args:
        answer: The net.
        samples: What it is scored on.
        tasks: Its results, the main one first.
        worst: How many samples to keep for the report.
        start: Position of the first sample.
        stop: Position after the last one; None: to the end.
        each: Takes each batch with the answers of the main result, once they are counted.

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
    began = logged = time.monotonic()
    with closing(answered_batches(answer, samples.batches(start, stop), digest)) as answered:
        for batch, values in answered:
            counted = [
                (
                    [values[name] for name in one.outputs],
                    targets_of(one, values, batch.stored, batch.feeds, batch.count),
                )
                for one in tasks
            ]
            for one, (answers, targets) in zip(sums, counted, strict=True):
                one.add(answers, targets, start=batch.start)
            if each is not None:
                each(ScoredBatch(batch, *counted[0], sums[0].last(), digest.of_batch(batch.start)))
            if time.monotonic() - logged > PROGRESS_INTERVAL_S:
                logged = time.monotonic()
                _log.info("scored %s/%s samples", f"{batch.start + batch.count:,}", f"{samples.n_samples:,}")
    n_scored = min(stop, samples.n_samples) - start if stop is not None else samples.n_samples - start
    _log.info("scored %s samples in %.1f s", f"{n_scored:,}", time.monotonic() - began)
    return sums, digest


def _answers_and_targets(
    task: ChosenTask, batch: Batch, values: Mapping[str, npt.NDArray[Any]]
) -> tuple[list[npt.NDArray[Any]], npt.NDArray[Any]]:
    targets = targets_of(task, values, batch.stored, batch.feeds, batch.count)
    return [values[name] for name in task.outputs], targets


def answers_of_batch(
    answers: Callable[[Mapping[str, npt.NDArray[np.float32]]], Mapping[str, npt.NDArray[Any]]],
) -> Answer:
    """Return what answers a batch, its padding left out."""
    return lambda batch: {name: values[: batch.count] for name, values in answers(batch.feeds).items()}


def answered_batches(
    answer: Answer, batches: Iterable[Batch], digest: SampleDigest
) -> Generator[tuple[Batch, Mapping[str, npt.NDArray[Any]]], None, None]:
    """Yield batches with the net's answers, in order; reading and the net are a thread each, a batch apart.

    Args:
        answer: The net.
        batches: What it answers; read on a thread until the generator has ended or is closed.
        digest: Every batch is added.
    """

    def read() -> Iterator[Batch]:
        for batch in batches:
            digest.add(batch)
            yield batch

    def answered() -> Iterator[tuple[Batch, Mapping[str, npt.NDArray[Any]]]]:
        with closing(ahead(read(), most=1, name="samples")) as hashed:
            for batch in hashed:
                yield batch, answer(batch)

    return ahead(answered(), most=1, name="net")


def report_of(
    sums: Sequence[TaskSum],
    scored: ScoredOn,
    names: tuple[str, ...] = (),
    speed: Speed | None = None,
    slices: SliceSums | None = None,
) -> MetricsReport:
    """Return the report of a net's results; the further ones are in that of the main one.

    Args:
        sums: Of each result, the main one first.
        scored: What was scored on what; its blobs are replaced by each result's own.
        names: Of the main result, as ``Samples.answer_names`` gives them: of further ones nobody knows whose they are.
        speed: How fast the net scores.
        slices: Of the main result; None for none.
    """

    def head(one: TaskSum, **further: Any) -> ReportHead:
        blobs = {"score_blob": ",".join(one.chosen.outputs), "target_blob": one.chosen.target}
        return ReportHead(scored.model_copy(update=blobs), **further)

    others = tuple(one.metrics(head(one)) for one in sums[1:])
    metrics = sums[0].metrics(head(sums[0], names=names, speed=speed, others=others))
    if slices is not None:
        metrics = metrics.model_copy(update={"slices": slices.result(head(sums[0], names=names))})
    for one, found in zip(sums, metrics.results(), strict=True):
        _log.info("%s: %s", found.task.replace("_", " "), one.line(found))
    return metrics


def measure_speed(forward: Callable[[], Any], *, batch_size: int, device: str) -> Speed:
    """Time forward passes on one full batch; the fastest is the one that other work on the machine disturbed least.

    Args:
        forward: One pass, data in memory; compiled by an earlier call.
        batch_size: Its samples.
        device: What it runs on, in words.
    """
    began = time.monotonic()
    fastest = float("inf")
    for _ in range(SPEED_PASSES):
        start = time.perf_counter()
        forward()
        fastest = min(fastest, time.perf_counter() - start)
        if time.monotonic() - began > SPEED_LIMIT_S:
            break
    machine = f"{platform.node()}, {len(os.sched_getaffinity(0))} processors, {device}"
    return Speed(images_per_s=round(batch_size / fastest, 1), batch_size=batch_size, machine=machine)


def scored_samples(metrics: MetricsReport, total: TaskSum, digest: SampleDigest) -> ScoredSamples:
    """Return the answers of the main result as ``samples.h5`` holds them."""
    answers = total.samples()
    return ScoredSamples(
        dataset_digest=metrics.scored.dataset_digest,
        weights_digest=metrics.scored.weights_digest,
        n_classes=total.chosen.n_classes,
        answers=answers,
        content=digest.content()[answers.index],
        task=metrics.task,
    )
