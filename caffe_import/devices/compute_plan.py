"""How one training step is computed. Pure data: made from options and the net's shapes, read by ``tf_graph``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Precision = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class Placement:
    """Device of each layer.

    Attributes:
        n_devices: Devices are numbered 0 to n_devices - 1.
        device_of: Layer -> its device; every layer of the net that is not split is named. Parameters, history and
            update of a layer are on its device.
        split: Layer -> the devices that each compute an equal share of its outputs, in order; the first joins them.
    """

    n_devices: int
    device_of: Mapping[str, int]
    split: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class ComputePlan:
    """Plan of a training step; the default is one device in float32.

    Attributes:
        n_replicas: Devices that each compute whole passes; pass k of a step is on device k modulo n_replicas. The
            solver's iter_size counts the passes of all of them.
        placement: Which device computes which layer; None: one device computes all. Not together with replicas.
        recompute: Segments, each a run of consecutive layer names: of a segment only what it gives to later layers is
            kept for the backward pass, which computes the rest again.
        precision: Arithmetic of the layers that ``precision_types`` names; all else is float32.
    """

    n_replicas: int = 1
    placement: Placement | None = None
    recompute: tuple[tuple[str, ...], ...] = ()
    precision: Precision = "float32"

    @property
    def n_devices(self) -> int:
        """Devices that a worker needs."""
        return self.placement.n_devices if self.placement else self.n_replicas


PLAIN = ComputePlan()
"""One device that computes everything, in float32."""
