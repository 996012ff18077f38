from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.reference.command_line import invoke

QUICK = str(ROOT / "examples" / "digits" / "lenet_train_test.prototxt")


@pytest.mark.tf
def test_times_of_a_net_whose_data_are_not_here() -> None:
    done = invoke(
        "time", QUICK, "--sample-shape", "1x28x28", "--batch-size", "4", "--iterations", "2", "--threads", "1", "--json"
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["batch_size"], found["n_threads"], found["n_passes"]) == (4, 1, 2)
    layers = {one["layer"]: one for one in found["layers"]}
    assert layers["conv1"]["type"] == "Convolution"
    assert layers["conv1"]["backward_ms"] > 0
    assert found["pass_ms"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "or say what it reads: sample_shape, e.g. 3x32x32"),
        (("--sample-shape", "big"), "must be whole numbers with x between them, like 3x32x32"),
        (("--iterations", "0"), "iterations=0"),
    ],
)
def test_a_mistake_is_one_message(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = invoke("time", QUICK, *options)
    assert done.exit_code == 2
    assert message in done.stderr.replace("\n", " ")
