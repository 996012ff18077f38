"""Published nets take a training step: they compile, the loss is the one of an untrained net, parameters move.

Their widest layers are slim, since this is about layers and wiring; ``benchmarks/layers.py`` runs them at full width.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from caffe_import.files.prototxt import parse_solver
from caffe_import.net.fillers import initial_vector
from caffe_import.net.net_spec import NetSpec
from caffe_import.solver.solver_spec import solver_spec
from caffe_import.tf_graph.train_step import compile_training
from tests.reference.published_nets import build

pytestmark = [pytest.mark.tf, pytest.mark.slow]

SOLVER = 'base_lr: 0.001 lr_policy: "fixed" max_iter: 10 momentum: 0.9 weight_decay: 0.0005'
N_WORDS = 8801


@pytest.fixture(autouse=True)
def _memory_given_back() -> Iterator[None]:
    """A compiled net is freed by the cycle collector alone, and glibc keeps what was freed: a net takes gigabytes."""
    yield
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def feeds(net: NetSpec) -> Mapping[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    fed = {}
    for blob, shape in net.inputs.items():
        if blob.endswith("_sentence"):
            values = rng.integers(0, N_WORDS, shape)
        elif blob in ("label", "sim"):
            values = rng.integers(0, 2, shape)
        else:
            values = rng.standard_normal(shape)
        fed[blob] = values.astype(np.float32)[None]
    if "cont_sentence" in fed:
        fed["cont_sentence"] = np.ones_like(fed["cont_sentence"])
        fed["cont_sentence"][:, 0] = 0
    return fed


@pytest.mark.parametrize(
    ("name", "batch_size", "untrained_loss"),
    [
        ("siamese", 2, None),
        ("captioner", 1, 20 * np.log(N_WORDS)),  # its loss_weight is the number of words
        ("squeezenet", 1, np.log(1000)),
        ("googlenet", 1, 1.6 * np.log(1000)),  # the loss, and two auxiliary ones at 0.3
        ("alexnet", 1, np.log(1000)),
        ("caffenet", 1, np.log(1000)),
        ("vgg16", 1, np.log(1000)),
        ("resnet50", 2, None),  # two samples scatter: its scores are not small
    ],
)
def test_net_takes_a_training_step(name: str, batch_size: int, untrained_loss: float | None) -> None:
    net = build(name, batch_size=batch_size, slim=True)
    before = initial_vector(net, 1)
    function = compile_training(net, solver_spec(parse_solver(SOLVER)), n_threads=1)
    state, outputs = function.run(
        function.initial_state(before.copy()), step=0, n_steps=1, rate_scale=1.0, seed=1, worker=0, feeds=feeds(net)
    )
    after = state.params_view()
    assert np.isfinite(outputs.losses).all()
    if untrained_loss is not None:
        # An untrained net gives every class about the same probability.
        assert outputs.losses[0] == pytest.approx(untrained_loss, rel=0.15)
    assert np.isfinite(after).all()
    still = [
        entry.name
        for entry in net.params.entries
        if entry.kind == "weight"
        and np.array_equal(after[entry.offset : entry.stop], before[entry.offset : entry.stop])
    ]
    # The contrastive loss sees differences of features: what shifts both branches alike has no gradient.
    assert still == (["ip2[1]", "feat[1]"] if name == "siamese" else [])
    assert function.count_traces == 1
