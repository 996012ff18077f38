"""The manifest of each split of a dataset, and ``dataset.json``, which names the manifests of one version.

The rename of ``dataset.json`` is the commit: all splits of a version become visible together. Manifests, mean image and
lists have names with their digests, so that a new version overwrites no file of the version before.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from caffe_import.file_access.regular_file import open_regular, regular_bytes
from deepspark_ops.errors import DataError
from deepspark_ops.frozen_model import FrozenModel, first_problem
from deepspark_ops.run_paths import VERSIONS_NAME, DatasetPaths, write_text_whole, write_whole
from deepspark_ops.shards.preprocessing import PixelSteps
from deepspark_ops.shards.table_columns import TableColumns
from deepspark_ops.stores.store_path import DataPath, StorePath

MANIFEST_NAME: Final = "dataset.json"
"""File in the dataset's folder that names the manifests of the splits."""
_SPLIT_MANIFEST: Final = "manifest.json"
SplitName = Literal["train", "validation", "test"]
SPLITS: Final[tuple[SplitName, ...]] = ("train", "validation", "test")
ShardFormat = Literal["lmdb", "hdf5"]
_DIGITS: Final = 12
"""Digits of a digest in the name of a file."""
_Extent = Annotated[int, Field(ge=1)]


class SourceRecord(FrozenModel):
    """The source of the samples: path of the user, format, and a digest that changes with the source."""

    path: str
    format: str
    sha256: str


def _own_file(name: str) -> str:
    """Refuse names of files elsewhere: a foreign manifest must not lead to files of the user who trains."""
    plain = name.removeprefix("../train/")  # the mean image of the training set
    if plain in ("", ".", "..") or "/" in plain or "\0" in plain:
        msg = "names no file of the dataset; allowed: a file of its own folder, or ../train/NAME"
        raise ValueError(msg)
    return name


OwnFile = Annotated[str, AfterValidator(_own_file)]
"""A file in the split's folder."""


class FileRecord(FrozenModel):
    """A file with a digest; ``file`` is relative to the split's folder."""

    file: OwnFile
    sha256: str


class ShardRecord(FileRecord):
    """A shard. An LMDB shard is a folder: ``n_bytes`` and ``sha256`` describe the folder's data.mdb.

    Attributes:
        n_samples: Samples that count.
        n_bytes: Bytes of the file.
        records: Facts of the shard's records; None for tables.
        rows: Facts of the shard's rows of a table; None for images.
        excluded: [start, stop) of rows in the file that no longer count, since the source changed.
        version: Version of the dataset that wrote the shard.
    """

    n_samples: int = Field(ge=1)
    n_bytes: int = Field(ge=1)
    records: FileRecord | None = None
    rows: FileRecord | None = None
    excluded: tuple[tuple[int, int], ...] = ()
    version: Annotated[int, Field(ge=1)] = 1

    @property
    def beside(self) -> tuple[FileRecord, ...]:
        """Files beside the shard, with facts of the shard's records or rows."""
        return tuple(record for record in (self.records, self.rows) if record is not None)

    @property
    def n_rows(self) -> int:
        """Count of samples in the file, with excluded samples."""
        return self.n_samples + sum(stop - start for start, stop in self.excluded)

    @model_validator(mode="after")
    def _ordered(self) -> ShardRecord:
        bounds = [bound for pair in self.excluded for bound in pair]
        if bounds != sorted(set(bounds)) or (bounds and (bounds[0] < 0 or bounds[-1] > self.n_rows)):
            msg = f"excluded rows are no ascending ranges below {self.n_rows:,}"
            raise ValueError(msg)
        return self


class SplitRule(FrozenModel):
    """The rule that separates training, validation and test samples.

    Attributes:
        by: ``name_hash``: a record is in the test set if the hash of (seed, name) is in the lowest ``test_fraction``,
            in the validation set if it is in the ``validation_fraction`` above; ``test_source``: the test samples have
            another source; ``row_hash``: as ``name_hash``, with the hash of a table row's group, else id, else content;
            ``list`` and ``column``: a list or a column has the split of each record.
        seed: Seed of the hash; 0 without a hash.
        test_fraction: Likewise.
        validation_fraction: Likewise.
        named: SHA-256 of the list, or name of the column; else empty.
    """

    by: Literal["name_hash", "row_hash", "test_source", "list", "column"]
    seed: int = 0
    test_fraction: float = 0.0
    validation_fraction: float = 0.0
    named: str = ""

    def may_test_on_samples_trained_on(self, earlier: SplitRule) -> bool:
        """Return whether a test sample of this rule may be a training sample of ``earlier``, for the same source.

        With a smaller ``test_fraction`` the test set only shrinks: the hash stays.
        """
        if self.by == earlier.by and self.by in ("name_hash", "row_hash"):
            not_trained_on = earlier.test_fraction + earlier.validation_fraction
            return self.seed != earlier.seed or self.test_fraction > not_trained_on
        return self.by != earlier.by or self.named != earlier.named

    def text(self) -> str:
        """Return the rule in words."""
        if self.by == "test_source":
            validation = f", validation_fraction {self.validation_fraction:g}" if self.validation_fraction else ""
            return f"a test source of its own{validation}"
        if self.by == "list":
            return f"a list, sha256:{self.named[:12]}"
        if self.by == "column":
            return f"column {self.named}"
        validation = f", validation_fraction {self.validation_fraction:g}" if self.validation_fraction else ""
        return f"seed {self.seed}, test_fraction {self.test_fraction:g}{validation}"


