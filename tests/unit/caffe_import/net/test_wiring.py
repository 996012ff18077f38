"""Split layers as Caffe names them, and the flow of gradients, on hand-worked nets."""

from __future__ import annotations

import pytest

from caffe_import.errors import NetError
from caffe_import.files.prototxt import parse_net
from caffe_import.net.wiring import GradientFlow, WiredLayer, gradient_flows, insert_splits
from caffe_import.proto import caffe_pb2


def wired(text: str) -> list[caffe_pb2.LayerParameter]:
    return list(insert_splits(parse_net(text)).layer)


def layer_wires(layers: list[caffe_pb2.LayerParameter]) -> list[tuple[str, list[str], list[str]]]:
    return [(layer.name, list(layer.bottom), list(layer.top)) for layer in layers]


class TestInsertSplits:
    def test_single_use_needs_no_split(self) -> None:
        net = parse_net('layer { name: "a" top: "x" } layer { name: "b" bottom: "x" top: "y" }')
        assert insert_splits(net) == net

    def test_second_top_used_twice(self) -> None:
        layers = wired(
            'layer { name: "d" top: "x" top: "l" } layer { name: "a" bottom: "l" } layer { name: "b" bottom: "l" }'
        )
        assert layer_wires(layers) == [
            ("d", [], ["x", "l"]),
            ("l_d_1_split", ["l"], ["l_d_1_split_0", "l_d_1_split_1"]),
            ("a", ["l_d_1_split_0"], []),
            ("b", ["l_d_1_split_1"], []),
        ]
        assert layers[1].type == "Split"

    def test_in_place_layers_split_behind_the_last_writer(self) -> None:
        layers = wired(
            """
            layer { name: "d" top: "x" } layer { name: "r" bottom: "x" top: "x" }
            layer { name: "a" bottom: "x" top: "a" } layer { name: "b" bottom: "x" top: "b" }
            """
        )
        assert layer_wires(layers)[1:3] == [
            ("r", ["x"], ["x"]),
            ("x_r_0_split", ["x"], ["x_r_0_split_0", "x_r_0_split_1"]),
        ]

    def test_one_layer_reading_a_blob_twice_counts_twice(self) -> None:
        layers = wired('layer { name: "d" top: "x" } layer { name: "e" bottom: "x" bottom: "x" top: "y" }')
        assert list(layers[2].bottom) == ["x_d_0_split_0", "x_d_0_split_1"]

    def test_loss_weight_is_a_use_and_moves_to_the_first_top(self) -> None:
        layers = wired(
            """
            layer { name: "l" top: "x" loss_weight: 0.5 }
            layer { name: "a" bottom: "x" } layer { name: "b" bottom: "x" }
            """
        )
        assert layer_wires(layers)[1] == ("x_l_0_split", ["x"], ["x_l_0_split_0", "x_l_0_split_1", "x_l_0_split_2"])
        assert list(layers[0].loss_weight) == []
        assert list(layers[1].loss_weight) == [0.5, 0, 0]
        assert [list(layer.bottom) for layer in layers[2:]] == [["x_l_0_split_1"], ["x_l_0_split_2"]]

    def test_loss_weight_zero_is_no_use(self) -> None:
        layers = wired('layer { name: "l" top: "x" loss_weight: 0 } layer { name: "a" bottom: "x" }')
        assert [layer.name for layer in layers] == ["l", "a"]

    def test_every_loss_weight_of_a_split_layer_is_cleared(self) -> None:
        # Caffe's clear_loss_weight: the weight of "y", which needs no Split, is lost as well.
        layers = wired(
            'layer { name: "l" top: "x" top: "y" loss_weight: 1 loss_weight: 3 } layer { name: "a" bottom: "x" }'
        )
        assert list(layers[0].loss_weight) == []
        assert sum(len(layer.loss_weight) for layer in layers) == 2

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            (
                'layer { name: "d" top: "pool2" top: "x" } layer { name: "a" bottom: "pol2" }',
                'layer "a": no layer before it makes bottom "pol2"; available: pool2, x; did you mean "pool2"?',
            ),
            (
                'layer { name: "a" bottom: "x" } layer { name: "d" top: "x" }',
                'available: none; layer "d" makes it, but comes later: move it before "a"',
            ),
            (
                'layer { name: "a" bottom: "x" top: "x" }',
                'layer "a": no layer before it makes bottom "x"; available: none',
            ),
        ],
    )
    def test_unknown_bottom(self, text: str, words: str) -> None:
        with pytest.raises(NetError) as caught:
            wired(text)
        assert str(caught.value).endswith(words)
        assert caught.value.layer == "a"

    def test_unknown_bottom_made_in_another_phase(self) -> None:
        net = parse_net('layer { name: "a" bottom: "x" }')
        with pytest.raises(
            NetError, match='layer "d" makes it, but its include/exclude rules leave it out of phase TEST'
        ):
            insert_splits(net, absent={"x": "d"})


