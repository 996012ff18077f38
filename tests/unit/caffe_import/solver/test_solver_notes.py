from __future__ import annotations

import pytest

from caffe_import.files.prototxt import parse_solver
from caffe_import.solver.solver_notes import solver_notes
from caffe_import.solver.solver_spec import solver_spec


def notes_of(text: str, policy: str = "fixed", **options: bool) -> tuple[str, ...]:
    solver = parse_solver(f'base_lr: 1 lr_policy: "{policy}" max_iter: 9 {text}')
    return solver_notes(solver_spec(solver), **options)


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("layer_wise_reduce: true", "layer_wise_reduce is ignored"),
        ("layer_wise_reduce: false", "layer_wise_reduce is ignored"),
        ("snapshot_diff: true", "snapshot_diff is ignored"),
        ("test_interval: 5", "test_interval has no effect without test_iter"),
        ("clip_gradients: 0", "clip_gradients: 0 makes every gradient 0"),
        ("debug_info: true", "debug_info: its lines are written with the loss"),
    ],
)
def test_each_is_said(text: str, begins: str) -> None:
    (note,) = notes_of(text)
    assert note.startswith(begins)


@pytest.mark.parametrize("text", ["", "clip_gradients: -1", "clip_gradients: 5", "debug_info: true display: 9"])
def test_what_works_as_meant_is_not(text: str) -> None:
    assert notes_of(text) == ()


def test_steps_that_do_not_rise_are_said() -> None:
    (note,) = notes_of("gamma: 0.1 stepvalue: 4 stepvalue: 2", "multistep")
    assert note == "stepvalue 4, 2 does not rise: each step waits for the step before, as in Caffe"
    assert notes_of("gamma: 0.1 stepvalue: 2 stepvalue: 4", "multistep") == ()


def test_a_nets_own_debug_info_is_told_unless_the_solver_asks_too() -> None:
    (note,) = notes_of("", net_asks_for_debug=True)
    assert note.startswith("debug_info of the net has no effect")
    assert notes_of("debug_info: true display: 9", net_asks_for_debug=True) == ()
