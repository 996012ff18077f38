from __future__ import annotations

import math

import numpy as np
import pytest

from caffe_import.files.blob_proto import blob_from_array
from caffe_import.proto import caffe_pb2
from caffe_import.surgery.blob_statistics import differences, statistics


def net_with_blobs(**layers: list[object]) -> caffe_pb2.NetParameter:
    net = caffe_pb2.NetParameter()
    for name, blobs in layers.items():
        layer = net.layer.add(name=name, type="InnerProduct")
        layer.blobs.extend(blob_from_array(np.asarray(blob, np.float32)) for blob in blobs)
    return net


def test_statistics_of_a_blob_by_hand() -> None:
    (row,) = statistics(net_with_blobs(ip=[[[0, 2], [4, math.nan]]]))
    assert (row.layer, row.layer_type, row.index, row.shape) == ("ip", "InnerProduct", 0, (2, 2))
    assert (row.mean, row.smallest, row.largest) == (2, 0, 4)
    assert row.std == pytest.approx(math.sqrt(8 / 3))
    assert (row.zeros, row.n_not_finite) == (0.25, 1)


def test_a_blob_without_a_finite_value_has_statistics() -> None:
    (row,) = statistics(net_with_blobs(ip=[[math.inf, math.nan]]))
    assert (row.mean, row.std, row.n_not_finite) == (0, 0, 2)


def test_equal_files_do_not_differ() -> None:
    assert (
        differences(net_with_blobs(a=[[1, math.nan]], b=[[2]]), net_with_blobs(b=[[2]], a=[[[[[1, math.nan]]]]])) == []
    )


def test_differences_by_hand() -> None:
    first = net_with_blobs(a=[[3, 4]], b=[[1]], c=[[1, 2]], z=[[0]])
    second = net_with_blobs(a=[[3, 4.5]], c=[[1, 2, 3]], d=[[9]], z=[[1]])
    a, b, c, z, d = differences(first, second)
    assert (a.layer, a.largest, a.n_different) == ("a", 0.5, 1)
    assert a.relative == pytest.approx(0.5 / 5)
    assert (b.shapes, b.largest) == (((1,), None), None)
    assert (c.shapes, c.relative) == (((2,), (3,)), None)
    assert z.relative == math.inf
    assert d.shapes == (None, (1,))
