"""Options of stage ingest."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from deepspark_ops.config.base import (
    DEFAULT_STAGING_SIZE,
    EXPERT,
    FORM,
    DataPathField,
    Engine,
    Fraction,
    InsecureNetwork,
    ListenAddress,
    SparkMaster,
    StageConfig,
    StagingFolder,
    StagingSize,
)
from deepspark_ops.config.shared_options.named_files import LISTED_AS_GIVEN, ListedFilesPart
from deepspark_ops.config.shared_options.source_formats import SourceFormat

ARCHIVE_MARK = "::"
"""Separator of an archive and its member."""
FileStamp = Literal["time", "digest"]
"""Property of a file by which a change is seen: size and time of change, or the content."""
TABLE_MARK = "table:"
"""Prefix of a table's name in the catalog of the Spark session."""


def is_catalog_table(source: object) -> bool:
    """Return whether a source is a table of Spark's catalog, ``table:db.name``."""
    return str(source).startswith(TABLE_MARK)


def is_known(config: SourceConfig) -> bool:
    """Return whether what a config reads can be told from files alone, before Spark starts."""
    sources = (config.source, config.validation_source, config.test_source)
    return config.query is None and not any(is_catalog_table(source) for source in sources)


class SourceConfig(StageConfig):
    """Raw data and their preprocessing; stage check reads the first samples of data before their ingestion."""

    source: DataPathField = Field(
        title="Training data",
        description="Training data: an image list ('path label' lines), a folder of class folders, either also in an"
        " archive (ARCHIVE.tar.gz::LIST, ARCHIVE.zip::FOLDER), a table (Parquet, CSV, JSON, ORC, Avro, table:db.name),"
        " files of MNIST or CIFAR, TFRecord, SequenceFile, HDF5, or a Caffe LMDB or LevelDB",
        json_schema_extra={**FORM, "may_be_left_out": True},
    )
    test_source: DataPathField | None = Field(
        None,
        title="Test data",
        description="Test data of the same format; default: a share test_fraction of source",
        json_schema_extra=FORM,
    )
    test_fraction: Fraction = Field(
        0.2,
        title="Share of the test set",
        description="Share of the records for the test set, by a hash of each record's name, so no record changes"
        " sides when the source grows; 0: no test set; unused with test_source",
        json_schema_extra=FORM,
    )
    validation_source: DataPathField | None = Field(
        None,
        title="Validation data",
        description="Validation data of the same format; default: a share validation_fraction of source",
        json_schema_extra=EXPERT,
    )
    validation_fraction: Fraction = Field(
        0.0,
        title="Share of the validation set",
        description="Share of the records for the validation set, by the same hash, taken from the training set; the"
        " test set stays the same; 0: no validation set",
        json_schema_extra=EXPERT,
    )
    split_list: DataPathField | None = Field(
        None,
        title="List of the splits",
        description="Text with a record and the split (train, validation or test) on each line, or a folder with lists"
        " of records: train.txt, validation.txt, test.txt. Records of a table are listed by id. Replaces the shares",
        json_schema_extra=EXPERT,
    )
    split_column: str | None = Field(
        None,
        title="Column of the split",
        description="Column with train, validation or test, in a list with a header line or in a table; replaces the"
        " shares",
        json_schema_extra=EXPERT,
    )
    source_format: SourceFormat = Field(
        "auto",
        title="Format of the data",
        description="Format of the source; auto: recognised from the data",
        json_schema_extra=FORM,
    )
    root_folder: DataPathField | None = Field(
        None,
        title="Folder of the list",
        description="Folder of the list's paths (in the archive, for a list in an archive); default: the list's folder",
        json_schema_extra=FORM,
    )
    labels: DataPathField | None = Field(
        None, description="IDX label file of source; default: the file of the usual name beside the images"
    )
    cifar_labels: Literal["fine", "coarse"] = Field(
        "fine",
        title="Labels of CIFAR-100",
        description="Labels of CIFAR-100: 100 fine or 20 coarse classes",
        json_schema_extra=EXPERT,
    )
    image_column: str | None = Field(
        None,
        title="Column of the images",
        description="Name of the images or features: an HDF5 data set, a feature of a tf.train.Example, a column of"
        " paths in a list with a header line, a table's column of encoded images or paths; default: the usual names"
        " (data, image/encoded, ...)",
        json_schema_extra=EXPERT,
    )
    label_column: str | None = Field(
        None,
        title="Column of the labels",
        description="Name of the labels, likewise; several of a table: a,b; default: the usual names (label,"
        " image/class/label, ...)",
        json_schema_extra=EXPERT,
    )
    feature_columns: str | None = Field(
        None,
        min_length=1,
        title="Columns of the features",
        description="A table's columns of features, in this order: names, arrays, f*, first..last, !this; default: all"
        " numbers but label, id, weight and group; !this alone: the default without this",
        json_schema_extra=EXPERT,
    )
    id_column: str | None = Field(
        None,
        title="Column of the ids",
        description="A table's column of row names, stored with the rows; the name's hash decides a row's side of the"
        " split; default: id",
        json_schema_extra=EXPERT,
    )
    weight_column: str | None = Field(
        None,
        title="Column of the weights",
        description="A table's column of sample weights, kept as data set weight",
        json_schema_extra=EXPERT,
    )
    group_column: str | None = Field(
        None,
        title="Column of the groups",
        description="A table's column of groups (a customer, a patient); a group stays on the same side of the split",
        json_schema_extra=EXPERT,
    )
    label_kind: Literal["auto", "class", "value"] = Field(
        "auto",
        title="What labels are",
        description="Kind of a table's labels: classes, or values to predict; auto: classes if all labels are whole"
        " numbers from 0 and below 1000, or text",
        json_schema_extra=EXPERT,
    )
    standardize: bool = Field(
        True,
        title="Standardise features",
        description="Subtract each feature's mean and divide by the standard deviation, both of the training set;"
        " stored in dataset.json",
        json_schema_extra=EXPERT,
    )
    missing: Literal["mean", "zero", "refuse", "drop-row"] = Field(
        "mean",
        title="Missing features",
        description="Treatment of a table's missing features: the mean, zero, an error, or a row left out",
        json_schema_extra=EXPERT,
    )
    query: str | None = Field(
        None,
        min_length=1,
        title="SQL query",
        description="Spark SQL to select the rows, e.g. SELECT * FROM source WHERE age > 17; source is the table of"
        " SOURCE",
        json_schema_extra=EXPERT,
    )
    class_names: DataPathField | None = Field(
        None,
        title="Names of the classes",
        description="Text file with a class name per line, in label order, also ARCHIVE::FILE; sets the order of a"
        " source's named classes, too",
        json_schema_extra=FORM,
    )
    shard_format: Literal["lmdb", "hdf5"] = Field(
        "lmdb",
        title="Format of shards",
        description="File format of shards; a table of features always has hdf5",
        json_schema_extra=EXPERT,
    )
    encoded: bool = Field(
        False,
        title="Keep images compressed",
        description="Keep images compressed in the shards (LMDB only)",
        json_schema_extra=EXPERT,
    )
    resize_height: int = Field(
        0,
        ge=0,
        le=16_384,
        title="Height",
        description="Height of stored images in pixels, e.g. 32; 0 keeps the size",
        json_schema_extra=FORM,
    )
    resize_width: int = Field(
        0,
        ge=0,
        le=16_384,
        title="Width",
        description="Width of stored images in pixels, e.g. 32; 0 keeps the size",
        json_schema_extra=FORM,
    )
    gray: bool = Field(False, title="Gray", description="Read images as gray", json_schema_extra=FORM)
    scaled_decoding: bool = Field(
        False,
        description="Decode JPEG images at 1/2, 1/4 or 1/8 of the size before a strong reduction: faster, with other"
        " pixels (docs/guides/data.md)",
    )
    decode_mib: int = Field(
        168,
        ge=16,
        le=8_192,
        title="Memory to decode an image",
        description="Most memory in MiB for decoding a compressed image: 168 is enough for some 55 megapixels. Larger"
        " images are rejected",
        json_schema_extra=EXPERT,
    )
    member_mib: int = Field(
        256,
        ge=1,
        le=8_192,
        title="Size of a file in a zip",
        description="Most MiB of an unpacked file of a zip. Larger files are rejected",
        json_schema_extra=EXPERT,
    )
    unpacked_gib: int = Field(
        64,
        ge=1,
        le=65_536,
        title="Size of a compressed file",
        description="Most GiB on the disk for an unpacked tar or file (gzip, bzip2, xz)",
        json_schema_extra=EXPERT,
    )
    max_pixel: int = Field(
        255,
        ge=1,
        le=255,
        title="Largest pixel value",
        description="Largest pixel value of the source; scaled to 255 (digits8x8: 16)",
        json_schema_extra=EXPERT,
    )
    balance: Literal["none", "oversample", "undersample"] = Field(
        "none",
        title="Balance of the classes",
        description="Training set with classes of equal size: oversample repeats records up to the largest class,"
        " undersample takes the smallest class' number of records from each class; the other sets do not change",
        json_schema_extra=EXPERT,
    )
    limit: int | None = Field(
        None,
        ge=1,
        title="Most records",
        description="Take this number of records of each source: each class keeps the share, and every run takes the"
        " same records",
        json_schema_extra=EXPERT,
    )
    n_classes: int | None = Field(
        None, ge=1, description="Refuse labels outside [0, n_classes); default: from class_names, else from the data"
    )

    def paths_inside(self) -> frozenset[str]:
        """Return ``root_folder`` for a list in an archive, and sources in Spark's catalog."""
        inside = {"root_folder"} if ARCHIVE_MARK in str(self.source) else set()
        tables = {
            name for name in ("source", "validation_source", "test_source") if is_catalog_table(getattr(self, name))
        }
        return frozenset(inside | tables)

    @model_validator(mode="before")
    @classmethod
    def _without_source(cls, values: Any) -> Any:
        """Allow a query without source, because the query names its tables."""
        if isinstance(values, dict) and values.get("query") and values.get("source") is None:
            return {**values, "source": TABLE_MARK}
        return values

    @model_validator(mode="after")
    def _check(self) -> SourceConfig:
        if (self.resize_height == 0) != (self.resize_width == 0):
            msg = f"resize_height={self.resize_height}, resize_width={self.resize_width}: give both or neither"
            raise ValueError(msg)
        self._check_splits()
        if self.encoded and self.shard_format == "hdf5":
            msg = "encoded=true: HDF5 shards hold decoded arrays; use shard_format=lmdb or encoded=false"
            raise ValueError(msg)
        return self

    def _check_splits(self) -> None:
        named = [name for name in ("split_list", "split_column") if getattr(self, name) is not None]
        sources = [name for name in ("test_source", "validation_source") if getattr(self, name) is not None]
        if named and len(named) + len(sources) > 1:
            msg = f"{' and '.join([*named, *sources])}: each says which records are of which split; give one of them"
            raise ValueError(msg)
        test = 0.0 if self.test_source is not None else self.test_fraction
        if not named and test + self.validation_fraction >= 1:
            msg = (
                f"test_fraction={test} and validation_fraction={self.validation_fraction} leave nothing to train on;"
                " their sum must be below 1"
            )
            raise ValueError(msg)


