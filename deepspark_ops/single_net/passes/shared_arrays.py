"""Float32 arrays by name in the shared memory of two processes, without copies."""

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
    """Arrays of fixed shapes, initially zero. The memory lives as long as an array or this object.

    Attributes:
        handle: File descriptor of the memory, for another process with the same arrays.
    """

    def __init__(self, shapes: Mapping[str, Shape], handle: int | None = None) -> None:
        """Create the arrays in new memory or in the memory of ``handle``; this object owns the handle."""
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
        """Return an array; writing to the array writes to the shared memory."""
        return self._arrays[name]

    def __contains__(self, name: str) -> bool:
        """Return whether an array has this name."""
        return name in self._arrays

    def __del__(self) -> None:
        """Close the handle; arrays in use keep the memory alive."""
        os.close(self.handle)


def param_shapes(n_params: int) -> dict[str, Shape]:
    """Return the arrays of a net's parameters: a vector of values and a vector of gradients."""
    return {"data": (n_params,), "diff": (n_params,)}


def blob_shapes(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the arrays of a net's blobs: ``data/NAME`` and ``diff/NAME``."""
    return {f"{kind}/{name}": shape for kind in ("data", "diff") for name, shape in shapes.items()}
