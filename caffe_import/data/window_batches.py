"""Batches of a WindowData layer: windows drawn at random, cut out, warped to a square, mirrored, less the mean.

Source: BVLC Caffe @9b89154, src/caffe/layers/window_data_layer.cpp, ``load_batch``. Caffe draws from another generator,
so the windows agree in distribution only.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from math import floor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from caffe_import.data.transform import TransformOptions, transform_options
from caffe_import.data.window_file import Window, WindowFile, read_window_file
from caffe_import.errors import DataSourceError, NetError
from caffe_import.file_access.allowed_roots import check_named_path
from caffe_import.file_access.regular_file import IMAGE_BYTES, regular_bytes
from caffe_import.file_access.relative_paths import listed_path
from caffe_import.files.datum import Image, decode_image, resize_image
from caffe_import.net.layer_registry import Shape
from caffe_import.proto import caffe_pb2

_KEPT_BYTES = 256 * 2**20
"""Decoded images kept per layer; Caffe's ``cache_images`` keeps the compressed files instead."""


@dataclass
class WindowBatches:
    """The batches of one WindowData layer. One thread at a time. Made by ``open_windows``.

    Attributes:
        windows: The window file.
        folder: What the images' paths are relative to.
        options: crop_size, mirror and mean; ``scale`` of the layer's own ``window_data_param``.
        batch_size: Windows of one batch.
        n_foreground: How many of them, the last ones, are foreground.
        context_pad: Pixels of context around a warped window.
        is_square: Is a window widened to a square first (crop_mode "square"), instead of warped as it is?
        name: The layer's, for messages.
    """

    windows: WindowFile
    folder: str
    options: TransformOptions
    batch_size: int
    n_foreground: int
    context_pad: int
    is_square: bool
    name: str
    _images: OrderedDict[int, Image] = field(default_factory=OrderedDict)

    def sample_shapes(self) -> tuple[Shape, ...]:
        """Return the shape of a window, (3, crop, crop), and of its label."""
        return (3, self.options.crop_size, self.options.crop_size), ()

    def summary(self) -> str:
        """Return a line on the windows to draw from."""
        windows = self.windows
        n_background = self.batch_size - self.n_foreground
        return (
            f"draws {self.n_foreground} of {len(windows.foreground):,} foreground and {n_background} of "
            f"{len(windows.background):,} background windows a batch, in {len(windows.images):,} images"
        )

    def draw(self, rng: np.random.Generator) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return a batch: windows float32 (batch, 3, crop, crop), background first, and labels (batch,).

        Raises:
            DataSourceError: An image is missing or damaged, or a window is outside it.
        """
        data = np.zeros((self.batch_size, *self.sample_shapes()[0]), np.float32)
        labels = np.zeros(self.batch_size, np.float32)
        for item in range(self.batch_size):
            is_foreground = item >= self.batch_size - self.n_foreground
            pool = self.windows.foreground if is_foreground else self.windows.background
            window = pool[int(rng.integers(len(pool)))]
            mirrored = self.options.mirror and bool(rng.integers(2))
            self.place(window, mirrored=mirrored, out=data[item])
            labels[item] = window.label
        return data, labels

    def place(self, window: Window, *, mirrored: bool, out: npt.NDArray[np.float32]) -> None:
        """Write one warped window into ``out``, zeros of shape (3, crop, crop); pixels outside the image stay 0."""
        image, crop = self._image(window.image), self.options.crop_size
        cut = _Cut.of(window, image.shape[-2:], self)
        region = image[:, cut.rows, cut.columns]
        cut_shape = (cut.rows.stop - cut.rows.start, cut.columns.stop - cut.columns.start)
        if not region.size or region.shape[1:] != cut_shape:
            msg = f'layer "{self.name}": window {window} is outside its image {self.windows.shown(window.image)}'
            raise DataSourceError(msg)
        # Rounding may make them a pixel too long.
        pad_left = cut.pad_right if mirrored else cut.pad_left
        height, width = min(cut.height, crop - cut.pad_top), min(cut.width, crop - pad_left)
        if height < 1 or width < 1:
            return
        pixels = resize_image(region, height, width)
        if mirrored:
            pixels = pixels[:, :, ::-1]
        target = out[:, cut.pad_top : cut.pad_top + height, pad_left : pad_left + width]
        target[...] = pixels
        target -= self._mean(cut.pad_top, pad_left, height, width)
        target *= np.float32(self.options.scale)

    def _mean(self, top: int, first_column: int, height: int, width: int) -> npt.NDArray[np.float32] | np.float32:
        if self.options.mean is not None:
            # Caffe takes the columns' offset for the rows too.
            offset = (self.options.mean.shape[-1] - self.options.crop_size) // 2
            return self.options.mean[
                :, offset + top : offset + top + height, offset + first_column : offset + first_column + width
            ]
        if self.options.mean_values:
            return np.broadcast_to(np.array(self.options.mean_values, np.float32), (3,)).reshape(3, 1, 1)
        return np.float32(0)

    def check_first_image(self) -> None:
        """Decode the first image: a wrong root_folder is found before anything is trained.

        Raises:
            DataSourceError: It is missing or damaged.
        """
        self._image(0)

    def _image(self, index: int) -> Image:
        if index in self._images:
            self._images.move_to_end(index)
            return self._images[index]
        path = listed_path(self.folder, self.windows.images[index])
        named_by = f'the window file of layer "{self.name}"'
        check_named_path(path, named_by=named_by, is_quoted=self.windows.is_quoted)
        shown = path if self.windows.is_quoted else self.windows.shown(index)
        try:
            compressed = regular_bytes(path, max_bytes=IMAGE_BYTES)
        except OSError as error:
            msg = f'layer "{self.name}": image {shown} of the window file: {error.strerror or error}'
            raise DataSourceError(msg) from error
        image = decode_image(compressed, color=True, where=shown)
        self._images[index] = image
        while len(self._images) > 1 and sum(cached.nbytes for cached in self._images.values()) > _KEPT_BYTES:
            self._images.popitem(last=False)
        return image


def _round(number: np.float32) -> int:
    """Return C's round: halves go away from zero."""
    value = float(number)
    return floor(value + 0.5) if value >= 0 else -floor(-value + 0.5)


