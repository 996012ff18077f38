"""Facts of each sample of a shard, in a file beside the shard: a later ingestion need not read these samples.

Format version 3: a NumPy archive (``.npz``) without pickled objects; ``format_version`` is an array. Sums of
bytes are whole numbers of the smallest sufficient type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from deepspark_ops.shards.files.record_archive import opened_archive, write_archive
from deepspark_ops.shards.preprocessing import PixelRange
from deepspark_ops.stores.store_path import DataPath

RECORDS_VERSION: Final = 3
LOOK_COLUMNS: Final = ("row", "height", "width", "mean", "std")
"""Columns of ``ShardRecords.looks``: row in the shard, size in the source in pixels, mean and spread of the values."""


@dataclass(frozen=True)
class ShardRecords:
    """The samples of a shard, in order.

    Attributes:
        names: Name of each record in the source.
        labels: (n,) int64.
        stamps: (n,) uint64: size and time of change of the record's file; 0 for a source without files.
        digests: (n,) uint64, digests of the content.
        repeats: (n,) int32: number of earlier copies of the record by balancing; 0 for the first.
        sums: (C, H, W), sum of the pixels.
        pixel_range: Least and largest pixel of all rows, including excluded rows; None if unknown.
        looks: (m, 5) float64 for some samples; columns: ``LOOK_COLUMNS``.
        findings: (kind, row, text) of findings about samples; the first findings of each kind.
        counts: Kind -> number of findings, with the findings that have no entry in ``findings``.
        groups: (n,) uint64, hash of each sample's group; None without groups.
    """

    names: tuple[str, ...]
    labels: npt.NDArray[np.int64]
    stamps: npt.NDArray[np.uint64]
    digests: npt.NDArray[np.uint64]
    repeats: npt.NDArray[np.int32]
    sums: npt.NDArray[np.int64] | npt.NDArray[np.float64]
    looks: npt.NDArray[np.float64]
    findings: tuple[tuple[str, int, str], ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    groups: npt.NDArray[np.uint64] | None = None
    pixel_range: PixelRange | None = None


def records_path(shard: DataPath) -> DataPath:
    """Return the path of a shard's records.

    Example:
        >>> from pathlib import Path
        >>> records_path(Path("train/train-00000-0a1b2c3d.lmdb")).name
        'train-00000-0a1b2c3d.records.npz'
    """
    return shard.with_suffix(".records.npz")


def write_records(path: DataPath, records: ShardRecords) -> None:
    """Write the file whole; equal records give equal bytes.

    Raises:
        OSError: The file cannot be written.
    """
    encoded = [name.encode("utf-8", "surrogateescape") for name in records.names]
    findings = json.dumps({"findings": records.findings, "counts": dict(sorted(records.counts.items()))})
    arrays = {
        "names": np.frombuffer(b"".join(encoded), np.uint8),
        "name_bytes": np.array([len(name) for name in encoded], np.int64),
        "labels": records.labels,
        "stamps": records.stamps,
        "digests": records.digests,
        "repeats": records.repeats,
        "sums": _small(records.sums),
        "looks": records.looks,
        "told": np.frombuffer(findings.encode(), np.uint8),
    }
    if records.groups is not None:
        arrays["groups"] = records.groups
    if records.pixel_range is not None:
        arrays["pixel_range"] = np.array(records.pixel_range, np.float64)
    write_archive(path, RECORDS_VERSION, arrays)


def read_records(path: DataPath) -> ShardRecords:
    """Return the records of a file of ``write_records``.

    Raises:
        DataError: The file is missing, damaged or of another version.
    """
    with opened_archive(path, RECORDS_VERSION) as held:
        text = held["names"].tobytes()
        ends = np.cumsum(held["name_bytes"]).tolist()
        remarks = json.loads(held["told"].tobytes())
        return ShardRecords(
            names=tuple(
                text[start:end].decode("utf-8", "surrogateescape")
                for start, end in zip([0, *ends[:-1]], ends, strict=True)
            ),
            labels=held["labels"],
            stamps=held["stamps"],
            digests=held["digests"],
            repeats=held["repeats"],
            sums=_large(held["sums"]),
            looks=held["looks"],
            findings=tuple((str(kind), int(row), str(words)) for kind, row, words in remarks["findings"]),
            counts={str(kind): int(count) for kind, count in remarks["counts"].items()},
            groups=held["groups"] if "groups" in held else None,
            pixel_range=_range(held["pixel_range"]) if "pixel_range" in held else None,
        )


def _range(bounds: npt.NDArray[np.float64]) -> PixelRange:
    least, largest = bounds.tolist()
    return least, largest


def _small(sums: npt.NDArray[np.int64] | npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    """Return whole sums in the smallest type: for large images the sums are most of the file."""
    return sums if sums.dtype != np.int64 else sums.astype(np.min_scalar_type(int(sums.max(initial=0))))


def _large(sums: npt.NDArray[Any]) -> npt.NDArray[np.int64] | npt.NDArray[np.float64]:
    return sums if sums.dtype == np.float64 else sums.astype(np.int64)
