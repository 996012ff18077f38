"""Samples of an ingested dataset, or records of any format that ``deepspark ingest`` reads."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from math import prod
from pathlib import Path

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.predict import BundleInputConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.shared_options.source_formats import SourceFormat
from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest.files.source_folders import sources_limited
from deepspark_ops.ingest.records import RecordError
from deepspark_ops.ingest.sources.hdf5 import has_data_set
from deepspark_ops.ingest.sources.registry import index_source
from deepspark_ops.predict.record import InputRecord, Inputs
from deepspark_ops.predict.samples import SampleForm
from deepspark_ops.shards.reader import Dataset, open_dataset
from deepspark_ops.shards.table_columns import TableColumns
from deepspark_ops.stores.store_path import DataPath

_SAMPLES_READ = 256
_SHOWN_NAMES = 12
_BYTES_READ = 2**22
"""Bound on a read, counted as float32: a read of a single record takes longer than a small image."""


def stored_samples(split_folder: DataPath, form: SampleForm) -> Inputs:
    """Return the samples of an ingested split in order; ids are the numbers of the samples, as in ``samples.h5``.

    Features get the table's values again, since the bundle fills and standardises features. Images stay as stored.

    Raises:
        ConfigError: The table has other columns than the training.
        DataError: The manifest is missing or damaged; on reading: a shard is missing or damaged.
    """
    first_look = open_dataset(split_folder, color=form.color)  # a damaged manifest raises now
    table = None if first_look.manifest is None or form.table is None else first_look.manifest.table
    _check_columns(split_folder, table, form.table)

    def read(start: int = 0, stop: int | None = None) -> Iterator[InputRecord]:
        begin = 0
        with open_dataset(split_folder, color=form.color) as dataset:
            most = min(_SAMPLES_READ, max(1, _BYTES_READ // (4 * prod(dataset.sample_shapes[0]) or 1)))
            for shard, info in enumerate(dataset.shards):
                last = min(info.n_samples, info.n_samples if stop is None else stop - begin)
                for first in range(max(0, start - begin), last, most):
                    images = dataset.read(shard, first, min(most, last - first))[0]
                    if table is not None:
                        images = table.restore(images)
                    for row, image in enumerate(images):
                        yield InputRecord(str(begin + first + row), image, is_stored=True)
                begin += info.n_samples

    n_samples = first_look.n_samples
    return Inputs("ingested dataset", lambda: n_samples, read, _differences(first_look, form))


def _check_columns(split_folder: DataPath, table: TableColumns | None, trained: TableColumns | None) -> None:
    if table is None or trained is None or table.feature_names() == trained.feature_names():
        return
    columns, trained_on = (", ".join(each.feature_names()[:_SHOWN_NAMES]) for each in (table, trained))
    msg = (
        f"input={split_folder}: a dataset of the columns {columns}; the net was trained on {trained_on}, in this order"
    )
    raise ConfigError(msg)


def _differences(dataset: Dataset, form: SampleForm) -> tuple[str, ...]:
    """Return the differences between the ingestion of a dataset's images and of the training images."""
    trained, held = form.contract.images, dataset.preprocessing
    if trained is None or not form.takes_images:
        return ()
    if held is None:
        return ("the dataset does not say what ingestion did to its images; they are taken as they are stored",)
    differences = trained.differences(held)
    return (
        (f"the dataset was ingested otherwise than the training images: {'; '.join(differences)}",)
        if differences
        else ()
    )


def source_records(config: BundleInputConfig, source_format: SourceFormat, input_name: str) -> Inputs:
    """Return the records of a source; ids are the names of the records, else numbers. Labels are not read.

    Of an HDF5 file the data set with the name of the bundle's input is read, if the file has one.

    Raises:
        ConfigError, DataError: The source is damaged or empty; reading raises the error.
    """
    options = {"source": config.input, "root_folder": config.root_folder, "image_column": config.image_column}
    source = parse_config(
        IngestConfig,
        {**options, "source_format": source_format, "listed_files": config.lists(), "output": "unused"},
    )
    if config.image_column is None and source_format == "hdf5":
        with sources_limited(source):
            if has_data_set(source, input_name):
                source = source.model_copy(update={"image_column": input_name})

    def read(start: int = 0, stop: int | None = None) -> Iterator[InputRecord]:
        with tempfile.TemporaryDirectory(prefix="deepspark-") as work:
            with sources_limited(source):
                index = index_source(source, source.source, source_format, Path(work), with_labels=False)
            with index.reader.opened() as record_at:
                for number in range(start, len(index.names) if stop is None else min(stop, len(index.names))):
                    name = index.names[number]
                    try:
                        yield InputRecord(str(name), record_at(number))
                    except RecordError as error:
                        yield InputRecord(str(name), None, str(error))

    return Inputs(f"source of format {source_format}", lambda: None, read)
