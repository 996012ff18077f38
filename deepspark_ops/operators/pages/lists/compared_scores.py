"""Differences between the evaluations of runs: figures, confusion matrices, and samples with different answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from markupsafe import Markup

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.comparison.comparable import why_not_compared
from deepspark_ops.evaluate.metrics import METRICS_NAME, classes_of, read_metrics
from deepspark_ops.evaluate.tasks.embedding import EmbeddingMetrics
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport
from deepspark_ops.operators.pages.addresses import evaluation_folder
from deepspark_ops.operators.tasks.airflow_words import airflow_words

if TYPE_CHECKING:
    from deepspark_ops.evaluate.comparison.paired_errors import ErrorPair
    from deepspark_ops.evaluate.evaluation_folder import Evaluated
    from deepspark_ops.shards.files.picture_archive import PictureArchive

MOST_CLASSES: Final = 60
"""With more a matrix is no table any more: each run's report has its picture."""


def metrics_of(run_dir: Path) -> MetricsReport | None:
    """Return the metrics of a run's evaluation; None without an evaluation."""
    folder = evaluation_folder(run_dir)
    with suppress(OSError, DataError):
        return None if folder is None else read_metrics(folder / METRICS_NAME)
    return None


def confusion_of(metrics: MetricsReport | None) -> dict[str, Any] | None:
    """Return the confusion matrix of an evaluation, ``counts`` None with many classes; None without classes."""
    classes = classes_of(metrics)
    if classes is None:
        return None
    n_classes = len(classes.classes)
    counts = [list(row) for row in classes.confusion] if n_classes <= MOST_CLASSES else None
    names = [report.name for report in classes.classes] if n_classes <= MOST_CLASSES else None
    return {
        "n_classes": n_classes, "classes": names, "counts": counts, "n_samples": classes.n_samples,
        "top1": classes.top1, "dataset_digest": classes.scored.dataset_digest,
    }  # fmt: skip


def differences_of(
    metrics: Sequence[MetricsReport | None], keys: Sequence[str], labels: Sequence[str]
) -> list[dict[str, Any]]:
    """Return for each later run its confusion matrix minus the first run's matrix, or the reason for no matrix."""
    rows = []
    for key, label, compared in list(zip(keys, labels, metrics, strict=True))[1:]:
        why_not = why_not_compared(metrics[0], compared, (labels[0], label))
        first, second = classes_of(metrics[0]), classes_of(compared)
        if why_not is None and second is None:
            why_not = "there are no classes to compare"
        if why_not is None and second is not None and len(second.classes) > MOST_CLASSES:
            why_not = f"{len(second.classes):,} classes are too many for a table; each run's report has its matrix"
        counts = None
        if why_not is None and first is not None and second is not None:
            counts = (np.array(second.confusion, np.int64) - np.array(first.confusion, np.int64)).tolist()
        rows.append({"first": keys[0], "second": key, "counts": counts, "why_not": why_not})
    return rows


def pair_of(folders: Sequence[Path], metrics: Sequence[MetricsReport | None], labels: Sequence[str]) -> dict[str, Any]:
    """Return the samples that either of two runs answers better, with some pictures; ``labels`` are the runs' names.

    Returns:
        ``why_not`` alone, or with ``kind`` ``classes`` counts, McNemar's two-sided ``p``, and some samples that one
        alone gets right: ``only_first`` and ``only_second``; with ``errors``, of nets without classes, what
        ``PairedErrors`` has, with answers and pictures of the samples.
    """
    why_not = why_not_compared(metrics[0], metrics[1], (labels[0], labels[1]))
    evaluations = [folder for run in folders if (folder := evaluation_folder(run)) is not None]
    if why_not is not None or len(evaluations) < len(folders):
        return {"why_not": why_not}
    # HDF5, which no other page needs.
    from deepspark_ops.evaluate.comparison.mistake_pictures import open_mistake_pictures
    from deepspark_ops.evaluate.evaluation_folder import read_evaluation

    try:
        both = [read_evaluation(folder) for folder in evaluations]
        archives = [open_mistake_pictures(folder, of.samples) for folder, of in zip(evaluations, both, strict=True)]
        if classes_of(metrics[0]) is not None:
            return {"why_not": None, **_paired(both, archives)}
        return {"why_not": None, **_paired_errors(evaluations, both, archives)}
    except DataError as error:
        return {"why_not": airflow_words(str(error))}


