"""Samples that are stored already: an ingested dataset, or a source of any format that ``deepspark ingest`` reads."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.source_formats import SourceFormat
from deepspark_ops.ingest.records import RecordError
from deepspark_ops.ingest.sources.registry import index_source
from deepspark_ops.predict.inputs.record import InputRecord, Inputs
from deepspark_ops.shards.reader import open_dataset

_SAMPLES_READ = 32


def stored_samples(split_folder: Path, *, color: bool | None) -> Inputs:
    """Return the samples of an ingested split, in their order; ids are their numbers, as in ``samples.h5``.

    Args:
        split_folder: Holds dataset.json and the shards.
        color: How compressed images are decoded: None as they are, True as BGR, False as gray.

    Raises:
        DataError: No manifest, or a damaged one; on reading: a missing or damaged shard.
    """

    def read() -> Iterator[InputRecord]:
        number = 0
        with open_dataset(split_folder, color=color) as dataset:
            for shard, info in enumerate(dataset.shards):
                for start in range(0, info.n_samples, _SAMPLES_READ):
                    images = dataset.read(shard, start, min(_SAMPLES_READ, info.n_samples - start))[0]
                    for image in images:
                        yield InputRecord(str(number), image)
                        number += 1

    return Inputs("ingested dataset", open_dataset(split_folder).n_samples, read)


def source_records(source: Path, source_format: SourceFormat, image_column: str | None) -> Inputs:
    """Return the records of a source; ids are its names of them, else their numbers.

    Raises:
        ConfigError, DataError: The source is damaged or empty, found when reading begins.
    """
    given = {"source": source, "source_format": source_format, "image_column": image_column, "output": "unused"}
    config = parse_config(IngestConfig, given)

    def read() -> Iterator[InputRecord]:
        with tempfile.TemporaryDirectory(prefix="deepspark-") as work:
            index = index_source(config, source, source_format, Path(work))
            with index.reader.opened() as record_at:
                for number, name in enumerate(index.names):
                    try:
                        yield InputRecord(str(name), record_at(number))
                    except RecordError as error:
                        yield InputRecord(str(name), None, str(error))

    return Inputs(f"source of format {source_format}", None, read)
