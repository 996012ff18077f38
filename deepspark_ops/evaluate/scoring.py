"""Runs a net over all samples and sums what it answers; whatever the net is, a trained one or an exported one."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.errors import NetError
from deepspark_ops.evaluate.metrics import MetricsReport, Speed
from deepspark_ops.evaluate.report import percent
from deepspark_ops.evaluate.sample_scores import ScoredSamples
from deepspark_ops.evaluate.samples import Batch, SampleDigest, Samples
from deepspark_ops.evaluate.score_blob import ScoreBlob
from deepspark_ops.evaluate.scores import Scores, ScoreSum

PROGRESS_INTERVAL_S = 2.0
SPEED_PASSES = 50
SPEED_LIMIT_S = 2.0

Answer = Callable[[Batch], npt.NDArray[np.float64]]
"""Takes samples; returns probabilities (count, n_classes), a fresh array."""

_log = logging.getLogger(__name__)


def score_samples(answer: Answer, samples: Samples, blob: ScoreBlob, *, worst: int) -> tuple[Scores, SampleDigest]:
    """Score every sample once, in order.

    Args:
        answer: The net.
        samples: What it is scored on.
        blob: Which blob has the labels, and how many classes there are.
        worst: How many mistakes to keep.

    Raises:
        DataError: A label that is no class, or scores that are not finite.
        NetError: The samples have no labels.
    """
    if blob.label is None:
        msg = f"{blob.found_by}: the net has no labels to score against; its data layer needs a second top with them"
        raise NetError(msg)
    total = ScoreSum(blob.n_classes, worst=worst, ignore_label=blob.ignore_label)
    digest = SampleDigest()
    began = logged = time.monotonic()
    for batch in samples.batches():
        digest.add(batch)
        total.add(answer(batch), batch.stored[blob.label].reshape(batch.count))
        if time.monotonic() - logged > PROGRESS_INTERVAL_S:
            logged = time.monotonic()
            _log.info("scored %s/%s samples", f"{batch.start + batch.count:,}", f"{samples.n_samples:,}")
    seconds = time.monotonic() - began
    scores = total.result()
    _log.info(
        "scored %s samples in %.1f s: top-1 %s, loss %.4f, %s mistakes",
        f"{scores.n_samples:,}",
        seconds,
        percent(scores.top1),
        scores.loss,
        f"{scores.n_samples - int(np.trace(scores.confusion)):,}",
    )
    return scores, digest


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


def scored_samples(metrics: MetricsReport, scores: Scores, digest: SampleDigest) -> ScoredSamples:
    """Return the answers as ``samples.h5`` holds them."""
    return ScoredSamples(
        dataset_digest=metrics.scored.dataset_digest,
        weights_digest=metrics.scored.weights_digest,
        n_classes=len(metrics.classes),
        answers=scores.answers,
        content=digest.content()[scores.answers.index],
    )
