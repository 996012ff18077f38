from __future__ import annotations

import pytest

from caffe_import.files.prototxt import parse_solver
from caffe_import.solver.solver_notes import solver_notes
from caffe_import.solver.solver_spec import solver_spec


def notes_of(text: str, **options: bool) -> tuple[str, ...]:
    return solver_notes(solver_spec(parse_solver(f'base_lr: 1 lr_policy: "fixed" max_iter: 9 {text}')), **options)


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("layer_wise_reduce: true", "layer_wise_reduce is ignored"),
        ("layer_wise_reduce: false", "layer_wise_reduce is ignored"),
        ("snapshot_diff: true", "snapshot_diff is ignored"),
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


def test_a_nets_own_debug_info_is_told_unless_the_solver_asks_too() -> None:
    (note,) = notes_of("", net_asks_for_debug=True)
    assert note.startswith("debug_info of the net has no effect")
    assert notes_of("debug_info: true display: 9", net_asks_for_debug=True) == ()