@dataclass(frozen=True)
class _Cut:
    """Pixels to cut out, the size after warping, and the empty borders around the pixels."""

    rows: slice
    columns: slice
    height: int
    width: int
    pad_top: int = 0
    pad_left: int = 0
    pad_right: int = 0

    @classmethod
    def of(cls, window: Window, image: tuple[int, int], layer: WindowBatches) -> _Cut:
        crop = layer.options.crop_size
        if not layer.context_pad and not layer.is_square:
            return cls(slice(window.y1, window.y2 + 1), slice(window.x1, window.x2 + 1), crop, crop)
        # In float32, as Caffe: numbers near a half are rounded to the same pixel.
        scale = np.float32(crop) / np.float32(crop - 2 * layer.context_pad)
        half_height = np.float32(window.y2 - window.y1 + 1) / np.float32(2)
        half_width = np.float32(window.x2 - window.x1 + 1) / np.float32(2)
        center_x, center_y = np.float32(window.x1) + half_width, np.float32(window.y1) + half_height
        if layer.is_square:
            half_height = half_width = max(half_height, half_width)
        rows = _Span.around(center_y, half_height * scale, image[0], crop)
        columns = _Span.around(center_x, half_width * scale, image[1], crop)
        return cls(
            slice(rows.start, rows.stop),
            slice(columns.start, columns.stop),
            rows.extent,
            columns.extent,
            rows.pad_before,
            columns.pad_before,
            columns.pad_after,
        )


@dataclass(frozen=True)
class _Span:
    """An axis of a widened window: the part inside the image, warped to ``extent``, and the borders beyond."""

    start: int
    stop: int
    extent: int
    pad_before: int
    pad_after: int

    @classmethod
    def around(cls, center: np.float32, half: np.float32, image: int, crop: int) -> _Span:
        first, last = _round(center - half), _round(center + half)
        n_before, n_after = max(0, -first), max(0, last - image + 1)
        scale = np.float32(crop) / np.float32(last - first + 1)
        start, stop = first + n_before, last - n_after + 1
        extent, pad_before, pad_after = (_round(np.float32(n) * scale) for n in (stop - start, n_before, n_after))
        return cls(start, stop, extent, pad_before, pad_after)


def open_windows(layer: caffe_pb2.LayerParameter, root: Path) -> WindowBatches:
    """Return the batches of a WindowData layer; source, root_folder and mean_file are relative to ``root``.

    Raises:
        NetError: Options that do not go together.
        DataSourceError: The window file is missing or broken, or has no windows of a kind that batches need.
        WeightsError: The mean file cannot be read.
    """
    param, where = layer.window_data_param, f'layer "{layer.name}" ({layer.type})'
    if not param.source:
        msg = f"{where}: source is missing"
        raise NetError(msg, layer=layer.name)
    crop = layer.transform_param.crop_size
    if 2 * param.context_pad >= crop:
        msg = (
            f"{where}: context_pad={param.context_pad} leaves nothing of crop_size={crop}; allowed: below {crop / 2:g}"
        )
        raise NetError(msg, layer=layer.name)
    windows = read_window_file(root / param.source, fg_threshold=param.fg_threshold, bg_threshold=param.bg_threshold)
    n_foreground = int(np.float32(param.batch_size) * np.float32(param.fg_fraction))
    options = transform_options(layer.transform_param, root=root, layer=layer.name)
    batches = WindowBatches(
        windows=windows,
        folder=param.root_folder,
        options=TransformOptions(param.scale, options.mirror, crop, options.mean, options.mean_values),
        batch_size=param.batch_size,
        n_foreground=n_foreground,
        context_pad=param.context_pad,
        is_square=param.crop_mode == "square",
        name=layer.name,
    )
    for kind, n_needed, windows_of_kind in (
        ("foreground", n_foreground, windows.foreground),
        ("background", param.batch_size - n_foreground, windows.background),
    ):
        if n_needed and not windows_of_kind:
            msg = (
                f"{where}: {root / param.source} has no {kind} window, a batch needs {n_needed}; "
                "look at fg_threshold, bg_threshold and fg_fraction"
            )
            raise DataSourceError(msg)
    _check_mean(batches, where)
    batches.check_first_image()
    return batches


def _check_mean(batches: WindowBatches, where: str) -> None:
    mean, crop = batches.options.mean, batches.options.crop_size
    if mean is None:
        return
    offset = (mean.shape[-1] - crop) // 2
    if mean.shape[0] != 3 or offset < 0 or offset + crop > mean.shape[-2]:
        msg = f"{where}: mean_file holds shape {mean.shape}; windows need 3 channels and at least {crop} x {crop}"
        raise DataSourceError(msg)
