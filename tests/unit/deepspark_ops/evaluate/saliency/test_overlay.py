import numpy as np
import pytest

from deepspark_ops.evaluate.saliency.overlay import overlay


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
