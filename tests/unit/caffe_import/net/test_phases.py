"""include and exclude rules: any include, no exclude, every field of a rule."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from caffe_import.errors import NetError
from caffe_import.files.prototxt import parse_net
from caffe_import.net.layer_registry import Phase
from caffe_import.net.phases import filter_layers
from caffe_import.proto import caffe_pb2


def is_kept(rules: str, *, phase: Phase = "TRAIN", level: int = 0, stages: Sequence[str] = (), state: str = "") -> bool:
    net = parse_net(f'{state} layer {{ name: "x" {rules} }}')
    return len(filter_layers(net, phase=phase, level=level, stages=stages).layer) == 1


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("", True),
        ("include { phase: TRAIN }", True),
        ("include { phase: TEST }", False),
        ("exclude { phase: TRAIN }", False),
        ("exclude { phase: TEST }", True),
        ("include { }", True),
        ("exclude { }", False),
        ("include { phase: TEST } include { phase: TRAIN }", True),
        ("exclude { phase: TEST } exclude { phase: TRAIN }", False),
        ("include { min_level: 2 }", True),
        ("include { min_level: 3 }", False),
        ("include { max_level: 2 }", True),
        ("include { max_level: 1 }", False),
        ('include { stage: "a" }', True),
        ('include { stage: "a" stage: "c" }', False),
        ('include { not_stage: "c" }', True),
        ('include { not_stage: "c" not_stage: "b" }', False),
        ('include { phase: TRAIN stage: "a" not_stage: "z" min_level: 1 max_level: 3 }', True),
        ('include { phase: TEST stage: "a" not_stage: "z" min_level: 1 max_level: 3 }', False),
        ('exclude { phase: TRAIN stage: "z" }', True),
    ],
)
def test_rule_at_train_level_2_stages_a_b(rules: str, expected: bool) -> None:
    assert is_kept(rules, level=2, stages=("a", "b")) is expected


def test_state_of_the_net_adds_stages_and_gives_the_level() -> None:
    state = 'state { level: 5 stage: "own" }'
    assert is_kept('include { stage: "own" stage: "mine" min_level: 5 }', stages=["mine"], state=state)
    assert not is_kept("include { min_level: 5 }", level=1, state=state)


def test_state_is_written_into_the_copy_only() -> None:
    net = parse_net('layer { name: "x" }')
    filtered = filter_layers(net, phase="TEST", level=1, stages=["s", "s"])
    assert filtered.state == caffe_pb2.NetState(phase=caffe_pb2.TEST, level=1, stage=["s"])
    assert not net.HasField("state")


def test_include_and_exclude_together_are_refused() -> None:
    with pytest.raises(NetError, match='layer "x" has include and exclude rules') as caught:
        is_kept("include { phase: TEST } exclude { phase: TEST }")
    assert caught.value.layer == "x"
