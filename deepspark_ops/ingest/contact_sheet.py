"""Contact sheet of a dataset: a strip of samples of each class, from the shards of the training split.

The process that commits the dataset writes the sheet once. The records of the shards have the class of each row, so the
process reads about 500 samples for a dataset of any size. A page shows the sheet without opening shards.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

import cv2
import numpy as np

from deepspark_ops.errors import DataError
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.excluded_rows import kept_rows
from deepspark_ops.shards.files.picture_archive import EncodedPicture, write_pictures
from deepspark_ops.shards.files.shard_records import read_records
from deepspark_ops.shards.manifest import DatasetManifest, read_manifest, shard_folder
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.shards.thumbnail import Picture, encoded, shrunk, to_picture
from deepspark_ops.stores.store_path import DataPath

MOST_CLASSES: Final = 60
"""Number of first classes in the sheet."""
SAMPLES_OF_A_CLASS: Final = 8
CELL_PIXELS: Final = 40
MOST_BYTES: Final = 200_000
_QUALITIES: Final = (None, 85, 60, 30)
"""Qualities in the order of trial, until the sheet is small enough; None: PNG, which keeps every pixel."""

_log = logging.getLogger(__name__)


def add_contact_sheet(dataset: DataPath) -> None:
    """Write the sheet beside the splits of a new dataset, if samples are pictures.

    An error becomes a warning: the dataset is whole without the sheet.
    """
    paths = DatasetPaths(dataset)
    try:
        manifest = read_manifest(paths.split("train"))
        strips = class_strips(paths.split("train"))
        if strips:
            write_pictures(paths.contact_sheet, _encoded(strips), manifest.recipe_sha256)
        else:
            paths.contact_sheet.unlink(missing_ok=True)
    except (OSError, DataError) as error:
        _log.warning("ingest: no pictures of the samples for the page of the dataset: %s", error)


def class_strips(
    folder: DataPath, *, samples: int = SAMPLES_OF_A_CLASS, pixels: int = CELL_PIXELS
) -> dict[int, Picture]:
    """Return class -> first samples of the class side by side; empty if samples are no pictures.

    A class has ``samples`` samples at most, of ``pixels`` pixels at most on each side.

    Raises:
        DataError: The split is missing or damaged.
    """
    return _strips(folder, _rows_by_class(read_manifest(folder), folder, samples), pixels)


def _rows_by_class(manifest: DatasetManifest, folder: DataPath, samples: int) -> Mapping[int, list[tuple[int, int]]]:
    """Return class -> (shard, row) of the first samples of the class; empty for shards without records."""
    rows: dict[int, list[tuple[int, int]]] = {label: [] for label in range(min(manifest.n_classes, MOST_CLASSES))}
    for number, shard in enumerate(manifest.shards):
        lacking = [
            label for label, positions in rows.items() if len(positions) < min(samples, manifest.label_histogram[label])
        ]
        if not lacking or shard.records is None:
            break
        labels = read_records(shard_folder(folder) / shard.records.file).labels[kept_rows(shard.excluded, shard.n_rows)]
        for label in lacking:
            positions = np.flatnonzero(labels == label)[: samples - len(rows[label])]
            rows[label] += [(number, int(position)) for position in positions]
    return rows


def _strips(folder: DataPath, rows: Mapping[int, Sequence[tuple[int, int]]], pixels: int) -> dict[int, Picture]:
    ordered = sorted((shard, row, label) for label, positions in rows.items() for shard, row in positions)
    cells: dict[int, list[Picture]] = {}
    with open_dataset(folder) as dataset:
        for shard, row, label in ordered:
            picture = to_picture(dataset.read(shard, row, 1)[0][0])
            if picture is None:
                return {}
            cells.setdefault(label, []).append(shrunk(picture, pixels))
    return {label: _side_by_side(pictures) for label, pictures in cells.items()}


def _side_by_side(pictures: Sequence[Picture]) -> Picture:
    """Return pictures of one shape in a row, with gaps of middle gray."""
    height, _, *channels = pictures[0].shape
    gap = np.full((height, max(1, height // 20), *channels), 128, np.uint8)
    parts = [part for picture in pictures for part in (picture, gap)][:-1]
    return np.asarray(cv2.hconcat(parts), np.uint8)


def _encoded(strips: Mapping[int, Picture]) -> dict[int, EncodedPicture]:
    sheet: dict[int, EncodedPicture] = {}
    for quality in _QUALITIES:
        sheet = {
            label: encoded(strip) if quality is None else encoded(strip, is_photo=True, quality=quality)
            for label, strip in strips.items()
        }
        if sum(len(picture.content) for picture in sheet.values()) <= MOST_BYTES:
            break
    return sheet