class IngestConfig(SourceConfig):
    """Convert raw files into Caffe-readable shards: ``<output>/train``, ``<output>/test``, and dataset.json."""

    output: DataPathField = Field(
        description="Dataset folder to write; an existing dataset with the same options is brought up to date with the"
        " source"
    )
    previous: DataPathField | None = Field(
        None, description="Dataset to go on from, in place of the dataset in output: unchanged files are shared"
    )
    full: bool = Field(
        False,
        title="Write all anew",
        description="Write every shard anew, even if only some records of an existing dataset have changed",
        json_schema_extra=EXPERT,
    )
    shuffle: bool = Field(
        True, title="Shuffle", description="Store samples in a fixed random order", json_schema_extra=EXPERT
    )
    seed: int = Field(1, ge=0, title="Seed", description="Decides the split and the order", json_schema_extra=EXPERT)
    samples_per_shard: int = Field(10_000, ge=1, description="Upper bound; shards also stay below 2 GiB")
    shards: int | None = Field(
        None,
        ge=1,
        title="Number of shards",
        description="Number of shards of each set, e.g. 1: a single LMDB, a single source for Caffe; after a change of"
        " the source the whole set is then written anew; default: by samples_per_shard, and several from 500 images"
        " on, so every core has a task",
        json_schema_extra=EXPERT,
    )
    max_rejected_fraction: Fraction = Field(
        0.01,
        title="Bad records allowed",
        description="More bad records than this share fail the task",
        json_schema_extra=EXPERT,
    )
    deduplicate: bool = Field(
        False,
        title="Leave out duplicates",
        description="Leave out records with the content of an earlier record of the same set; needs a second reading"
        " of every record",
        json_schema_extra=EXPERT,
    )
    deduplicate_across: bool = Field(
        False,
        title="Leave out duplicates of training records",
        description="With deduplicate: also leave out validation and test records with the content of a training"
        " record",
        json_schema_extra=EXPERT,
    )
    stamp: FileStamp = Field(
        "time",
        title="Stamp of files",
        description="Property of a file to recognise changes: time (size and time of change), or digest (the content;"
        " an ingestion and a DAG's check then read every file)",
        json_schema_extra=EXPERT,
    )
    strict: bool = Field(
        False,
        title="Strict",
        description="Refuse data with a warning: damaged images, duplicates, a class with one sample, ...",
        json_schema_extra=EXPERT,
    )
    listed_files: ListedFilesPart = LISTED_AS_GIVEN
    engine: Engine = Field(
        "auto",
        description="Reader of the records: spark, process (this process alone), or auto (this process if faster than"
        " a start of Spark)",
    )
    staging_folder: StagingFolder = None
    staging_size: StagingSize = DEFAULT_STAGING_SIZE
    listen_address: ListenAddress = "auto"
    insecure_network: InsecureNetwork = False
    master: SparkMaster = "local[*]"

    @model_validator(mode="after")
    def _check_pairs(self) -> IngestConfig:
        usual = IngestConfig.model_fields["samples_per_shard"].default
        if self.shards is not None and self.samples_per_shard != usual:
            msg = f"shards={self.shards}, samples_per_shard={self.samples_per_shard}: give one of them"
            raise ValueError(msg)
        if self.output.resolve() == self.source.resolve():
            msg = f"output={self.output}: is the source, too; give another folder"
            raise ValueError(msg)
        if self.deduplicate_across and not self.deduplicate:
            msg = "deduplicate_across=true: says more about deduplicate, which is not set; give both"
            raise ValueError(msg)
        return self
