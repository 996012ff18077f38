"""Transform of Caffe's data layers: crop, mirror, subtract the mean, scale. Numpy only, a whole batch at a time.

Source: BVLC Caffe @9b89154, src/caffe/data_transformer.cpp, DataTransformer::Transform.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.data.sample_source import image_shapes
from caffe_import.errors import DataSourceError, NetError
from caffe_import.file_access.allowed_roots import check_named_path
from caffe_import.files.mean_file import read_mean
from caffe_import.net.layer_registry import Phase, Shape
from caffe_import.proto import caffe_pb2

Images = npt.NDArray[Any]
Batch = npt.NDArray[np.float32]

_CACHED_VALUES = 65_536
"""Values converted at once: 256 KiB of float32, which a core's second-level cache holds."""


@dataclass(frozen=True)
class TransformOptions:
    """A resolved ``transform_param``. The arrays are shared: never write the arrays.

    Attributes:
        scale: Multiplies after the mean is subtracted.
        mirror: Flip each image left to right with probability one half, in TEST too.
        crop_size: Side of the square cut out, pixels; 0 keeps the image.
        mean: Mean image (C, H, W) float32 of the size *before* the crop; it is cropped with the image.
        mean_values: One value for all channels or one per channel (BGR); empty for none.
        force_color: Decode compressed images as BGR.
        force_gray: Decode compressed images as gray.
    """

    scale: float = 1.0
    mirror: bool = False
    crop_size: int = 0
    mean: npt.NDArray[np.float32] | None = None
    mean_values: tuple[float, ...] = ()
    force_color: bool = False
    force_gray: bool = False

    @property
    def color(self) -> bool | None:
        """How compressed records are decoded: None as they are, True as BGR, False as gray."""
        if self.force_color:
            return True
        return False if self.force_gray else None

    @property
    def changes_values(self) -> bool:
        """Does more than the order of the values change?"""
        return self.scale != 1.0 or self.mean is not None or bool(self.mean_values) or self.crop_size > 0

    def is_random(self, phase: Phase) -> bool:
        """Return whether two passes over the same images may differ."""
        return self.mirror or (phase == "TRAIN" and self.crop_size > 0)


def transform_options(message: caffe_pb2.TransformationParameter, *, root: Path, layer: str = "") -> TransformOptions:
    """Resolve a ``transform_param``; a mean file is read, relative to ``root``.

    Raises:
        NetError: Fields that exclude each other.
        WeightsError: The mean file cannot be read.
    """
    where = f'layer "{layer}": ' if layer else ""
    if message.mean_file and message.mean_value:
        msg = f'{where}transform_param has mean_file "{message.mean_file}" and mean_value; allowed: one of them'
        raise NetError(msg, layer=layer)
    if message.force_color and message.force_gray:
        msg = f"{where}transform_param has force_color and force_gray; allowed: one of them"
        raise NetError(msg, layer=layer)
    return TransformOptions(
        scale=message.scale,
        mirror=message.mirror,
        crop_size=message.crop_size,
        mean=_mean(root / message.mean_file, where) if message.mean_file else None,
        mean_values=tuple(message.mean_value),
        force_color=message.force_color,
        force_gray=message.force_gray,
    )


def _mean(path: Path, where: str) -> npt.NDArray[np.float32]:
    check_named_path(path, named_by=f"{where}mean_file")
    return read_mean(path)


def transform_batch(
    images: Images,
    options: TransformOptions,
    *,
    phase: Phase,
    rng: np.random.Generator | None = None,
    out: Batch | None = None,
) -> Batch:
    """Return the batch as the net sees it: ``(crop(x) - crop(mean)) * scale``, then mirrored.

    TEST cuts the centre (offsets rounded down), TRAIN cuts each image at a random place. Caffe draws from another
    generator, so random places agree in distribution, not in value.

    Args:
        images: (N, C, H, W), uint8 or float32, BGR; not written. With a crop also (N,) objects, each (C, H, W).
        options: What to do.
        phase: Decides the position of the crop.
        rng: Draws flips, then rows, then columns; needed where ``options.is_random(phase)``.
        out: Float32 (N, C, H', W') to write into, e.g. a slot of a ring; saves fresh memory per batch.

    Returns:
        ``out``, or a fresh array of that shape.

    Raises:
        DataSourceError: The mean does not fit the images.
        NetError: The crop is larger than the images.
    """
    shapes = image_shapes(images)
    channels, height, width = shapes[0] if shapes else images.shape[1:]
    if options.crop_size:
        height = width = options.crop_size
    if out is None:
        out = np.empty((len(images), channels, height, width), np.float32)
    if not shapes:
        return out
    means = {shape: _mean_for(options, shape) for shape in set(shapes)}
    if not options.is_random(phase) and len(means) == 1 and images.dtype != np.object_:
        rows, columns = _offsets(shapes[:1], options, phase, None)
        mean = means[shapes[0]]
        window = _cut(images, rows[0], columns[0], height, width)
        _fill(window, _cut(mean, rows[0], columns[0], height, width), options.scale, out)
        return out
    if rng is None and options.is_random(phase):
        msg = f"a random transform in phase {phase} needs rng"
        raise ValueError(msg)
    flips = np.zeros(len(images), bool)
    if rng is not None and options.mirror:
        flips = rng.integers(0, 2, len(images)).astype(bool)
    rows, columns = _offsets(shapes, options, phase, rng)
    scratch = np.empty((1, *out.shape[1:]), np.float32)
    for i, (image, row, column) in enumerate(zip(images, rows, columns, strict=True)):
        mean = means[shapes[i]]
        window = _cut(image[np.newaxis], row, column, height, width)
        # The mean belongs to the place the pixels come from, so the image is mirrored after it is subtracted.
        target = scratch if flips[i] else out[i : i + 1]
        _fill(window, _cut(mean, row, column, height, width), options.scale, target)
        if flips[i]:
            out[i] = scratch[0, :, :, ::-1]
    return out


