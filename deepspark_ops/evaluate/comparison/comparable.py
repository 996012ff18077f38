"""Whether two evaluations can be compared sample by sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deepspark_ops.evaluate.metrics import classes_of
from deepspark_ops.evaluate.tasks.classification import ClassificationMetrics
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport

_DIGEST_SHOWN: Final = 15


def why_not_compared(first: MetricsReport | None, second: MetricsReport | None, labels: tuple[str, str]) -> str | None:
    """Return the reason against a comparison of two evaluations by sample and by cell; None for comparable evaluations.

    The metrics of a run without an evaluation are None; ``labels`` are the names of the two runs.
    """
    missing = [label for label, metrics in zip(labels, (first, second), strict=True) if metrics is None]
    if first is None or second is None:
        return f"{' and '.join(missing)}: no evaluation yet"
    digests = [metrics.scored.dataset_digest for metrics in (first, second)]
    if digests[0] != digests[1]:
        short = " and ".join(digest[:_DIGEST_SHOWN] for digest in digests)
        return f"{labels[0]} and {labels[1]} were tested on different samples ({short})"
    if first.n_samples != second.n_samples:
        counted = f"{first.n_samples:,} and {second.n_samples:,}"
        return f"{labels[0]} and {labels[1]} count different samples ({counted}), by the nets' ignore_label"
    if first.kind != second.kind:
        return f"{labels[0]} and {labels[1]} were scored as {first.kind} and {second.kind}"
    of_first, of_second = classes_of(first), classes_of(second)
    if of_first is None or of_second is None:
        return None
    names = _names(of_first), _names(of_second)
    if names[0] != names[1]:
        return f"{labels[0]} and {labels[1]} have different classes ({_unlike(*names)})"
    return None


def _names(metrics: ClassificationMetrics) -> list[str]:
    return [each.name for each in metrics.classes]


def _unlike(first: Sequence[str], second: Sequence[str]) -> str:
    if len(first) != len(second):
        return f"{len(first):,} and {len(second):,}"
    at = next(number for number, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
    return f'class {at} is "{first[at]}" and "{second[at]}"'
