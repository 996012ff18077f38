"""The parameter vector cut into pieces for devices, and made whole again."""

from __future__ import annotations

import numpy as np
import pytest

from caffe_import.devices.compute_plan import PLAIN, ComputePlan, Placement
from caffe_import.devices.pieces import Pieces, pieces_of, shares_of
from caffe_import.errors import NetError
from tests.reference.parsed_net import net_of

NET = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" inner_product_param { num_output: 5 } }
layer { name: "b" type: "InnerProduct" bottom: "a" top: "b" inner_product_param { num_output: 4 transpose: true } }
layer { name: "s" type: "Scale" bottom: "b" top: "s" }
"""


def split_plan(device_of: dict[str, int], split: dict[str, tuple[int, ...]]) -> ComputePlan:
    return ComputePlan(placement=Placement(2, device_of, split))


def test_a_split_layer_has_its_rows_transposed_its_columns_and_its_biases_by_device() -> None:
    layout = pieces_of(net_of(NET), split_plan({"x": 0, "s": 1}, {"a": (0, 1), "b": (1, 0)}))
    assert [(piece.entry.name, piece.device, piece.shape) for piece in layout.pieces] == [
        ("a[0]", 0, (3, 3)),
        ("a[0]", 1, (2, 3)),
        ("a[1]", 0, (3,)),
        ("a[1]", 1, (2,)),
        ("b[0]", 1, (5, 2)),
        ("b[0]", 0, (5, 2)),
        ("b[1]", 1, (2,)),
        ("b[1]", 0, (2,)),
        ("s[0]", 1, (4,)),
    ]
    vector = np.arange(layout.params.n_params, dtype=np.float32)
    blobs = layout.params.views(vector)
    cut = layout.cut(vector)
    assert np.array_equal(cut[1], blobs["a[0]"][3:])
    assert np.array_equal(cut[5], blobs["b[0]"][:, 2:])


def test_pieces_join_to_the_vector_that_they_are_cut_from() -> None:
    layout = pieces_of(net_of(NET), split_plan({"x": 0, "s": 1}, {"a": (0, 1), "b": (1, 0)}))
    vector = np.random.default_rng(1).standard_normal(layout.params.n_params).astype(np.float32)
    joined = layout.joined([piece.copy() for piece in layout.cut(vector)])
    assert np.array_equal(joined, vector)
    assert not np.shares_memory(joined, vector)
    assert [len(piece) for piece in Pieces(layout, layout.cut(vector))] == [3, 2, 3, 2, 5, 5, 2, 2, 4]


@pytest.mark.parametrize("plan", [PLAIN, ComputePlan(n_replicas=3)])
def test_without_a_placement_every_blob_is_one_piece_of_device_0(plan: ComputePlan) -> None:
    layout = pieces_of(net_of(NET), plan)
    assert [piece.entry for piece in layout.pieces] == list(layout.params.entries)
    assert {piece.device for piece in layout.pieces} == {0}


def test_a_net_without_parameters_has_an_empty_vector() -> None:
    layout = pieces_of(net_of('layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 } } }'), PLAIN)
    assert layout.joined([]).shape == (0,)


def test_shares_that_do_not_divide_are_larger_at_the_start() -> None:
    assert shares_of(8, 2) == [(0, 4), (4, 8)]
    assert shares_of(8, 3) == [(0, 3), (3, 6), (6, 8)]


def test_only_an_inner_product_is_split() -> None:
    with pytest.raises(NetError, match='layer "s": split is for InnerProduct; found type Scale'):
        pieces_of(net_of(NET), split_plan({"x": 0, "a": 0, "b": 0}, {"s": (0, 1)}))