class DatasetManifest(FrozenModel):
    """A split. A manifest holds no times and no host names: equal inputs give equal bytes.

    Attributes:
        format_version: Version of the file.
        split: Name of the split.
        splits: All splits of the dataset.
        shard_format: LMDB of Datum, or HDF5 with the datasets ``data`` and ``label``.
        encoded: Whether images are compressed inside the shards.
        source: Source of the samples.
        recipe_sha256: Digest of source and options; equal digests mean equal samples.
        options: Options that decide about the samples.
        version: 1 for the first version; each update from the source adds 1.
        previous: Digest of the training set's manifest of the version before; None for the first.
        sample_shape: Shape of every sample: (C, H, W), or (D,) for a table's features.
        n_samples: Samples of all shards.
        n_classes: Labels are in [0, n_classes); 0 for labels that are values.
        class_names: In label order; empty if unknown.
        label_histogram: Samples per label, n_classes numbers.
        mean_values: Mean per channel of the *training* split, 0..255, in the channels' order (BGR);
            empty for a table.
        mean_file: Mean image of the training split, Caffe's binaryproto; None for a table.
        shards: In the order of the samples.
        source_files: File with the table file of each sample of all splits, beside the training set's shards; None if
            an ingestion reads all rows.
        n_rejected: Count of bad records, which are in no shard.
        rejected_file: File with a JSON line per bad record; None without a bad record.
        n_bytes: Bytes of all shards.
        split_rule: Rule that separates the splits; None for a single split.
        warnings: Kind -> count of odd records that are in the shards.
        chosen: Option, such as ``limit`` or ``balance`` -> count of records that the option left out or repeated.
        warnings_file: File with a JSON line per named warning; None without a warning.
        table: Columns and standardisation for a table of features.
        group: Column with the groups of images; the shards' records have the hashes. None without groups, and for a
            table of features: see ``table``.
        pixels: Steps of ingestion for images; None for a table.
    """

    format_version: Literal[1] = 1
    split: SplitName
    splits: tuple[SplitName, ...] = ()
    shard_format: ShardFormat
    encoded: bool
    source: SourceRecord
    recipe_sha256: str
    options: dict[str, Any] = Field(default={})
    version: Annotated[int, Field(ge=1)] = 1
    previous: str | None = None
    sample_shape: tuple[_Extent, ...] = Field(min_length=1)
    n_samples: int = Field(ge=1)
    n_classes: int = Field(ge=0)
    class_names: tuple[str, ...] = ()
    label_histogram: tuple[Annotated[int, Field(ge=0)], ...]
    mean_values: tuple[float, ...]
    mean_file: FileRecord | None = None
    shards: tuple[ShardRecord, ...] = Field(min_length=1)
    source_files: FileRecord | None = None
    n_rejected: int = Field(ge=0)
    rejected_file: OwnFile | None = None
    n_bytes: int = Field(ge=1)
    split_rule: SplitRule | None = None
    warnings: dict[str, Annotated[int, Field(ge=1)]] = Field(default={})
    warnings_file: OwnFile | None = None
    chosen: dict[str, Annotated[int, Field(ge=1)]] = Field(default={})
    table: TableColumns | None = None
    pixels: PixelSteps | None = None
    group: str | None = None

    @model_validator(mode="after")
    def _agree(self) -> DatasetManifest:
        """Compare numbers that depend on each other: an edited number differs."""
        expected = {
            "sample_shape": (len(self.sample_shape), 3 if self.table is None else 1, "extents it must have are"),
            "n_samples": (self.n_samples, sum(shard.n_samples for shard in self.shards), "the shards hold"),
            "n_bytes": (self.n_bytes, sum(shard.n_bytes for shard in self.shards), "the shards hold"),
            "n_classes": (self.n_classes, len(self.label_histogram), "label_histogram counts"),
            "label_histogram": (sum(self.label_histogram), self.n_samples if self.n_classes else 0, "n_samples is"),
            "class_names": (len(self.class_names) or self.n_classes, self.n_classes, "n_classes is"),
            "mean_values": (
                len(self.mean_values),
                0 if self.table is not None else self.sample_shape[0],
                "the channels of sample_shape are",
            ),
        }
        if self.table is not None:
            expected["table"] = (self.table.n_features, self.sample_shape[0], "sample_shape is")
        ordered = tuple(split for split in SPLITS if split in self.splits)
        if self.splits and (self.split not in self.splits or self.splits != ordered):
            msg = f"splits says {', '.join(self.splits)}; allowed: {self.split} and others, in the order of {SPLITS}"
            raise ValueError(msg)
        for name, (written, counted, whence) in expected.items():
            if written != counted:
                msg = f"{name} says {written:,}, {whence} {counted:,}"
                raise ValueError(msg)
        return self


