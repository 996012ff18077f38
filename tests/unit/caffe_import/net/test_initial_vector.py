"""The initial parameter vector of a net: order and dependence."""

from __future__ import annotations

from math import sqrt

import numpy as np

from caffe_import.files.prototxt import parse_net
from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.net_spec import build_net_spec

NET = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } bias_filler { value: 0.5 } } }
%s
layer { name: "b" type: "InnerProduct" bottom: "a" top: "b"
  inner_product_param { num_output: 2 weight_filler { type: "gaussian" } } }
"""


def test_initial_vector_lies_in_layout_order() -> None:
    net = build_net_spec(parse_net(NET % ""), phase="TRAIN")
    vector = initial_vector(net, seed=1)
    assert vector.dtype == np.float32
    views = net.params.views(vector)
    assert (views["a[1]"] == 0.5).all()
    assert (views["b[1]"] == 0).all()  # Caffe's default filler
    assert abs(views["a[0]"]).max() <= sqrt(3 / 3)
    assert len(np.unique(views["b[0]"])) == 8


def test_initial_vector_depends_on_seed_and_blob_name_only() -> None:
    net = build_net_spec(parse_net(NET % ""), phase="TRAIN")
    first = initial_vector(net, seed=1)
    np.testing.assert_array_equal(first, initial_vector(net, seed=1))
    assert not np.array_equal(first, initial_vector(net, seed=2))
    assert np.isfinite(initial_vector(net, seed=-1)).all()
    between = 'layer { name: "s" type: "Scale" bottom: "a" top: "a" }'
    longer = build_net_spec(parse_net(NET % between), phase="TRAIN")
    np.testing.assert_array_equal(
        net.params.views(first)["b[0]"], longer.params.views(initial_vector(longer, seed=1))["b[0]"]
    )
