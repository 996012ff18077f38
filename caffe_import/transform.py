"""What Caffe's data layers do to pixels: crop, mirror, subtract the mean, scale. Numpy only, a whole batch at a time.

Source: BVLC Caffe @9b89154, src/caffe/data_transformer.cpp, DataTransformer::Transform.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.errors import DataSourceError, NetError
from caffe_import.layer_registry import Phase, Shape
from caffe_import.mean_file import read_mean
from caffe_import.proto import caffe_pb2

Images = npt.NDArray[Any]


@dataclass(frozen=True)
class TransformOptions:
    """A resolved ``transform_param``. The arrays are shared: read them, never write them.

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
        mean=read_mean(root / message.mean_file) if message.mean_file else None,
        mean_values=tuple(message.mean_value),
        force_color=message.force_color,
        force_gray=message.force_gray,
    )


def transformed_shape(shape: Shape, message: caffe_pb2.TransformationParameter, *, layer: str = "") -> Shape:
    """Return the (C, H, W) of a sample after its crop.

    Raises:
        NetError: The crop is larger than the image.
    """
    if not message.crop_size:
        return shape
    _check_crop(shape, message.crop_size, f'layer "{layer}": ' if layer else "")
    return (*shape[:-2], message.crop_size, message.crop_size)


def transform_batch(
    images: Images, options: TransformOptions, *, phase: Phase, rng: np.random.Generator | None = None
) -> npt.NDArray[np.float32]:
    """Return the batch as the net sees it: ``(crop(x) - crop(mean)) * scale``, then mirrored.

    TEST cuts the centre (offsets rounded down), TRAIN cuts each image at its own random place. Caffe draws from its
    own generator, so random places agree in distribution, not in value.

    Args:
        images: (N, C, H, W), uint8 or float32, BGR; not written.
        options: What to do.
        phase: Decides where the crop lies.
        rng: Draws offsets and flips; needed where ``options.is_random(phase)``.

    Returns:
        A fresh float32 array (N, C, H', W').

    Raises:
        DataSourceError: The mean does not fit the images.
        NetError: The crop is larger than the images.
    """
    n, channels, height, width = images.shape
    mean = _mean_for(options, (channels, height, width))
    crop = options.crop_size
    if not options.is_random(phase):
        if crop:
            _check_crop((channels, height, width), crop, "")
            images = _window(images, (height - crop) // 2, (width - crop) // 2, crop)
            mean = _window(mean, (height - crop) // 2, (width - crop) // 2, crop)
        out = np.empty(images.shape, np.float32)
        _subtract_and_scale(images, mean, options.scale, out)
        return out
    if rng is None:
        msg = f"a random transform in phase {phase} needs rng"
        raise ValueError(msg)
    flips = rng.integers(0, 2, n).astype(bool) if options.mirror else np.zeros(n, bool)
    rows, columns = _offsets(n, (channels, height, width), crop, phase, rng)
    out_height, out_width = (crop, crop) if crop else (height, width)
    out = np.empty((n, channels, out_height, out_width), np.float32)
    for image, target, flip, row, column in zip(images, out, flips, rows, columns, strict=True):
        window = image[:, row : row + out_height, column : column + out_width]
        # Writing backwards mirrors the result, so that the mean belongs to the place the pixels came from.
        _subtract_and_scale(
            window,
            _cut(mean, int(row), int(column), out_height, out_width),
            options.scale,
            target[:, :, ::-1] if flip else target,
        )
    return out


def _offsets(
    n: int, shape: tuple[int, int, int], crop: int, phase: Phase, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    _, height, width = shape
    if not crop:
        return np.zeros(n, np.int64), np.zeros(n, np.int64)
    _check_crop(shape, crop, "")
    if phase == "TEST":
        return np.full(n, (height - crop) // 2), np.full(n, (width - crop) // 2)
    return rng.integers(0, height - crop + 1, n), rng.integers(0, width - crop + 1, n)


def _check_crop(shape: Shape, crop: int, where: str) -> None:
    if crop > min(shape[-2:]):
        msg = f"{where}crop_size={crop} is larger than the image, {shape[-2]} x {shape[-1]} pixels"
        raise NetError(msg)


def _mean_for(options: TransformOptions, shape: tuple[int, int, int]) -> npt.NDArray[np.float32] | None:
    """Return what is subtracted, (C, H, W) or (C, 1, 1), or None."""
    if options.mean is not None:
        if options.mean.shape != shape:
            msg = f"mean_file holds shape {options.mean.shape}, the images have {shape}; allowed: equal shapes"
            raise DataSourceError(msg)
        return options.mean
    if not options.mean_values:
        return None
    if len(options.mean_values) not in (1, shape[0]):
        msg = f"{len(options.mean_values)} mean_value for images of {shape[0]} channels; allowed: 1 or {shape[0]}"
        raise DataSourceError(msg)
    values = np.asarray(options.mean_values, np.float32)
    return np.broadcast_to(values, (shape[0],)).reshape(shape[0], 1, 1)


def _cut(
    mean: npt.NDArray[np.float32] | None, row: int, column: int, height: int, width: int
) -> npt.NDArray[np.float32] | None:
    if mean is None or mean.shape[-2:] == (1, 1):
        return mean
    return mean[..., row : row + height, column : column + width]


def _window(images: Any, row: int, column: int, crop: int) -> Any:
    return _cut(images, row, column, crop, crop)


def _subtract_and_scale(
    images: Images, mean: npt.NDArray[np.float32] | None, scale: float, out: npt.NDArray[np.float32]
) -> None:
    if mean is None:
        np.multiply(images, np.float32(scale), out=out)
        return
    np.subtract(images, mean, out=out)
    if scale != 1.0:
        out *= np.float32(scale)
