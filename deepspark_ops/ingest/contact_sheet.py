"""A look at a dataset: a strip of samples of each class, read from the shards of the training split.

It is made once, by the process that commits the dataset: that knows which row of which shard is of which class, so
about 500 samples are read however large the dataset is. A page then shows it without opening shards.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.plan import IngestPlan
from deepspark_ops.ingest.shard_task import ShardResult
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.manifest import DatasetManifest
from deepspark_ops.shards.picture_archive import EncodedPicture, write_pictures
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.shards.thumbnail import Picture, encoded, shrunk, to_picture

MOST_CLASSES: Final = 60
"""The first classes; a page with more is no look any more."""
SAMPLES_OF_A_CLASS: Final = 8
CELL_PIXELS: Final = 40
MOST_BYTES: Final = 200_000
_QUALITIES: Final = (None, 85, 60, 30)
"""Tried one after the other until the sheet is small enough; None: PNG, in which small pictures are whole."""

_log = logging.getLogger(__name__)


def add_contact_sheet(
    config: IngestConfig, manifest: DatasetManifest, plan: IngestPlan, results: Sequence[ShardResult]
) -> None:
    """Write the sheet beside the splits of a dataset that was just committed; none where samples are no pictures.

    What goes wrong is a warning: the dataset is whole without it.

    Args:
        config: Of the ingestion.
        manifest: Of the training split.
        plan: Whose tasks gave the results.
        results: One per task, in any order.
    """
    paths = DatasetPaths(config.output)
    try:
        strips = _strips(paths, _rows_by_class(plan, results))
        if strips:
            write_pictures(paths.contact_sheet, _encoded(strips), manifest.recipe_sha256)
        else:
            paths.contact_sheet.unlink(missing_ok=True)
    except (OSError, DataError) as error:
        _log.warning("ingest: no pictures of the samples for the page of the dataset: %s", error)


def _rows_by_class(plan: IngestPlan, results: Sequence[ShardResult]) -> Mapping[int, list[tuple[int, int]]]:
    """Return class -> (shard, row in it) of its first samples."""
    found: dict[int, list[tuple[int, int]]] = {label: [] for label in range(min(plan.n_classes, MOST_CLASSES))}
    for shard, labels in enumerate(_labels_of_shards(plan, results)):
        lacking = [label for label, rows in found.items() if len(rows) < SAMPLES_OF_A_CLASS]
        if not lacking:
            break
        for label in lacking:
            rows = np.flatnonzero(labels == label)[: SAMPLES_OF_A_CLASS - len(found[label])]
            found[label] += [(shard, int(row)) for row in rows]
    return found


def _labels_of_shards(plan: IngestPlan, results: Sequence[ShardResult]) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the labels of each shard's samples; a record that was rejected is in no shard."""
    tasks = {task.number: task for task in plan.tasks if task.split == "train"}
    of_train = (result for result in results if result.split == "train" and result.n_samples)
    for result in sorted(of_train, key=lambda result: result.task_number):
        task = tasks[result.task_number]
        is_there = ~np.isin(task.positions, [item.position for item in result.rejected])
        yield np.asarray(task.labels)[is_there]


def _strips(paths: DatasetPaths, rows: Mapping[int, Sequence[tuple[int, int]]]) -> dict[int, Picture]:
    """Return class -> its samples side by side; nothing where samples are no pictures."""
    wanted = sorted((shard, row, label) for label, places in rows.items() for shard, row in places)
    cells: dict[int, list[Picture]] = {}
    with open_dataset(paths.split("train")) as dataset:
        for shard, row, label in wanted:
            picture = to_picture(dataset.read(shard, row, 1)[0][0])
            if picture is None:
                return {}
            cells.setdefault(label, []).append(shrunk(picture, CELL_PIXELS))
    return {label: _side_by_side(pictures) for label, pictures in cells.items()}


def _side_by_side(pictures: Sequence[Picture]) -> Picture:
    """Return pictures of one shape in a row, with gaps of the middle gray between them."""
    height, _, *channels = pictures[0].shape
    gap = np.full((height, max(1, height // 20), *channels), 128, np.uint8)
    parts = [part for picture in pictures for part in (picture, gap)][:-1]
    return np.asarray(cv2.hconcat(parts), np.uint8)


def _encoded(strips: Mapping[int, Picture]) -> dict[int, EncodedPicture]:
    found: dict[int, EncodedPicture] = {}
    for quality in _QUALITIES:
        found = {
            label: encoded(strip) if quality is None else encoded(strip, is_photo=True, quality=quality)
            for label, strip in strips.items()
        }
        if sum(len(picture.content) for picture in found.values()) <= MOST_BYTES:
            break
    return found
