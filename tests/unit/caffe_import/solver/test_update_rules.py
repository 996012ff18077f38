"""The rules are pure; ``test_train_step`` and ``test_solver_step`` test their numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from caffe_import.files.prototxt import parse_solver
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.solver.update_rules import RULES, Operations, UpdateRequest

OPERATIONS = Operations(np.sqrt, np.square, np.sign, add=sum, float64=np.float64, float32=np.float32)
SOLVER = solver_spec(parse_solver('base_lr: 1 max_iter: 1 lr_policy: "fixed" momentum: 0.5 regularization_type: "L1"'))


@pytest.mark.parametrize("name", RULES)
def test_nothing_given_is_written_and_float32_stays(name: str) -> None:
    rng = np.random.default_rng(1)
    rule = RULES[name]
    weights, gradient, *slots = np.abs(rng.standard_normal((2 + rule.n_slots, 5))).astype(np.float32)
    copies = [array.copy() for array in (weights, gradient, *slots)]
    request = UpdateRequest(
        ops=OPERATIONS,
        weights=weights,
        gradient=gradient,
        decay=0.25,
        slots=tuple(slots),
        rate=np.float32(0.5),
        update=3,
        solver=replace(SOLVER, type=name),
    )
    update = rule.compute_update(request)
    assert len(update.slots) == rule.n_slots
    assert {array.dtype for array in (update.step, *update.slots)} == {np.dtype(np.float32)}
    assert all(np.array_equal(now, was) for now, was in zip((weights, gradient, *slots), copies, strict=True))
    assert not any(np.array_equal(new_slot, old_slot) for new_slot, old_slot in zip(update.slots, slots, strict=True))
