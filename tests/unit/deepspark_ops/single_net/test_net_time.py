from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.reference.command_line import invoke

QUICK = str(ROOT / "examples" / "digits" / "lenet_train_test.prototxt")


@pytest.mark.tf
@pytest.mark.parametrize(("phase", "last"), [("train", "loss"), ("TEST", "accuracy")])  # caffe time -phase TEST
def test_times_of_a_net_whose_data_are_not_here(phase: str, last: str) -> None:
    options = "--sample-shape 1x28x28 --batch-size 4 --iterations 2 --threads 1 --json"
    result = invoke("time", QUICK, *options.split(), "--phase", phase)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["batch_size"], report["n_threads"], report["n_passes"]) == (4, 1, 2)
    layers = {row["layer"]: row for row in report["layers"]}
    assert layers["conv1"]["type"] == "Convolution"
    assert last in layers
    assert layers["conv1"]["backward_ms"] > 0
    assert report["pass_ms"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "or say what it reads: sample_shape, e.g. 3x32x32"),
        (("--sample-shape", "big"), "must be whole numbers with x between them, like 3x32x32"),
        (("--iterations", "0"), "iterations=0"),
    ],
)
def test_a_mistake_is_one_message(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    result = invoke("time", QUICK, *options)
    assert result.exit_code == 2
    assert message in result.stderr.replace("\n", " ")
