"""Pooling: where the windows lie, what they give, who takes the gradient."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.layer_check import check_layer, define, refusal, run_layer, spread_values
from tests.reference.slow_windows import slow_pooled_size, slow_pooling

pytestmark = pytest.mark.tf


def pooling(options: str, tops: str = 'top: "n0"') -> str:
    return f'type: "Pooling" {tops} pooling_param {{ {options} }}'


WINDOWS = [
    # size, kernel, stride, pad
    ((8, 8), (2, 2), (2, 2), (0, 0)),
    ((8, 8), (3, 3), (2, 2), (0, 0)),
    ((7, 7), (3, 3), (2, 2), (0, 0)),
    ((7, 6), (2, 2), (2, 2), (0, 0)),
    ((5, 7), (2, 2), (2, 2), (1, 1)),
    ((6, 6), (3, 3), (1, 1), (1, 1)),
    ((7, 7), (3, 3), (2, 2), (1, 1)),
    ((7, 8), (5, 4), (3, 2), (2, 1)),
    ((6, 5), (3, 2), (2, 3), (0, 1)),
    ((4, 4), (5, 5), (2, 2), (0, 0)),
    ((8, 8), (2, 2), (3, 3), (0, 0)),
    ((6, 7), (1, 1), (1, 1), (0, 0)),
    ((4, 4), (4, 4), (4, 4), (3, 3)),
    ((4, 4), (5, 5), (1, 1), (2, 2)),  # a kernel larger than the image, at stride 1
    ((5, 7), (7, 3), (2, 1), (3, 1)),
]


def options_of(window: tuple[tuple[int, int], ...]) -> str:
    (_, kernel, stride, pad) = window
    return (
        f"kernel_h: {kernel[0]} kernel_w: {kernel[1]} stride_h: {stride[0]} stride_w: {stride[1]} "
        f"pad_h: {pad[0]} pad_w: {pad[1]}"
    )


@pytest.mark.parametrize(
    ("window", "mode"),
    # FLOOR leaves no window where the kernel is larger than the image.
    [(window, "CEIL") for window in WINDOWS] + [(w, "FLOOR") for w in WINDOWS if w[1][0] <= w[0][0] + 2 * w[3][0]],
    ids=str,
)
def test_size(window: tuple[tuple[int, int], ...], mode: str) -> None:
    size, kernel, stride, pad = window
    expected = slow_pooled_size(size, kernel, stride, pad, is_ceil=mode == "CEIL")
    assert define(pooling(f"{options_of(window)} round_mode: {mode}"), (2, 3, *size)).top_shapes == ((2, 3, *expected),)


@pytest.mark.parametrize(
    ("window", "channels_last"),
    # The axis order changes nothing of a window: an unpadded, a padded and an unequal window are enough.
    [(window, False) for window in WINDOWS] + [(WINDOWS[number], True) for number in (1, 4, 7)],
    ids=str,
)
@pytest.mark.parametrize("method", ["MAX", "AVE"])
def test_values_and_gradients(window: tuple[tuple[int, int], ...], method: str, channels_last: bool) -> None:
    size, kernel, stride, pad = window
    check_layer(
        pooling(f"pool: {method} {options_of(window)}"),
        lambda x: [slow_pooling(x, method=method, kernel=kernel, stride=stride, pad=pad)[0]],
        [spread_values(1, 2, *size)],
        channels_last=channels_last,
    )


@pytest.mark.parametrize("method", ["MAX", "AVE"])
def test_floor(method: str) -> None:
    check_layer(
        pooling(f"pool: {method} kernel_size: 3 stride: 2 pad: 1 round_mode: FLOOR"),
        lambda x: [slow_pooling(x, method=method, kernel=(3, 3), stride=(2, 2), pad=(1, 1), is_ceil=False)[0]],
        [spread_values(1, 2, 6, 6)],
    )


@pytest.mark.parametrize("is_ceil", [True, False])
@pytest.mark.parametrize("round_mode", [False, True])
def test_ceil_mode_of_the_forks(is_ceil: bool, round_mode: bool) -> None:
    says_both = f"round_mode: {'CEIL' if is_ceil else 'FLOOR'}" if round_mode else ""
    check_layer(
        pooling(f"kernel_size: 3 stride: 2 ceil_mode: {str(is_ceil).lower()} {says_both}"),
        lambda x: [slow_pooling(x, method="MAX", kernel=(3, 3), stride=(2, 2), is_ceil=is_ceil)[0]],
        [spread_values(1, 2, 6, 6)],
    )


@pytest.mark.parametrize("method", ["MAX", "AVE"])
def test_global(method: str) -> None:
    check_layer(
        pooling(f"pool: {method} global_pooling: true"),
        lambda x: [slow_pooling(x, method=method, kernel=x.shape[2:], stride=(1, 1))[0]],
        [spread_values(2, 3, 4, 5)],
    )


@pytest.mark.parametrize("window", [WINDOWS[1], WINDOWS[4], WINDOWS[7]], ids=str)
def test_mask_names_the_place_in_the_plane(window: tuple[tuple[int, int], ...]) -> None:
    size, kernel, stride, pad = window
    x = spread_values(2, 3, *size)
    run = run_layer(pooling(options_of(window), 'top: "n0" top: "n1"'), [x])
    top, mask = slow_pooling(x, method="MAX", kernel=kernel, stride=stride, pad=pad)
    np.testing.assert_allclose(run.tops[0], top, rtol=1e-6)
    np.testing.assert_array_equal(run.tops[1], mask)


def test_first_of_equal_values_takes_the_gradient() -> None:
    x = np.ones((1, 1, 4, 4))
    run = run_layer(pooling("kernel_size: 2 stride: 2"), [x], top_gradients={"n0": np.full((1, 1, 2, 2), 3.0)})
    expected = np.zeros((4, 4))
    expected[::2, ::2] = 3
    np.testing.assert_array_equal(run.passes.blob_gradients["x0"][0, 0], expected)


def test_values_below_zero_win_over_padding() -> None:
    run = run_layer(pooling("kernel_size: 3 stride: 2 pad: 1"), [np.full((1, 1, 4, 4), -2.0)])
    assert (run.tops[0] == -2).all()


def test_stochastic_train_picks_cells_in_proportion_to_their_value() -> None:
    x = np.tile(np.float32([[1, 3], [0, 4]]), (1, 1, 100, 100))
    run = run_layer(
        pooling("pool: STOCHASTIC kernel_size: 2 stride: 2"), [x], top_gradients={"n0": np.ones((1, 1, 100, 100))}
    )
    shares = [(run.tops[0] == value).mean() for value in (1, 3, 0, 4)]
    np.testing.assert_allclose(shares, [1 / 8, 3 / 8, 0, 4 / 8], atol=0.025)  # 5 sigma of 10,000 draws
    gradient = run.passes.blob_gradients["x0"]
    assert gradient is not None
    np.testing.assert_array_equal(gradient * x, np.where(gradient != 0, x, 0))
    assert gradient.sum() == 100 * 100


def test_stochastic_test_gives_the_expectation() -> None:
    check_layer(
        pooling("pool: STOCHASTIC kernel_size: 2 stride: 1"),
        lambda x: [
            np.stack(
                [
                    [
                        [(w**2).sum() / w.sum() for w in (plane[y : y + 2, k : k + 2] for k in range(3))]
                        for y in range(3)
                    ]
                    for plane in x[0]
                ]
            )[None]
        ],
        [np.abs(spread_values(1, 2, 4, 4))],
        phase="TEST",
    )


def test_stochastic_test_gives_0_where_a_sum_is_not_positive() -> None:
    """Source: BVLC Caffe, pooling_layer.cu, StoPoolForwardTest: ``(cumsum > 0.) ? cumvalues / cumsum : 0.``."""
    windows = np.float32([[0, 0, 0, 0], [1, -3, 1, 0], [2, -2, 0, 0], [4, -1, 0, 1]])
    image = windows.reshape(4, 1, 1, 2, 2)
    run = run_layer(
        pooling("pool: STOCHASTIC kernel_size: 2 stride: 2"),
        [image[:, :, 0]],
        phase="TEST",
        top_gradients={"n0": np.ones((4, 1, 1, 1))},
    )
    assert run.tops[0].reshape(-1).tolist() == [0, 0, 0, 4.5]
    gradient = run.passes.blob_gradients["x0"]
    assert gradient is not None
    # Of s / t, s the sum of squares and t the sum: (2 x t - s) / t^2.
    expected = np.concatenate([np.zeros((3, 4)), (2 * windows[3:] * 4 - 18) / 16])
    np.testing.assert_allclose(gradient.reshape(4, 4), expected)


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ("", "allowed: either kernel_size, or kernel_h and kernel_w, or global_pooling: true"),
        (
            "kernel_size: 2 kernel_h: 2 kernel_w: 2",
            "allowed: either kernel_size, or kernel_h and kernel_w, or global_pooling: true",
        ),
        ("kernel_size: 2 stride_h: 2", "allowed: either stride, or both stride_h and stride_w"),
        ("kernel_size: 2 pad: 1 pad_h: 1 pad_w: 1", "allowed: either pad, or both pad_h and pad_w"),
        ("kernel_size: 2 pad: 2", "pad (2, 2) must be smaller than kernel (2, 2)"),
        ("kernel_size: 0", "kernel (0, 0), stride (1, 1): every value must be at least 1"),
        ("global_pooling: true kernel_size: 2", "has global_pooling and a kernel size; allowed: one of both"),
        ("global_pooling: true stride: 2", "global_pooling takes no pad and stride 1; found pad (0, 0), stride (2, 2)"),
        (
            "pool: STOCHASTIC kernel_size: 3 pad: 1",
            "pad (1, 1) with pool: STOCHASTIC; padding is allowed for MAX and AVE only",
        ),
        ("kernel_size: 9", "kernel (9, 9), stride (1, 1) leave no window in a bottom of 6x6"),
        (
            "kernel_size: 2 round_mode: FLOOR ceil_mode: true",
            "round_mode: FLOOR and ceil_mode: true contradict; give one of both",
        ),
        (
            "kernel_size: 2 round_mode: CEIL ceil_mode: false",
            "round_mode: CEIL and ceil_mode: false contradict; give one of both",
        ),
        ("kernel_size: 1 stride: 4", None),
        ("kernel_size: 1 stride: 6", None),
    ],
)
def test_wrong_options_are_refused(options: str, finding: str | None) -> None:
    if finding is None:
        finding = (
            f"the last window starts after the bottom's 6x6 pixels and is empty (kernel (1, 1), "
            f"stride ({options[-1]}, {options[-1]})); use round_mode: FLOOR"
        )
    assert refusal(pooling(options), (1, 2, 6, 6)) == f'layer "layer" (Pooling): {finding}'


def test_other_ranks_and_second_tops_of_ave_are_refused() -> None:
    assert refusal(pooling("kernel_size: 2"), (2, 3, 4)).endswith(
        'bottom "x0" has shape (2, 3, 4); expected 4 axes (N, C, H, W)'
    )
    assert refusal(pooling("pool: AVE kernel_size: 2", 'top: "n0" top: "n1"'), (1, 2, 4, 4)).endswith(
        "has 2 tops; allowed: 1 with pool: AVE, a second one (the mask) only with pool: MAX"
    )


def test_note_on_windows_cut_at_the_border() -> None:
    assert define(pooling("kernel_size: 3 stride: 2"), (1, 2, 7, 7)).notes == ()
    (note,) = define(pooling("pool: AVE kernel_size: 3 stride: 2"), (1, 2, 8, 8)).notes
    assert note.startswith("rounding up: from (8, 8) to (4, 4)")


@pytest.mark.parametrize(("padded", "other"), [("h", "w"), ("w", "h")])
def test_padding_of_one_axis_drops_a_window_past_the_image_on_both(padded: str, other: str) -> None:
    """The third window of the axis without padding would start at 6 of 5 cells; Caffe drops it as the padded axis's."""
    options = f"kernel_{padded}: 2 kernel_{other}: 1 stride: 3 pad_{padded}: 1 pad_{other}: 0"
    image = np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5)
    expected = np.float32([[[[0, 3], [15, 18]]]])  # rows 0 and 2 to 3, columns 0 and 3
    if padded == "w":
        image, expected = image.transpose(0, 1, 3, 2), expected.transpose(0, 1, 3, 2)
    np.testing.assert_array_equal(run_layer(pooling(options), [image]).tops[0], expected)
