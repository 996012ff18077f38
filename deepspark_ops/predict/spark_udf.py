"""A bundle as a column of Spark: ``predict_udf``. The module starts no session."""

from __future__ import annotations

import atexit
import logging
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import SparkContext, SparkFiles
from pyspark.sql.functions import pandas_udf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.predict import RawImageConfig
from deepspark_ops.errors import DataError
from deepspark_ops.export.manifest import MANIFEST_NAME, BundleManifest, file_digest, find_bundle, read_manifest
from deepspark_ops.predict.columns import result_fields
from deepspark_ops.predict.pixel_range import PixelWatch
from deepspark_ops.predict.record import Content, InputRecord, vector_of
from deepspark_ops.predict.samples import BundleForm, Sample, chunk_size, form_of_config
from deepspark_ops.predict.stream import Answer, answer_chunk
from deepspark_ops.processes.cluster_network import stays_in_process

_log = logging.getLogger(__name__)
_WARNED_BUNDLES: set[str] = set()
Columns = tuple[pd.Series, ...]
"""Cells by input. Pyspark reads the annotation, and gives a single column without the tuple, a struct as a frame."""


def answer_type(manifest: BundleManifest) -> StructType:
    """Return the type of an answer: the columns of ``deepspark predict`` for the bundle, without ``id``."""
    return from_arrow_schema(pa.schema([*result_fields(manifest), pa.field("error", pa.string())]))


def predict_udf(
    bundle: str | Path,
    *,
    batch_size: int | None = None,
    threads: int = 1,
    top_k: int = 5,
    resize_height: int = 0,
    resize_width: int = 0,
    max_pixel: int | None = None,
) -> Any:
    """Return a function of columns that answers by a bundle: ``frame.select(predict_udf(bundle)("content"))``.

    Args:
        bundle: Folder on the driver's disk, or of the run with the bundle. Spark brings a copy to each executor. Each
            Python worker loads the bundle once.
        batch_size: Samples of a forward pass; default: as in ``deepspark predict``.
        threads: TensorFlow's threads in a worker; ``spark.task.cpus`` of the session.
        top_k: Number of most probable classes in an answer; without effect for a bundle without classes.
        resize_height: Rows of images, instead of the training images' rows, as in ``deepspark predict``.
        resize_width: Columns of images, likewise.
        max_pixel: Largest pixel of images, likewise.

    Returns:
        A ``pandas_udf`` for the running session, of one column: images (binary), paths of images (string), or numbers
        of a sample (array or number). A bundle with several inputs takes a column for each input, in the manifest's
        order, or one struct with a field for each input. The value is a struct, ``answer_type``; the row of an unusable
        input has an error alone.

    Raises:
        ConfigError: The net takes no images of this size or no such batch, or an option is invalid.
        DataError: The bundle does not exist, or a file of the bundle is missing or changed.
    """
    folder = str(find_bundle(Path(bundle).absolute()))
    options = {"resize_height": resize_height, "resize_width": resize_width, "max_pixel": max_pixel}
    images = parse_config(RawImageConfig, options)
    # The driver reports a mistake, before a task runs.
    manifest = read_manifest(Path(folder))
    for remark in form_of_config(images, manifest, Path(folder)).remarks:
        _log.warning("predict_udf: %s", remark)
    archive = _archive_in_spark(Path(folder))
    kind = answer_type(manifest)
    names = kind.names
    size = chunk_size(manifest, batch_size)

    def answers(parts: Iterator[Columns]) -> Iterator[pd.DataFrame]:
        form, answer = _model(folder, archive, threads, top_k, images)
        watch = PixelWatch(form)
        for part in parts:
            records = _records(part, form)
            starts = range(0, len(records), size)
            pieces = [_answered(records[start : start + size], form, answer, names, watch) for start in starts]
            yield pd.concat(pieces or [_frame({}, names)])
        _warn_once(folder, watch)

    return pandas_udf(answers, returnType=kind)


