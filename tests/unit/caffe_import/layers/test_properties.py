"""Random options and shapes: every layer agrees in shapes, values and gradients with its slow reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference import slow_losses, slow_normalization, slow_windows
from tests.reference.layer_check import Array, check_layer, spread_values

pytestmark = pytest.mark.tf

FEW = settings(max_examples=4)


@dataclass
class Drawn:
    """A layer, its inputs and its expected outputs."""

    text: str
    reference: Callable[..., Sequence[Array]]
    bottoms: list[Array]
    params: list[Array] = field(default_factory=list)
    no_gradient: tuple[int, ...] = ()
    fixed_params: bool = False

    def check(self, **options: Any) -> None:
        check_layer(
            self.text, self.reference, self.bottoms, self.params,
            no_gradient=self.no_gradient, fixed_params=self.fixed_params, **options,
        )  # fmt: skip


def values(draw: st.DrawFn, *shape: int) -> Array:
    """Normal values; of blobs of learned numbers and of layers without kinks."""
    return np.random.default_rng(draw(st.integers(0, 99))).normal(size=shape)


def repeated(name: str, numbers: Sequence[int]) -> str:
    return " ".join(f"{name}: {number}" for number in numbers)


def shapes(min_rank: int = 1, max_rank: int = 4, largest: int = 4) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(1, largest), min_size=min_rank, max_size=max_rank).map(tuple)


def signed(draw: st.DrawFn, axis: int, rank: int) -> int:
    """The axis as a file may write it: from the front or from the end."""
    return axis - rank if draw(st.booleans()) else axis


# windows


@dataclass
class Windows:
    kernel: list[int]
    stride: list[int]
    pad: list[int]
    dilation: list[int]
    size: list[int]

    @property
    def text(self) -> str:
        names = {"kernel_size": self.kernel, "stride": self.stride, "pad": self.pad, "dilation": self.dilation}
        return " ".join(repeated(name, numbers) for name, numbers in names.items())

    @property
    def options(self) -> dict[str, Any]:
        return {"stride": self.stride, "pad": self.pad, "dilation": self.dilation}


@st.composite
def windows(draw: st.DrawFn, *, largest_rank: int = 3) -> Windows:
    rank = draw(st.integers(1, largest_rank))
    most = {1: 4, 2: 3, 3: 2}[rank]
    kernel, stride, pad, dilation = (
        draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))
        for low, high in ((1, most), (1, 3), (0, 2), (1, 2))
    )
    span = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    size = [max(n - 2 * p, 1) + draw(st.integers(0, 3)) for n, p in zip(span, pad, strict=True)]
    return Windows(kernel, stride, pad, dilation, size)


@st.composite
def convolutions(draw: st.DrawFn) -> Drawn:
    w = draw(windows())
    group, per_in, per_out = (draw(st.integers(1, 3)) for _ in range(3))
    has_bias = draw(st.booleans())
    text = (
        f'type: "Convolution" top: "n0" convolution_param {{ {w.text} num_output: {group * per_out} group: {group} '
        f"bias_term: {str(has_bias).lower()} }}"
    )
    params = [values(draw, group * per_out, per_in, *w.kernel)] + [values(draw, group * per_out)] * has_bias
    return Drawn(
        text,
        lambda x, *blobs: [slow_windows.slow_convolution(x, *blobs, **w.options, group=group)],
        [values(draw, 2, group * per_in, *w.size)],
        params,
    )


@st.composite
def deconvolutions(draw: st.DrawFn) -> Drawn:
    w = draw(windows())
    w.size = [draw(st.integers(1, 3)) for _ in w.kernel]
    for i, kernel in enumerate(w.kernel):  # something must be left of the top
        extent = w.stride[i] * (w.size[i] - 1) + w.dilation[i] * (kernel - 1) + 1
        w.pad[i] = min(w.pad[i], (extent - 1) // 2)
    group, per_in, per_out = (draw(st.integers(1, 3)) for _ in range(3))
    has_bias = draw(st.booleans())
    text = (
        f'type: "Deconvolution" top: "n0" convolution_param {{ {w.text} num_output: {group * per_out} group: {group} '
        f"bias_term: {str(has_bias).lower()} }}"
    )
    params = [values(draw, group * per_in, per_out, *w.kernel)] + [values(draw, group * per_out)] * has_bias
    return Drawn(
        text,
        lambda x, *blobs: [slow_windows.slow_deconvolution(x, *blobs, **w.options, group=group)],
        [values(draw, 2, group * per_in, *w.size)],
        params,
    )


@st.composite
def im2cols(draw: st.DrawFn) -> Drawn:
    w = draw(windows().filter(lambda w: len(w.kernel) == 2))
    return Drawn(
        f'type: "Im2col" top: "n0" convolution_param {{ {w.text} }}',
        lambda x: [slow_windows.slow_im2col(x, kernel=w.kernel, **w.options)],
        [values(draw, 2, 2, *w.size)],
    )


@st.composite
def poolings(draw: st.DrawFn) -> Drawn:
    method = draw(st.sampled_from(["MAX", "AVE"]))
    is_ceil = draw(st.booleans())
    kernel = [draw(st.integers(1, 4)) for _ in "hw"]
    pad = [draw(st.integers(0, k - 1)) for k in kernel]
    stride = [draw(st.integers(1, 3)) for _ in "hw"]
    size = [max(k - 2 * p, 1) + draw(st.integers(0, 5)) for k, p in zip(kernel, pad, strict=True)]
    with_mask = method == "MAX" and draw(st.booleans())
    pooled = slow_windows.slow_pooled_size(size, kernel, stride, pad, is_ceil=is_ceil)
    if any((pooled[i] - 1) * stride[i] >= size[i] + pad[i] for i in (0, 1)):
        is_ceil = False  # a window beside the image is refused
    sides = [
        f"{n}_{s}: {v[i]}"
        for n, v in (("kernel", kernel), ("pad", pad), ("stride", stride))
        for i, s in enumerate("hw")
    ]
    text = (
        f'type: "Pooling" top: "n0" pooling_param {{ pool: {method} {" ".join(sides)} '
        f"round_mode: {'CEIL' if is_ceil else 'FLOOR'} }}"
    )
    options = {"method": method, "kernel": kernel, "stride": stride, "pad": pad, "is_ceil": is_ceil}
    if with_mask:
        # A gradient put on the mask goes nowhere: the reference's is a constant of the values.
        text += ' top: "n1"'
    return Drawn(
        text, lambda x: list(slow_windows.slow_pooling(x, **options))[: 1 + with_mask], [spread_values(2, 2, *size)]
    )


@st.composite
def lrns(draw: st.DrawFn) -> Drawn:
    n, alpha, beta, k = (
        draw(st.sampled_from(choices)) for choices in ((1, 3, 5, 7), (0.5, 2.0), (0.5, 0.75, 1.0), (1.0, 2.5))
    )
    across = draw(st.booleans())
    region = "ACROSS_CHANNELS" if across else "WITHIN_CHANNEL"
    sizes = f"local_size: {n} alpha: {alpha} beta: {beta} k: {k}"
    text = f'type: "LRN" top: "n0" lrn_param {{ {sizes} norm_region: {region} }}'
    x = values(draw, *(draw(st.integers(low, 5)) for low in (1, 1, 3, 3)))
    if across:
        return Drawn(text, lambda x: [slow_windows.slow_lrn_across(x, n=n, alpha=alpha, beta=beta, k=k)], [x])
    return Drawn(text, lambda x: [slow_windows.slow_lrn_within(x, n=n, alpha=alpha, beta=beta)], [x])


# shapes and arithmetic


@st.composite
def reductions(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes())
    axis = draw(st.integers(0, len(shape) - 1))
    operation, coeff = draw(st.sampled_from(["SUM", "ASUM", "SUMSQ", "MEAN"])), draw(st.sampled_from([1, -0.5, 3]))
    formulas = {
        "SUM": np.sum,
        "ASUM": lambda row: np.sum(np.abs(row)),
        "SUMSQ": lambda row: np.sum(row**2),
        "MEAN": np.mean,
    }

    def reference(x: Array) -> list[Array]:
        rows = x.reshape(int(np.prod(shape[:axis])), -1)
        return [coeff * np.array([formulas[operation](row) for row in rows]).reshape(shape[:axis])]

    written = signed(draw, axis, len(shape))
    param = f"reduction_param {{ operation: {operation} axis: {written} coeff: {coeff} }}"
    return Drawn(f'type: "Reduction" top: "n0" {param}', reference, [spread_values(*shape)])


@st.composite
def reshapes(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes(min_rank=2))
    start = draw(st.integers(0, len(shape)))
    stop = draw(st.integers(start, len(shape)))
    dims = [0 if draw(st.booleans()) else extent for extent in shape[start:stop]]
    if draw(st.booleans()):
        dims[len(dims) :] = [1]
    if dims and draw(st.booleans()):
        dims[draw(st.integers(0, len(dims) - 1))] = -1
    if start + len(dims) > len(shape) and 0 in dims[len(shape) - start :]:
        dims = [1 if dim == 0 else dim for dim in dims]
    sizes = [shape[start + i] if dim == 0 else dim for i, dim in enumerate(dims)]
    inside = int(np.prod(shape[start:stop]))
    sizes = [inside // int(np.prod([d for d in sizes if d != -1])) if dim == -1 else dim for dim in sizes]
    axis = start if draw(st.booleans()) else start - len(shape) - 1
    n_axes = -1 if stop == len(shape) and draw(st.booleans()) else stop - start
    text = (
        f'type: "Reshape" top: "n0" reshape_param {{ axis: {axis} num_axes: {n_axes} '
        f"shape {{ {repeated('dim', dims)} }} }}"
    )
    return Drawn(text, lambda x: [x.reshape((*shape[:start], *sizes, *shape[stop:]))], [spread_values(*shape)])


@st.composite
def flattens(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes())
    first = draw(st.integers(0, len(shape) - 1))
    last = draw(st.integers(first, len(shape) - 1))
    top = (*shape[:first], int(np.prod(shape[first : last + 1])), *shape[last + 1 :])
    param = f"axis: {signed(draw, first, len(shape))} end_axis: {signed(draw, last, len(shape))}"
    return Drawn(
        f'type: "Flatten" top: "n0" flatten_param {{ {param} }}', lambda x: [x.reshape(top)], [spread_values(*shape)]
    )


@st.composite
def slices(draw: st.DrawFn) -> Drawn:
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    shape = list(draw(shapes()))
    axis = draw(st.integers(0, len(shape) - 1))
    shape[axis] = sum(sizes)
    points = np.cumsum(sizes)[:-1].tolist()
    if len(set(sizes)) == 1 and draw(st.booleans()):
        written = ""
    else:
        written = repeated("slice_point", points)
    tops = " ".join(f'top: "n{i}"' for i in range(len(sizes)))
    param = f"slice_param {{ axis: {signed(draw, axis, len(shape))} {written} }}"
    return Drawn(
        f'type: "Slice" {tops} {param}',
        lambda x: [p.copy() for p in np.split(x, points, axis)],
        [spread_values(*shape)],
    )


@st.composite
def concats(draw: st.DrawFn) -> Drawn:
    shape = list(draw(shapes()))
    axis = draw(st.integers(0, len(shape) - 1))
    bottoms = []
    for extent in draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)):
        shape[axis] = extent
        bottoms.append(values(draw, *shape))
    param = f"concat_param {{ axis: {signed(draw, axis, len(shape))} }}"
    return Drawn(f'type: "Concat" top: "n0" {param}', lambda *parts: [np.concatenate(parts, axis)], bottoms)


@st.composite
def crops(draw: st.DrawFn) -> Drawn:
    top_shape = draw(shapes())
    rank = len(top_shape)
    axis = draw(st.integers(0, rank - 1))
    has_one_offset = draw(st.booleans())
    offsets = [draw(st.integers(0, 2)) for _ in range(1 if has_one_offset else rank - axis)]
    each = offsets * (rank - axis) if has_one_offset else offsets
    source = [n + (each[i - axis] + draw(st.integers(0, 1)) if i >= axis else 0) for i, n in enumerate(top_shape)]
    cut = tuple(
        slice(each[i - axis], each[i - axis] + n) if i >= axis else slice(None) for i, n in enumerate(top_shape)
    )
    param = f"crop_param {{ axis: {signed(draw, axis, rank)} {repeated('offset', offsets)} }}"
    return Drawn(
        f'type: "Crop" top: "n0" {param}',
        lambda x, _: [x[cut].copy()],
        [spread_values(*source), np.zeros(top_shape)],
        no_gradient=(1,),
    )


@st.composite
def eltwises(draw: st.DrawFn) -> Drawn:
    operation = draw(st.sampled_from(["SUM", "PROD", "MAX"]))
    n_bottoms = draw(st.integers(2, 4))
    shape = draw(shapes())
    coefficients = [draw(st.sampled_from([1, -2, 0.5])) for _ in range(n_bottoms)]
    written = ""
    if operation == "SUM" and draw(st.booleans()):
        written = " ".join(f"coeff: {c}" for c in coefficients)
    else:
        coefficients = [1] * n_bottoms
    bottoms = spread_values(n_bottoms, *shape)  # no ties between bottoms
    reference = {
        "SUM": lambda *b: [sum(c * x for c, x in zip(coefficients, b, strict=True))],
        "PROD": lambda *b: [np.prod(np.stack(b), axis=0)],
        "MAX": lambda *b: [np.max(np.stack(b), axis=0)],
    }[operation]
    param = f"eltwise_param {{ operation: {operation} {written} }}"
    return Drawn(f'type: "Eltwise" top: "n0" {param}', reference, [x.copy() for x in bottoms])


@st.composite
def scales(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes())
    axis = draw(st.integers(0, len(shape) - 1))
    n_axes = draw(st.integers(0, len(shape) - axis))
    has_bias, is_scale, by_bottom = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    covered = shape[axis : axis + n_axes]
    spread = (1,) * axis + covered + (1,) * (len(shape) - axis - n_axes)
    kind = "Scale" if is_scale else "Bias"
    written = -1 if axis + n_axes == len(shape) and draw(st.booleans()) else n_axes
    bias = f"bias_term: {str(has_bias).lower()}" if is_scale else ""
    text = (
        f'type: "{kind}" top: "n0" {kind.lower()}_param {{ axis: {signed(draw, axis, len(shape))} num_axes: {written} '
        f"{bias} }}"
    )

    def reference(x: Array, first: Array, *second: Array) -> list[Array]:
        if not is_scale:
            return [x + first.reshape(spread)]
        return [x * first.reshape(spread) + (second[0].reshape(spread) if second else 0)]

    given_values = values(draw, *covered)
    params = [values(draw, *covered)] if is_scale and has_bias else []
    if by_bottom:
        return Drawn(text, reference, [values(draw, *shape), given_values], params)
    return Drawn(text, reference, [values(draw, *shape)], [given_values, *params])


@st.composite
def inner_products(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes())
    axis = draw(st.integers(0, len(shape) - 1))
    is_transposed, has_bias = draw(st.booleans()), draw(st.booleans())
    n_inputs, n_outputs = int(np.prod(shape[axis:])), draw(st.integers(1, 3))
    text = (
        f'type: "InnerProduct" top: "n0" inner_product_param {{ num_output: {n_outputs} '
        f"axis: {signed(draw, axis, len(shape))} transpose: {str(is_transposed).lower()} "
        f"bias_term: {str(has_bias).lower()} }}"
    )

    def reference(x: Array, w: Array, *b: Array) -> list[Array]:
        flat = x.reshape(-1, n_inputs) @ (w if is_transposed else w.T)
        return [(flat + (b[0] if b else 0)).reshape(*shape[:axis], n_outputs)]

    weights = values(draw, *((n_inputs, n_outputs) if is_transposed else (n_outputs, n_inputs)))
    return Drawn(text, reference, [values(draw, *shape)], [weights] + [values(draw, n_outputs)] * has_bias)


@st.composite
def mvns(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes())
    across, variance = draw(st.booleans()), draw(st.booleans())
    four = (*shape, *(1,) * (4 - len(shape)))
    if int(np.prod(four[1 if across else 2 :])) < 3:
        variance = False  # of two values the normalised ones are constants, and the gradient is rounding
    param = f"across_channels: {str(across).lower()} normalize_variance: {str(variance).lower()}"
    options = {"across_channels": across, "normalize_variance": variance, "eps": 1e-9}
    return Drawn(
        f'type: "MVN" top: "n0" mvn_param {{ {param} }}',
        lambda x: [slow_normalization.slow_mvn(x.reshape(four), **options)],
        [values(draw, *shape)],
    )


# losses


@dataclass
class Normalised:
    text: str
    options: dict[str, Any]


@st.composite
def normalised(draw: st.DrawFn, default: str) -> Normalised:
    ignore = draw(st.sampled_from([None, 0, 2]))
    form = draw(st.sampled_from(["none", "old", "new"]))
    mode, written = default, ""
    if form == "old":
        old = draw(st.booleans())
        mode, written = ("VALID" if old else "BATCH_SIZE"), f"normalize: {str(old).lower()}"
    if form == "new":
        mode = draw(st.sampled_from(["FULL", "VALID", "BATCH_SIZE", "NONE"]))
        written = f"normalization: {mode} normalize: {str(draw(st.booleans())).lower()}"
    if ignore is not None:
        written += f" ignore_label: {ignore}"
    return Normalised(f"loss_param {{ {written} }}", {"ignore": ignore, "mode": mode})


@st.composite
def class_losses(draw: st.DrawFn) -> Drawn:
    kind = draw(st.sampled_from(["SoftmaxWithLoss", "InfogainLoss"]))
    shape = list(draw(shapes(min_rank=2)))
    axis = draw(st.integers(1, len(shape) - 1))
    shape[axis] = 3
    loss = draw(normalised("VALID"))
    weight = draw(st.sampled_from(["", "loss_weight: 0.5"]))
    positions = shape[:axis] + shape[axis + 1 :]
    labels = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 3, positions).astype(float)
    param = "softmax_param" if kind == "SoftmaxWithLoss" else "infogain_loss_param"
    text = f'type: "{kind}" top: "n0" {weight} {param} {{ axis: {signed(draw, axis, len(shape))} }} {loss.text}'
    bottoms = [values(draw, *shape), labels]
    if kind == "SoftmaxWithLoss":
        return Drawn(
            text,
            lambda x, t: [np.float64(slow_losses.slow_softmax_loss(x, t, axis, **loss.options))],
            bottoms,
            no_gradient=(1,),
        )
    return Drawn(
        text,
        lambda x, t, m: [np.float64(slow_losses.slow_infogain_loss(x, t, m, axis, **loss.options))],
        [*bottoms, np.abs(values(draw, 3, 3))],
        no_gradient=(1, 2),
    )


@st.composite
def sigmoid_losses(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes(min_rank=2))
    loss = draw(normalised("BATCH_SIZE"))
    targets = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 3, shape).astype(float)
    return Drawn(
        f'type: "SigmoidCrossEntropyLoss" top: "n0" {loss.text}',
        lambda x, t: [np.float64(slow_losses.slow_sigmoid_cross_entropy(x, t, **loss.options))],
        [values(draw, *shape), targets],
        no_gradient=(1,),
    )


@st.composite
def hinge_losses(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes(min_rank=2))
    norm = draw(st.sampled_from([1, 2]))
    labels = np.random.default_rng(draw(st.integers(0, 99))).integers(0, int(np.prod(shape[1:])), shape[0])
    return Drawn(
        f'type: "HingeLoss" top: "n0" hinge_loss_param {{ norm: L{norm} }}',
        lambda x, t: [np.float64(slow_losses.slow_hinge_loss(x, t, norm=norm))],
        [spread_values(*shape), labels.astype(float)],
        no_gradient=(1,),
    )


@st.composite
def contrastive_losses(draw: st.DrawFn) -> Drawn:
    n, c = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    legacy, margin = draw(st.booleans()), draw(st.sampled_from([1.0, 8.0, 40.0]))
    shape = (n, c, 1, 1) if draw(st.booleans()) else (n, c)
    similar = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 2, n).astype(float)
    return Drawn(
        f'type: "ContrastiveLoss" top: "n0" contrastive_loss_param {{ margin: {margin} '
        f"legacy_version: {str(legacy).lower()} }}",
        lambda a, b, s: [np.float64(slow_losses.slow_contrastive_loss(a, b, s, margin=margin, legacy=legacy))],
        # Far apart: Caffe adds 1e-4 to the distance in its divisor.
        [0.2 * values(draw, *shape), 0.2 * values(draw, *shape) + 4, similar],
        no_gradient=(2,),
    )


# scores, and what is normalised


@st.composite
def accuracies(draw: st.DrawFn) -> Drawn:
    shape = list(draw(shapes(min_rank=2)))
    axis = draw(st.integers(1, len(shape) - 1))
    shape[axis] = 4
    top_k, ignore, per_class = draw(st.integers(1, 4)), draw(st.sampled_from([None, 1])), draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    labels = rng.integers(0, 4, shape[:axis] + shape[axis + 1 :]).astype(float)
    scores = rng.integers(0, 3, shape).astype(float)  # with ties
    written = f"ignore_label: {ignore}" if ignore is not None else ""
    param = f"accuracy_param {{ axis: {signed(draw, axis, len(shape))} top_k: {top_k} {written} }}"

    def reference(x: Array, t: Array) -> list[Array]:
        share, shares = slow_losses.slow_accuracy(x, t, axis, top_k=top_k, ignore=ignore)
        return [np.float64(share), shares][: 1 + per_class]

    tops = 'top: "n0" top: "n1"' if per_class else 'top: "n0"'
    return Drawn(f'type: "Accuracy" {tops} {param}', reference, [scores, labels], no_gradient=(0, 1))


@st.composite
def argmaxes(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes(min_rank=2))
    axis = draw(st.sampled_from([None, *range(len(shape))]))
    with_values = draw(st.booleans())
    extent = int(np.prod(shape[1:])) if axis is None else shape[axis]
    top_k = draw(st.integers(1, extent))
    x = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 3, shape).astype(float)  # with ties
    written = f"axis: {signed(draw, axis, len(shape))}" if axis is not None else ""
    param = f"argmax_param {{ top_k: {top_k} out_max_val: {str(with_values).lower()} {written} }}"

    def largest(row: Array) -> tuple[list[float], list[float]]:
        order = sorted(range(len(row)), key=lambda k: (row[k], k), reverse=True)[:top_k]
        return [float(k) for k in order], [row[k] for k in order]

    def reference(x: Array) -> list[Array]:
        if axis is None:
            rows = [largest(row.reshape(-1)) for row in x]
            tops = [[indices, maxima] if with_values else [indices] for indices, maxima in rows]
            return [np.array(tops).reshape(shape[0], 1 + with_values, top_k, *(1,) * (len(shape) - 3))]
        return [np.apply_along_axis(lambda row: largest(row)[with_values], axis, x)]

    return Drawn(f'type: "ArgMax" top: "n0" {param}', reference, [x], no_gradient=(0,))


@st.composite
def softmaxes(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes())
    axis = draw(st.integers(0, len(shape) - 1))
    param = f"softmax_param {{ axis: {signed(draw, axis, len(shape))} }}"
    return Drawn(
        f'type: "Softmax" top: "n0" {param}', lambda x: [slow_losses.slow_softmax(x, axis)], [values(draw, *shape)]
    )


@st.composite
def tiles(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes())
    axis, n = draw(st.integers(0, len(shape) - 1)), draw(st.integers(1, 3))
    times = [n if i == axis else 1 for i in range(len(shape))]
    param = f"tile_param {{ axis: {signed(draw, axis, len(shape))} tiles: {n} }}"
    return Drawn(f'type: "Tile" top: "n0" {param}', lambda x: [np.tile(x, times)], [values(draw, *shape)])


@st.composite
def spps(draw: st.DrawFn) -> Drawn:
    height, method = draw(st.integers(1, 3)), draw(st.sampled_from(["MAX", "AVE"]))
    size = [draw(st.sampled_from([4, 7, 8, 11, 12])) for _ in "hw"]
    param = f"spp_param {{ pyramid_height: {height} pool: {method} }}"
    return Drawn(
        f'type: "SPP" top: "n0" {param}',
        lambda x: [slow_windows.slow_spp(x, height=height, method=method)],
        [spread_values(2, 2, *size)],
    )


@st.composite
def batch_norms(draw: st.DrawFn) -> Drawn:
    shape = (draw(st.integers(3, 5)), *draw(shapes(min_rank=1, max_rank=4, largest=3)))
    eps, factor = draw(st.sampled_from([1e-5, 0.1])), draw(st.sampled_from([0.0, 1.0, 2.5]))
    stored = draw(st.booleans())
    text = (
        f'type: "BatchNorm" top: "n0" batch_norm_param {{ use_global_stats: {str(stored).lower()} eps: {eps} '
        "moving_average_fraction: 0.9 }"
    )
    sums = [values(draw, shape[1]), np.abs(values(draw, shape[1])), np.array([factor])]

    def reference(x: Array, means: Array, variances: Array, weight: Array) -> list[Array]:
        if stored:
            by = 1 / weight[0] if weight[0] else 0.0
            means, variances = means * by, variances * by
        else:
            means, variances = slow_normalization.slow_channel_statistics(x)
        return [slow_normalization.slow_batch_norm(x, means, variances + eps)]

    return Drawn(text, reference, [values(draw, *shape)], sums, fixed_params=True)


@st.composite
def convolutions_along(draw: st.DrawFn) -> Drawn:
    """A channel axis other than 1: the axes before it are independent images."""
    outer_shape = draw(st.lists(st.integers(1, 3), min_size=0, max_size=3))
    rank = draw(st.integers(0, 2))
    channels, n_outputs, kernel = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    is_transposed = draw(st.booleans())
    size = [draw(st.integers(2, 4)) for _ in range(rank)]
    shape = [*outer_shape, channels, *size]
    kind = "Deconvolution" if is_transposed else "Convolution"
    written = f"kernel_size: {kernel}" if rank else ""
    text = (
        f'type: "{kind}" top: "n0" convolution_param {{ num_output: {n_outputs} {written} '
        f"axis: {signed(draw, len(outer_shape), len(shape))} }}"
    )
    slow = slow_windows.slow_deconvolution if is_transposed else slow_windows.slow_convolution

    def reference(x: Array, w: Array, b: Array) -> list[Array]:
        ones = [1] * rank
        top = slow(x.reshape(-1, *shape[len(outer_shape) :]), w, b, stride=ones, pad=[0] * rank, dilation=ones)
        return [top.reshape(*outer_shape, *top.shape[1:])]

    sides = (channels, n_outputs) if is_transposed else (n_outputs, channels)
    params = [values(draw, *sides, *(kernel,) * rank), values(draw, n_outputs)]
    return Drawn(text, reference, [values(draw, *shape)], params)


ALL = {
    "convolution": convolutions, "deconvolution": deconvolutions, "im2col": im2cols, "pooling": poolings, "lrn": lrns,
    "reduction": reductions, "reshape": reshapes, "flatten": flattens, "slice": slices, "concat": concats,
    "crop": crops, "eltwise": eltwises, "scale": scales, "inner_product": inner_products, "mvn": mvns,
    "class_loss": class_losses, "sigmoid_loss": sigmoid_losses, "hinge_loss": hinge_losses,
    "contrastive": contrastive_losses, "accuracy": accuracies, "argmax": argmaxes, "softmax": softmaxes, "tile": tiles,
    "spp": spps, "batch_norm": batch_norms, "convolution_along": convolutions_along,
}  # fmt: skip


@pytest.mark.parametrize("drawn", [pytest.param(make(), id=name) for name, make in ALL.items()])
def test_agrees(drawn: st.SearchStrategy[Drawn]) -> None:
    @FEW
    @given(drawn, st.booleans())
    def run(drawn: Drawn, channels_last: bool) -> None:
        drawn.check(channels_last=channels_last)

    run()
