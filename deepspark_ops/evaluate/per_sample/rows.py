"""``samples.parquet``: a row for each sample, for readers of tables.

Every task has the columns ``index``, ``name``, ``content``, ``loss`` and the columns of ``task_fields``. ``index`` is
the position in the order of reading. ``name`` is the file or LMDB key, null if the source has no names. ``content`` is
the hash of the stored values, as in ``samples.h5``. ``loss`` is the sample's error, null for an ignored sample. With
several results each result has ``loss`` and the task's columns, prefixed with the blob, as ``age_loss``. The file's
metadata hold the results, the task of the main result, the net's weights and the format's version: 1 had the main
result alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from caffe_import.file_access.regular_file import regular_path
from deepspark_ops.config.shared_options.task import TaskName
from deepspark_ops.evaluate.scores import Answers, SampleLosses, ScoredBatch, ScoredResult
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.tasks.task_sum import rows_of
from deepspark_ops.shards.files.parquet_output import ParquetOutput, parquet_output, vectors

ROWS_VERSION: Final = 2
MAX_NUMBERS: Final = 1_024
"""Numbers of a sample's answer that are written; a regression of more has its error alone."""

Array = npt.NDArray[Any]
Columns = dict[str, Sequence[Any]]
"""Name -> values of a batch, perhaps of columns outside the schema."""
_NUMBERS = pa.list_(pa.float32())
_CORE = [pa.field("index", pa.int64()), pa.field("name", pa.string()), pa.field("content", pa.uint64())]
_LOSS = pa.field("loss", pa.float64())


def rows_schema(tasks: Sequence[ChosenTask], *, has_scores: bool) -> pa.Schema:
    """Return the columns of the rows of a net's results, the main result first."""
    fields = [
        field.with_name(f"{prefix}{field.name}")
        for prefix, chosen in zip(result_prefixes(tasks), tasks, strict=True)
        for field in (_LOSS, *task_fields(chosen, has_scores=has_scores))
    ]
    results = [
        {"prefix": prefix, "task": chosen.task, "outputs": chosen.outputs, "target": chosen.target}
        for prefix, chosen in zip(result_prefixes(tasks), tasks, strict=True)
    ]
    metadata = {
        "deepspark.samples_version": str(ROWS_VERSION),
        "deepspark.task": tasks[0].task,
        "deepspark.results": json.dumps(results),
    }
    return pa.schema([*_CORE, *fields], metadata=metadata)


def result_prefixes(tasks: Sequence[ChosenTask]) -> tuple[str, ...]:
    """Return the prefix of each result's columns: empty for a single result, else the result's blobs.

    Two results of the same blob also have the target. If two columns still have the same name, all results are
    numbered.
    """
    if len(tasks) == 1:
        return ("",)
    blobs = ["_".join(task.outputs) for task in tasks]
    names = [
        name if blobs.count(name) == 1 else f"{name}_{task.target}" for name, task in zip(blobs, tasks, strict=True)
    ]
    columns = [
        f"{name}_{field.name}"
        for name, task in zip(names, tasks, strict=True)
        for field in (_LOSS, *task_fields(task, has_scores=True))
    ]
    if len(set(columns)) < len(columns):
        names = [f"result{at}_{name}" for at, name in enumerate(names, start=1)]
    return tuple(f"{name}_" for name in names)


def task_fields(chosen: ChosenTask, *, has_scores: bool) -> list[pa.Field]:
    """Return a task's own columns.

    Classification: ``label``, ``predicted``, ``probability`` (of ``predicted``), ``label_probability``, ``rank``
    (number of other classes with at least the true class' score), on demand ``scores``, a probability a class. Several
    labels: ``labels`` and ``probabilities``. Regression: ``true``, ``predicted``. Pairs: ``is_same``, ``distance``;
    single vectors: ``class``, ``vector``. Reconstruction: ``mae``. A class a pixel, without ignored pixels:
    ``pixels``, ``right``, ``true_pixels`` of each class.
    """
    if chosen.task == "embedding" and len(chosen.outputs) == 1:
        return [pa.field("class", pa.int64()), pa.field("vector", _NUMBERS)]
    if chosen.task == "regression" and chosen.n_values > MAX_NUMBERS:
        return []
    fields = [pa.field(*name_and_type) for name_and_type in _FIELDS[chosen.task].items()]
    return [*fields, pa.field("scores", _NUMBERS)] if chosen.task == "classification" and has_scores else fields


_FIELDS: Final[Mapping[TaskName, Mapping[str, pa.DataType]]] = {
    "classification": {
        **dict.fromkeys(("label", "predicted", "rank"), pa.int32()),
        **dict.fromkeys(("probability", "label_probability"), pa.float32()),
    },
    "multi_label": {"labels": pa.list_(pa.int32()), "probabilities": _NUMBERS},
    "regression": {"true": _NUMBERS, "predicted": _NUMBERS},
    "embedding": {"is_same": pa.bool_(), "distance": pa.float32()},
    "reconstruction": {"mae": pa.float64()},
    "segmentation": {"pixels": pa.int64(), "right": pa.int64(), "true_pixels": pa.list_(pa.int32())},
}


