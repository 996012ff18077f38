"""Options of ``deepspark predict`` and ``deepspark features``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from deepspark_ops.config.base import (
    DEFAULT_STAGING_SIZE,
    DataPathField,
    InsecureNetwork,
    ListenAddress,
    ListenPort,
    StageConfig,
    StagingFolder,
    StagingSize,
    parse_config,
)
from deepspark_ops.config.evaluate import SplitChoice
from deepspark_ops.config.ingest import ARCHIVE_MARK, TABLE_MARK
from deepspark_ops.config.shared_options.batch_size import BatchSize
from deepspark_ops.config.shared_options.devices import DeviceChoice
from deepspark_ops.config.shared_options.named_files import (
    AS_GIVEN,
    LISTED_AS_GIVEN,
    ListedFiles,
    ListedFilesPart,
    NamedFilesPart,
)
from deepspark_ops.stores.store_path import DataPath, StorePath

_OTHER_FORMATS = frozenset(".csv .tsv .txt .json .jsonl .orc .avro .xlsx .h5 .hdf5 .npy .npz".split())
"""Endings of names that promise another format than Parquet."""
InputFormat = Literal["auto", "folder", "list", "dataset", "parquet", "csv", "orc", "avro", "json_lines"]


class RawImageConfig(StageConfig):
    """Preprocessing of raw images, instead of the training images' preprocessing."""

    resize_height: int = Field(
        0,
        ge=0,
        le=16_384,
        description="Height that images get; default: as the training images, which the bundle knows of its dataset",
    )
    resize_width: int = Field(0, ge=0, le=16_384, description="Width, likewise")
    max_pixel: int | None = Field(
        None,
        ge=1,
        le=255,
        description="Largest pixel value of these images; scaled to 255; default: as of the training images, else 255",
    )

    @model_validator(mode="after")
    def _check_size(self) -> RawImageConfig:
        if (self.resize_height == 0) != (self.resize_width == 0):
            msg = f"resize_height={self.resize_height}, resize_width={self.resize_width}: give both or neither"
            raise ValueError(msg)
        return self


class BundleInputConfig(RawImageConfig):
    """A bundle, the inputs, and the preprocessing."""

    bundle: Path = Field(description="Bundle of a model, from deepspark export or convert; or a run with a bundle")
    input: DataPathField = Field(
        description="One image, a folder of images, a list with one path a line, an ingested dataset, a table (Parquet"
        " or ORC file or folder, CSV, JSON lines, table:db.name of Spark's catalog), or any other source that deepspark"
        " ingest reads"
    )
    output: DataPathField = Field(
        description="Parquet file to write, one row per input; with a Spark master a folder of such files; or"
        " table:db.name, a table of Spark's catalog"
    )
    master: str | None = Field(
        None, description="Spark master, to answer in tasks of Spark, for many inputs; default: in this process"
    )
    task_records: int = Field(5_000, ge=1, description="Inputs of a Spark task at most")
    table_mode: Literal["error", "append", "overwrite"] = Field(
        "error", description="Treatment of an existing output table"
    )
    listen_address: ListenAddress = "auto"
    listen_port: ListenPort = 0
    insecure_network: InsecureNetwork = False
    input_format: InputFormat = Field("auto", description="Format of the input; auto: recognised from the data")
    root_folder: DataPathField | None = Field(
        None, description="Folder of the paths in a list or table; default: the folder of the list or table"
    )
    split: SplitChoice = "test"
    image_column: str | None = Field(
        None, description="Column of a table with images (bytes) or paths; default: a usual name"
    )
    feature_columns: str | None = Field(
        None,
        min_length=1,
        description="Columns of a table with the numbers of a sample, in this order: names, f*, first..last, !this; or"
        " one column of arrays; default: the columns of the training, else all columns of numbers",
    )
    input_columns: str | None = Field(
        None,
        min_length=1,
        pattern=r"^[^=,]+=[^=,]+(,[^=,]+=[^=,]+)*$",
        description="For a bundle with several inputs: the column of a table for each input, INPUT=COLUMN with commas"
        " between; default: the columns with the names of the inputs",
        json_schema_extra={
            "allowed": "INPUT=COLUMN, several with commas between them, e.g. left=photo_a,right=photo_b"
        },
    )
    id_column: str | None = Field(
        None, description="Column of a table with row names; default: the paths, else the rows' numbers from 0 on"
    )
    batch_size: BatchSize = None
    devices: DeviceChoice = "auto"
    threads: int | None = Field(None, ge=1, le=1_024, description="Threads; default: the number of cores")
    staging_folder: StagingFolder = None
    staging_size: StagingSize = DEFAULT_STAGING_SIZE
    strict: bool = Field(False, description="Refuse an unusable input; off: write a row with the reason")

    def lists(self) -> ListedFiles:
        """Return the limits on the files of lists and tables."""
        return LISTED_AS_GIVEN

    def paths_inside(self) -> frozenset[str]:
        """Return ``root_folder`` for a list in an archive, and tables of Spark's catalog."""
        inside = {"root_folder"} if ARCHIVE_MARK in str(self.input) else set()
        tables = {name for name in ("input", "output") if catalog_table(getattr(self, name)) is not None}
        return frozenset(inside | tables)

    @property
    def needs_spark(self) -> bool:
        """Whether the command runs as a Spark application: because of its master, or of a table of Spark."""
        return self.master is not None or any(catalog_table(path) is not None for path in (self.input, self.output))

    @model_validator(mode="after")
    def _check(self) -> BundleInputConfig:
        if self.image_column is not None and self.feature_columns is not None:
            msg = f"image_column={self.image_column} and feature_columns={self.feature_columns}: give one of them"
            raise ValueError(msg)
        if catalog_table(self.output) is None and self.output.suffix.lower() in _OTHER_FORMATS:
            msg = (
                f"output={self.output}: the answers are Parquet; allowed: a name that ends in .parquet, or in nothing"
                " (pandas.read_parquet(FILE).to_csv(...) makes CSV of the file)"
            )
            raise ValueError(msg)
        return self


