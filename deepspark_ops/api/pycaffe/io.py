"""``caffe.io``: loading and preparing images as in Caffe's examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from caffe_import.file_access.regular_file import IMAGE_BYTES, regular_bytes
from caffe_import.proto import caffe_pb2
from deepspark_ops.api.results.result_folder import StrPath, absolute_local_path
from deepspark_ops.errors import ConfigError

Floats = npt.NDArray[np.float32]
_ORDERS = {0: cv2.INTER_NEAREST, 1: cv2.INTER_LINEAR, 3: cv2.INTER_CUBIC}


def load_image(filename: StrPath, color: bool = True) -> Floats:
    """Return an image, (H, W, 3) RGB or (H, W, 1) gray, float32 from 0 to 1.

    Raises:
        ConfigError: There is no such file, or it is no image.
    """
    try:
        content = regular_bytes(absolute_local_path(filename), max_bytes=IMAGE_BYTES)
    except OSError as error:
        msg = f"filename={filename}: {error.strerror or error}; allowed: an image file"
        raise ConfigError(msg) from None
    flag = cv2.IMREAD_COLOR if color else cv2.IMREAD_GRAYSCALE
    pixels = cv2.imdecode(np.frombuffer(content, np.uint8), flag) if content else None
    if pixels is None:
        msg = f"filename={filename}: no image that OpenCV reads; allowed: JPEG, PNG, BMP and the like"
        raise ConfigError(msg)
    image = pixels[..., ::-1] if color else pixels[..., None]
    return np.asarray(image / 255.0, np.float32)


def resize_image(im: npt.NDArray[Any], new_dims: Sequence[int], interp_order: int = 1) -> Floats:
    """Return an image (H, W, C) in ``new_dims`` (height, width), by nearest (0), linear (1) or cubic (3) values."""
    if interp_order not in _ORDERS:
        msg = f"interp_order={interp_order}: allowed: {', '.join(map(str, _ORDERS))}"
        raise ConfigError(msg)
    height, width = new_dims
    resized = cv2.resize(np.asarray(im, np.float32), (width, height), interpolation=_ORDERS[interp_order])
    return np.asarray(resized.reshape(height, width, -1), np.float32)


def oversample(images: Sequence[npt.NDArray[Any]], crop_dims: Sequence[int]) -> Floats:
    """Return ten crops of each image: four corners and the center, and these mirrored; (10 n, height, width, C)."""
    rows, columns = (int(extent) for extent in crop_dims)
    crops = []
    for image in images:
        height, width = image.shape[:2]
        bottom, right = height - rows, width - columns
        corners = [(0, 0), (0, right), (bottom, 0), (bottom, right), (bottom // 2, right // 2)]
        cuts = [image[top : top + rows, start : start + columns] for top, start in corners]
        crops += [*cuts, *(cut[:, ::-1] for cut in cuts)]
    return np.stack(crops).astype(np.float32)


class Transformer:
    """Prepares images as a net's inputs, in Caffe's order: resize, transpose, channel swap, raw scale, mean, scale."""

    def __init__(self, inputs: Mapping[str, Sequence[int]]) -> None:
        """Take the inputs' shapes, (N, C, H, W), by name."""
        self.inputs = {name: tuple(shape) for name, shape in inputs.items()}
        self.transpose: dict[str, Sequence[int]] = {}
        self.channel_swap: dict[str, Sequence[int]] = {}
        self.raw_scale: dict[str, float] = {}
        self.mean: dict[str, Floats] = {}
        self.input_scale: dict[str, float] = {}

    def set_transpose(self, in_: str, order: Sequence[int]) -> None:
        """Say how the axes of an image become those of the input: (2, 0, 1) for (H, W, C)."""
        self._require(in_)
        if sorted(order) != list(range(len(self.inputs[in_]) - 1)):
            msg = f"order={tuple(order)}: allowed: each of {tuple(range(len(self.inputs[in_]) - 1))} once"
            raise ConfigError(msg)
        self.transpose[in_] = tuple(order)

    def set_channel_swap(self, in_: str, order: Sequence[int]) -> None:
        """Say the order of the channels: (2, 1, 0) makes BGR of RGB."""
        self._require(in_)
        if sorted(order) != list(range(self.inputs[in_][1])):
            msg = f"order={tuple(order)}: allowed: each of the {self.inputs[in_][1]} channels once"
            raise ConfigError(msg)
        self.channel_swap[in_] = tuple(order)

    def set_raw_scale(self, in_: str, scale: float) -> None:
        """Say what values are multiplied by before the mean: 255 for images from 0 to 1."""
        self._require(in_)
        self.raw_scale[in_] = scale

    def set_input_scale(self, in_: str, scale: float) -> None:
        """Say what values are multiplied by after the mean."""
        self._require(in_)
        self.input_scale[in_] = scale

    def set_mean(self, in_: str, mean: npt.NDArray[Any]) -> None:
        """Say what is subtracted: a value per channel, or an image (C, H, W).

        Raises:
            ConfigError: It is neither.
        """
        self._require(in_)
        shape = self.inputs[in_][1:]
        values = np.asarray(mean, np.float32)
        if values.ndim == 1 and values.shape[0] in (1, shape[0]):
            self.mean[in_] = values[:, None, None]
        elif values.shape == shape:
            self.mean[in_] = values
        else:
            msg = f"mean of shape {values.shape}: allowed: ({shape[0]},) or {shape}"
            raise ConfigError(msg)

    def preprocess(self, in_: str, data: npt.NDArray[Any]) -> Floats:
        """Return an image, (H, W, C), as the net takes it, (C, H, W)."""
        self._require(in_)
        image = np.asarray(data, np.float32)
        size = self.inputs[in_][2:]
        if tuple(image.shape[:2]) != tuple(size):
            image = resize_image(image, size)
        if in_ in self.transpose:
            image = image.transpose(self.transpose[in_])
        if in_ in self.channel_swap:
            image = image[list(self.channel_swap[in_])]
        image = image * np.float32(self.raw_scale.get(in_, 1.0))
        image = image - self.mean.get(in_, np.float32(0.0))
        return np.asarray(image * np.float32(self.input_scale.get(in_, 1.0)), np.float32)

    def deprocess(self, in_: str, data: npt.NDArray[Any]) -> Floats:
        """Return the image of an input of the net; a resize is not undone."""
        self._require(in_)
        image = np.asarray(data, np.float32).squeeze() / np.float32(self.input_scale.get(in_, 1.0))
        image = image + self.mean.get(in_, np.float32(0.0))
        image = image / np.float32(self.raw_scale.get(in_, 1.0))
        if in_ in self.channel_swap:
            image = image[np.argsort(self.channel_swap[in_])]
        return np.asarray(
            image.transpose(np.argsort(self.transpose[in_])) if in_ in self.transpose else image, np.float32
        )

    def _require(self, in_: str) -> None:
        if in_ not in self.inputs:
            msg = f"{in_!r}: no such input; allowed: {', '.join(self.inputs)}"
            raise ConfigError(msg)


def blobproto_to_array(blob: caffe_pb2.BlobProto, return_diff: bool = False) -> Floats:
    """Return the values of a BlobProto, such as a mean image's, in the blob's shape."""
    values = np.array(blob.diff if return_diff else blob.data, np.float32)
    shape = tuple(blob.shape.dim) if blob.HasField("shape") else (blob.num, blob.channels, blob.height, blob.width)
    return values.reshape(shape)


def array_to_blobproto(arr: npt.NDArray[Any]) -> caffe_pb2.BlobProto:
    """Return a BlobProto with the values of an array."""
    blob = caffe_pb2.BlobProto(data=np.asarray(arr, np.float32).reshape(-1).tolist())
    blob.shape.dim.extend(arr.shape)
    return blob
