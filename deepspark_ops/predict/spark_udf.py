"""A bundle as a column of Spark: ``predict_udf``. The one file of this package with pyspark; it starts no session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql.functions import pandas_udf
from pyspark.sql.types import ArrayType, FloatType, LongType, StringType, StructField, StructType

from deepspark_ops.errors import ConfigError
from deepspark_ops.export.manifest import read_manifest
from deepspark_ops.predict.record import InputRecord, vector_of
from deepspark_ops.predict.samples import BundleForm, Parts, Sample, form_of_bundle
from deepspark_ops.predict.stream import Answer, answer_chunk

ANSWER = StructType(
    [
        StructField("predicted", LongType()),
        StructField("predicted_name", StringType()),
        StructField("probability", FloatType()),
        StructField("scores", ArrayType(FloatType())),
        StructField("error", StringType()),
    ]
)
"""What a row gets: class, its name (null if the bundle has no labels), its probability and all scores, or an error."""


def predict_udf(bundle: str | Path, *, batch_size: int = 100, threads: int = 1) -> Any:
    """Return a function of columns that answers by a bundle: ``frame.select(predict_udf(bundle)("content"))``.

    Args:
        bundle: Folder that driver and workers see under this path. Each Python worker loads it once.
        batch_size: Samples of a forward pass.
        threads: TensorFlow's threads in a worker; ``spark.task.cpus`` of the session.

    Returns:
        A ``pandas_udf`` of one column: images (binary), their paths (string), or numbers of a sample (array). Its value
        is a struct, ``ANSWER``; a row that cannot be used has an error and nothing else.

    Raises:
        ConfigError: The bundle takes several inputs, or gives no classes.
        DataError: There is no bundle, or a file of it is missing or changed.
    """
    folder = str(Path(bundle).absolute())
    # A mistake is told here, not by a task.
    manifest = read_manifest(Path(folder))
    form_of_bundle(manifest, Path(folder)).only_input(Path(folder))
    if not manifest.is_classifier:
        what = manifest.results()[0].task.replace("_", " ")
        msg = f"{folder}: the bundle gives a {what}, predict_udf classes; deepspark predict answers by any bundle"
        raise ConfigError(msg)

    def answers(parts: Iterator[pd.Series]) -> Iterator[pd.DataFrame]:
        form, answer = _model(folder, threads)
        for part in parts:
            pieces = [part.iloc[start : start + batch_size] for start in range(0, len(part), batch_size)]
            yield pd.concat([_answered(piece, form, answer) for piece in pieces] or [_frame({})])

    return pandas_udf(answers, returnType=ANSWER)


@cache
def _model(bundle: str, threads: int) -> tuple[BundleForm, Answer]:
    """Load a bundle into this process, which keeps it for the next task."""
    from deepspark_ops.export.manifest import parse_manifest  # on a worker alone
    from deepspark_ops.predict.loaded_bundle import choose_device, load_bundle

    manifest = parse_manifest(Path(bundle))
    form = form_of_bundle(manifest, Path(bundle))
    loaded = load_bundle(Path(bundle), manifest, form, choose_device("auto", n_threads=threads))

    def answer(samples: Sequence[Parts]) -> dict[str, Sequence[Any]]:
        columns = loaded.columns(samples, top_k=1)
        return {"predicted_name": [None] * len(samples), **columns}

    return form, answer


def _answered(cells: pd.Series, form: BundleForm, answer: Answer) -> pd.DataFrame:
    chunk = [_sample(cell, form) for cell in cells]
    return _frame(answer_chunk(chunk, answer, ["predicted", "predicted_name", "probability", "scores"]))


def _sample(cell: Any, form: BundleForm) -> Sample:
    if cell is None:
        return Sample("", None, "null")
    if isinstance(cell, (bytes, bytearray)):
        return form.sample(InputRecord("", bytes(cell)))
    return form.sample(InputRecord("", Path(cell) if isinstance(cell, str) else vector_of(cell)))


def _frame(columns: dict[str, list[Any]]) -> pd.DataFrame:
    """Return columns of objects: None stays null, and a class number stays whole beside it."""
    return pd.DataFrame({name: pd.Series(columns.get(name, []), dtype=object) for name in ANSWER.names})
