"""The rule of dynamic loss scaling, and what is said of it."""

from __future__ import annotations

import numpy as np

from caffe_import.devices.loss_scale import DOUBLED_AFTER, HIGHEST, LOWEST, LossScale, StepScales


def test_a_bad_step_halves_and_begins_to_count_anew() -> None:
    assert LossScale(1024.0, 17).advanced(is_finite=False) == LossScale(512.0, 0)


def test_good_steps_in_a_row_double() -> None:
    scale = LossScale()
    assert (scale.scale, DOUBLED_AFTER) == (32768.0, 2000)
    for _ in range(1999):
        scale = scale.advanced(is_finite=True)
    assert scale == LossScale(32768.0, 1999)
    assert scale.advanced(is_finite=True) == LossScale(65536.0, 0)


def test_the_scale_has_bounds() -> None:
    assert LossScale(HIGHEST, 1999).advanced(is_finite=True) == LossScale(2.0**24, 0)
    assert LossScale(LOWEST).advanced(is_finite=False) == LossScale(2.0**-24, 0)


def test_notes_say_what_changed_and_nothing_else() -> None:
    scales = StepScales(
        np.array([8, 4, 4, 8, 16], np.float32), np.array([False, True, True, True, True]), np.array([4, 4, 8, 8, 4])
    )
    assert [scales.note(offset) for offset in range(5)] == [
        "loss_scale 8 -> 4: the gradient is not finite in float16, so no update is made",
        None,
        "loss_scale 4 -> 8: 2000 steps in a row had a finite gradient",
        None,
        "loss_scale 16 -> 4: the gradient was not finite in float16 and was computed again",
    ]


def test_the_lowest_scale_is_the_last_try() -> None:
    scales = StepScales(np.array([2 * LOWEST, LOWEST, LOWEST]), np.array([False, False, True]), np.full(3, LOWEST))
    assert [scales.is_exhausted(offset) for offset in range(3)] == [False, True, False]


def test_joined_keeps_the_order() -> None:
    parts = [StepScales(np.array([k]), np.array([k > 1]), np.array([k + 1])) for k in (1.0, 2.0)]
    both = StepScales.joined(parts)
    assert (both.begun.tolist(), both.updated.tolist(), both.ended.tolist()) == ([1, 2], [False, True], [2, 3])
