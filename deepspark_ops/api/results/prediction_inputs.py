"""Inputs of a person in a notebook, as files for stage predict."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt

from deepspark_ops.api.results.dataset import Samples
from deepspark_ops.api.results.frames import load_pandas
from deepspark_ops.api.results.result_folder import absolute_path
from deepspark_ops.errors import ConfigError
from deepspark_ops.stores.store_path import DataPath, StorePath

_ALLOWED: Final = (
    "allowed: a path or several, a DataFrame, pixels (n, H, W, 3) or (n, H, W) of uint8, or numbers (n, D) of floats"
)
_ANYWHERE: Final = {"allowed_root": "/"}
"""The caller holds the paths of images, so images may lie anywhere."""


def prediction_input(images: Any, scratch: Path) -> Mapping[str, Any]:
    """Return the options ``input`` and what says how it is read; data in memory are written below ``scratch``.

    Raises:
        ConfigError: It is none of what is allowed.
    """
    if isinstance(images, str | os.PathLike | StorePath):
        return {"input": absolute_path(images)}
    if isinstance(images, np.ndarray):
        return _array_input(images, scratch)
    if isinstance(images, Samples):  # ingestion has scaled their pixels already
        return {**_array_input(images.images, scratch), "max_pixel": 255}
    if hasattr(images, "to_parquet") and hasattr(images, "columns"):
        return {**_written(images, scratch), **_ANYWHERE, "root_folder": Path.cwd()}
    if isinstance(images, list | tuple) and images:
        if all(isinstance(item, str | os.PathLike | StorePath) for item in images):
            return _path_input([absolute_path(item) for item in images], scratch)
        return _array_input(_as_array(images), scratch)
    msg = f"images={_shown(images)}: {_ALLOWED}"
    raise ConfigError(msg)


def _path_input(paths: list[DataPath], scratch: Path) -> Mapping[str, Any]:
    texts = [str(path) for path in paths]
    options = _written(load_pandas("bundle.predict").DataFrame({"path": texts}), scratch)
    return {**options, **_ANYWHERE, "image_column": "path", "id_column": "path"}


def _as_array(items: Any) -> npt.NDArray[Any]:
    try:
        return np.stack([np.asarray(item) for item in items])
    except ValueError as error:
        msg = f"images={_shown(items)}: arrays of different shapes ({error}); {_ALLOWED}"
        raise ConfigError(msg) from None


def _array_input(array: npt.NDArray[Any], scratch: Path) -> Mapping[str, Any]:
    pandas = load_pandas("bundle.predict")
    if array.ndim == 2 and np.issubdtype(array.dtype, np.number):
        rows = [row.tolist() for row in array.astype(np.float64)]
        return {**_written(pandas.DataFrame({"features": rows}), scratch), "feature_columns": "features"}
    is_picture = array.ndim == 3 or (array.ndim == 4 and array.shape[-1] in (1, 3))
    if array.dtype != np.uint8 or not is_picture:
        msg = f"images={_shown(array)}: {_ALLOWED}"
        raise ConfigError(msg)
    pictures = [_png(picture) for picture in array]
    return {**_written(pandas.DataFrame({"image": pictures}), scratch), "image_column": "image"}


def _png(picture: npt.NDArray[np.uint8]) -> bytes:
    """Return a picture, RGB or gray, as a lossless file."""
    bgr = picture[..., ::-1] if picture.ndim == 3 and picture.shape[-1] == 3 else picture
    written, content = cv2.imencode(".png", np.ascontiguousarray(bgr))
    assert written, "OpenCV encodes every uint8 image of one or three channels"
    return content.tobytes()


def _written(frame: Any, scratch: Path) -> dict[str, Any]:
    path = scratch / "inputs.parquet"
    frame.to_parquet(path, index=False)
    return {"input": path, "input_format": "parquet"}


def _shown(images: Any) -> str:
    if isinstance(images, np.ndarray):
        return f"array of shape {images.shape}, {images.dtype}"
    text = " ".join(repr(images).split())
    return f"{type(images).__name__} {text[:60]}{'...' if len(text) > 60 else ''}"
