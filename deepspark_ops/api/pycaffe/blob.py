"""pycaffe's blob: the arrays ``data`` and ``diff`` are the net's own memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import NetSpec
from deepspark_ops.errors import ConfigError
from deepspark_ops.single_net.passes.shared_arrays import SharedArrays

Floats = npt.NDArray[np.float32]
_AXES = 4


class NetMemory:
    """The arrays of a net: blobs in their present shapes, and parameters. Blobs refer to this object, not to the net.

    Attributes:
        spec: The net as it was built.
        params: ``data`` and ``diff`` of all parameters, each one vector.
        blobs: ``data/NAME`` and ``diff/NAME``.
        smaller: Blob -> its present shape, where that is smaller than declared.
        reshaped: Input -> arrays of another shape, which it has until the net follows.
    """

    def __init__(self, spec: NetSpec, params: SharedArrays, blobs: SharedArrays) -> None:
        """Take the arrays."""
        self.spec = spec
        self.params = params
        self.blobs = blobs
        self.smaller: Mapping[str, Sequence[int]] = {}
        self.reshaped: dict[str, dict[str, Floats]] = {}

    def blob_array(self, kind: str, name: str) -> Floats:
        """Return ``data`` or ``diff`` of a blob."""
        if name in self.reshaped:
            return self.reshaped[name][kind]
        array = self.blobs[f"{kind}/{name}"]
        shape = self.smaller.get(name)
        return array if shape is None else array.reshape(-1)[: prod(shape)].reshape(shape)

    def reshape(self, name: str, shape: Shape) -> None:
        """Give an input arrays of another shape.

        Raises:
            ConfigError: The blob is no input.
        """
        inputs = [top for layer in self.spec.layers if layer.type == "Input" for top in layer.tops]
        if name not in inputs:
            msg = f'blob "{name}": only inputs can be reshaped: {", ".join(inputs) or "this net has none"}'
            raise ConfigError(msg)
        self.reshaped[name] = {kind: np.zeros(shape, np.float32) for kind in ("data", "diff")}

    def param_array(self, kind: str, name: str) -> Floats:
        """Return ``data`` or ``diff`` of a parameter, ``LAYER/INDEX``."""
        layer, _, index = name.rpartition("/")
        entry = self.spec.params.entry(layer, int(index))
        return self.params[kind][entry.offset : entry.stop].reshape(entry.shape)


class Blob:
    """A blob of a net. Writing into ``data`` writes what the next pass reads."""

    def __init__(
        self,
        array: Callable[[str, str], Floats],
        reshape: Callable[[str, tuple[int, ...]], None] | None,
        name: str,
    ) -> None:
        """Refer to arrays of a net.

        Args:
            array: Returns the array of a kind, ``data`` or ``diff``, and a name.
            reshape: Gives an input another shape; None for parameters.
            name: Of the blob.
        """
        self._array = array
        self._reshape = reshape
        self._name = name

    def __repr__(self) -> str:
        """Return name and shape."""
        return f"Blob({self._name!r}, shape={self.shape})"

    @property
    def data(self) -> Floats:
        """The values, float32 in Caffe's axis order."""
        return self._array("data", self._name)

    @property
    def diff(self) -> Floats:
        """The gradients, of the same shape."""
        return self._array("diff", self._name)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self.data.shape

    @property
    def count(self) -> int:
        """Number of values."""
        return prod(self.shape)

    @property
    def num(self) -> int:
        """First of up to four axes, as of old."""
        return self._legacy_axis(0)

    @property
    def channels(self) -> int:
        """Second of up to four axes."""
        return self._legacy_axis(1)

    @property
    def height(self) -> int:
        """Third of up to four axes."""
        return self._legacy_axis(2)

    @property
    def width(self) -> int:
        """Fourth of up to four axes."""
        return self._legacy_axis(3)

    def reshape(self, *shape: int) -> None:
        """Give an input another shape, and zeros as values; the net follows at ``net.reshape()`` or the next pass.

        Raises:
            ConfigError: The blob is no input, or this is no shape.
        """
        if self._reshape is None:
            msg = f'blob "{self._name}": shapes of parameters are fixed'
            raise ConfigError(msg)
        if not all(isinstance(extent, int | np.integer) and extent > 0 for extent in shape) or not shape:
            msg = f'blob "{self._name}": reshape{shape}: allowed: whole numbers from 1 on'
            raise ConfigError(msg)
        self._reshape(self._name, tuple(int(extent) for extent in shape))

    def _legacy_axis(self, axis: int) -> int:
        if len(self.shape) > _AXES:
            msg = f'blob "{self._name}" has {len(self.shape)} axes: only shape names them'
            raise ConfigError(msg)
        return self.shape[axis] if axis < len(self.shape) else 1
