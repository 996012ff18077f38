"""Random pixels and numbers as samples for a deploy net, which names no data; the same at every call.

The samples suffice to compare the exported model with the net. They say nothing about accuracy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.data.transform import TransformOptions, transform_batch
from caffe_import.net.layer_registry import Shape
from deepspark_ops.evaluate.samples import Batch

_SEED = 7


@dataclass(frozen=True)
class DrawnInput:
    """One Input blob of a deploy net.

    Attributes:
        tops: Blob -> full shape, batch axis first.
        stored: Shape of one sample before the transform; (C, H, W) for an image.
        transform: Transform of an image; None for other inputs.
        n_classes: Number of classes of an input that layers read as class labels; None for other inputs.
    """

    tops: Mapping[str, Shape]
    stored: Shape
    transform: TransformOptions | None
    n_classes: int | None = None
    columns: tuple[int, ...] = (0,)
    preprocessing: None = None

    def draw(self, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return stored samples for a whole batch: labels of classes, uint8 pixels of an image, else standard normal.

        Returns:
            (N, *stored): float32 whole numbers in [0, n_classes), as Caffe keeps labels, uint8, or float32.
        """
        ((n, *_),) = self.tops.values()
        if self.n_classes is not None:
            return rng.integers(0, self.n_classes, (n, *self.stored)).astype(np.float32)
        if self.transform is not None:
            return rng.integers(0, 256, (n, *self.stored), dtype=np.uint8)
        return rng.standard_normal((n, *self.stored)).astype(np.float32)


class DrawnSamples:
    """Batch of samples for Input blobs; equal inputs give equal samples.

    Attributes:
        layers: The inputs.
        batch_size: Samples of a pass; the samples fill exactly one pass.
        n_samples: The same number.
        table: None: no table is behind the samples.
    """

    table = None

    def __init__(self, layers: tuple[DrawnInput, ...]) -> None:
        """Draw the samples; all inputs have the same batch size."""
        self.layers = layers
        ((self.batch_size, *_),) = layers[0].tops.values()
        self.n_samples = self.batch_size
        rng = np.random.default_rng(_SEED)
        self._stored = {top: layer.draw(rng) for layer in layers for top in layer.tops}

    def read(self, start: int, count: int) -> Batch:
        """Return samples [start, start + count)."""
        stored = {top: values[start : start + count] for top, values in self._stored.items()}
        feeds = {}
        for layer in self.layers:
            for top, shape in layer.tops.items():
                rows = stored[top][np.minimum(np.arange(self.batch_size), count - 1)]
                if layer.transform is not None:
                    rows = transform_batch(rows, layer.transform, phase="TEST")
                feeds[top] = rows.reshape(shape).astype(np.float32)
        return Batch(start, count, stored, feeds)
