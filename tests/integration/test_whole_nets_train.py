"""Published nets take a training step: the nets compile, the loss is the loss of an untrained net, parameters move.

The widest layers are slim: the test is about layers and wiring; ``benchmarks/layers.py`` runs the full width.
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.integration.whole_net_steps import N_WORDS
from tests.paths import ROOT

pytestmark = [pytest.mark.tf, pytest.mark.slow]


UNTRAINED_LOSSES = {
    "siamese": None,
    "captioner": 20 * np.log(N_WORDS),  # its loss_weight is the number of words
    "squeezenet": np.log(1000),
    "googlenet": 1.6 * np.log(1000),  # the loss, and two auxiliary ones at 0.3
    "alexnet": np.log(1000),
    "caffenet": np.log(1000),
    "vgg16": np.log(1000),
    "resnet50": None,  # two samples scatter: its scores are not small
}
"""An untrained net gives every class about the same probability."""


QUICK = ("siamese", "captioner")


def test_nets_take_a_training_step(subtests: pytest.Subtests) -> None:
    assert_steps(QUICK, subtests)


@pytest.mark.long
def test_the_other_nets_take_a_training_step(subtests: pytest.Subtests) -> None:
    assert_steps(tuple(UNTRAINED_LOSSES.keys() - set(QUICK)), subtests)


def assert_steps(names: tuple[str, ...], subtests: pytest.Subtests) -> None:
    command = [sys.executable, "-m", "tests.integration.whole_net_steps", *names]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr[-4000:]
    steps = json.loads(completed.stdout)
    assert tuple(steps) == names
    for name, step in steps.items():
        with subtests.test(name):
            assert np.isfinite(step["loss"])
            if UNTRAINED_LOSSES[name] is not None:
                assert step["loss"] == pytest.approx(UNTRAINED_LOSSES[name], rel=0.15)
            assert step["is_finite"]
            # The contrastive loss sees differences of features: what shifts both branches alike has no gradient.
            assert step["unmoved"] == (["ip2[1]", "feat[1]"] if name == "siamese" else [])
            assert step["n_traces"] == 1