def cut_to_one_size(images: Images, crop_size: int) -> Images:
    """Return images of several sizes, (N,) objects, cut to their smallest height and width, (N, C, H, W).

    The centre of ``crop_size`` rows and columns has the same pixels in the cut as in the whole image.
    """
    smallest = np.array([shape[1:] for shape in image_shapes(images)]).min(axis=0).tolist()
    cuts = []
    for image in images:
        row, column = (
            (extent - crop_size) // 2 - (least - crop_size) // 2
            for extent, least in zip(image.shape[1:], smallest, strict=True)
        )
        cuts.append(_cut(image, row, column, *smallest))
    return np.stack(cuts)


def _offsets(
    shapes: Sequence[Shape], options: TransformOptions, phase: Phase, rng: np.random.Generator | None
) -> tuple[list[int], list[int]]:
    """Return the upper left corner of each image's window; the centre's without ``rng``."""
    crop = options.crop_size
    if not crop:
        return [0] * len(shapes), [0] * len(shapes)
    room = np.array([shape[1:] for shape in shapes]) - crop
    if room.min() < 0:
        _, height, width = shapes[int(room.min(axis=1).argmin())]
        msg = f"crop_size={crop} is larger than the image, {height} x {width} pixels"
        raise NetError(msg)
    if phase == "TEST" or rng is None:
        return (room[:, 0] // 2).tolist(), (room[:, 1] // 2).tolist()
    return rng.integers(0, room[:, 0] + 1).tolist(), rng.integers(0, room[:, 1] + 1).tolist()


def mean_fault(options: TransformOptions, shape: Shape) -> str:
    """Return why the mean does not fit images of a shape (C, H, W); empty if the mean fits."""
    if options.mean is not None and options.mean.shape != shape:
        return (
            f"mean_file holds shape {options.mean.shape}, the images have {shape}; allowed: equal shapes, or mean_value"
            " in place of mean_file"
        )
    if options.mean_values and len(options.mean_values) not in (1, shape[0]):
        return f"{len(options.mean_values)} mean_value for images of {shape[0]} channels; allowed: 1 or {shape[0]}"
    return ""


def _mean_for(options: TransformOptions, shape: Shape) -> npt.NDArray[np.float32] | None:
    """Return what is subtracted, (C, H, W) or (C, 1, 1), or None."""
    if fault := mean_fault(options, shape):
        raise DataSourceError(fault)
    if options.mean is not None or not options.mean_values:
        return options.mean
    values = np.asarray(options.mean_values, np.float32)
    return np.broadcast_to(values, (shape[0],)).reshape(shape[0], 1, 1)


def _cut(images: Any, row: int, column: int, height: int, width: int) -> Any:
    """Return the window of images or of a mean; one value per channel needs no cut."""
    if images is None or images.shape[-2:] == (1, 1):
        return images
    return images[..., row : row + height, column : column + width]


def _fill(images: Images, mean: Batch | None, scale: float, out: Batch) -> None:
    """Write ``(images - mean) * scale``, a few images at a time, to keep the images in the cache between the steps."""
    n_at_once = max(1, _CACHED_VALUES // max(1, out[0].size))
    for start in range(0, len(images), n_at_once):
        target = out[start : start + n_at_once]
        target[...] = images[start : start + n_at_once]
        if mean is not None:
            target -= mean
        if scale != 1.0:
            target *= np.float32(scale)
