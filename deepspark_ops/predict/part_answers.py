"""Answers of a Spark task for a part of the inputs. The process keeps the bundle for the next task.

Without pyspark. A task gets the config and the numbers of the part, which are small.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain

import pyarrow as pa

from deepspark_ops.config.commands.predict import BundleInputConfig, parse_answers_config
from deepspark_ops.driver_files.task_files import TaskFiles
from deepspark_ops.export.manifest import parse_manifest
from deepspark_ops.predict.columns import answer_columns, output_schema
from deepspark_ops.predict.inputs.choose import open_inputs
from deepspark_ops.predict.inputs.named_images import NamedImages
from deepspark_ops.predict.inputs.table import table_records
from deepspark_ops.predict.inputs.table_columns import choose_columns
from deepspark_ops.predict.pixel_range import PixelWatch
from deepspark_ops.predict.record import InputRecord
from deepspark_ops.predict.samples import BundleForm, chunk_size, form_of_config, sample_chunks
from deepspark_ops.predict.stream import Answer, AnswerCount, answer_chunk, refuse_errors
from deepspark_ops.shards.files.parquet_output import arrow_column, parquet_output


@dataclass(frozen=True)
class PartConfig:
    """The config of a task, in a form that Spark sends.

    Attributes:
        text: The config of predict or features, JSON.
        threads: Threads of TensorFlow in a task.
        files: The driver's files; their output takes the rows, unless the rows go into a table of the catalog.
    """

    text: str
    threads: int
    files: TaskFiles


Opened = tuple[BundleInputConfig, BundleForm, pa.Schema, Answer, int]
"""Config for this host, form of the samples, columns, the bundle's answers and the samples of a pass."""


def _opened(part: PartConfig) -> Opened:
    """Return the bundle, loaded into this process for this task and the next tasks.

    Raises:
        ConfigError, DataError: The driver's bundle cannot be copied.
    """
    part.files.use()  # the process may have had a task of another job
    return _loaded(part)


@cache
def _loaded(part: PartConfig) -> Opened:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from deepspark_ops.predict.answers import open_answer  # TensorFlow, on a worker alone

    config = parse_answers_config(json.loads(part.text))
    root = config.root_folder
    config = config.model_copy(
        update={
            "bundle": part.files.copy(config.bundle),
            "input": part.files.on_host(config.input),
            "root_folder": None if root is None else part.files.on_host(root),
        }
    )
    manifest = parse_manifest(config.bundle)  # the driver has compared the files
    form = form_of_config(config, manifest, config.bundle)
    answer = open_answer(config, manifest, form, n_threads=part.threads)
    return config, form, output_schema(config, manifest), answer, chunk_size(manifest, config.batch_size)


def answer_numbers(part: PartConfig, start: int, stop: int, count: AnswerCount) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the inputs ``[start, stop)``.

    Raises:
        DeepSparkError: The inputs changed meanwhile, or the config is strict and an input cannot be used.
    """
    config, form, *_ = _opened(part)
    yield from answer_records(part, open_inputs(config, form).read(start, stop), count)


def answer_rows(part: PartConfig, batches: Iterable[pa.RecordBatch], count: AnswerCount) -> Iterator[pa.RecordBatch]:
    """Yield the answers of a table's rows; for errors see ``answer_numbers``."""
    config, form, *_ = _opened(part)
    images = NamedImages.of(config)
    for batch in batches:
        columns = choose_columns(batch.schema, config, form)
        yield from answer_records(part, table_records(iter([(0, batch)]), columns, images), count)


def answer_records(part: PartConfig, records: Iterable[InputRecord], count: AnswerCount) -> Iterator[pa.RecordBatch]:
    """Yield the answers of records, chunk by chunk, and count the records."""
    config, form, schema, answer, size = _opened(part)
    names = answer_columns(schema)
    watch = PixelWatch(form, count.pixels)
    for chunk in sample_chunks(records, form.sample, size=size, n_threads=1):
        if config.strict:
            refuse_errors(chunk)
        rows = answer_chunk(chunk, answer, names)
        count.add(chunk, watch)
        yield pa.RecordBatch.from_arrays(
            [arrow_column(rows[column.name], column.type) for column in schema], schema=schema
        )


def write_part(part: PartConfig, number: int, batches: Iterable[pa.RecordBatch]) -> None:
    """Write the rows of a part into a file of the output, whole; a part without rows has no file, except part 0.

    Files sort by ``number`` as the parts do.
    """
    schema, folder = _opened(part)[2], part.files.output_on_host()
    assert folder is not None, "the rows go into a table of the catalog"
    remaining = iter(batches)
    first = next(remaining, None)
    if first is None and number:
        return
    with parquet_output(folder / f"part-{number:05d}.parquet", schema) as output:
        for batch in () if first is None else chain([first], remaining):
            output.add({name: batch.column(name) for name in schema.names})