def _task_columns(chosen: ChosenTask, result: ScoredResult, losses: SampleLosses, start: int) -> Columns:
    """Return the values of ``task_fields``; ``losses`` are those of these samples that count."""
    answers, targets, n = result.answers, result.targets, len(result.targets)
    if isinstance(losses, Answers):
        return _class_columns(answers[0], losses, start)
    if chosen.task == "segmentation":
        return _pixel_columns(chosen, targets.reshape(n, -1).astype(np.int64), losses, start)
    if chosen.task == "reconstruction":
        return {"mae": np.abs(rows_of(answers[0]) - rows_of(targets)).mean(axis=1)}
    if len(answers) == 2:
        first, second = map(rows_of, answers)
        distance = np.sqrt(((first - second) ** 2).sum(axis=1)).astype(np.float32)
        return {"is_same": targets.reshape(n) == 1, "distance": distance}
    numbers = vectors(rows_of(answers[0]).astype(np.float32))
    if chosen.task == "embedding":
        return {"class": targets.reshape(n).astype(np.int64), "vector": numbers}
    if chosen.task == "multi_label":
        return {"labels": vectors(rows_of(targets).astype(np.int32)), "probabilities": numbers}
    return {"true": vectors(rows_of(targets).astype(np.float32)), "predicted": numbers}


def _class_columns(shares: Array, answers: Answers, start: int) -> Columns:
    at, n = answers.index - start, len(shares)
    columns = {
        "label": answers.label,
        "predicted": answers.predicted,
        "rank": answers.rank,
        "probability": shares[at, answers.predicted].astype(np.float32),
        "label_probability": shares[at, answers.label].astype(np.float32),
    }
    return {name: _spread(values, at, n) for name, values in columns.items()} | {
        "scores": vectors(shares.astype(np.float32))
    }


def _pixel_columns(chosen: ChosenTask, labels: Array, losses: SampleLosses, start: int) -> Columns:
    counted = np.ones(labels.shape, np.bool_) if chosen.ignore_label is None else labels != chosen.ignore_label
    pixels = counted.sum(axis=1)
    wrong = np.zeros(len(labels))
    wrong[losses.index - start] = losses.loss
    of_class = [
        np.bincount(row[is_counted], minlength=chosen.n_classes)
        for row, is_counted in zip(labels, counted, strict=True)
    ]
    return {
        "pixels": pixels,
        "right": np.rint(pixels * (1.0 - wrong)).astype(np.int64),
        "true_pixels": vectors(np.array(of_class, np.int32)),
    }


def _spread(values: Array, at: Array, n: int) -> pa.Array:
    """Return (n,) values: ``values`` in the rows ``at``, null elsewhere."""
    wide = np.zeros(n, values.dtype)
    wide[at] = values
    is_missing = np.ones(n, np.bool_)
    is_missing[at] = False
    return pa.array(wide, mask=is_missing)


class SampleRows:
    """Writes rows batch by batch, some megabytes at a time. Not thread-safe."""

    def __init__(self, output: ParquetOutput, tasks: Sequence[ChosenTask], schema: pa.Schema) -> None:
        """Write the rows of a net's results to ``output``, with the columns of ``schema``."""
        self._output = output
        self._tasks = tuple(zip(result_prefixes(tasks), tasks, strict=True))
        self._names = set(schema.names)

    def add(self, scored: ScoredBatch, names: Sequence[str] | None) -> None:
        """Write a batch; ``names``: of the samples, None without names."""
        start, n = scored.start, len(scored.content)
        columns: dict[str, Any] = {
            "index": start + np.arange(n, dtype=np.int64),
            "name": names if names is not None else [None] * n,
            "content": scored.content,
        }
        for (prefix, chosen), result in zip(self._tasks, scored.results, strict=True):
            counted = _of_batch(result.losses, start, n)
            task_values = _task_columns(chosen, result, counted, start)
            result_columns = {"loss": _spread(counted.loss, counted.index - start, n), **task_values}
            columns |= {f"{prefix}{name}": values for name, values in result_columns.items()}
        self._output.add({name: values for name, values in columns.items() if name in self._names})


def join_rows(path: Path, parts: Sequence[Path], weights_digest: str) -> None:
    """Join files of rows, in order, a row group at a time; after a failure there is no file at ``path``."""
    schema = pq.read_schema(regular_path(parts[0]))
    metadata = {**(schema.metadata or {}), b"deepspark.weights": weights_digest.encode()}
    with parquet_output(path, schema.with_metadata(metadata)) as output:
        for part in parts:
            with pq.ParquetFile(regular_path(part)) as file:
                for group in range(file.num_row_groups):
                    output.write(file.read_row_group(group))


def _of_batch(losses: SampleLosses, start: int, n: int) -> Any:
    inside = (losses.index >= start) & (losses.index < start + n)
    return type(losses)(**{name: values[inside] for name, values in vars(losses).items()})
