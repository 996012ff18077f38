import numpy as np
import pytest

from deepspark_ops.evaluate.saliency.maps import (
    grad_cam,
    gradient_times_input,
    occluded,
    occlusion_map,
    overlay,
    squares_on,
)


def test_gradient_times_input_adds_the_channels():
    rng = np.random.default_rng(0)
    gradient, values = rng.normal(size=(2, 3, 4, 5)).astype(np.float32)
    expected = np.zeros((4, 5))
    for channel, row, column in np.ndindex(3, 4, 5):
        expected[row, column] += gradient[channel, row, column] * values[channel, row, column]
    assert gradient_times_input(gradient, values) == pytest.approx(expected, rel=1e-5)


def test_the_map_of_a_linear_net_adds_up_to_its_score():
    """Score = w . x, whose gradient is w."""
    rng = np.random.default_rng(1)
    weights, values = rng.normal(size=(2, 1, 6, 6))
    assert gradient_times_input(weights, values).sum() == pytest.approx(float((weights * values).sum()))


def test_grad_cam_by_hand():
    """Two channels of 2 x 2: mean gradients 1 and -0.5. ReLU sets the second pixel to 0."""
    features = np.array([[[1, 0], [2, 3]], [[0, 4], [2, 2]]], np.float32)
    gradients = np.array([[[4, 0], [0, 0]], [[-1, -1], [0, 0]]], np.float32)
    assert grad_cam(features, gradients).tolist() == [[1.0, 0.0], [1.0, 2.0]]


@pytest.mark.parametrize("window", [(0, 0, 28, 28), (0, 0, 3, 5), (2, 1, 11, 30), (0, 0, 1, 1)])
@pytest.mark.parametrize("across", [1, 3, 7])
def test_every_pixel_of_the_window_is_below_a_square_and_no_other_pixel(window, across):
    top, x0, height, width = window
    squares = squares_on(*window, across=across)
    counts = np.zeros((40, 40), int)
    for row, column in squares.corners():
        counts[row : row + squares.height, column : column + squares.width] += 1
    inside = np.zeros((40, 40), bool)
    inside[top : top + height, x0 : x0 + width] = True
    assert np.array_equal(counts > 0, inside)
    assert len(squares) == len(squares.corners()) <= (2 * across) ** 2


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_square_has_the_mean_colour_and_the_other_pixels_stay(dtype, channels):
    picture = (np.arange(channels * 48) % 50).reshape(channels, 6, 8).astype(dtype)
    squares = squares_on(1, 2, 4, 5, across=2)
    batches = list(occluded(picture, squares, at_once=4))
    assert [len(batch) for batch in batches[:-1]] == [4] * (len(batches) - 1)
    copies = np.concatenate(batches)
    assert (len(copies), copies.dtype) == (len(squares), dtype)
    for copy, (row, column) in zip(copies, squares.corners(), strict=True):
        for channel, y, x in np.ndindex(*picture.shape):
            is_below = row <= y < row + squares.height and column <= x < column + squares.width
            mean = picture[channel].mean()
            expected = picture[channel, y, x] if not is_below else round(mean) if dtype == np.uint8 else mean
            assert copy[channel, y, x] == pytest.approx(expected)


def test_the_occlusion_of_a_linear_score_finds_its_pixels():
    """The score is the sum of a bright pixel's neighbourhood: the squares above the pixel lower it, others do not."""
    picture = np.zeros((1, 8, 8), np.float32)
    picture[0, 3, 5] = 64.0
    squares = squares_on(0, 0, 8, 8, across=4)
    scores = [float(copy[0, 3, 5]) for batch in occluded(picture, squares, at_once=5) for copy in batch]
    saliency = occlusion_map(64.0, scores, squares, (8, 8))
    slow = np.zeros((8, 8))
    for y, x in np.ndindex(8, 8):
        falls = [
            64.0 - score
            for (row, column), score in zip(squares.corners(), scores, strict=True)
            if row <= y < row + 2 and column <= x < column + 2
        ]
        slow[y, x] = sum(falls) / len(falls)
    assert saliency == pytest.approx(slow)
    assert np.unravel_index(saliency.argmax(), (8, 8)) == (3, 5)
    assert saliency[0, 0] == 0.0


@pytest.mark.parametrize("shape", [(6, 8), (6, 8, 3)])
def test_red_for_the_class_blue_against_it_grey_elsewhere(shape):
    saliency = np.zeros((6, 8))
    saliency[1, 2], saliency[4, 5] = 2.0, -2.0
    drawn = overlay(np.full(shape, 100, np.uint8), saliency)
    assert (drawn.shape, drawn.dtype) == ((6, 8, 3), np.uint8)
    blue, _, red = (int(value) for value in drawn[1, 2])
    assert red > blue + 80
    blue, _, red = (int(value) for value in drawn[4, 5])
    assert blue > red + 80
    elsewhere = {tuple(drawn[row, column].tolist()) for row, column in ((0, 0), (5, 7), (2, 2))}
    assert elsewhere == {(178, 178, 178)}  # 255 - half of 155


def test_a_small_map_covers_the_picture():
    drawn = overlay(np.zeros((20, 20), np.uint8), np.array([[0.0, 1.0], [0.0, 0.0]]))
    strength = drawn[..., 2].astype(int) - drawn[..., 0]
    assert strength[2, 17] > strength[10, 10] > strength[17, 2] == 0


def test_a_map_of_zeros_is_the_pale_picture():
    assert np.unique(overlay(np.full((4, 4), 255, np.uint8), np.zeros((2, 2)))).tolist() == [255]
