"""Samples for a deploy net, which names no data: pixels and numbers drawn at random, always the same ones.

They are enough to see that the exported model computes what the net computes; they say nothing of its accuracy.
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
        tops: The blob -> its full shape with the batch axis first.
        stored: Shape of one sample before the transform; (C, H, W) for an image.
        transform: What is done to an image; None for an input that is none.
        n_classes: Of an input that layers of the net read as class labels; None for another.
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
    """One batch of samples for Input blobs, the same for every object of equal inputs.

    Attributes:
        layers: The inputs.
        batch_size: Samples of one pass, which is all there are.
        n_samples: The same.
        table: None: they come from nowhere.
    """

    table = None

    def __init__(self, layers: tuple[DrawnInput, ...]) -> None:
        """Draw them; all inputs have one batch size."""
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
