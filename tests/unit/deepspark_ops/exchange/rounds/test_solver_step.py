"""The server's updates against the slow loop written from the papers, number by number."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

from caffe_import.files.prototxt import parse_solver
from caffe_import.net.param_layout import ParamEntry, ParamLayout
from caffe_import.solver.solver_spec import solver_spec
from deepspark_ops.exchange.rounds.solver_step import CenterSolver, SolvedBlob
from tests.reference.slow_training import SlowSolver, one_step

N_PARAMS = 7
BLOBS = (SolvedBlob(0, 3, 1.0, 1.0), SolvedBlob(4, 7, 2.0, 0.5))
"""Number 3 is a statistic: no blob of the solver."""


def center_solver(slow: SlowSolver) -> CenterSolver:
    return CenterSolver(
        slow.type,
        slow.momentum,
        slow.momentum2,
        slow.rms_decay,
        slow.delta,
        slow.weight_decay,
        slow.regularization_type,
        slow.clip_gradients,
        slow.iter_size,
        BLOBS,
    )


def slow_updates(slow: SlowSolver, params: list[float], gradients: list[list[float]]) -> list[float]:
    first, second = [0.0] * len(params), [0.0] * len(params)
    for update, gradient in enumerate(gradients, start=1):
        norm = sqrt(sum(gradient[i] ** 2 for blob in BLOBS for i in range(blob.start, blob.stop)))
        scale = slow.clip_gradients / norm if 0 <= slow.clip_gradients < norm else 1.0
        for blob in BLOBS:
            for i in range(blob.start, blob.stop):
                w = params[i]
                g = gradient[i] * scale / slow.iter_size
                g += (
                    slow.weight_decay * blob.decay_mult * (w if slow.regularization_type == "L2" else (w > 0) - (w < 0))
                )
                rate = slow.base_lr * blob.lr_mult
                step, first[i], second[i] = one_step(slow, g, rate, first[i], second[i], update)
                params[i] = w - step
    return params


@pytest.mark.parametrize(
    "slow",
    [
        SlowSolver(),
        SlowSolver(momentum=0.9, weight_decay=0.1),
        SlowSolver(weight_decay=0.1, regularization_type="L1"),
        SlowSolver(momentum=0.5, clip_gradients=0.7, iter_size=2, weight_decay=0.1),
        SlowSolver("Nesterov", momentum=0.8, weight_decay=0.1),
        SlowSolver("AdaGrad", delta=0.01, weight_decay=0.1),
        SlowSolver("RMSProp", rms_decay=0.9),
        SlowSolver("AdaDelta", momentum=0.9, delta=1e-3),
        SlowSolver("Adam", momentum=0.9, weight_decay=0.1),
    ],
    ids=lambda slow: f"{slow.type}-{slow.momentum:g}-{slow.clip_gradients:g}-{slow.regularization_type}",
)
def test_six_updates_equal_the_slow_loop(slow: SlowSolver) -> None:
    rng = np.random.default_rng(3)
    params, gradients = rng.standard_normal(N_PARAMS).astype(np.float32), rng.standard_normal((6, N_PARAMS))
    expected = slow_updates(slow, params.tolist(), gradients.tolist())
    solver = center_solver(slow)
    slots = tuple(np.zeros(N_PARAMS, np.float32) for _ in range(solver.n_slots))
    for update, gradient in enumerate(gradients.astype(np.float32), start=1):
        gradient_copy = gradient.copy()
        solver.update(params, slots, gradient, learning_rate=slow.base_lr, update=update)
        assert np.array_equal(gradient, gradient_copy), "the gradient is the caller's"
    np.testing.assert_allclose(params, expected, rtol=2e-5, atol=1e-6)  # float32, 6 updates


def test_a_blob_longer_than_a_piece_is_updated_whole() -> None:
    n_params = 70_001
    params, gradient = np.random.default_rng(5).standard_normal((2, n_params)).astype(np.float32)
    one_blob = replace(center_solver(SlowSolver("Adam", momentum=0.9, weight_decay=0.1)), blobs=())
    ends = []
    for cuts in ((0, n_params), (0, 1, 31_000, 50_000, n_params)):
        blobs = tuple(SolvedBlob(start, stop, 1.0, 1.0) for start, stop in pairwise(cuts))
        moved, slots = params.copy(), (np.zeros(n_params, np.float32), np.zeros(n_params, np.float32))
        replace(one_blob, blobs=blobs).update(moved, slots, gradient, learning_rate=0.1, update=1)
        ends.append((moved, *slots))
    assert all(np.array_equal(array, other) for array, other in zip(*ends, strict=True))
    assert np.count_nonzero(ends[0][0] == params) == 0


def test_it_survives_json() -> None:
    solver = center_solver(SlowSolver("Adam", momentum=0.9))
    assert CenterSolver.from_json(json.loads(json.dumps(solver.to_json()))) == solver


def test_of_a_solver_it_takes_the_constants_and_of_the_net_the_weights() -> None:
    text = (
        'base_lr: 0.5 max_iter: 10 lr_policy: "fixed" type: "Adam" momentum: 0.75 momentum2: 0.875 delta: 0.125'
        ' weight_decay: 0.25 regularization_type: "L1" clip_gradients: 8 iter_size: 3'
    )
    entries = (
        ParamEntry("conv", 0, 0, (3,)),
        ParamEntry("bn", 0, 3, (1,), kind="statistic"),
        ParamEntry("ip", 0, 4, (3,), lr_mult=2.0, decay_mult=0.5),
    )
    layout = ParamLayout(entries, {(entry.layer, 0): i for i, entry in enumerate(entries)})
    solver = CenterSolver.from_spec(solver_spec(parse_solver(text), path="s.prototxt"), layout)
    rms_decay = float(np.float32(0.99))  # Caffe's default
    assert solver == CenterSolver("Adam", 0.75, 0.875, rms_decay, 0.125, 0.25, "L1", 8.0, 3, BLOBS)
