"""Lines of a solver's ``debug_info: true``: mean absolute values of every blob, as in Caffe's log.

Values, order and text; ``tf_graph.debug_values`` computes the values. Source: BVLC Caffe @9b89154,
src/caffe/net.cpp, ``ForwardDebugInfo``, ``BackwardDebugInfo``, ``UpdateDebugInfo`` and ``Backward``. Caffe 1.0 has the
code of the [Update] lines but no longer calls the code; earlier versions did.

Source: BVLC Caffe @9b89154, src/caffe/net.cpp, ``ForwardDebugInfo``, ``BackwardDebugInfo``, ``UpdateDebugInfo`` and
``Backward``. Caffe 1.0 has the code of the [Update] lines but never calls the code; earlier versions did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy.typing as npt

from caffe_import.net.net_spec import LayerSpec, NetSpec

_INDENT = "    "
N_NORMS = 4
"""L1 norm of all parameters and of their gradients, L2 norm of both; behind the values of a training pass."""


@dataclass(frozen=True)
class DebugValue:
    """One number of a pass.

    Attributes:
        words: The text before the number.
        layer: Position of the layer in the net.
        blob: Whose number: the layer's ``top``, ``bottom`` or ``param`` blob.
        index: Position among these.
    """

    words: str
    layer: int
    blob: Literal["top", "bottom", "param"]
    index: int


def forward_values(net: NetSpec) -> tuple[DebugValue, ...]:
    """Return the values of a forward pass: the content of every top and parameter blob, layer by layer."""
    return tuple(value for position, layer in enumerate(net.layers) for value in _forward_of(position, layer))


def _forward_of(position: int, layer: LayerSpec) -> Iterator[DebugValue]:
    head = f"{_INDENT}[Forward] Layer {layer.name}"
    for index, top in enumerate(layer.tops):
        yield DebugValue(f"{head}, top blob {top} data: ", position, "top", index)
    for index in range(len(layer.definition.blobs)):
        yield DebugValue(f"{head}, param blob {_param_name(layer, index)} data: ", position, "param", index)


def backward_values(net: NetSpec) -> tuple[DebugValue, ...]:
    """Return the values of a backward pass: the gradients that each layer computed, last layer first."""
    return tuple(
        value for position in reversed(range(len(net.layers))) for value in _backward_of(position, net.layers[position])
    )


def _backward_of(position: int, layer: LayerSpec) -> Iterator[DebugValue]:
    if not layer.needs_backward:
        return
    head = f"{_INDENT}[Backward] Layer {layer.name}"
    for index, (bottom, flows) in enumerate(zip(layer.bottoms, layer.propagate_down, strict=True)):
        if flows:
            yield DebugValue(f"{head}, bottom blob {bottom} diff: ", position, "bottom", index)
    for index, learns in enumerate(layer.param_propagate_down):
        if learns:
            yield DebugValue(f"{head}, param blob {index} diff: ", position, "param", index)


def _param_name(layer: LayerSpec, index: int) -> str:
    specs = layer.message.param
    return (specs[index].name if index < len(specs) else "") or str(index)


def forward_lines(net: NetSpec, values: Sequence[float]) -> list[str]:
    """Return the lines of a test net's pass; ``values`` in the order of ``forward_values``."""
    return [value.words + _number(number) for value, number in zip(forward_values(net), values, strict=True)]


def pass_lines(net: NetSpec, values: Sequence[float]) -> list[str]:
    """Return the lines of a training pass; ``values`` as forward_values, backward_values, then the four norms."""
    named = (*forward_values(net), *backward_values(net))
    lines = [value.words + _number(number) for value, number in zip(named, values[:-N_NORMS], strict=True)]
    l1, l1_diff, l2, l2_diff = (_number(number) for number in values[-N_NORMS:])
    lines.append(
        f"{_INDENT}[Backward] All net params (data, diff): L1 norm = ({l1}, {l1_diff}); L2 norm = ({l2}, {l2_diff})"
    )
    return lines


def update_lines(net: NetSpec, data: Sequence[float], steps: Sequence[float]) -> list[str]:
    """Return the lines of an update.

    Args:
        net: The training net.
        data: Mean absolute value of each entry of the layout before the update.
        steps: Mean absolute value of what is subtracted from it.
    """
    lines = []
    for layer in net.layers:
        for index in range(len(layer.definition.blobs)):
            position = net.params.uses[layer.name, index]
            entry = net.params.entries[position]
            name, step = _param_name(layer, index), _number(steps[position])
            if (entry.layer, entry.index) == (layer.name, index):
                head = f"{_INDENT}[Update] Layer {layer.name}, param {name}"
                lines.append(f"{head} data: {_number(data[position])}; diff: {step}")
            else:
                owner = f"owned by layer {entry.layer}, param {_param_name(net.layer(entry.layer), entry.index)}"
                lines.append(f"{_INDENT}[Update] Layer {layer.name}, param blob {name} ({owner}) diff: {step}")
    return lines


def n_pass_values(net: NetSpec) -> int:
    """Return how many numbers ``pass_lines`` takes."""
    return len(forward_values(net)) + len(backward_values(net)) + N_NORMS


@dataclass(frozen=True)
class StepDebug:
    """The numbers of some consecutive steps.

    Attributes:
        passes: float32 (n_steps, iter_size, values of ``pass_lines``).
        updates: float32 (n_steps, 2, entries of the layout): data and steps of ``update_lines``. None where a step's
            update is made at the server.
    """

    passes: npt.NDArray[Any]
    updates: npt.NDArray[Any] | None = None

    def lines(self, net: NetSpec, step: int) -> list[str]:
        """Return what Caffe's log says of one step: every pass, then the update."""
        lines = [line for values in self.passes[step] for line in pass_lines(net, values)]
        return lines + (update_lines(net, *self.updates[step]) if self.updates is not None else [])


def _number(value: float) -> str:
    """Write a number as C++ streams do."""
    return f"{float(value):g}"
