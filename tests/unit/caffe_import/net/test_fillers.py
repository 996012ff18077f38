"""Fillers against the statistics that Caffe's own fillers gave, and Caffe's exact bilinear weights."""

from __future__ import annotations

import json
from math import ceil, sqrt

import numpy as np
import pytest

from caffe_import.errors import NetError
from caffe_import.files.prototxt import parse_net, read_net
from caffe_import.net.fillers import fill, initial_vector
from caffe_import.net.net_spec import build_net_spec
from caffe_import.proto import caffe_pb2
from tests.paths import FIXTURES

FIXTURES = FIXTURES / "caffe" / "fillers"
STATISTICS = json.loads((FIXTURES / "statistics.json").read_text(encoding="utf-8"))


def filler_of(name: str) -> caffe_pb2.FillerParameter:
    layer = read_net(FIXTURES / f"{name}.prototxt").layer[-1]
    field = {"Convolution": "convolution_param", "Deconvolution": "convolution_param"}.get(
        layer.type, "inner_product_param"
    )
    return getattr(layer, field).weight_filler


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize("name", sorted(STATISTICS))
def test_statistics_are_caffes(name: str) -> None:
    theirs = STATISTICS[name]
    ours = fill(filler_of(name), tuple(theirs["shape"]), rng()).astype(np.float64)
    # Two samples of `count` values: their means differ by std * sqrt(2 / count); 5 of these never happen by chance.
    spread = theirs["std"] * sqrt(2 / theirs["count"])
    assert ours.mean() == pytest.approx(theirs["mean"], abs=5 * spread + 1e-7)
    # The standard error of a standard deviation is std sqrt((kurtosis - 1) / (4 count)), here of both samples.
    kurtosis = max(theirs["kurtosis"], 1.0)
    assert ours.std() == pytest.approx(
        theirs["std"], abs=5 * theirs["std"] * sqrt((kurtosis - 1) / (2 * theirs["count"])) + 1e-7
    )
    zeros = theirs["zero_fraction"]
    assert (ours == 0).mean() == pytest.approx(zeros, abs=5 * sqrt(2 * zeros * (1 - zeros) / theirs["count"]) + 1e-6)


@pytest.mark.parametrize(
    "name", sorted(name for name in STATISTICS if name.startswith(("uniform", "xavier", "positive_unitball")))
)
def test_bounded_fillers_stay_within_caffes_range(name: str) -> None:
    theirs = STATISTICS[name]
    ours = fill(filler_of(name), tuple(theirs["shape"]), rng())
    room = (theirs["max"] - theirs["min"]) * 0.01  # extremes of 10,000 and more draws lie this close to the bounds
    if name == "positive_unitball":
        room = theirs["max"] * 0.1  # the largest share of a row depends on the row's sum
    assert ours.min() == pytest.approx(theirs["min"], abs=room)
    assert ours.max() == pytest.approx(theirs["max"], abs=room)


def test_positive_unitball_rows_sum_to_one() -> None:
    rows = fill(caffe_pb2.FillerParameter(type="positive_unitball"), (6, 5, 4), rng()).reshape(6, -1)
    assert (rows >= 0).all()
    np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8])
def test_bilinear_weights_are_caffes(size: int) -> None:
    theirs = np.load(FIXTURES / f"bilinear_k{size}.npz")["weights"]
    ours = fill(caffe_pb2.FillerParameter(type="bilinear"), theirs.shape, rng())
    np.testing.assert_allclose(ours, theirs, atol=1e-7)  # float32 against float64 inside


def test_bilinear_follows_the_formula_by_hand() -> None:
    size = 4
    half = ceil(size / 2.0)
    center = (size - 1) / (2.0 * half)
    expected = np.empty((size, size))
    for y in range(size):
        for x in range(size):
            expected[y, x] = (1 - abs(x / half - center)) * (1 - abs(y / half - center))
    ours = fill(caffe_pb2.FillerParameter(type="bilinear"), (2, 3, size, size), rng())
    np.testing.assert_allclose(ours, np.broadcast_to(expected, (2, 3, size, size)), rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        (
            'type: "gausian"',
            (2, 2),
            'filler of type "gausian": unknown; allowed: bilinear, constant, gaussian, msra, positive_unitball, '
            'uniform, xavier; did you mean "gaussian"?',
        ),
        ('type: "xavier" sparse: 3', (2, 2), 'filler of type "xavier": sparse=3 is allowed with type gaussian only'),
        ('type: "gaussian" std: 0', (2, 2), 'filler of type "gaussian": std=0: must be above 0'),
        ('type: "uniform" min: 2', (2, 2), 'filler of type "uniform": min=2 is above max=1'),
        (
            'type: "bilinear"',
            (1, 1, 3, 4),
            'filler of type "bilinear": the blob has shape (1, 1, 3, 4); expected 4 axes, height equal to width',
        ),
        ('type: "msra"', (), 'filler of type "msra": the blob is a single number; expected at least one axis'),
    ],
)
def test_unusable_fillers_are_refused(text: str, shape: tuple[int, ...], message: str) -> None:
    filler = (
        parse_net(f'layer {{ name: "l" type: "InnerProduct" inner_product_param {{ weight_filler {{ {text} }} }} }}')
        .layer[0]
        .inner_product_param.weight_filler
    )
    with pytest.raises(NetError) as caught:
        fill(filler, shape, rng())
    assert str(caught.value) == message


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


def test_initial_vector_names_the_blob_of_a_bad_filler() -> None:
    net = build_net_spec(parse_net((NET % "").replace('"gaussian"', '"bilinear"')), phase="TRAIN")
    with pytest.raises(NetError, match=r'^layer "b", blob 0: filler of type "bilinear": the blob has shape \(2, 4\)'):
        initial_vector(net, seed=1)
