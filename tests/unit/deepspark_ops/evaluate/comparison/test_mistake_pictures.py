"""The mistakes kept as pictures, and their samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deepspark_ops.evaluate.comparison.mistake_pictures import (
    PICTURES_NAME,
    kept_errors,
    kept_mistakes,
    open_mistake_pictures,
    write_mistake_pictures,
)
from deepspark_ops.evaluate.scores import Answers, SampleLosses
from deepspark_ops.shards.files.picture_archive import EncodedPicture
from deepspark_ops.shards.thumbnail import side_by_side
from tests.reference.evaluations import evaluation


def answers(labels: list[int], ranks: list[int], losses: list[float]) -> Answers:
    n = len(labels)
    return Answers(
        index=np.arange(100, 100 + n), label=np.array(labels, np.int32), predicted=np.zeros(n, np.int32),
        rank=np.array(ranks, np.int32), loss=np.array(losses),
    )  # fmt: skip


def test_mistakes_of_every_class_are_kept_the_nearly_right_first() -> None:
    mistaken = answers([0, 0, 0, 1, 1, 2], [1, 1, 1, 1, 0, 2], [3.0, 1.0, 2.0, 9.0, 0.1, 5.0])
    assert kept_mistakes(mistaken) == [101, 105, 103, 102, 100]
    assert kept_mistakes(mistaken, most=4) == [101, 105, 103, 102]
    assert kept_mistakes(answers([0], [0], [0.1])) == []


def test_of_nets_without_classes_the_largest_errors_are_kept() -> None:
    losses = SampleLosses(np.array([3, 5, 7, 9]), np.array([0.5, 2.0, 0.0, 2.0]))
    assert kept_errors(losses) == [5, 9, 3, 7]
    assert kept_errors(losses, 2) == [5, 9]


def test_pictures_of_one_sample_stand_side_by_side() -> None:
    gray = np.full((4, 6), 10, np.uint8)
    colour = np.zeros((8, 8, 3), np.uint8)
    colour[..., 2] = 200
    joined = side_by_side([gray, colour])
    assert joined.shape == (4, 6 + 1 + 4, 3)
    assert joined[0, :, 0].tolist() == [10] * 6 + [255] + [0] * 4
    assert joined[0, :, 2].tolist() == [10] * 6 + [255] + [200] * 4


def test_pictures_belong_to_one_evaluation(tmp_path: Path) -> None:
    mine = evaluation([0, 1], [0, 0], weights="mine").samples
    other = evaluation([0, 1], [0, 0], weights="other").samples
    write_mistake_pictures(tmp_path, mine, {1: EncodedPicture("image/png", b"x")})
    assert list(open_mistake_pictures(tmp_path, mine).numbers) == [1]
    assert not open_mistake_pictures(tmp_path, other).numbers
    write_mistake_pictures(tmp_path, mine, {})
    assert not (tmp_path / PICTURES_NAME).exists()
