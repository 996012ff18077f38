"""``metrics.json``: what an evaluation found, versioned, with digests of what was scored on what."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.scores import Scores, accuracy_interval
from deepspark_ops.shards.manifest import SplitName, SplitRule

METRICS_VERSION: Final = 2
METRICS_NAME = "metrics.json"
REPORT_NAME = "report.html"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClassReport(_Frozen):
    """One class. A share is None where its denominator is zero.

    Attributes:
        label: The class' number.
        name: Its name, or the number as text.
        support: Samples that are of this class.
        predicted: Samples that were taken for this class.
        correct: Samples that are both.
        accuracy: correct / support; the class' recall.
        precision: correct / predicted.
        f1: Harmonic mean of accuracy and precision.
    """

    label: int
    name: str
    support: int
    predicted: int
    correct: int
    accuracy: float | None
    precision: float | None
    f1: float | None


class MistakeReport(_Frozen):
    """One wrong prediction; the fields are those of ``scores.Mistake``."""

    index: int
    label: int
    predicted: int
    probability: float
    label_probability: float


class ScoredOn(_Frozen):
    """What was scored on what.

    Attributes:
        net: Name of the net.
        run: Name of the run's folder.
        iteration: Iteration of the scored snapshot; None for weights that are no snapshot.
        weights: File name of the weights.
        weights_digest: SHA-256 of that file, ``sha256:<hex>``.
        dataset: Folder of the dataset split, or the net's own source.
        dataset_digest: SHA-256 of the samples' manifest or source, ``sha256:<hex>``; equal digests, equal samples.
        split: ``train`` or ``test``.
        score_blob: Blob that holds the class scores.
        split_rule: How these samples were told from those of the other split; None if it is not known.
    """

    net: str
    run: str
    iteration: int | None
    weights: str
    weights_digest: str
    dataset: str
    dataset_digest: str
    split: SplitName
    score_blob: str
    split_rule: SplitRule | None = None


class Speed(_Frozen):
    """How fast the net scores, data already in memory: comparable on one machine and for one batch size only.

    Attributes:
        images_per_s: Of the fastest of many forward passes.
        batch_size: Samples of a pass.
        machine: Host name, processors and device.
    """

    images_per_s: float
    batch_size: int
    machine: str


class MetricsReport(_Frozen):
    """The whole file.

    Attributes:
        format_version: Version of this form; 1 has no ``speed`` and no ``split_rule``.
        created: UTC, ISO 8601, whole seconds.
        scored: What was scored on what.
        n_samples: Samples that count.
        n_ignored: Samples with the net's ``ignore_label``.
        top1: Share with the true class first, Caffe's ties.
        top1_interval: 95 % interval of ``top1`` (Wilson).
        top5: Share with the true class among the first five; None with five classes or fewer.
        loss: Mean -log probability of the true class.
        classes: One per class, in label order.
        confusion: Counts, true class by row, predicted class by column.
        mistakes: Surest wrong predictions first.
        speed: How fast the net scores; None if it was not measured.
    """

    format_version: Literal[1, 2]
    created: str
    scored: ScoredOn
    n_samples: int
    n_ignored: int
    top1: float
    top1_interval: tuple[float, float]
    top5: float | None
    loss: float
    classes: tuple[ClassReport, ...]
    confusion: tuple[tuple[int, ...], ...]
    mistakes: tuple[MistakeReport, ...]
    speed: Speed | None = None

    def summary(self) -> str:
        """Return the figures in one line."""
        top5 = "" if self.top5 is None else f" top5={self.top5:.4f}"
        return f"top1={self.top1:.4f}{top5} loss={self.loss:.4f} samples={self.n_samples}"

    def to_json(self) -> str:
        """Return the file's text."""
        return self.model_dump_json(indent=1) + "\n"


def build_metrics(
    scores: Scores, scored: ScoredOn, class_names: tuple[str, ...], speed: Speed | None = None
) -> MetricsReport:
    """Return the report of ``scores``; classes beyond ``class_names`` are named by their number."""
    matrix = scores.confusion
    return MetricsReport(
        format_version=METRICS_VERSION,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        scored=scored,
        n_samples=scores.n_samples,
        n_ignored=scores.n_ignored,
        top1=scores.top1,
        top1_interval=accuracy_interval(scores.top1, scores.n_samples),
        top5=scores.top5,
        loss=scores.loss,
        classes=tuple(
            _class_report(
                label,
                class_names[label] if label < len(class_names) else str(label),
                support=int(matrix[label].sum()),
                predicted=int(matrix[:, label].sum()),
                correct=int(matrix[label, label]),
            )
            for label in range(len(matrix))
        ),
        confusion=tuple(tuple(int(count) for count in row) for row in matrix),
        mistakes=tuple(
            MistakeReport(
                index=mistake.index,
                label=mistake.label,
                predicted=mistake.predicted,
                probability=mistake.probability,
                label_probability=mistake.label_probability,
            )
            for mistake in scores.mistakes
        ),
        speed=speed,
    )


def read_metrics(path: Path) -> MetricsReport:
    """Read a ``metrics.json``.

    Raises:
        DataError: Missing, damaged or of another version.
    """
    try:
        return MetricsReport.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        msg = f'{path}: no metrics there; run "deepspark evaluate" first'
        raise DataError(msg) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "file"
        msg = f'{path}: {place}: {first["msg"]}; run "deepspark evaluate" again (metrics version {METRICS_VERSION})'
        raise DataError(msg) from error


def _class_report(label: int, name: str, *, support: int, predicted: int, correct: int) -> ClassReport:
    return ClassReport(
        label=label,
        name=name,
        support=support,
        predicted=predicted,
        correct=correct,
        accuracy=correct / support if support else None,
        precision=correct / predicted if predicted else None,
        f1=2 * correct / (support + predicted) if support + predicted else None,
    )
