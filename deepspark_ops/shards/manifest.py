"""``dataset.json``: what one split of a dataset holds. Its rename into place is the commit of the split."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from caffe_import.files.regular_file import open_regular, regular_bytes
from deepspark_ops.errors import DataError
from deepspark_ops.run_paths import VERSIONS_NAME, write_text_whole
from deepspark_ops.shards.preprocessing import PixelSteps
from deepspark_ops.shards.table_columns import TableColumns
from deepspark_ops.stores.store_path import StorePath

MANIFEST_NAME = "dataset.json"
SplitName = Literal["train", "validation", "test"]
SPLITS: Final[tuple[SplitName, ...]] = ("train", "validation", "test")
ShardFormat = Literal["lmdb", "hdf5"]
_READ_BYTES = 1 << 18
_OWN_DIGEST: Final = "manifest_sha256"
_WITH_OWN_DIGEST: Final = 6


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
        records: Which records it was made of; None before version 4, and for tables.
        rows: Which rows of a table it was made of; None for images, and where an earlier program made it.
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
        format_version: Of this file; 1 has no ``split_rule``, 2 no ``warnings``, 3 no ``splits`` and no ``table``, 4 no
            ``pixels``, 5 no ``group`` and no digest of its own: see ``require_unedited``.
        split: Which part of the dataset.
        splits: All parts that the dataset has; empty before version 4.
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
        split_rule: How its samples were told from those of the other split; None if there is no other, or in version 1.
        warnings: Kind -> how often it was found: what is odd about records that are in the shards all the same.
        chosen: Records left out or repeated by wish: by ``limit``, ``balance`` and the like -> how many.
        warnings_file: One JSON line for each that is named; None if there are none.
        table: The columns, and how features were standardised, where the source is a table of features.
        group: Column by which images come in groups, whose hashes are in the shards' records; None without groups, and
            for a table of features: see ``table``.
        pixels: What was done to the images; None for a table, and before version 5: see ``pixel_steps``.
    """

    format_version: Literal[1, 2, 3, 4, 5, 6] = 6
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

    def pixel_steps(self) -> PixelSteps | None:
        """Return what was done to the images; of version 4 as its options say; None where nobody wrote it down."""
        if self.pixels is not None or self.table is not None or not self.options:
            return self.pixels
        named = {"gray": "gray", "max_pixel": "max_pixel", "scaled_decoding": "scaled_decoding"}
        named |= {"height": "resize_height", "width": "resize_width"}
        steps = {step: self.options[option] for step, option in named.items() if option in self.options}
        # A format whose images stay gray, such as IDX, decodes none as colour.
        steps["decode_color"] = True if self.sample_shape[0] == 3 else None
        try:
            return PixelSteps.model_validate(steps)
        except ValidationError:  # edited options
            return None

    @model_validator(mode="before")
    @classmethod
    def _without_own_digest(cls, values: Any) -> Any:
        """Leave the file's digest of itself to ``require_unedited``: it is no property of the dataset."""
        if isinstance(values, dict):
            return {name: value for name, value in values.items() if name != _OWN_DIGEST}
        return values

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


def read_manifest(split_folder: Path) -> DatasetManifest:
    """Return the manifest of a split's folder.

    Raises:
        DataError: There is none, or it is damaged or of another version.
    """
    path = split_folder / MANIFEST_NAME
    try:
        content = regular_bytes(path)
    except OSError as error:
        if isinstance(split_folder, StorePath) and not isinstance(error, FileNotFoundError):
            msg = f"{path}: {error.strerror or error}"
            raise DataError(msg) from error
        found = "no such dataset folder" if not split_folder.is_dir() else f"no {MANIFEST_NAME} here"
        msg = f'{split_folder}: {found}; run task "ingest" (an ingestion that did not finish leaves none)'
        raise DataError(msg) from error
    try:
        return DatasetManifest.model_validate_json(content)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"]) or "file"
        finding = problem["msg"].removeprefix("Value error, ")
        msg = f'{path}: {place}: {finding}; rerun task "ingest"'
        raise DataError(msg) from error


def shard_folder(split_folder: Path) -> Path:
    """Return where the shards of a split are, and the files beside them.

    An earlier version of a dataset in a store, ``versions/<digest>``, has its manifests alone: a store has no links, so
    the shards are those of the dataset's own folders, where they stay as long as a version names them.

    Example:
        >>> from deepspark_ops.stores.store_path import data_path
        >>> shard_folder(data_path("s3://bucket/pets/versions/0123456789ab/train"))
        StorePath('s3://bucket/pets/train')
        >>> shard_folder(Path("/pets/versions/0123456789ab/train"))
        PosixPath('/pets/versions/0123456789ab/train')
    """
    version = split_folder.parent
    is_kept = version.parent.name == VERSIONS_NAME and re.fullmatch("[0-9a-f]{12}", version.name)
    return (
        version.parent.parent / split_folder.name if isinstance(split_folder, StorePath) and is_kept else split_folder
    )


def present_splits(dataset: Path) -> list[SplitName]:
    """Return the splits that a dataset has, train first: those its training set names, or that stand there.

    Without a manifest that can be read they are those that most have: whoever reads them finds what is wrong.
    """
    try:
        train = read_manifest(dataset / "train")
    except DataError:
        return ["train", "test"]
    if train.splits:
        return list(train.splits)
    return [split for split in SPLITS if (dataset / split / MANIFEST_NAME).is_file()]


def write_manifest(split_folder: Path, manifest: DatasetManifest) -> None:
    """Commit a split: every file the manifest names must be in its place already."""
    fields = json.loads(manifest.model_dump_json())
    fields[_OWN_DIGEST] = _digest_of_fields(fields)
    write_text_whole(split_folder / MANIFEST_NAME, json.dumps(fields, indent=1, ensure_ascii=False) + "\n")


def require_unedited(split_folder: Path) -> None:
    """Compare a manifest with its own digest, which tells of an edit in any field; before version 6 there is none.

    Raises:
        DataError: A field is not what ingestion wrote.
    """
    path = split_folder / MANIFEST_NAME
    fields = json.loads(regular_bytes(path))
    written = fields.pop(_OWN_DIGEST, None)
    if fields["format_version"] >= _WITH_OWN_DIGEST and written != _digest_of_fields(fields):
        msg = f'{path}: it was edited since ingestion wrote it: {_OWN_DIGEST} is not its own; rerun task "ingest"'
        raise DataError(msg)


def _digest_of_fields(fields: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the fields, whatever their order and the blanks between them."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file's bytes."""
    with open_regular(path) as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
