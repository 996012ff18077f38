"""Layers that move values without computing: Concat, Slice, Split, Flatten, Reshape, Tile, Crop, Silence, ..."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, define, refusal, run_layer, spread_values

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("channels_last", [False, True])
def test_concat(axis: int, channels_last: bool) -> None:
    second = [2, 3, 2, 2]
    second[axis] += 1
    check_layer(
        f'top: "n0" type: "Concat" concat_param {{ axis: {axis} }}',
        lambda *bottoms: [np.concatenate(bottoms, axis)],
        [spread_values(2, 3, 2, 2), spread_values(*second)],
        channels_last=channels_last,
    )


def test_concat_options() -> None:
    assert define('top: "n0" type: "Concat" concat_param { concat_dim: 0 }', (2, 3), (4, 3)).top_shapes == ((6, 3),)
    assert "allowed: one of both" in refusal('top: "n0" type: "Concat" concat_param { concat_dim: 0 axis: 0 }', (2, 3))
    assert refusal('top: "n0" type: "Concat"', (2, 3, 4), (2, 3, 5)).endswith(
        'bottom "x1" has shape (2, 3, 5); expected that of "x0", (2, 3, 4), except along axis 1'
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("channels_last", [False, True])
def test_slice(axis: int, channels_last: bool) -> None:
    shape = [2, 2, 2, 2]
    shape[axis] = 5
    check_layer(
        f'top: "n0" top: "n1" top: "n2" type: "Slice" slice_param {{ axis: {axis} slice_point: 1 slice_point: 3 }}',
        lambda x: np.split(x, [1, 3], axis),
        [spread_values(*shape)],
        channels_last=channels_last,
    )


def test_slice_options() -> None:
    text = 'top: "n0" top: "n1" type: "Slice"'
    assert define(text, (2, 6)).top_shapes == ((2, 3), (2, 3))
    assert "does not divide into 2 equal tops" in refusal(text, (2, 5))
    assert "needs 1 rising points inside it" in refusal(f"{text} slice_param {{ slice_point: 6 }}", (2, 6))
    assert "give axis" in refusal(f"{text} slice_param {{ slice_dim: 1 axis: 1 }}", (2, 6))


def test_split_adds_the_readers_gradients() -> None:
    check_layer('top: "n0" top: "n1" top: "n2" type: "Split"', lambda x: [x, x, x], [spread_values(2, 3)])


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ("", (2, 24)),
        ("axis: 0 end_axis: 1", (6, 4, 2)),
        ("axis: 2", (2, 3, 8)),
        ("end_axis: -2", (2, 12, 2)),
        ("axis: 2 end_axis: 1", (2, 3, 1, 4, 2)),
    ],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_flatten(options: str, shape: tuple[int, ...], channels_last: bool) -> None:
    check_layer(
        f'top: "n0" type: "Flatten" flatten_param {{ {options} }}',
        lambda x: [x.reshape(shape)],
        [spread_values(2, 3, 4, 2)],
        channels_last=channels_last,
    )


def test_flatten_refuses_an_end_before_its_begin() -> None:
    message = refusal('top: "n0" type: "Flatten" flatten_param { axis: 2 end_axis: 0 }', (2, 3, 4))
    assert message.endswith("flatten_param.end_axis=0 is more than one before axis=2")


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ("shape { dim: 0 dim: -1 }", (2, 24)),
        ("shape { dim: 4 dim: -1 dim: 2 }", (4, 6, 2)),
        ("axis: 1 num_axes: 2 shape { dim: 6 dim: 2 }", (2, 6, 2, 2)),
        ("axis: -1 shape { dim: 1 }", (2, 3, 4, 2, 1)),
        ("axis: 0 num_axes: 0 shape { dim: 1 }", (1, 2, 3, 4, 2)),
        ("axis: 1 shape { dim: 0 dim: -1 }", (2, 3, 8)),
    ],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_reshape(options: str, shape: tuple[int, ...], channels_last: bool) -> None:
    check_layer(
        f'top: "n0" type: "Reshape" reshape_param {{ {options} }}',
        lambda x: [x.reshape(shape)],
        [spread_values(2, 3, 4, 2)],
        channels_last=channels_last,
    )


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ("shape { dim: -1 dim: -1 }", "at most one -1"),
        ("shape { dim: 7 dim: -1 }", "not a multiple of 7"),
        ("shape { dim: 5 }", "has 6 values, top shape (5,) has 5"),
        ("axis: 3 shape { dim: 1 }", "axis=3 num_axes=-1 does not fit"),
        ("shape { dim: 1 dim: 6 dim: 0 }", "has no axis 2 to copy"),
    ],
)
def test_reshape_refusals(options: str, part: str) -> None:
    assert part in refusal(f'top: "n0" type: "Reshape" reshape_param {{ {options} }}', (2, 3))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("channels_last", [False, True])
def test_tile(axis: int, channels_last: bool) -> None:
    check_layer(
        f'top: "n0" type: "Tile" tile_param {{ axis: {axis} tiles: 3 }}',
        lambda x: [np.concatenate([x, x, x], axis)],
        [spread_values(2, 3, 2, 2)],
        channels_last=channels_last,
    )


@pytest.mark.parametrize(
    ("options", "cut"),
    [
        ("", (slice(None), slice(None), slice(0, 2), slice(0, 3))),
        ("offset: 1", (slice(None), slice(None), slice(1, 3), slice(1, 4))),
        ("offset: 1 offset: 2", (slice(None), slice(None), slice(1, 3), slice(2, 5))),
        ("axis: 1 offset: 1", (slice(None), slice(1, 2), slice(1, 3), slice(1, 4))),
    ],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_crop(options: str, cut: tuple[slice, ...], channels_last: bool) -> None:
    check_layer(
        f'top: "n0" type: "Crop" crop_param {{ {options} }}',
        lambda x, _: [x[cut]],
        [spread_values(2, 3, 4, 5), np.zeros((2, 1, 2, 3) if "axis" in options else (2, 3, 2, 3))],
        no_gradient=(1,),
        channels_last=channels_last,
    )


def test_crop_refusals() -> None:
    assert "exceeds the bottom's 4" in refusal(
        'top: "n0" type: "Crop" crop_param { offset: 3 }', (1, 1, 4, 4), (1, 1, 2, 2)
    )
    text = 'top: "n0" type: "Crop" crop_param { offset: 1 offset: 1 offset: 1 }'
    assert "0, 1 or 2 offsets" in refusal(text, (1, 1, 4, 4), (1, 1, 2, 2))


def test_silence_takes_everything_and_sends_nothing_back() -> None:
    run = run_layer('type: "Silence"', [spread_values(2, 3), spread_values(4)])
    assert run.tops == ()
    assert run.passes.blob_gradients["x0"] is None


@pytest.mark.parametrize("channels_last", [False, True])
def test_batch_reindex_repeats_and_drops_samples(channels_last: bool) -> None:
    order = [3, 0, 0, 2, 3]
    check_layer(
        'top: "n0" type: "BatchReindex"',
        lambda x, _: [x[order]],
        [spread_values(4, 2, 2, 1), order],
        no_gradient=(1,),
        channels_last=channels_last,
    )


@pytest.mark.parametrize("channels_last", [False, True])
def test_filter_keeps_selected_samples(channels_last: bool) -> None:
    x, y, selector = spread_values(4, 2, 1, 2), spread_values(4, 3), [0, 1, 0, 1]
    seeds = {"n0": np.ones((2, 2, 1, 2)), "n1": np.full((2, 3), 2.0)}
    run = run_layer(
        'top: "n0" top: "n1" type: "Filter"', [x, y, selector], channels_last=channels_last, top_gradients=seeds
    )
    np.testing.assert_array_equal(run.tops[0], x[[1, 3]].astype(np.float32))
    np.testing.assert_array_equal(run.tops[1], y[[1, 3]].astype(np.float32))
    np.testing.assert_array_equal(run.passes.blob_gradients["x1"], 2 * np.repeat([[0], [1], [0], [1]], 3, axis=1))


def test_filter_refusals() -> None:
    text = 'top: "n0" type: "Filter"'
    assert "needs one selector value per sample" in refusal(text, (4, 2), (3,))
    assert "needs as many" in refusal(text, (4, 2), (4, 2), (4,))


@pytest.mark.parametrize("bias", [False, True])
def test_embed_looks_rows_up(bias: bool) -> None:
    rng = np.random.default_rng(1)
    words = np.array([[0, 2, 2], [4, 0, 1]])

    def reference(_: np.ndarray, table: np.ndarray, *offset: np.ndarray) -> list[np.ndarray]:
        top = np.zeros((2, 3, 3))
        for place in np.ndindex(2, 3):
            top[place] = table[words[place]] + (offset[0] if offset else 0)
        return [top]

    check_layer(
        f'top: "n0" type: "Embed" embed_param {{ num_output: 3 input_dim: 5 bias_term: {str(bias).lower()} }}',
        reference,
        [words],
        [rng.normal(size=(5, 3)), rng.normal(size=3)][: 1 + bias],
        no_gradient=(0,),
    )


def test_parameter_is_its_blob() -> None:
    values = spread_values(2, 3)
    check_layer('top: "n0" type: "Parameter" parameter_param { shape { dim: 2 dim: 3 } }', lambda p: [p], [], [values])


@pytest.mark.parametrize("operation", ["SUM", "ASUM", "SUMSQ", "MEAN"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("channels_last", [False, True])
def test_reduction(operation: str, axis: int, channels_last: bool) -> None:
    formulas = {
        "SUM": sum,
        "ASUM": lambda values: sum(abs(v) for v in values),
        "SUMSQ": lambda values: sum(v * v for v in values),
        "MEAN": lambda values: sum(values) / len(values),
    }

    def reference(x: np.ndarray) -> list[np.ndarray]:
        kept = x.shape[: axis % x.ndim]
        rows = x.reshape(int(np.prod(kept)), -1)
        return [np.array([-1.5 * formulas[operation](list(row)) for row in rows]).reshape(kept)]

    check_layer(
        f'top: "n0" type: "Reduction" reduction_param {{ operation: {operation} axis: {axis} coeff: -1.5 }}',
        reference,
        [spread_values(2, 3, 2, 2)],
        channels_last=channels_last,
    )
