"""Choice of the test net that evaluation scores."""

from pathlib import Path

import pytest

from caffe_import.solver.loaded_solver import load_solver
from deepspark_ops.evaluate.trained_net import scored_test_net

DATA = 'layer {{ name: "data" type: "Data" top: "x" include {{ {rule} }} data_param {{ source: "{source}" }} }}'
LOSS = 'layer { name: "loss" type: "EuclideanLoss" bottom: "x" bottom: "x" top: "loss" }'


@pytest.mark.parametrize(
    ("first", "second", "scored"),
    [
        ("training", "test", 1),
        ("test", "training", 0),
        ("test", "other_test", 0),
        ("training", "training", 0),
    ],
)
def test_the_first_test_net_with_data_of_its_own_is_scored(
    tmp_path: Path, first: str, second: str, scored: int
) -> None:
    layers = [
        DATA.format(rule="phase: TRAIN", source="training"),
        DATA.format(rule='phase: TEST stage: "a"', source=first),
        DATA.format(rule='phase: TEST stage: "b"', source=second),
        LOSS,
    ]
    (tmp_path / "net.prototxt").write_text("\n".join(layers))
    solver = tmp_path / "solver.prototxt"
    solver.write_text(
        'net: "net.prototxt" base_lr: 1 lr_policy: "fixed" max_iter: 9 snapshot_prefix: "s" test_interval: 3 '
        'test_state { stage: "a" } test_iter: 1 test_state { stage: "b" } test_iter: 1'
    )
    assert scored_test_net(load_solver(solver)) == scored
