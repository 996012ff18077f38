"""How TensorFlow computes a layer type, without TensorFlow: 16-bit arithmetic, axis order, memory, in-place nets.

Each file in ``layers/`` declares the traits of its types, once, in ``@layer_type``. Memory plans
(``devices/layer_tensors.py``), 16-bit arithmetic (``devices/precision_types.py``) and gradients of in-place nets
(``tf_graph/passes/in_place.py``) read them, so no other list names a type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, Literal

Shape = tuple[int, ...]
Arithmetic = Literal["16 bit", "kept", "float32"]
AxisOrder = Literal["caffe", "channels last", "its bottoms'"]
Keeps = Literal["nothing", "bottoms", "tops", "bottoms and tops"]
Bytes = Callable[[Sequence[Shape], Sequence[Shape]], int]
"""Takes the shapes of the bottoms and of the tops."""

VALUE_BYTES: Final = 4
"""Of a float32 value."""


def n_values(shapes: Sequence[Shape]) -> int:
    """Return how many values blobs of these shapes hold together."""
    return sum(prod(shape) for shape in shapes)


def per_top_value(n_bytes: int) -> Bytes:
    """Return a function that counts ``n_bytes`` for each value of the first top."""
    return lambda _, tops: n_bytes * n_values(tops[:1])


def _no_bytes(_bottoms: Sequence[Shape], _tops: Sequence[Shape]) -> int:
    return 0


@dataclass(frozen=True, kw_only=True)
class LayerTraits:
    """How TensorFlow computes a layer type, or a type with certain options.

    Attributes:
        arithmetic: Under a plan's 16-bit ``precision``. ``16 bit``: products, whose inputs and results are rounded.
            ``kept``: the layer chooses, moves, drops or scales single values and computes in the type that it gets.
            ``float32``: all others (see ``devices/precision_types.py``).
        axis_order: Of four-axis bottoms and tops. ``its bottoms'``: channels last where one bottom has that order.
        gradient_keeps: What the gradient reads again, which TensorFlow holds until then.
            ``bottoms and tops`` is never too little.
        reads_overwritten: Does Caffe's ``Backward_cpu`` read values from the memory of its top, where a later in-place
            layer may have overwritten them? In place, the bottom is that memory, too. Such a type has a
            ``@memory_gradient`` beside its emitter. A copy that Caffe's layer keeps for itself does not count.
        kept_bytes: Bytes of further tensors that the gradient reads.
        scratch_tops: How many times the first top's size the gradient takes while it is computed.
        column_bytes: Bytes that the gradient takes besides while it is computed, on a CPU without oneDNN.
        reuses_bottom: Does TensorFlow write the top over the bottom, and the bottom's gradient over the top's?
        is_identity: Are the tops the bottom's tensor, with no operation that computes?
    """

    arithmetic: Arithmetic
    axis_order: AxisOrder
    gradient_keeps: Keeps
    reads_overwritten: bool
    kept_bytes: Bytes = _no_bytes
    scratch_tops: int = 0
    column_bytes: int = 0
    reuses_bottom: bool = False
    is_identity: bool = False

    @property
    def keeps_bottoms(self) -> bool:
        """Does the gradient read the bottoms again?"""
        return self.gradient_keeps in ("bottoms", "bottoms and tops")

    @property
    def keeps_tops(self) -> bool:
        """Does the gradient read the tops again?"""
        return self.gradient_keeps in ("tops", "bottoms and tops")
