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

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from caffe_import.files.regular_file import open_regular, regular_bytes
from deepspark_ops.errors import DataError
from deepspark_ops.run_paths import VERSIONS_NAME, DatasetPaths, write_text_whole, write_whole
from deepspark_ops.shards.preprocessing import PixelSteps
from deepspark_ops.shards.table_columns import TableColumns
from deepspark_ops.stores.store_path import DataPath, StorePath

MANIFEST_NAME: Final = "dataset.json"
"""In the dataset's folder, beside the splits; it names their manifests."""
_SPLIT_MANIFEST: Final = "manifest.json"
SplitName = Literal["train", "validation", "test"]
SPLITS: Final[tuple[SplitName, ...]] = ("train", "validation", "test")
ShardFormat = Literal["lmdb", "hdf5"]
_READ_BYTES = 1 << 18
_DIGITS: Final = 12
"""Of a digest, in the name of a file."""
_Extent = Annotated[int, Field(ge=1)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SourceRecord(_Frozen):
    """Where the samples came from: path as given, its format, and a digest that changes when the source does."""

    path: str
    format: str
    sha256: str


def _own_file(name: str) -> str:
    """A manifest may be somebody else's: what it names is read with the rights of whoever trains."""
    plain = name.removeprefix("../train/")  # the mean image of the training set
    if plain in ("", ".", "..") or "/" in plain or "\0" in plain:
        msg = "names no file of the dataset; allowed: a file of its own folder, or ../train/NAME"
        raise ValueError(msg)
    return name


OwnFile = Annotated[str, AfterValidator(_own_file)]
"""A file in the split's folder."""


class FileRecord(_Frozen):
    """One file bound by its digest; ``file`` is relative to the split's folder."""

    file: OwnFile
    sha256: str


class ShardRecord(FileRecord):
    """One shard. An LMDB shard is a folder: ``n_bytes`` and ``sha256`` are those of its data.mdb.

    Attributes:
        n_samples: Samples that count.
        n_bytes: Of the file.
        records: Which records it was made of; None for tables.
        rows: Which rows of a table it was made of; None for images.
        excluded: [start, stop) of rows in the file that do not count any more, since the source changed.
        version: Of the dataset that it was written for.
    """

    n_samples: int = Field(ge=1)
    n_bytes: int = Field(ge=1)
    records: FileRecord | None = None
    rows: FileRecord | None = None
    excluded: tuple[tuple[int, int], ...] = ()
    version: Annotated[int, Field(ge=1)] = 1

    @property
    def beside(self) -> tuple[FileRecord, ...]:
        """Files beside the shard that say what it was made of."""
        return tuple(one for one in (self.records, self.rows) if one is not None)

    @property
    def n_rows(self) -> int:
        """Samples in the file, with those that are excluded."""
        return self.n_samples + sum(stop - start for start, stop in self.excluded)

    @model_validator(mode="after")
    def _ordered(self) -> ShardRecord:
        bounds = [bound for pair in self.excluded for bound in pair]
        if bounds != sorted(set(bounds)) or (bounds and (bounds[0] < 0 or bounds[-1] > self.n_rows)):
            msg = f"excluded rows are no ascending ranges below {self.n_rows:,}"
            raise ValueError(msg)
        return self


class SplitRule(_Frozen):
    """How training, validation and test samples were told apart.

    Attributes:
        by: ``name_hash``: a record is in the test set if the hash of (seed, name) is in the lowest ``test_fraction``,
            in the validation set if it is in the ``validation_fraction`` above; ``test_source``: the test samples have
            a source of their own; ``row_hash``: as ``name_hash``, of a table's row: its group, else its id, else its
            content; ``list`` and ``column``: each record's split was given.
        seed: Of the hash; 0 where it has no part.
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
        """Whether a test sample by this rule may have been a training sample by ``earlier``, of the same source.

        A test set only shrinks when ``test_fraction`` does: the hash stays.
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


class DatasetManifest(_Frozen):
    """One split. It holds no times and no host names: the same input gives the same bytes.

    Attributes:
        format_version: Of this file.
        split: Which part of the dataset.
        splits: All parts that the dataset has.
        shard_format: LMDB of Datum, or HDF5 with the datasets ``data`` and ``label``.
        encoded: Are images compressed inside the shards?
        source: Of the samples.
        recipe_sha256: Digest of source and options; equal digests mean equal samples.
        options: What was asked for, as far as it decides what the samples are.
        version: 1 for a dataset that was written as a whole, one more each time that it was brought up to its source.
        previous: Digest of the training set's manifest of the version before; None for the first.
        sample_shape: Of every sample: (C, H, W), or (D,) of a table's features.
        n_samples: Of all shards.
        n_classes: Labels are in [0, n_classes); 0 where they are values to be predicted.
        class_names: In label order; empty if unknown.
        label_histogram: Samples per label, n_classes numbers.
        mean_values: Mean per channel of the *training* split, 0..255, in the channels' order (BGR);
            empty for a table.
        mean_file: Mean image of the training split, Caffe's binaryproto; None for a table.
        shards: In the order of the samples.
        source_files: Which file of a table each sample came from, of all splits, beside the training set's shards; None
            where the rows are known by reading all.
        n_rejected: Bad records that are in no shard.
        rejected_file: One JSON line per bad record; None if there are none.
        n_bytes: Of all shards.
        split_rule: How its samples were told from those of the other split; None if there is no other.
        warnings: Kind -> how often it was found: what is odd about records that are in the shards all the same.
        chosen: Records left out or repeated by wish: by ``limit``, ``balance`` and the like -> how many.
        warnings_file: One JSON line for each that is named; None if there are none.
        table: The columns, and how features were standardised, where the source is a table of features.
        group: Column by which images come in groups, whose hashes are in the shards' records; None without groups, and
            for a table of features: see ``table``.
        pixels: What was done to the images; None for a table.
    """

    format_version: Literal[1] = 1
    split: SplitName
    splits: tuple[SplitName, ...] = ()
    shard_format: ShardFormat
    encoded: bool
    source: SourceRecord
    recipe_sha256: str
    options: dict[str, Any] = {}
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
    warnings: dict[str, Annotated[int, Field(ge=1)]] = {}
    warnings_file: OwnFile | None = None
    chosen: dict[str, Annotated[int, Field(ge=1)]] = {}
    table: TableColumns | None = None
    pixels: PixelSteps | None = None
    group: str | None = None

    @model_validator(mode="after")
    def _agree(self) -> DatasetManifest:
        """Compare the numbers that depend on each other: an edited one differs."""
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


class DatasetRoot(_Frozen):
    """Content of ``dataset.json``: the manifests of one version.

    Attributes:
        format_version: Of this file.
        splits: Manifest of each split, train first; ``file`` is relative to the split's folder.
    """

    format_version: Literal[1] = 1
    splits: dict[SplitName, FileRecord] = Field(min_length=1)


def read_root(dataset: DataPath) -> DatasetRoot | None:
    """Return which manifests a dataset has; None without ``dataset.json``.

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
    """Return where the manifest of a split is; nothing is there if the dataset has no such split.

    Raises:
        DataError: As ``read_root``.
    """
    root = read_root(dataset)
    record = None if root is None else next((held for name, held in root.splits.items() if name == split), None)
    return DatasetPaths(dataset).split(split) / (_SPLIT_MANIFEST if record is None else record.file)


def is_dataset(folder: DataPath) -> bool:
    """Return whether an ingestion committed a dataset in a folder; whether it is whole is another question."""
    return (folder / MANIFEST_NAME).is_file()


def split_digests(dataset: DataPath) -> dict[SplitName, str]:
    """Return split -> digest of its manifest, ``sha256:...``; nothing where there is no dataset.

    Raises:
        DataError: As ``read_root``.
    """
    paths = {split: manifest_path(dataset, split) for split in SPLITS}
    return {split: f"sha256:{sha256_of_file(path)}" for split, path in paths.items() if path.is_file()}


def split_manifest_path(split_folder: DataPath) -> DataPath:
    """Return where the manifest of a split's folder is, as ``manifest_path`` does."""
    folder = split_folder.absolute()
    return split_folder / manifest_path(folder.parent, folder.name).name


def read_manifest(split_folder: DataPath) -> DatasetManifest:
    """Return the manifest of a split's folder.

    Raises:
        DataError: There is none, or it is damaged or of another version.
    """
    path = split_manifest_path(split_folder)
    try:
        content = regular_bytes(path)
    except OSError as error:
        if isinstance(split_folder, StorePath) and not isinstance(error, FileNotFoundError):
            msg = f"{path}: {error.strerror or error}"
            raise DataError(msg) from error
        missing = "no such dataset folder"
        if split_folder.is_dir():
            is_named = path.name != _SPLIT_MANIFEST
            missing = f"no {path.name} here" if is_named else f"no {MANIFEST_NAME} beside it that names it"
        msg = f'{split_folder}: {missing}; run task "ingest" (an ingestion that did not finish leaves none)'
        raise DataError(msg) from error
    try:
        return DatasetManifest.model_validate_json(content)
    except ValidationError as error:
        raise _damaged(path, error) from error


def _damaged(path: DataPath, error: ValidationError) -> DataError:
    problem = error.errors()[0]
    place = ".".join(str(part) for part in problem["loc"]) or "file"
    return DataError(f'{path}: {place}: {problem["msg"].removeprefix("Value error, ")}; rerun task "ingest"')


def shard_folder(split_folder: DataPath) -> DataPath:
    """Return where the shards of a split are, and the files beside them.

    An earlier version of a dataset in a store, ``versions/<digest>``, has its manifests alone: a store has no links, so
    the shards are those of the dataset's own folders, where they stay as long as a version names them.

    Example:
        >>> from deepspark_ops.stores.store_path import data_path
        >>> shard_folder(data_path("s3://bucket/pets/versions/0123456789ab/train"))
        data_path('s3://bucket/pets/train')
        >>> shard_folder(Path("/pets/versions/0123456789ab/train"))
        PosixPath('/pets/versions/0123456789ab/train')
    """
    version = split_folder.parent
    is_kept = version.parent.name == VERSIONS_NAME and re.fullmatch("[0-9a-f]{12}", version.name)
    return (
        version.parent.parent / split_folder.name if isinstance(split_folder, StorePath) and is_kept else split_folder
    )


def present_splits(dataset: DataPath) -> list[SplitName]:
    """Return the splits that a dataset has, train first.

    Without a readable ``dataset.json`` they are train and test: reading these finds the fault.
    """
    try:
        root = read_root(dataset)
    except DataError:
        root = None
    return ["train", "test"] if root is None else [split for split in SPLITS if split in root.splits]


def require_one_recipe(dataset: DataPath, manifests: Mapping[SplitName, DatasetManifest]) -> None:
    """Refuse splits of different ingestions: a sample may be in two of them.

    Raises:
        DataError: Two recipes differ.
    """
    by_recipe = {manifest.recipe_sha256: split for split, manifest in manifests.items()}
    if len(by_recipe) > 1:
        shown = ", ".join(f"{split} {manifest.recipe_sha256[:_DIGITS]}" for split, manifest in manifests.items())
        msg = (
            f"{dataset}: its splits come from ingestions with other sources or options (recipes: {shown}), so that test"
            ' samples may be training samples; rerun task "ingest"'
        )
        raise DataError(msg)


def mean_path(dataset: DataPath) -> DataPath:
    """Return where the mean image of the training set is.

    Raises:
        DataError: No manifest, or the dataset has no mean image.
    """
    folder = DatasetPaths(dataset).split("train")
    record = read_manifest(folder).mean_file
    if record is None:
        msg = f"{dataset}: a dataset of a table's features has no mean image; remove mean_file from the net"
        raise DataError(msg)
    return shard_folder(folder) / record.file


def write_by_digest(folder: DataPath, name: str, write: Callable[[Path], object]) -> FileRecord:
    """Write a file that has its digest in its name: ``mean.binaryproto`` becomes ``mean-<digest>.binaryproto``.

    Args:
        folder: Local, or in a store.
        name: Without the digest.
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
    """Write the manifest of a split; ``write_root`` makes it visible. Every file that it names must be there."""
    text = manifest.model_dump_json(indent=1) + "\n"
    return write_by_digest(split_folder, _SPLIT_MANIFEST, lambda path: path.write_text(text, encoding="utf-8"))


def write_root(dataset: DataPath, root: DatasetRoot) -> None:
    """Commit a version: every manifest must be there."""
    write_text_whole(dataset / MANIFEST_NAME, root.model_dump_json(indent=1) + "\n")


def require_unedited(split_folder: DataPath) -> None:
    """Compare a manifest with its digest in ``dataset.json``, which tells of an edit in any field.

    Raises:
        DataError: A field is not what ingestion wrote.
    """
    folder = split_folder.absolute()
    root = read_root(folder.parent)
    for split, record in {} if root is None else root.splits.items():
        path = split_folder / record.file
        if split == folder.name and sha256_of_file(path) != record.sha256:
            msg = f'{path}: it was edited since ingestion wrote it: its digest is another one; rerun task "ingest"'
            raise DataError(msg)


def sha256_of_file(path: DataPath) -> str:
    """Return the hexadecimal SHA-256 of a file's bytes."""
    with open_regular(path) as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