def _paired(both: Sequence[Evaluated], archives: Sequence[PictureArchive]) -> dict[str, Any]:
    from deepspark_ops.evaluate.comparison.answers import difference_p_value
    from deepspark_ops.evaluate.comparison.section import make_section

    (first, second), (of_first, of_second) = both, archives
    pictured = {*of_first.numbers, *of_second.numbers}
    section = make_section(second, first, None, has_picture=pictured.__contains__)
    names = first.class_names()
    n_first, n_second = section.comparison.n_lost, section.comparison.n_gained
    n_both = int(np.count_nonzero((first.samples.classes().rank == 0) & (second.samples.classes().rank == 0)))
    # A sample that the first alone gets right is a mistake of the second, so its picture is with the second's.
    pictures = of_second.read([evaluation.index for evaluation in section.lost])
    pictures |= of_first.read([evaluation.index for evaluation in section.gained])

    def shown(differences: Sequence[Any], takes: Callable[[Any], int]) -> list[dict[str, Any]]:
        return [
            {
                "index": difference.index,
                "true": names[difference.label],
                "taken_for": names[takes(difference)],
                "picture": pictures[difference.index].data_uri(),
                "is_small": pictures[difference.index].media_type == "image/png",
            }
            for difference in differences
            if difference.index in pictures
        ]

    n_samples = section.comparison.n_samples
    return {
        "kind": "classes",
        "n_samples": n_samples,
        "n_both_right": n_both,
        "n_both_wrong": n_samples - n_both - n_first - n_second,
        "n_only_first": n_first,
        "n_only_second": n_second,
        "p": difference_p_value(first.samples, second.samples),
        "n_groups": section.comparison.n_groups,
        "only_first": shown(section.lost, lambda evaluation: int(evaluation.candidate)),
        "only_second": shown(section.gained, lambda evaluation: int(evaluation.production)),
    }


def _paired_errors(
    folders: Sequence[Path], both: Sequence[Evaluated], archives: Sequence[PictureArchive]
) -> dict[str, Any]:
    from deepspark_ops.evaluate.comparison.paired_errors import paired_errors
    from deepspark_ops.evaluate.per_sample.row_reader import read_rows

    errors = paired_errors(both[0].samples, both[1].samples, pictured={*archives[0].numbers, *archives[1].numbers})
    shown = [pair.index for pair in (*errors.first_better, *errors.second_better)]
    pictures = [archive.read(shown) for archive in archives]
    rows = [
        read_rows(folder, shown, evaluation.samples.weights_digest)
        for folder, evaluation in zip(folders, both, strict=True)
    ]

    def pair_fields(pair: ErrorPair) -> dict[str, Any]:
        of_sample = [by_index.get(pair.index) for by_index in pictures]
        answers = [by_index.get(pair.index, {}) for by_index in rows]
        return {
            "index": pair.index,
            "name": answers[0].get("name") or answers[1].get("name"),
            "errors": [pair.first, pair.second],
            **answers_in_words(both[0].metrics.task, answers),
            "pictures": [None if picture is None else picture.data_uri() for picture in of_sample],
            "is_small": any(picture is not None and picture.media_type == "image/png" for picture in of_sample),
            "is_same_picture": of_sample[0] == of_sample[1],
        }

    return {
        "kind": "errors",
        "task": both[0].metrics.task,
        "error": _error_in_words(both[0].metrics),
        "pictured": _PICTURED.get(both[0].metrics.task, ""),
        **{
            name: getattr(errors, name)
            for name in ("n_samples", "n_first", "n_second", "first", "second", "p", "n_groups")
        },
        "n_same": errors.n_samples - errors.n_first - errors.n_second,
        "interval": errors.interval,
        "first_better": [pair_fields(pair) for pair in errors.first_better],
        "second_better": [pair_fields(pair) for pair in errors.second_better],
    }


ERRORS: Final = {
    "multi_label": "its cross entropy, mean over the labels",
    "regression": "its mean squared residual",
    "reconstruction": "its mean squared residual",
    "embedding": "the contrastive loss of the pair",
    "segmentation": "the share of its pixels that are wrong",
}
"""A sample's own error, by task, as docs/guides/evaluation.md has it."""
_NEIGHBOUR_ERROR: Final = "1 where its nearest neighbour is of another class, else 0"
_PICTURED: Final = {
    "segmentation": "Pictures: the image, the true classes in colours over it, and those that the net found.",
    "reconstruction": "Pictures: what was given, and what the net gave back.",
}
"""What the pictures of one sample are, from left to right."""
_NUMBERS_SHOWN: Final = 4


def _error_in_words(metrics: MetricsReport) -> str:
    if isinstance(metrics, EmbeddingMetrics) and metrics.neighbours is not None:
        return _NEIGHBOUR_ERROR
    return ERRORS[metrics.task].replace("pixels", metrics.counted)


