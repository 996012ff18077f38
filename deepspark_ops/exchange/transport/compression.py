"""Pushed numbers on a socket: float32, or 16 bits with the rounding error kept by the worker.

Only pushes are rounded, to the nearest, ties to even; the center travels in float32. The server adds the rounded push,
so the worker must handle the difference. Elastic strategies leave the difference in the worker's parameters: the
center moves by ``rounded(share * e)``, the worker by ``rounded(share * e) / share``. This keeps the sum of workers and
center, with a weight of ``1 / share`` for the center. Other strategies push movements or gradients. The worker adds the
difference to its next push of the same chunk (error feedback; Seide, Fu,
Droppo, Li and Yu, "1-bit stochastic gradient descent", 2014, section 2).
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from deepspark_ops.exchange.center.buffers import aligned_vector
from deepspark_ops.exchange.strategies.base import Strategy
from deepspark_ops.exchange.transport import wire
from deepspark_ops.param_vector import Vector

WireDtype = Literal["float32", "float16", "bfloat16"]
WIRE_DTYPES: tuple[WireDtype, ...] = ("float32", "float16", "bfloat16")
CODES: dict[str, int] = {"float32": wire.FLOAT32, "float16": wire.FLOAT16, "bfloat16": wire.BFLOAT16}

Bits = npt.NDArray[np.uint16]


class PushCoder:
    """Rounds float32 to 16 bits, chunk by chunk. Holds scratch memory: encoding is not thread-safe.

    Values beyond float16's range become its largest value: the worker keeps the difference like any rounding error.
    """

    def __init__(self, dtype: WireDtype, n_floats: int) -> None:
        """Prepare scratch memory for chunks of up to ``n_floats``."""
        self._dtype = _number_type(dtype)
        self._limit = np.float32(np.finfo(np.float16).max) if dtype == "float16" else None
        self._clipped = np.empty(n_floats if self._limit is not None else 0, np.float32)

    def encode(self, numbers: Vector, bits: Bits) -> None:
        """Write the rounded ``numbers``, shape (n,), into ``bits``, shape (n,)."""
        if self._limit is not None:
            numbers = np.clip(numbers, -self._limit, self._limit, out=self._clipped[: len(numbers)])
        np.copyto(bits.view(self._dtype), numbers, casting="unsafe")

    def decode(self, bits: Bits, numbers: Vector) -> None:
        """Write the numbers of ``bits`` into ``numbers``."""
        np.copyto(numbers, bits.view(self._dtype), casting="unsafe")


def _number_type(dtype: WireDtype) -> np.dtype[Any]:
    if dtype == "bfloat16":
        # Imported here: a server without bfloat16 starts faster.
        import ml_dtypes

        number_type: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return number_type
    return np.dtype(dtype)


class Pushes(Protocol):
    """A worker's outgoing pushes: memory for computing a push, and the bytes of a push.

    Several chunks may be under way, each in its own buffer.
    """

    def room(self, buffer: int, n_floats: int) -> Vector:
        """Return memory for computing a push, shape (n_floats,)."""

    def pack(self, buffer: int, span: slice, push: Vector, new_local: Vector, share: float = 1.0) -> memoryview:
        """Return the bytes of a push, valid until they are sent; may correct ``new_local``, both (n,).

        Args:
            buffer: Buffer that holds the push.
            span: Range of the push in the vector.
            push: Numbers that the server adds.
            new_local: The worker's new parameters.
            share: Movement of the center by the push, in elastic differences (``Strategy.center_share``).
        """

    def exchanged(self) -> None:
        """Note that the whole exchange is over; no chunk of this exchange is packed again."""


class PlainPushes:
    """Pushes as float32, sent from the memory of their computation."""

    def __init__(self, n_buffers: int, chunk: int) -> None:
        """Make room for ``n_buffers`` chunks."""
        self._buffers = tuple(aligned_vector(chunk) for _ in range(n_buffers))

    def room(self, buffer: int, n_floats: int) -> Vector:
        """See ``Pushes``."""
        return self._buffers[buffer][:n_floats]

    def pack(self, buffer: int, span: slice, push: Vector, new_local: Vector, share: float = 1.0) -> memoryview:
        """See ``Pushes``."""
        return wire.number_bytes(push)

    def exchanged(self) -> None:
        """See ``Pushes``."""


class RoundedPushes:
    """Pushes as 16-bit numbers; the module describes the rounding error.

    A broken connection may make a worker pack a chunk twice in one exchange. So errors of this exchange are used in the
    next exchange only.
    """

    def __init__(self, n_buffers: int, chunk: int, n_params: int, dtype: WireDtype, strategy: Strategy) -> None:
        """Prepare memory for ``n_buffers`` chunks, and for all rounding errors unless the strategy is elastic."""
        self._coder = PushCoder(dtype, chunk)
        self._bits = tuple(np.empty(chunk, np.uint16) for _ in range(n_buffers))
        self._push, self._decoded = aligned_vector(chunk), aligned_vector(chunk)
        self._is_elastic = strategy.has_moving_rate
        self._moves_local = strategy.pulls == "before"
        n_errors = 0 if self._is_elastic else n_params
        self._errors, self._next_errors = np.zeros(n_errors, np.float32), np.zeros(n_errors, np.float32)

    def room(self, buffer: int, n_floats: int) -> Vector:
        """See ``Pushes``."""
        return self._push[:n_floats]

    def pack(self, buffer: int, span: slice, push: Vector, new_local: Vector, share: float = 1.0) -> memoryview:
        """See ``Pushes``."""
        bits, decoded = self._bits[buffer][: len(push)], self._decoded[: len(push)]
        if self._is_elastic:
            self._coder.encode(push, bits)
            self._coder.decode(bits, decoded)
            np.subtract(push, decoded, out=decoded)
            if share != 1.0:
                np.multiply(decoded, np.float32(1.0 / share), out=decoded)
            np.add(new_local, decoded, out=new_local)
            return wire.number_bytes(bits)
        if self._moves_local:
            # The worker's new parameters must match the center's movement: the rounded push, not the exact push.
            np.subtract(new_local, push, out=new_local)
        np.add(push, self._errors[span], out=push)
        self._coder.encode(push, bits)
        self._coder.decode(bits, decoded)
        np.subtract(push, decoded, out=self._next_errors[span])
        if self._moves_local:
            np.add(new_local, decoded, out=new_local)
        return wire.number_bytes(bits)

    def exchanged(self) -> None:
        """See ``Pushes``."""
        self._errors, self._next_errors = self._next_errors, self._errors


def make_pushes(n_buffers: int, chunk: int, n_params: int, dtype: WireDtype, strategy: Strategy) -> Pushes:
    """Return the pushes of a worker, with or without rounding."""
    if dtype == "float32":
        return PlainPushes(n_buffers, chunk)
    return RoundedPushes(n_buffers, chunk, n_params, dtype, strategy)
