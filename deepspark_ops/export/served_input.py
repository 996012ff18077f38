"""Inputs of an exported model: samples as stored, in the usual axis order.

Caffe's images are (N, C, H, W) with blue first; other programs use (N, H, W, C) with red first. The exported model
takes the latter and converts the images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import cv2
import numpy as np
import numpy.typing as npt

from caffe_import.data.transform import TransformOptions
from caffe_import.net.layer_registry import Shape
from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.samples import Batch
from deepspark_ops.export.deploy_net import DeployInput
from deepspark_ops.export.input_steps import TO_BGR, steps_in_words, table_steps_in_words
from deepspark_ops.export.manifest import IMAGE_AXES, InputContract
from deepspark_ops.export.model_parts import CheckSamples
from deepspark_ops.shards.preprocessing import ImagePreprocessing
from deepspark_ops.shards.table_columns import TableColumns

Serve = Callable[[Mapping[str, npt.NDArray[Any]]], dict[str, npt.NDArray[Any]]]
"""An exported model: values of the inputs by name -> values of the outputs by name."""
_CHANNELS = {1: "gray", 3: "RGB"}


@dataclass(frozen=True)
class ServedInput:
    """One input of the exported model.

    Attributes:
        blob: The net's blob behind the input.
        name: Name of the argument: ``images``, or the blob's name if the input is no image or there are several inputs.
        shape: Shape of the argument, without the batch axis; -1 for any extent (pixels around the crop).
        dtype: Type of the stored samples.
        is_image: (N, H, W, C), red first; else Caffe's own order.
        transform: Transform of the net's data layer; None without transform.
        table: Preprocessing of the table's features (fill values, standardisation) before storing; None for other
            samples.
        images: Preprocessing of the images before storing; None if the preprocessing is unknown.
    """

    blob: str
    name: str
    shape: Shape
    dtype: Literal["uint8", "float32"]
    is_image: bool
    transform: TransformOptions | None
    table: TableColumns | None = None
    images: ImagePreprocessing | None = None

    def from_stored(self, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return stored samples (N, C, H, W), BGR, in the form of this input; a fresh array."""
        values = stored.astype(self.dtype)
        if self.table is not None:
            return self.table.restore(values)
        if not self.is_image:
            return values
        if values.shape[1] == 3:
            values = values[:, ::-1]
        return np.ascontiguousarray(values.transpose(0, 2, 3, 1))

    def contract(self) -> InputContract:
        """Return the manifest's entry of the input."""
        channels = _CHANNELS.get(self.shape[-1], f"{self.shape[-1]} as in the training data") if self.is_image else ""
        return InputContract(
            name=self.name,
            shape=(-1, *self.shape),
            axes=IMAGE_AXES if self.is_image else ", ".join(["N", *(f"axis {k + 1}" for k in range(len(self.shape)))]),
            dtype=self.dtype,
            channels=channels,
            preprocessing=tuple(self._steps()),
            sample_shape=tuple(self._cut() if extent < 0 else extent for extent in self.shape),
            images=self.images,
            is_table=self.table is not None,
        )

    def _cut(self) -> int:
        """Return how many pixels are needed where any number goes."""
        return 1 if self.transform is None else max(self.transform.crop_size, 1)

    def _steps(self) -> list[str]:
        steps = [TO_BGR] if self.is_image and self.shape[-1] == 3 else []
        steps += [] if self.table is None else table_steps_in_words(self.table)
        return steps + steps_in_words(self.transform)

    def settled(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the net's input values (n, ...) after a round trip through a request.

        A request has a table's numbers as float32.
        """
        if self.table is None:
            return values
        rows = values.reshape(len(values), -1)
        return self.table.apply(self.table.restore(rows)).reshape(values.shape)


def find_served_inputs(
    samples: CheckSamples, inputs: Sequence[DeployInput], *, is_trained_on_samples: bool = True
) -> tuple[ServedInput, ...]:
    """Return the model's inputs, one per input of the deploy net, in the same order."""
    first = samples.read(0, 1)
    served_by_blob: dict[str, ServedInput] = {}
    for layer in samples.layers:
        for position, top in enumerate(layer.tops):
            for deploy_input in (deploy_input for deploy_input in inputs if deploy_input.source == top):
                stored = _part(first.stored[top], deploy_input)
                transform = layer.transform if layer.columns[position] == 0 else None
                is_image = stored.ndim == 4 and (transform is not None or stored.shape[1] in _CHANNELS)
                transform = None if transform is None else _part_of_transform(transform, deploy_input)
                served_by_blob[deploy_input.blob] = ServedInput(
                    blob=deploy_input.blob,
                    name="images" if is_image and len(inputs) == 1 else deploy_input.blob,
                    shape=_shape(stored.shape[1:], transform) if is_image else stored.shape[1:],
                    dtype="uint8" if stored.dtype == np.uint8 else "float32",
                    is_image=is_image,
                    transform=transform,
                    table=_table(samples, stored.shape[1:]) if layer.columns[position] == 0 else None,
                    images=layer.preprocessing
                    if is_trained_on_samples and is_image and layer.columns[position] == 0 and deploy_input.part is None
                    else None,  # channels of a pair of stored images do not correspond to a raw image
                )
    return tuple(served_by_blob[deploy_input.blob] for deploy_input in inputs)


def settled_batch(batch: Batch, inputs: Sequence[DeployInput], served: Sequence[ServedInput]) -> Batch:
    """Return a batch of the data layers with features after a round trip through requests.

    See ``ServedInput.settled``.
    """
    stored, feeds = dict(batch.stored), dict(batch.feeds)
    for deploy_input, served_input in zip(inputs, served, strict=True):
        if served_input.table is not None:
            stored[deploy_input.source] = served_input.settled(stored[deploy_input.source])
            feeds[deploy_input.source] = served_input.settled(feeds[deploy_input.source])
    return replace(batch, stored=stored, feeds=feeds)


def deploy_batch(batch: Batch, inputs: Sequence[DeployInput]) -> Batch:
    """Return a batch of the data layers as a batch of the deploy net's inputs."""
    return replace(
        batch,
        stored=stored_parts(batch.stored, inputs),
        feeds={deploy_input.blob: _part(batch.feeds[deploy_input.source], deploy_input) for deploy_input in inputs},
    )


def stored_parts(stored: Mapping[str, npt.NDArray[Any]], inputs: Sequence[DeployInput]) -> dict[str, npt.NDArray[Any]]:
    """Return stored samples of data layers as samples of the deploy net's inputs, by blob."""
    return {deploy_input.blob: _part(stored[deploy_input.source], deploy_input) for deploy_input in inputs}


def as_input(stored: npt.NDArray[Any], contract: InputContract) -> npt.NDArray[Any]:
    """Return stored samples in the form of a bundle's input; read only, possibly ``stored`` itself.

    Args:
        stored: (n, C, H, W), blue first, for an image; else in Caffe's order.
        contract: The input.

    Raises:
        DataError: The shape of the samples differs from the shape of the bundle's input.
    """
    values = stored.astype(contract.dtype, copy=False)
    if contract.takes_images and values.ndim == 4:
        values = channels_last(values, is_red_first=contract.channels == "RGB")
    input_extents, sample_extents = contract.shape[1:], values.shape[1:]
    if len(input_extents) != len(sample_extents) or any(
        extent not in (-1, sample_extent) for extent, sample_extent in zip(input_extents, sample_extents, strict=True)
    ):
        msg = (
            f'the bundle takes "{contract.name}" of shape {input_extents} ({contract.axes} without N), the samples '
            f"have {sample_extents}: it cannot be scored on these data"
        )
        raise DataError(msg)
    return values


def channels_last(images: npt.NDArray[Any], *, is_red_first: bool) -> npt.NDArray[Any]:
    """Return (n, C, H, W), blue first, as (n, H, W, C).

    Numpy would transpose bytes one by one; copying channel by channel is faster.
    """
    n, channels, height, width = images.shape
    if channels != 3 or not images.size or images.dtype not in (np.uint8, np.float32):
        return np.ascontiguousarray((images[:, ::-1] if is_red_first else images).transpose(0, 2, 3, 1))
    planes = np.ascontiguousarray(images.transpose(1, 0, 2, 3)).reshape(channels, n * height, width)
    merged = cv2.merge([*(planes[::-1] if is_red_first else planes)])
    return np.asarray(merged).reshape(n, height, width, channels)


def _table(samples: CheckSamples, shape: Shape) -> TableColumns | None:
    table = samples.table
    return table if table is not None and shape == (table.n_features,) else None


def _part(values: npt.NDArray[Any], deploy_input: DeployInput) -> npt.NDArray[Any]:
    return values if deploy_input.part is None else values[:, slice(*deploy_input.part)]


def _part_of_transform(transform: TransformOptions, deploy_input: DeployInput) -> TransformOptions:
    if deploy_input.part is None:
        return transform
    channels = slice(*deploy_input.part)
    means = transform.mean_values
    return replace(
        transform,
        mean=None if transform.mean is None else transform.mean[channels],
        mean_values=means[channels] if len(means) > 1 else means,
    )


def _shape(stored: Shape, transform: TransformOptions | None) -> Shape:
    """Return (H, W, C); where only the centre is used and no mean image fixes the size, any size goes."""
    channels, height, width = stored
    is_free = transform is not None and transform.crop_size > 0 and transform.mean is None
    return (-1, -1, channels) if is_free else (height, width, channels)
