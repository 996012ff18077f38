"""Fillers against the statistics that Caffe's own fillers gave, and Caffe's exact bilinear weights."""

from __future__ import annotations

import json
from math import ceil, sqrt

import numpy as np
import pytest

from caffe_import.errors import NetError
from caffe_import.files.prototxt import parse_net, read_net
from caffe_import.net.fillers import fill
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
    statistics = STATISTICS[name]
    values = fill(filler_of(name), tuple(statistics["shape"]), rng()).astype(np.float64)
    # Two samples of `count` values: their means differ by std * sqrt(2 / count); 5 of these never happen by chance.
    spread = statistics["std"] * sqrt(2 / statistics["count"])
    assert values.mean() == pytest.approx(statistics["mean"], abs=5 * spread + 1e-7)
    # The standard error of a standard deviation is std sqrt((kurtosis - 1) / (4 count)), here of both samples.
    kurtosis = max(statistics["kurtosis"], 1.0)
    assert values.std() == pytest.approx(
        statistics["std"], abs=5 * statistics["std"] * sqrt((kurtosis - 1) / (2 * statistics["count"])) + 1e-7
    )
    zeros = statistics["zero_fraction"]
    assert (values == 0).mean() == pytest.approx(
        zeros, abs=5 * sqrt(2 * zeros * (1 - zeros) / statistics["count"]) + 1e-6
    )


@pytest.mark.parametrize(
    "name", sorted(name for name in STATISTICS if name.startswith(("uniform", "xavier", "positive_unitball")))
)
def test_bounded_fillers_stay_within_caffes_range(name: str) -> None:
    statistics = STATISTICS[name]
    values = fill(filler_of(name), tuple(statistics["shape"]), rng())
    room = (
        statistics["max"] - statistics["min"]
    ) * 0.01  # extremes of 10,000 and more draws lie this close to the bounds
    if name == "positive_unitball":
        room = statistics["max"] * 0.1  # the largest share of a row depends on the row's sum
    assert values.min() == pytest.approx(statistics["min"], abs=room)
    assert values.max() == pytest.approx(statistics["max"], abs=room)


def test_positive_unitball_rows_sum_to_one() -> None:
    rows = fill(caffe_pb2.FillerParameter(type="positive_unitball"), (6, 5, 4), rng()).reshape(6, -1)
    assert (rows >= 0).all()
    np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8])
def test_bilinear_weights_are_caffes(size: int) -> None:
    weights = np.load(FIXTURES / f"bilinear_k{size}.npz")["weights"]
    values = fill(caffe_pb2.FillerParameter(type="bilinear"), weights.shape, rng())
    np.testing.assert_allclose(values, weights, atol=1e-7)  # float32 against float64 inside


def test_bilinear_follows_the_formula_by_hand() -> None:
    size = 4
    half = ceil(size / 2.0)
    center = (size - 1) / (2.0 * half)
    expected = np.empty((size, size))
    for y in range(size):
        for x in range(size):
            expected[y, x] = (1 - abs(x / half - center)) * (1 - abs(y / half - center))
    values = fill(caffe_pb2.FillerParameter(type="bilinear"), (2, 3, size, size), rng())
    np.testing.assert_allclose(values, np.broadcast_to(expected, (2, 3, size, size)), rtol=1e-6)


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