def _archive_in_spark(bundle: Path) -> str:
    """Give a bundle to the running Spark application; return the name of the bundle's folder among Spark's files.

    Empty without an application, and for tasks in the driver's process: they read the bundle itself.
    """
    context = SparkContext._active_spark_context
    if context is None or stays_in_process(context.master):
        return ""
    name = f"deepspark-bundle-{file_digest(bundle / MANIFEST_NAME)[-16:]}"
    _add_archive(context, bundle, name)
    return name


@cache
def _add_archive(context: SparkContext, bundle: Path, name: str) -> None:
    """Add a bundle to the files of an application, once; executors fetch and unpack the archive before a task."""
    scratch = tempfile.mkdtemp(prefix="deepspark-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    archive = f"{scratch}/{name}.tar"
    with tarfile.open(archive, "w") as tar:
        for path in bundle.iterdir():  # Hadoop refuses an entry "./"
            tar.add(path, path.name)
    context.addArchive(f"{archive}#{name}")


@cache
def _model(bundle: str, archive: str, threads: int, top_k: int, images: RawImageConfig) -> tuple[BundleForm, Answer]:
    """Load a bundle into this process, for this task and the next tasks."""
    from deepspark_ops.export.manifest import parse_manifest  # on a worker alone
    from deepspark_ops.predict.loaded_bundle import choose_device, load_bundle

    folder = Path(SparkFiles.get(archive) if archive else bundle)
    manifest = parse_manifest(folder)
    form = form_of_config(images, manifest, folder)
    loaded = load_bundle(folder, manifest, form, choose_device("auto", n_threads=threads))
    return form, partial(loaded.columns, top_k=top_k)


def _warn_once(bundle: str, watch: PixelWatch) -> None:
    """Warn in a worker's log, once a process, about a partition with images of another range than the training's."""
    for remark, n_images in watch.remarks().items():
        if bundle not in _WARNED_BUNDLES:
            _WARNED_BUNDLES.add(bundle)
            _log.warning("predict_udf: %s: %s inputs of a partition: %s", bundle, f"{n_images:,}", remark)


def _records(part: Columns | pd.Series | pd.DataFrame, form: BundleForm) -> list[InputRecord]:
    """Return the rows of a batch.

    Raises:
        DataError: The number of columns is not the number of the bundle's inputs.
    """
    columns = part if isinstance(part, tuple) else (part,)
    if len(columns) == 1 and isinstance(columns[0], pd.DataFrame):  # one struct
        struct = columns[0]
        columns = tuple(struct[name] for name in form.names if name in struct.columns)
    if len(columns) != len(form.inputs):
        takes = f"takes {len(form.inputs)} ({', '.join(form.names)})"
        msg = f"predict_udf got {len(columns)} of the bundle's inputs, which {takes}; give a column for each, in order"
        raise DataError(msg)
    cells = [[_content(cell) for cell in column] for column in columns]
    if len(cells) == 1:
        return [InputRecord("", content, "null") for content in cells[0]]
    return [InputRecord("", dict(zip(form.names, row, strict=True))) for row in zip(*cells, strict=True)]


def _content(cell: Any) -> Content | None:
    if cell is None or isinstance(cell, bytes):
        return cell
    if isinstance(cell, str):
        return Path(cell)
    return bytes(cell) if isinstance(cell, bytearray) else vector_of(cell)


def _answered(
    records: Sequence[InputRecord], form: BundleForm, answer: Answer, names: Sequence[str], watch: PixelWatch
) -> pd.DataFrame:
    chunk: list[Sample] = [form.sample(record) for record in records]
    watch.add(sample.values for sample in chunk if sample.values is not None)
    return _frame(answer_chunk(chunk, answer, [name for name in names if name != "error"]), names)


def _frame(columns: Mapping[str, Sequence[Any]], names: Sequence[str]) -> pd.DataFrame:
    """Return columns of objects: None stays null, and a class number stays whole beside None."""
    return pd.DataFrame({name: pd.Series(list(columns.get(name, [])), dtype=object) for name in names})
