"""Samples that are stored already: an ingested dataset, or a source of any format that ``deepspark ingest`` reads."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from math import prod
from pathlib import Path

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.shared_options.source_formats import SourceFormat
from deepspark_ops.ingest.records import RecordError
from deepspark_ops.ingest.sources.registry import index_source
from deepspark_ops.predict.record import InputRecord, Inputs
from deepspark_ops.shards.reader import open_dataset

_SAMPLES_READ = 256
_BYTES_READ = 2**22
"""At most so much at a time, as float32 at the largest: one record at a time takes longer than a small image."""


def stored_samples(split_folder: Path, *, color: bool | None, is_raw: bool = False) -> Inputs:
    """Return the samples of an ingested split, in their order; ids are their numbers, as in ``samples.h5``.

    Args:
        split_folder: Holds dataset.json and the shards.
        color: How compressed images are decoded: None as they are, True as BGR, False as gray.
        is_raw: Return features of a table as the table has them, for a bundle that standardises by itself.

    Raises:
        DataError: No manifest, or a damaged one; on reading: a missing or damaged shard.
    """

    def read(start: int = 0, stop: int | None = None) -> Iterator[InputRecord]:
        begin = 0
        with open_dataset(split_folder, color=color) as dataset:
            most = min(_SAMPLES_READ, max(1, _BYTES_READ // (4 * prod(dataset.sample_shapes[0]) or 1)))
            for shard, info in enumerate(dataset.shards):
                last = min(info.n_samples, info.n_samples if stop is None else stop - begin)
                for first in range(max(0, start - begin), last, most):
                    images = dataset.read(shard, first, min(most, last - first))[0]
                    if is_raw and dataset.manifest is not None and dataset.manifest.table is not None:
                        images = dataset.manifest.table.restore(images)
                    for row, image in enumerate(images):
                        yield InputRecord(str(begin + first + row), image)
                begin += info.n_samples

    n_samples = open_dataset(split_folder).n_samples  # a damaged manifest is told now
    return Inputs("ingested dataset", lambda: n_samples, read)


def source_records(source: Path, source_format: SourceFormat, image_column: str | None) -> Inputs:
    """Return the records of a source; ids are its names of them, else their numbers.

    Raises:
        ConfigError, DataError: The source is damaged or empty, found when reading begins.
    """
    given = {"source": source, "source_format": source_format, "image_column": image_column, "output": "unused"}
    config = parse_config(IngestConfig, given)

    def read(start: int = 0, stop: int | None = None) -> Iterator[InputRecord]:
        with tempfile.TemporaryDirectory(prefix="deepspark-") as work:
            index = index_source(config, source, source_format, Path(work))
            with index.reader.opened() as record_at:
                for number in range(start, len(index.names) if stop is None else min(stop, len(index.names))):
                    name = index.names[number]
                    try:
                        yield InputRecord(str(name), record_at(number))
                    except RecordError as error:
                        yield InputRecord(str(name), None, str(error))

    return Inputs(f"source of format {source_format}", lambda: None, read)