def layer(
    bottoms: str,
    tops: str,
    *,
    learns: bool = False,
    loss: float = 0,
    propagate_down: tuple[bool, ...] = (),
    force: bool = True,
) -> WiredLayer:
    bottom_names, top_names = tuple(bottoms.split()), tuple(tops.split())
    weights = (loss,) + (0.0,) * (len(top_names) - 1)
    return WiredLayer(bottom_names, top_names, propagate_down, weights, learns, (force,) * len(bottom_names))


def flows(*layers: WiredLayer, force_backward: bool = False) -> list[tuple[bool, tuple[bool, ...]]]:
    return [(f.needs_backward, f.propagate_down) for f in gradient_flows(layers, force_backward=force_backward)]


class TestGradientFlows:
    def test_gradient_stops_at_the_lowest_layer_that_learns(self) -> None:
        assert flows(
            layer("", "x l"), layer("x", "a", learns=True), layer("a", "b", learns=True), layer("b l", "loss", loss=1)
        ) == [(False, ()), (True, (False,)), (True, (True,)), (True, (True, False))]

    def test_nothing_learns_nothing_flows(self) -> None:
        assert (
            flows(layer("", "x"), layer("x", "y"), layer("y", "loss", loss=1))
            == [(False, ())] + [(False, (False,))] * 2
        )

    def test_branch_without_loss_is_cut(self) -> None:
        result = flows(
            layer("", "x"),
            layer("x", "a", learns=True),
            layer("a", "s0 s1"),
            layer("s0", "acc"),
            layer("s1", "loss", loss=1),
        )
        assert result[3] == (False, (False,))
        assert result[2] == (True, (True,))

    def test_propagate_down_false_cuts_the_layers_below(self) -> None:
        result = flows(
            layer("", "x"),
            layer("x", "a", learns=True),
            layer("a", "b", learns=True, propagate_down=(False,)),
            layer("b", "loss", loss=1),
        )
        assert result == [(False, ()), (False, (False,)), (True, (False,)), (True, (True,))]

    def test_propagate_down_true_asks_for_a_gradient_into_data(self) -> None:
        result = flows(layer("", "x"), layer("x", "a", learns=True, propagate_down=(True,)), layer("a", "loss", loss=1))
        assert result == [(False, ()), (True, (True,)), (True, (True,))]

    def test_force_backward_reaches_every_bottom_that_can(self) -> None:
        result = flows(
            layer("", "x l"), layer("x", "a"), layer("a l", "loss", loss=1, force=False), force_backward=True
        )
        assert result == [(True, ()), (True, (True,)), (True, (False, False))]

    def test_in_place_layer_keeps_what_the_blob_needs(self) -> None:
        result = flows(layer("", "x"), layer("x", "a", learns=True), layer("a", "a"), layer("a", "loss", loss=1))
        assert result[2] == (True, (True,))

    def test_flow_is_a_plain_value(self) -> None:
        assert gradient_flows([layer("", "x")], force_backward=False) == [GradientFlow(False, ())]
