"""What an exported model takes: the samples as they are stored, in the order that everybody else uses.

Caffe's images are (N, C, H, W) with blue first; the world outside has (N, H, W, C) with red first. The exported model
takes the latter and turns it around itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from caffe_import.data.transform import TransformOptions
from caffe_import.net.layer_registry import Shape
from deepspark_ops.evaluate.samples import Batch
from deepspark_ops.export.deploy_net import DeployInput
from deepspark_ops.export.input_steps import TO_BGR, steps_in_words, table_steps_in_words
from deepspark_ops.export.manifest import IMAGE_AXES, InputContract
from deepspark_ops.export.model_parts import CheckSamples
from deepspark_ops.shards.preprocessing import ImagePreprocessing
from deepspark_ops.shards.table_columns import TableColumns

_CHANNELS = {1: "gray", 3: "RGB"}


@dataclass(frozen=True)
class ServedInput:
    """One input of the exported model.

    Attributes:
        blob: The net's blob that it becomes.
        name: The argument's name: ``images``, or the blob's where the input is no image or one of several.
        shape: Of the argument, without the batch axis; -1 where any size goes (pixels around the crop).
        dtype: As stored.
        is_image: (N, H, W, C), red first; else Caffe's own order.
        transform: What the net does to it; None for nothing.
        table: How the table's features that it takes were filled and standardised before they were stored; None for
            other samples.
        images: What was done to images before they were stored; None where it is not known.
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
        """Return stored samples (N, C, H, W), BGR, as this input wants them; a fresh array."""
        values = stored.astype(self.dtype)
        if self.table is not None:
            return self.table.restore(values)
        if not self.is_image:
            return values
        if values.shape[1] == 3:
            values = values[:, ::-1]
        return np.ascontiguousarray(values.transpose(0, 2, 3, 1))

    def contract(self) -> InputContract:
        """Return what the manifest says about it."""
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
        """Return what the net takes, (n, ...), as it comes out of a request: the table's numbers are float32 there."""
        if self.table is None:
            return values
        rows = values.reshape(len(values), -1)
        return self.table.apply(self.table.restore(rows)).reshape(values.shape)


def find_served_inputs(
    samples: CheckSamples, inputs: Sequence[DeployInput], *, is_trained_on_samples: bool = True
) -> tuple[ServedInput, ...]:
    """Return the inputs for those of the deploy net, in their order.

    Args:
        samples: What the net is checked on.
        inputs: Of the deploy net.
        is_trained_on_samples: As of ``ModelParts``.
    """
    first = samples.read(0, 1)
    found: dict[str, ServedInput] = {}
    for layer in samples.layers:
        for position, top in enumerate(layer.tops):
            for one in (one for one in inputs if one.source == top):
                stored = _part(first.stored[top], one)
                transform = layer.transform if layer.columns[position] == 0 else None
                is_image = stored.ndim == 4 and (transform is not None or stored.shape[1] in _CHANNELS)
                transform = None if transform is None else _part_of_transform(transform, one)
                found[one.blob] = ServedInput(
                    blob=one.blob,
                    name="images" if is_image and len(inputs) == 1 else one.blob,
                    shape=_shape(stored.shape[1:], transform) if is_image else stored.shape[1:],
                    dtype="uint8" if stored.dtype == np.uint8 else "float32",
                    is_image=is_image,
                    transform=transform,
                    table=_table(samples, stored.shape[1:]) if layer.columns[position] == 0 else None,
                    images=layer.preprocessing
                    if is_trained_on_samples and is_image and layer.columns[position] == 0 and one.part is None
                    else None,  # a part is one picture of a stored pair, which no raw image is
                )
    return tuple(found[one.blob] for one in inputs)


def settled_batch(batch: Batch, inputs: Sequence[DeployInput], served: Sequence[ServedInput]) -> Batch:
    """Return a batch of the data layers whose features are what requests of them give; see ``ServedInput.settled``."""
    stored, feeds = dict(batch.stored), dict(batch.feeds)
    for one, taken in zip(inputs, served, strict=True):
        if taken.table is not None:
            stored[one.source] = taken.settled(stored[one.source])
            feeds[one.source] = taken.settled(feeds[one.source])
    return replace(batch, stored=stored, feeds=feeds)


def deploy_batch(batch: Batch, inputs: Sequence[DeployInput]) -> Batch:
    """Return a batch of the data layers as one of the deploy net's inputs."""
    return replace(
        batch,
        stored=stored_parts(batch.stored, inputs),
        feeds={one.blob: _part(batch.feeds[one.source], one) for one in inputs},
    )


def stored_parts(stored: Mapping[str, npt.NDArray[Any]], inputs: Sequence[DeployInput]) -> dict[str, npt.NDArray[Any]]:
    """Return stored samples of data layers as those of the deploy net's inputs, by blob."""
    return {one.blob: _part(stored[one.source], one) for one in inputs}


def _table(samples: CheckSamples, shape: Shape) -> TableColumns | None:
    table = samples.table
    return table if table is not None and shape == (table.n_features,) else None


def _part(values: npt.NDArray[Any], one: DeployInput) -> npt.NDArray[Any]:
    return values if one.part is None else values[:, slice(*one.part)]


def _part_of_transform(transform: TransformOptions, one: DeployInput) -> TransformOptions:
    if one.part is None:
        return transform
    channels = slice(*one.part)
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
