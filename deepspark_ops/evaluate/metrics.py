"""``metrics.json``: what an evaluation found, versioned, with digests of what was scored on what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Discriminator, TypeAdapter, ValidationError

from caffe_import.file_access.regular_file import regular_bytes
from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.tasks.classification import ClassificationMetrics, upgraded
from deepspark_ops.evaluate.tasks.embedding import EmbeddingMetrics
from deepspark_ops.evaluate.tasks.metrics_head import METRICS_VERSION, MetricsReport
from deepspark_ops.evaluate.tasks.multi_label import MultiLabelMetrics
from deepspark_ops.evaluate.tasks.reconstruction import ReconstructionMetrics
from deepspark_ops.evaluate.tasks.regression import RegressionMetrics
from deepspark_ops.evaluate.tasks.segmentation import SegmentationMetrics
from deepspark_ops.frozen_model import first_problem

METRICS_NAME = "metrics.json"
REPORT_NAME = "report.html"
_WITHOUT_TASK: Final = (1, 2)

AnyMetrics = Annotated[
    ClassificationMetrics
    | MultiLabelMetrics
    | RegressionMetrics
    | EmbeddingMetrics
    | ReconstructionMetrics
    | SegmentationMetrics,
    Discriminator("task"),
]
_FILE: Final[TypeAdapter[MetricsReport]] = TypeAdapter(AnyMetrics)


def read_metrics(path: Path) -> MetricsReport:
    """Read a ``metrics.json`` of any task.

    Raises:
        DataError: Missing, damaged or of another version.
    """
    remedy = f'run "deepspark evaluate" again (metrics version {METRICS_VERSION})'
    try:
        content = _content(json.loads(regular_bytes(path)))
        return _FILE.validate_python(content)
    except FileNotFoundError as error:
        msg = f'{path}: no metrics there; run "deepspark evaluate" first'
        raise DataError(msg) from error
    except ValidationError as error:
        msg = f"{path}: {first_problem(error)}; {remedy}"
        raise DataError(msg) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # of no JSON, or of one that is not ours
        msg = f"{path}: damaged ({type(error).__name__}: {error}); {remedy}"
        raise DataError(msg) from error


def classes_of(metrics: MetricsReport | None) -> ClassificationMetrics | None:
    """Return the metrics of a classification; None for another task."""
    return metrics if isinstance(metrics, ClassificationMetrics) else None


def _content(values: Any) -> dict[str, Any]:
    version = values.get("format_version")
    if version in _WITHOUT_TASK:
        return upgraded(values)
    if version != METRICS_VERSION:
        msg = f"format_version is {version!r}, allowed: 1, 2, {METRICS_VERSION}"
        raise ValueError(msg)
    return dict(values)
