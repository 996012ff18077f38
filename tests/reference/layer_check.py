"""Compares a layer, built as a net, with a slow reference written from Caffe's definition.

The gradient's reference needs no formula: it is the central difference of the slow forward pass in float64, along one
random direction: a gradient that is wrong in any place has another slope.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from caffe_import.devices.compute_plan import ComputePlan, Precision
from caffe_import.errors import NetError
from caffe_import.files.prototxt import parse_net
from caffe_import.net.layer_registry import LayerDefinition, Phase
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.tf_graph.builder import initial_layer_state
from caffe_import.tf_graph.gradients import Passes, run_passes

Array = npt.NDArray[np.float64]
Reference = Callable[..., Sequence[Array]]
"""Takes the bottoms, then the parameter blobs, all float64; returns the tops."""

FORWARD_BOUND = 1e-5
"""Of norm(ours - reference) / norm(reference): float32 against float64, sums of at most some hundred terms."""
BACKWARD_BOUND = 1e-4
"""As above; adds the error of the central difference, about (step)^2."""
TWO_ROUNDINGS = {"float32": 0.0, "bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Of one value's size: a 16-bit result is rounded once, and what it is made from, or its bias's sum, once more."""

_STEP = 1e-4


def define(text: str, *bottom_shapes: tuple[int, ...], phase: Phase = "TRAIN") -> LayerDefinition:
    """Return the definition of the layer in ``text``; the bottoms must be x0, x1, ..."""
    return net_of(text, bottom_shapes, phase=phase).layers[-1].definition


def net_of(
    text: str, bottom_shapes: Sequence[tuple[int, ...]], *, phase: Phase = "TRAIN", channels_last: bool = False
) -> NetSpec:
    """Return a net of Input layers x0, x1, ... and the layer in ``text``, which reads the inputs.

    Args:
        text: Fields of one ``layer { }`` without name, bottoms and tops n0, n1, ... of its choice.
        bottom_shapes: One per bottom.
        phase: Phase of the net.
        channels_last: Hand rank-4 bottoms over in the channels-last form (by a pooling over single pixels).
    """
    lines = []
    bottoms = []
    for position, shape in enumerate(bottom_shapes):
        dims = " ".join(f"dim: {extent}" for extent in shape)
        lines.append(
            f'layer {{ name: "x{position}" type: "Input" top: "x{position}" input_param {{ shape {{ {dims} }} }} }}'
        )
        bottoms.append(f"x{position}")
        if channels_last and len(shape) == 4:
            lines.append(
                f'layer {{ name: "p{position}" type: "Pooling" bottom: "x{position}" top: "p{position}" '
                "pooling_param { kernel_size: 1 } }"
            )
            bottoms[-1] = f"p{position}"
    reads = " ".join(f'bottom: "{name}"' for name in bottoms)
    lines.append(f'layer {{ name: "layer" {reads} {text} }}')
    return build_net_spec(parse_net("force_backward: true\n" + "\n".join(lines)), phase=phase)


@dataclass(frozen=True)
class LayerRun:
    """Values of a checked layer, for further claims."""

    net: NetSpec
    passes: Passes
    tops: tuple[npt.NDArray[np.float32], ...]


def run_layer(
    text: str,
    bottoms: Sequence[npt.ArrayLike],
    params: Sequence[npt.ArrayLike] = (),
    *,
    phase: Phase = "TRAIN",
    channels_last: bool = False,
    top_gradients: Mapping[str, npt.ArrayLike] | None = None,
    seed: int = 0,
    precision: Precision = "float32",
) -> LayerRun:
    """Run a forward and a backward pass of the layer in ``text`` (see ``net_of``)."""
    arrays = [np.asarray(bottom, np.float32) for bottom in bottoms]
    net = net_of(text, [array.shape for array in arrays], phase=phase, channels_last=channels_last)
    vector = np.zeros(net.params.n_params, np.float32)
    for index, blob in enumerate(params):
        entry = net.params.entry("layer", index)
        assert np.shape(blob) == entry.shape
        vector[entry.offset : entry.stop] = np.asarray(blob, np.float32).reshape(-1)
    passes = run_passes(
        net,
        vector,
        {f"x{position}": array for position, array in enumerate(arrays)},
        layer_state=initial_layer_state(net),
        top_gradients={name: np.asarray(value, np.float32) for name, value in (top_gradients or {}).items()},
        seed=seed,
        plan=ComputePlan(precision=precision),
    )
    return LayerRun(net, passes, tuple(passes.blobs[top] for top in net.layers[-1].tops))


