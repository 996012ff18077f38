"""The place of each learnable blob of a net in the one float32 parameter vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from caffe_import.net.layer_registry import BlobKind, Shape

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True)
class ParamEntry:
    """A learnable blob with memory (sharers refer to the blob).

    Attributes:
        layer: Name of the owning layer.
        index: Position among that layer's blobs.
        offset: First element in the vector.
        shape: Caffe's shape and axis order.
        lr_mult: Multiplies the learning rate; 0 freezes the blob.
        decay_mult: Multiplies weight_decay.
        kind: ``weight``, or ``statistic`` for BatchNorm's running sums.
    """

    layer: str
    index: int
    offset: int
    shape: Shape
    lr_mult: float = 1.0
    decay_mult: float = 1.0
    kind: BlobKind = "weight"

    @property
    def name(self) -> str:
        """``layer[index]``, unique in the net."""
        return f"{self.layer}[{self.index}]"

    @property
    def size(self) -> int:
        """Number of elements; a zero-axis blob has one."""
        return prod(self.shape)

    @property
    def stop(self) -> int:
        """One past the last element in the vector."""
        return self.offset + self.size


@dataclass(frozen=True)
class ParamLayout:
    """Every owned blob in Caffe's order (layer by layer, blob by blob), without gaps.

    Attributes:
        entries: Owners, ascending by offset; together they cover ``[0, n_params)``.
        uses: (layer, blob index) -> position in ``entries``, for owners and sharers alike.
    """

    entries: tuple[ParamEntry, ...]
    uses: Mapping[tuple[str, int], int]

    @property
    def n_params(self) -> int:
        """Length of the vector in floats."""
        return self.entries[-1].stop if self.entries else 0

    def entry(self, layer: str, index: int) -> ParamEntry:
        """Return the owner that blob ``index`` of ``layer`` reads and writes."""
        return self.entries[self.uses[layer, index]]

    def views(self, vector: Vector) -> dict[str, Vector]:
        """Return name -> reshaped view into ``vector`` (shape (n_params,)); writing a view writes the vector."""
        return {e.name: vector[e.offset : e.stop].reshape(e.shape) for e in self.entries}