def answers_in_words(task: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what is true of a sample and what two nets answered, as ``true`` and ``answers``; empty where not known.

    ``rows`` are of ``samples.parquet``, one a net; empty where there is none.
    """
    truth, answer = _IN_WORDS.get(task, (lambda row: "", lambda row: ""))
    known_row = next((row for row in rows if row), None)
    return {"true": truth(known_row) if known_row else "", "answers": [answer(row) if row else "" for row in rows]}


def _numbers(values: Sequence[float] | None) -> str:
    if values is None:
        return ""
    shown = ", ".join(f"{value:.4g}" for value in values[:_NUMBERS_SHOWN])
    return f"{shown}, ..." if len(values) > _NUMBERS_SHOWN else shown


def _labels(row: Mapping[str, Any]) -> str:
    return ", ".join(str(at) for at, share in enumerate(row.get("probabilities") or ()) if share > 0.5) or "none"


_IN_WORDS: Final[Mapping[str, tuple[Callable[[Mapping[str, Any]], str], Callable[[Mapping[str, Any]], str]]]] = {
    "regression": (lambda row: _numbers(row.get("true")), lambda row: _numbers(row.get("predicted"))),
    "multi_label": (lambda row: ", ".join(map(str, row.get("labels") or ())) or "none", _labels),
    "embedding": (
        lambda row: "" if "is_same" not in row else "alike" if row["is_same"] else "different",
        lambda row: "" if "distance" not in row else f"distance {row['distance']:.4g}",
    ),
}
"""Task -> what is true and what was answered, of a row; of a picture that is given back nothing: there are pictures."""


def figures_of(metrics: Sequence[MetricsReport | None]) -> list[dict[str, Any]]:
    """Return a row for each figure of the evaluations: label, and the formatted value of each run.

    A row of a further result of a net names the result's blob.
    """
    texts: dict[tuple[str, str], dict[int, str]] = {}
    for run, run_metrics in enumerate(metrics):
        for at, result in enumerate(run_metrics.results() if run_metrics else ()):
            blob = "" if at == 0 else result.scored.score_blob
            for row in result.rows():
                texts.setdefault((blob, row.label), {})[run] = row.text()
    return [
        {"label": label, "of": blob, "values": [values.get(run) for run in range(len(metrics))]}
        for (blob, label), values in texts.items()
    ]


def drawn_confusion(
    confusion: Mapping[str, Any] | None, samples_url: Callable[[Mapping[str, Any]], str]
) -> Markup | None:
    """Return the report's drawing of a matrix of ``confusion_of``, each cell with a link; None without a matrix.

    ``samples_url`` takes the parameters of a cell and returns the address of the cell's samples.
    """
    if confusion is None or confusion["counts"] is None:
        return None
    from deepspark_ops.evaluate.charts import confusion_chart  # OpenCV, which no other page needs

    counts = np.array(confusion["counts"], np.int64)
    links = {
        (int(label), int(predicted)): samples_url({"true": label, "predicted": predicted})
        for label, predicted in zip(*np.nonzero(counts), strict=True)
    }
    return _unstyled(confusion_chart(counts, confusion["classes"], links))


def drawn_difference(
    first: Mapping[str, Any] | None,
    second: Mapping[str, Any] | None,
    samples_urls: Sequence[Callable[[Mapping[str, Any]], str]],
) -> Markup | None:
    """Return a drawing of the second matrix minus the first; None for a matrix without counts.

    A cell leads to the samples of the run that has more samples in the cell, beside the answers of the other run.
    ``samples_urls`` are of each run, as for ``drawn_confusion``.
    """
    if first is None or second is None or first["counts"] is None or second["counts"] is None:
        return None
    from deepspark_ops.evaluate.charts import difference_chart

    counts = [np.array(matrix["counts"], np.int64) for matrix in (first, second)]
    links = {
        (int(label), int(predicted)): samples_urls[int(counts[1][label, predicted] >= counts[0][label, predicted])](
            {"true": label, "predicted": predicted}
        )
        for label, predicted in zip(*np.nonzero(counts[0] + counts[1]), strict=True)
    }
    return _unstyled(difference_chart(counts[0], counts[1], first["classes"], links))


def _unstyled(drawn: str) -> Markup:
    """Return a chart without the inline style that the page's headers forbid. The chart has escaped the names."""
    return Markup(re.sub(r'^(<svg [^>]*?) style="[^"]*"', r"\1", drawn))