class DatasetRoot(FrozenModel):
    """Content of ``dataset.json``: the manifests of one version.

    Attributes:
        format_version: Version of the file.
        splits: Manifest of each split, train first; ``file`` is relative to the split's folder.
    """

    format_version: Literal[1] = 1
    splits: dict[SplitName, FileRecord] = Field(min_length=1)


def read_root(dataset: DataPath) -> DatasetRoot | None:
    """Return the manifests of a dataset; None without ``dataset.json``.

    Raises:
        DataError: ``dataset.json`` is damaged or of another version.
    """
    path = dataset / MANIFEST_NAME
    try:
        return DatasetRoot.model_validate_json(regular_bytes(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        msg = f"{path}: {error.strerror or error}"
        raise DataError(msg) from error
    except ValidationError as error:
        raise _damaged(path, error) from error


def manifest_path(dataset: DataPath, split: str) -> DataPath:
    """Return the path of a split's manifest; no file exists if the dataset has no such split.

    Raises:
        DataError: See ``read_root``.
    """
    root = read_root(dataset)
    record = None if root is None else next((held for name, held in root.splits.items() if name == split), None)
    return DatasetPaths(dataset).split(split) / (_SPLIT_MANIFEST if record is None else record.file)


def is_dataset(folder: DataPath) -> bool:
    """Return whether an ingestion committed a dataset in a folder; the dataset may be damaged."""
    return (folder / MANIFEST_NAME).is_file()


def split_digests(dataset: DataPath) -> dict[SplitName, str]:
    """Return split -> digest of the manifest, ``sha256:...``; empty without a dataset.

    Raises:
        DataError: See ``read_root``.
    """
    paths = {split: manifest_path(dataset, split) for split in SPLITS}
    return {split: f"sha256:{sha256_of_file(path)}" for split, path in paths.items() if path.is_file()}


def split_manifest_path(split_folder: DataPath) -> DataPath:
    """Return the path of the manifest of a split's folder; see ``manifest_path``."""
    folder = split_folder.absolute()
    return split_folder / manifest_path(folder.parent, folder.name).name


def read_manifest(split_folder: DataPath) -> DatasetManifest:
    """Return the manifest of a split's folder.

    Raises:
        DataError: The manifest is missing, damaged or of another version.
    """
    path = split_manifest_path(split_folder)
    try:
        content = regular_bytes(path)
    except OSError as error:
        if isinstance(split_folder, StorePath) and not isinstance(error, FileNotFoundError):
            msg = f"{path}: {error.strerror or error}"
            raise DataError(msg) from error
        raise DataError(_missing(split_folder, path)) from error
    try:
        return DatasetManifest.model_validate_json(content)
    except ValidationError as error:
        raise _damaged(path, error) from error


def _missing(split_folder: DataPath, manifest: DataPath) -> str:
    dataset = split_folder.parent
    problem = "no such dataset folder"
    if split_folder.is_dir():
        is_named = manifest.name != _SPLIT_MANIFEST
        problem = f"no {manifest.name} here" if is_named else f"no {MANIFEST_NAME} beside it that names it"
    elif split_manifest_path(dataset).is_file():
        return f"{dataset}: a split of a dataset; give the dataset: {dataset.parent}"
    elif (dataset.is_dir() or dataset.is_file()) and not split_manifest_path(dataset / "train").is_file():
        return (
            f'{dataset}: no dataset of an ingestion; for raw data run "deepspark ingest {dataset} --output OUTPUT" and'
            " give OUTPUT; without the option dataset a net reads its own sources"
        )
    return f'{split_folder}: {problem}; give the OUTPUT of a finished ingestion, or run "deepspark ingest"'


def _damaged(path: DataPath, error: ValidationError) -> DataError:
    return DataError(f'{path}: {first_problem(error)}; run "deepspark ingest" again')


def shard_folder(split_folder: DataPath) -> DataPath:
    """Return the folder of a split's shards, and of the files beside the shards.

    An earlier version of a dataset in a store, ``versions/<digest>``, has only manifests: a store has no links. So the
    shards are in the dataset's folders, as long as a version names the shards.

    Example:
        >>> from deepspark_ops.stores.store_path import data_path
        >>> shard_folder(data_path("s3://bucket/pets/versions/0123456789ab/train"))
        data_path('s3://bucket/pets/train')
        >>> shard_folder(Path("/pets/versions/0123456789ab/train"))
        PosixPath('/pets/versions/0123456789ab/train')
    """
    version = split_folder.parent
    is_kept = version.parent.name == VERSIONS_NAME and re.fullmatch("[0-9a-f]{12}", version.name)
    has_no_links = isinstance(split_folder, StorePath) and not split_folder.is_on_driver
    return version.parent.parent / split_folder.name if has_no_links and is_kept else split_folder


def present_splits(dataset: DataPath) -> list[SplitName]:
    """Return the splits of a dataset, train first.

    Without a readable ``dataset.json`` return train and test: a read of these splits raises the error.
    """
    try:
        root = read_root(dataset)
    except DataError:
        root = None
    return ["train", "test"] if root is None else [split for split in SPLITS if split in root.splits]


def require_one_recipe(dataset: DataPath, manifests: Mapping[SplitName, DatasetManifest]) -> None:
    """Refuse splits of different ingestions: a sample may be in two splits.

    Raises:
        DataError: Two recipes differ.
    """
    by_recipe = {manifest.recipe_sha256: split for split, manifest in manifests.items()}
    if len(by_recipe) > 1:
        shown = ", ".join(f"{split} {manifest.recipe_sha256[:_DIGITS]}" for split, manifest in manifests.items())
        msg = (
            f"{dataset}: its splits come from ingestions with other sources or options (recipes: {shown}), so that test"
            ' samples may be training samples; run "deepspark ingest" again'
        )
        raise DataError(msg)


def mean_path(dataset: DataPath) -> DataPath:
    """Return the path of the training set's mean image.

    Raises:
        DataError: The manifest is missing, or the dataset has no mean image.
    """
    folder = DatasetPaths(dataset).split("train")
    record = read_manifest(folder).mean_file
    if record is None:
        msg = f"{dataset}: a dataset of a table's features has no mean image; remove mean_file from the net"
        raise DataError(msg)
    return shard_folder(folder) / record.file


def write_by_digest(folder: DataPath, name: str, write: Callable[[Path], object]) -> FileRecord:
    """Write a file with the digest in the name: ``mean.binaryproto`` becomes ``mean-<digest>.binaryproto``.

    Args:
        folder: Folder, local or in a store.
        name: Name without the digest.
        write: Writes the content into a local path.
    """
    if not isinstance(folder, StorePath):
        folder.mkdir(parents=True, exist_ok=True)
    scratch_parent = None if isinstance(folder, StorePath) else folder
    with tempfile.TemporaryDirectory(prefix=f".{name}.", suffix=".tmp", dir=scratch_parent) as scratch:
        content = Path(scratch) / name
        write(content)
        digest = sha256_of_file(content)
        stem, dot, suffix = name.partition(".")
        record = FileRecord(file=f"{stem}-{digest[:_DIGITS]}{dot}{suffix}", sha256=digest)
        with write_whole(folder / record.file) as temporary:
            shutil.move(content, temporary)
    return record


def write_manifest(split_folder: DataPath, manifest: DatasetManifest) -> FileRecord:
    """Write the manifest of a split; ``write_root`` makes the manifest visible. Every named file must exist."""
    text = manifest.model_dump_json(indent=1) + "\n"
    return write_by_digest(split_folder, _SPLIT_MANIFEST, lambda path: path.write_text(text, encoding="utf-8"))


def write_root(dataset: DataPath, root: DatasetRoot) -> None:
    """Commit a version; every manifest must exist."""
    write_text_whole(dataset / MANIFEST_NAME, root.model_dump_json(indent=1) + "\n")


def require_unedited(split_folder: DataPath) -> None:
    """Compare a manifest with the digest in ``dataset.json``, which shows an edit of any field.

    Raises:
        DataError: A field was edited.
    """
    folder = split_folder.absolute()
    root = read_root(folder.parent)
    for split, record in {} if root is None else root.splits.items():
        path = split_folder / record.file
        if split == folder.name and sha256_of_file(path) != record.sha256:
            msg = f'{path}: edited after the ingestion: the digest is another one; run "deepspark ingest" again'
            raise DataError(msg)


def sha256_of_file(path: DataPath) -> str:
    """Return the hexadecimal SHA-256 of a file's bytes."""
    with open_regular(path) as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