class PredictConfig(BundleInputConfig):
    """Classes and scores of a bundle."""

    top_k: int = Field(5, ge=1, le=1_000, description="Most probable classes of a row")
    scores: bool = Field(True, description="Write the scores of all classes, too")
    listed_files: ListedFilesPart = LISTED_AS_GIVEN

    def lists(self) -> ListedFiles:
        """Return the limits on the files of lists and tables."""
        return self.listed_files


class FeaturesConfig(BundleInputConfig):
    """Values of a bundle's blobs."""

    output: DataPathField = Field(
        description="Parquet file to write, or for format lmdb the folder of the databases; with a Spark master a"
        " folder of Parquet files; or table:db.name, a table of Spark's catalog"
    )
    blobs: str = Field(min_length=1, description="Blobs of deploy.prototxt, commas between them, e.g. fc7,pool5")
    format: Literal["parquet", "lmdb"] = Field(
        "parquet",
        description="What is written: parquet; lmdb: a database of Datum records, as Caffe's extract_features, for"
        " several blobs a folder with a database for each",
    )
    named_files: NamedFilesPart = AS_GIVEN

    def lists(self) -> ListedFiles:
        """Return the limits on the files of lists and tables."""
        return self.named_files

    @model_validator(mode="after")
    def _check_format(self) -> FeaturesConfig:
        is_in_store = isinstance(self.output, StorePath)
        if self.format == "lmdb" and (self.needs_spark or is_in_store):
            msg = (
                f"format=lmdb: one process writes databases into a local folder, not into {self.output}"
                if is_in_store
                else "format=lmdb: one process writes databases, without Spark; leave master out, or write parquet"
            )
            raise ValueError(msg)
        return self

    @property
    def blob_names(self) -> tuple[str, ...]:
        """The blobs, each once."""
        return names_of(self.blobs)


def parse_answers_config(values: dict[str, Any]) -> BundleInputConfig:
    """Return a config of predict, or of features if it names blobs; for errors see ``parse_config``."""
    return parse_config(FeaturesConfig, values) if "blobs" in values else parse_config(PredictConfig, values)


def catalog_table(path: DataPath) -> str | None:
    """Return the table of Spark's catalog in a path; None for a path of files.

    Example:
        >>> catalog_table(Path("table:shop.photos")), catalog_table(Path("photos.parquet"))
        ('shop.photos', None)
    """
    return str(path).removeprefix(TABLE_MARK) if str(path).startswith(TABLE_MARK) else None


def names_of(text: str) -> tuple[str, ...]:
    """Return comma-separated names, each once.

    Example:
        >>> names_of("fc7, pool5,fc7")
        ('fc7', 'pool5')
    """
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
