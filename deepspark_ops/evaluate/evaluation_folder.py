"""Reads the files of an evaluation: the figures, and the answers sample by sample."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.metrics import METRICS_NAME, classes_of, read_metrics
from deepspark_ops.evaluate.sample_scores import SAMPLES_NAME, ScoredSamples, read_samples
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport


@dataclass(frozen=True)
class Evaluated:
    """One scored net.

    Attributes:
        metrics: The figures.
        samples: The answers.
    """

    metrics: MetricsReport
    samples: ScoredSamples

    def class_names(self) -> tuple[str, ...]:
        """Return the classes' names in label order; none of another task than classification."""
        classes = classes_of(self.metrics)
        return () if classes is None else tuple(report.name for report in classes.classes)


def read_evaluation(folder: Path) -> Evaluated:
    """Read ``metrics.json`` and ``samples.h5`` of a folder.

    Raises:
        DataError: One is missing or damaged, or the two are of different evaluations.
    """
    metrics = read_metrics(folder / METRICS_NAME)
    samples = read_samples(folder / SAMPLES_NAME)
    scored = metrics.scored
    if (samples.dataset_digest, samples.weights_digest) != (scored.dataset_digest, scored.weights_digest):
        msg = (
            f"{folder}: {METRICS_NAME} and {SAMPLES_NAME} are of different evaluations (weights "
            f'{scored.weights_digest} and {samples.weights_digest}); run "deepspark evaluate" again'
        )
        raise DataError(msg)
    return Evaluated(metrics, samples)