def check_layer(
    text: str,
    reference: Reference,
    bottoms: Sequence[npt.ArrayLike],
    params: Sequence[npt.ArrayLike] = (),
    *,
    phase: Phase = "TRAIN",
    channels_last: bool = False,
    no_gradient: Sequence[int] = (),
    fixed_params: bool = False,
    precision: Precision = "float32",
) -> LayerRun:
    """Assert that the layer's tops and gradients are the reference's.

    Args:
        text: See ``net_of``.
        reference: The slow forward pass.
        bottoms: Values, kept away from kinks by the caller.
        params: The layer's blobs.
        phase: Phase of the net.
        channels_last: See ``net_of``.
        no_gradient: Bottoms that must get none (labels).
        fixed_params: The blobs must get no gradient (statistics).
        precision: Arithmetic of the layer; the bounds are two roundings then. Bottoms and blobs must be representable.
    """
    rounding = TWO_ROUNDINGS[precision]
    doubles = [np.asarray(bottom, np.float64) for bottom in bottoms]
    blobs = [np.asarray(param, np.float64) for param in params]
    expected = [np.asarray(top) for top in reference(*doubles, *blobs)]
    spec = net_of(text, [array.shape for array in doubles], phase=phase).layers[-1]
    rng = np.random.default_rng(11)
    is_loss = spec.definition.default_loss_weight != 0
    weights = [
        np.float64(weight) if is_loss else rng.normal(size=top.shape)
        for top, weight in zip(expected, spec.loss_weights, strict=True)
    ]
    run = run_layer(
        text,
        bottoms,
        params,
        phase=phase,
        channels_last=channels_last,
        top_gradients={} if is_loss else dict(zip(spec.tops, weights, strict=True)),
        precision=precision,
    )
    for top, computed, expected_top in zip(spec.tops, run.tops, expected, strict=True):
        assert_close(computed, expected_top, max(FORWARD_BOUND, rounding), f"top {top}")

    bound = max(BACKWARD_BOUND, rounding)

    def objective() -> float:
        return sum(float(np.sum(w * t)) for w, t in zip(weights, reference(*doubles, *blobs), strict=True))

    for position, values in enumerate(doubles):
        computed = run.passes.blob_gradients[f"x{position}"]
        if position in no_gradient:
            assert computed is None or not computed.any()
            continue
        computed = np.zeros(values.shape) if computed is None else computed
        assert computed.shape == values.shape
        _assert_slope(computed, objective, values, f"gradient of x{position}", bound)
    views = run.net.params.views(run.passes.param_gradients)
    for index, blob in enumerate(blobs):
        if fixed_params:
            assert not views[f"layer[{index}]"].any()
        else:
            _assert_slope(views[f"layer[{index}]"], objective, blob, f"gradient of blob {index}", bound)
    return run


def _assert_slope(
    gradient: npt.ArrayLike, objective: Callable[[], float], values: Array, label: str, bound: float
) -> None:
    """Compare the slope along one random direction; ``values`` are written and put back."""
    direction = np.random.default_rng(values.size).uniform(-1, 1, values.shape)
    old_values = values.copy()
    slopes = []
    for sign in (1, -1):
        values[...] = old_values + sign * _STEP * direction
        slopes.append(objective())
    values[...] = old_values
    slope = (slopes[0] - slopes[1]) / (2 * _STEP)
    # The slope may be near zero by chance: the measure is the gradient's size times the direction's.
    error, size = abs(float(np.sum(np.multiply(gradient, direction))) - slope), float(np.linalg.norm(gradient))
    bound *= max(size * float(np.linalg.norm(direction)), 5e-3)
    assert error <= bound, f"{label}: slope differs by {error:.2e}, allowed: {bound:.2e}"


def assert_close(computed: npt.ArrayLike, reference: npt.ArrayLike, bound: float, label: str) -> None:
    """Assert the shape, and norm(computed - reference) <= bound * norm(reference); for a zero reference, <= bound."""
    computed, reference = np.asarray(computed, np.float64), np.asarray(reference, np.float64)
    assert computed.shape == reference.shape, f"{label}: shape {computed.shape}, expected {reference.shape}"
    error, size = np.linalg.norm(computed - reference), np.linalg.norm(reference)
    assert error <= bound * (size if size > 1e-12 else 1), (
        f"{label}: relative error {error / (size or 1):.2e} > {bound}"
    )


def in_both_orders(*cases: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return the cases, each of which begins with a shape, with ``channels_last``: four axes have both orders."""
    return [(*case, False) for case in cases] + [(*case, True) for case in cases if len(case[0]) == 4]


def window_options(*fields: tuple[int, ...]) -> str:
    """Return the options of a window: kernel, stride, padding and dilation with a value for each axis."""
    named = zip(("kernel_size", "stride", "pad", "dilation"), fields, strict=True)
    return " ".join(f"{name}: {value}" for name, values in named for value in values)


def spread_values(*shape: int, seed: int = 5, gap: float = 0.05) -> Array:
    """Return values of both signs, at least ``gap`` from zero and from each other, in random order.

    So that no maximum, threshold or kink changes sides within a difference's step.
    """
    count = int(np.prod(shape))
    values = (np.arange(count) - count // 2 + 0.5) * gap
    return np.random.default_rng(seed).permutation(values).reshape(shape)


def refusal(text: str, *bottom_shapes: tuple[int, ...], phase: Phase = "TRAIN") -> str:
    """Return the message that refuses the layer in ``text``; fail without a refusal."""
    with pytest.raises(NetError) as caught:
        define(text, *bottom_shapes, phase=phase)
    assert caught.value.layer == "layer"
    return str(caught.value)


def refusal_of_type(type_name: str, options: str, *bottom_shapes: tuple[int, ...]) -> str:
    """Return the refusal of a layer of this type behind ``layer "layer" (Type): ``."""
    message = refusal(f'top: "n0" type: "{type_name}" {options}', *bottom_shapes)
    return message.removeprefix(f'layer "layer" ({type_name}): ')
