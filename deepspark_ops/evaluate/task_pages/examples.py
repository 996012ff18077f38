"""Samples of a report run through the net once more: what went in, what came out, as numbers and as pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

from caffe_import.data.sample_source import join_columns
from deepspark_ops.config.shared_options.task import TaskName
from deepspark_ops.evaluate.samples import Batch, Samples
from deepspark_ops.evaluate.tasks.answers import targets_of
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.tasks.embedding import EmbeddingMetrics
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport
from deepspark_ops.evaluate.tasks.reconstruction import ReconstructionMetrics
from deepspark_ops.evaluate.tasks.regression import RegressionMetrics
from deepspark_ops.evaluate.tasks.segmentation import SegmentationMetrics, predicted_classes
from deepspark_ops.shards.thumbnail import Picture, to_picture

Array = npt.NDArray[Any]
MOST_SHOWN: Final = 12
_PAIR: Final = 2
_OVER: Final = 0.45
"""Share of the colour in an overlay."""
_IGNORED: Final = (128, 128, 128)


@dataclass(frozen=True)
class Example:
    """One sample.

    Attributes:
        index: Its position.
        answers: Of each output, one sample's.
        target: What they should be.
        pictures: Name and picture, left to right; empty where the sample is no picture.
    """

    index: int
    answers: tuple[Array, ...]
    target: Array
    pictures: tuple[tuple[str, Picture], ...]


def wanted_examples(metrics: MetricsReport) -> list[int]:
    """Return the positions of the samples in a report; empty for a classification, which shows mistakes."""
    if isinstance(metrics, ReconstructionMetrics):
        shown_samples = [*metrics.figures.worst[:MOST_SHOWN], *metrics.figures.best[:MOST_SHOWN]]
    elif isinstance(metrics, RegressionMetrics | SegmentationMetrics):
        shown_samples = [*metrics.figures.worst[:MOST_SHOWN]]
    elif isinstance(metrics, EmbeddingMetrics):
        shown_samples = [*metrics.worst[:MOST_SHOWN]]
    else:
        shown_samples = []
    return list(dict.fromkeys(sample.index for sample in shown_samples))


def make_examples(
    samples: Samples,
    chosen: ChosenTask,
    answers: Callable[[Mapping[str, npt.NDArray[np.float32]]], Mapping[str, Array]],
    indices: Sequence[int],
) -> dict[int, Example]:
    """Run samples through the net again, in batches of the net's size.

    ``answers`` takes a full batch; it returns outputs after their activation, and targets that the net computes.

    Raises:
        DataError: A shard is missing or damaged.
    """
    examples: dict[int, Example] = {}
    for read in _chunks(samples, indices):
        chunk = [part.start for part in read]
        n_rows = len(next(iter(read[0].feeds.values())))
        rows = [*read, *[read[-1]] * (n_rows - len(read))]
        feeds = {name: np.concatenate([row.feeds[name][:1] for row in rows]) for name in read[0].feeds}
        stored = {name: join_columns([part.stored[name] for part in read]) for name in read[0].stored}
        values = answers(feeds)
        targets = targets_of(chosen, values, stored, feeds, len(chunk))
        first = next(iter(stored))
        for at, index in enumerate(chunk):
            outputs = tuple(values[name][at] for name in chosen.outputs)
            pictures = _pictures(chosen, stored[first][at], feeds[first][at], outputs, targets[at])
            examples[index] = Example(index, outputs, targets[at], tuple(pictures))
    return examples


def _chunks(samples: Samples, indices: Sequence[int]) -> Iterator[list[Batch]]:
    """Yield the samples in batches of the net's size, or one at a time if their sizes differ."""
    for start in range(0, len(indices), samples.batch_size):
        read = [samples.read(index, 1) for index in indices[start : start + samples.batch_size]]
        shapes = {next(iter(part.feeds.values())).shape for part in read}
        is_of_one_size = len(shapes) == 1 and shapes.pop()[0] == samples.batch_size
        yield from [read] if is_of_one_size else ([part] for part in read)


def _pictures(
    chosen: ChosenTask, stored: Array, fed: Array, outputs: tuple[Array, ...], target: Array
) -> list[tuple[str, Picture]]:
    if chosen.task == "reconstruction":
        return _given_and_given_back(fed, outputs[0], target)
    if chosen.task == "segmentation" and not chosen.is_sequence:
        return _overlays(chosen, fed, outputs[0], target)
    return stored_pictures(chosen.task, stored)


def stored_pictures(task: TaskName, stored: Array) -> list[tuple[str, Picture]]:
    """Return names and pictures of a stored sample (C, H, W), two of a pair; empty if the sample is no picture."""
    if task == "embedding" and stored.ndim == 3 and len(stored) % _PAIR == 0:
        half = len(stored) // _PAIR
        sides = [("first", to_picture(stored[:half])), ("second", to_picture(stored[half:]))]
    else:
        sides = [("sample", to_picture(stored))]
    return [(name, picture) for name, picture in sides if picture is not None]


def _given_and_given_back(fed: Array, output: Array, target: Array) -> list[tuple[str, Picture]]:
    """Return input and reconstruction in the grey scale of the input."""
    shape = fed.shape if prod(fed.shape) == target.size else target.shape
    low, high = float(target.min()), float(target.max())
    if len(shape) != 3:
        return []
    pictures = []
    for name, values in (("given", target), ("given back", output)):
        scaled = (np.asarray(values, np.float64).reshape(shape) - low) * (255.0 / max(high - low, 1e-12))
        picture = to_picture(np.rint(np.clip(scaled, 0, 255)).astype(np.uint8))
        if picture is not None:
            pictures.append((name, picture))
    return pictures


def _overlays(chosen: ChosenTask, fed: Array, scores: Array, target: Array) -> list[tuple[str, Picture]]:
    """Return the picture under the true classes in colours, and under the predicted classes."""
    below = to_picture(fed)
    if below is None or scores.ndim != 3:
        return []
    extents = scores.shape[1:]
    truth = target.reshape(extents).astype(np.int64)
    if below.shape[:2] != extents:
        below = np.asarray(cv2.resize(below, extents[::-1], interpolation=cv2.INTER_AREA), np.uint8)
    if below.ndim == 2:
        below = np.repeat(below[:, :, None], 3, axis=2)
    maps = (("true classes", truth), ("what the net found", predicted_classes(scores[None])[0]))
    return [("sample", below), *((name, _over(below, labels, truth, chosen)) for name, labels in maps)]


def _over(below: Picture, labels: Array, truth: Array, chosen: ChosenTask) -> Picture:
    colours = class_colours(chosen.n_classes)
    painted = colours[np.clip(labels, 0, chosen.n_classes - 1)].astype(np.float64)
    share = np.where(labels > 0, _OVER, 0.0)[..., None]  # class 0 is most often the background
    if chosen.ignore_label is not None:
        ignored = truth == chosen.ignore_label
        painted[ignored], share[ignored] = _IGNORED, _OVER
    mixed: Picture = np.rint(below * (1 - share) + painted * share).astype(np.uint8)
    return mixed


def class_colours(n_classes: int) -> npt.NDArray[np.uint8]:
    """Return a colour for each class, (n_classes, 3), blue first: hues as far apart as can be."""
    hues = (np.arange(n_classes) * 179 // max(1, n_classes)).astype(np.uint8)
    colours = np.stack([hues, np.full(n_classes, 200, np.uint8), np.full(n_classes, 230, np.uint8)], axis=1)
    return np.array(cv2.cvtColor(colours[None], cv2.COLOR_HSV2BGR), np.uint8).reshape(-1, 3)
