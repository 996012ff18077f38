"""Float32 arrays by name in memory that two processes share: no copy goes between them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from math import prod

import numpy as np
import numpy.typing as npt

from caffe_import.net.layer_registry import Shape

Floats = npt.NDArray[np.float32]
_ALIGNED_BYTES = 64


class SharedArrays:
    """Arrays of fixed shapes, zeros at first. The memory lives as long as an array or this object.

    Attributes:
        handle: File descriptor of the memory; another process that has it makes the same arrays of it.
    """

    def __init__(self, shapes: Mapping[str, Shape], handle: int | None = None) -> None:
        """Lay the arrays out one after another, in new memory or in the memory of ``handle``; this object owns it."""
        offsets, size = {}, 0
        for name, shape in shapes.items():
            offsets[name] = size
            size += -(-4 * prod(shape) // _ALIGNED_BYTES) * _ALIGNED_BYTES
        if handle is None:
            handle = os.memfd_create("deepspark-net")
            os.ftruncate(handle, max(size, mmap.PAGESIZE))
        self.handle = handle
        memory = mmap.mmap(handle, 0)
        self._arrays = {
            name: np.frombuffer(memory, np.float32, prod(shape), offsets[name]).reshape(shape)
            for name, shape in shapes.items()
        }

    def __getitem__(self, name: str) -> Floats:
        """Return an array; writing it writes the memory."""
        return self._arrays[name]

    def __contains__(self, name: str) -> bool:
        """Return whether there is an array of that name."""
        return name in self._arrays

    def __del__(self) -> None:
        """Close the handle; arrays that are still in use keep the memory."""
        os.close(self.handle)


def param_shapes(n_params: int) -> dict[str, Shape]:
    """Return the arrays of a net's parameters: values and gradients, each one vector."""
    return {"data": (n_params,), "diff": (n_params,)}


def blob_shapes(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the arrays of a net's blobs: ``data/NAME`` and ``diff/NAME``."""
    return {f"{kind}/{name}": shape for kind in ("data", "diff") for name, shape in shapes.items()}
