"""Layers without bottoms: shapes of what they hand over, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from caffe_import.errors import NetError
from caffe_import.files.prototxt import parse_net
from caffe_import.net.layer_registry import LayerDefinition, Shape
from caffe_import.net.net_spec import build_net_spec
from tests.reference.layer_check import run_layer

pytestmark = pytest.mark.tf


def define(text: str, samples: tuple[Shape, ...] | None = None) -> LayerDefinition:
    net = parse_net(f'layer {{ name: "d" {text} }}')
    shapes = None if samples is None else lambda _: samples
    return build_net_spec(net, phase="TRAIN", sample_shapes=shapes).layers[0].definition


def data_layer_refusal(text: str, samples: tuple[Shape, ...] | None = None) -> str:
    with pytest.raises(NetError) as caught:
        define(text, samples)
    return str(caught.value)


IMAGE = ((3, 32, 40), ())
TOPS = 'top: "data" top: "label"'


@pytest.mark.parametrize(
    ("text", "samples", "tops"),
    [
        (f'type: "Data" {TOPS} data_param {{ batch_size: 8 }}', IMAGE, ((8, 3, 32, 40), (8,))),
        ('type: "Data" top: "data" data_param { batch_size: 8 }', IMAGE, ((8, 3, 32, 40),)),
        (
            f'type: "Data" {TOPS} data_param {{ batch_size: 8 }} transform_param {{ crop_size: 27 }}',
            IMAGE,
            ((8, 3, 27, 27), (8,)),
        ),
        (
            f'type: "ImageData" {TOPS} image_data_param {{ batch_size: 2 }} transform_param {{ crop_size: 5 }}',
            IMAGE,
            ((2, 3, 5, 5), (2,)),
        ),
        (
            f'type: "WindowData" {TOPS} window_data_param {{ batch_size: 2 }} transform_param {{ crop_size: 5 }}',
            IMAGE,
            ((2, 3, 5, 5), (2,)),
        ),
        (
            'type: "HDF5Data" top: "a" top: "b" top: "c" hdf5_data_param { batch_size: 4 }',
            ((5,), (2, 3, 3), ()),
            ((4, 5), (4, 2, 3, 3), (4,)),
        ),
        (
            f'type: "MemoryData" {TOPS} memory_data_param {{ batch_size: 4 channels: 3 height: 5 width: 6 }}',
            None,
            ((4, 3, 5, 6), (4,)),
        ),
        ('type: "Input" top: "a" input_param { shape { dim: 2 dim: 3 } }', None, ((2, 3),)),
        ('type: "Input" top: "a" top: "b" input_param { shape { dim: 2 dim: 3 } }', None, ((2, 3), (2, 3))),
        ('type: "Input" top: "a" top: "b" input_param { shape { dim: 2 } shape { } }', None, ((2,), ())),
    ],
)
def test_fed_tops(text: str, samples: tuple[Shape, ...] | None, tops: tuple[Shape, ...]) -> None:
    definition = define(text, samples)
    assert definition.top_shapes == tops
    assert definition.is_data


@pytest.mark.parametrize(
    ("text", "samples", "finding"),
    [
        (
            f'type: "Data" {TOPS} data_param {{ batch_size: 8 }}',
            None,
            "the shape of its samples is not known: open its source, or replace it by an Input layer",
        ),
        (f'type: "Data" {TOPS}', IMAGE, "data_param.batch_size=0: must be at least 1"),
        (
            f'type: "ImageData" {TOPS} data_param {{ batch_size: 8 }}',
            IMAGE,
            "has data_param and no image_data_param.batch_size; ImageData reads image_data_param alone: move the "
            "fields there, or correct the type",
        ),
        (
            f'type: "ImageData" {TOPS} image_data_param {{ source: "s" }} data_param {{ batch_size: 8 }}',
            IMAGE,
            "has data_param and no image_data_param.batch_size; ImageData reads image_data_param alone: move the "
            "fields there, or correct the type",
        ),
        (
            f'type: "Data" {TOPS} data_param {{ source: "s" }} image_data_param {{ batch_size: 8 }}',
            IMAGE,
            "has image_data_param and no data_param.batch_size; Data reads data_param alone: move the fields there, or "
            "correct the type",
        ),
        (
            f'type: "Data" {TOPS} data_param {{ batch_size: 8 }} transform_param {{ crop_size: 33 }}',
            IMAGE,
            "crop_size=33 does not fit into samples of shape (3, 32, 40) (C, H, W)",
        ),
        (
            'type: "HDF5Data" top: "a" top: "b" hdf5_data_param { batch_size: 4 }',
            ((5,),),
            "has 2 tops, its source holds 1 values per sample",
        ),
        (
            'type: "HDF5Data" top: "a" hdf5_data_param { batch_size: 4 } transform_param { scale: 2 }',
            ((5,),),
            "has a transform_param; HDF5Data returns the numbers as stored: remove it",
        ),
        (
            f'type: "ImageData" {TOPS} image_data_param {{ new_height: 4 }}',
            IMAGE,
            "new_height=4 and new_width=0: allowed: both 0 (no resize) or both above 0",
        ),
        (
            f'type: "WindowData" {TOPS} window_data_param {{ batch_size: 2 }}',
            IMAGE,
            "crop_size is 0: windows are warped to crop_size x crop_size pixels, it must be above 0",
        ),
        (
            f'type: "MemoryData" {TOPS} memory_data_param {{ batch_size: 4 channels: 3 height: 5 }}',
            None,
            "memory_data_param: channels=3, height=5, width=0: all three must be above 0",
        ),
        ('type: "Input" top: "a"', None, "input_param has 0 shapes for 1 tops; allowed: one for all, or one for each"),
        (
            'type: "Input" top: "a" input_param { shape { dim: 0 } }',
            None,
            "input_param.shape [0]: every dim must be at least 1",
        ),
    ],
)
def test_refusals(text: str, samples: tuple[Shape, ...] | None, finding: str) -> None:
    assert data_layer_refusal(text, samples).endswith(f"): {finding}")


def test_images_without_a_fixed_size_are_noted() -> None:
    text = f'type: "ImageData" {TOPS} image_data_param {{ batch_size: 2 %s }}'
    assert define(text % "", IMAGE).notes
    assert not define(text % "new_height: 32 new_width: 40", IMAGE).notes


def dummy(options: str, tops: str = 'top: "n0"') -> str:
    return f'{tops} type: "DummyData" dummy_data_param {{ {options} }}'


def test_dummy_data_shapes() -> None:
    assert define(dummy("shape { dim: 2 dim: 3 }", TOPS)).top_shapes == ((2, 3), (2, 3))
    legacy = "num: 2 num: 4 channels: 3 height: 1 width: 5"
    assert define(dummy(legacy, TOPS)).top_shapes == ((2, 3, 1, 5), (4, 3, 1, 5))
    assert not define(dummy("shape { }")).is_data
    assert "allowed: one of both forms" in data_layer_refusal(dummy("shape { dim: 2 } num: 1"))
    assert "must each be given once" in data_layer_refusal(dummy("num: 2 channels: 3"))
    assert "has 2 data_filler for 1 tops" in data_layer_refusal(
        dummy("shape { dim: 1 } data_filler { } data_filler { }")
    )
    assert "has 0 shapes for 1 tops" in data_layer_refusal(dummy(""))


@pytest.mark.parametrize(
    ("filler", "mean", "std"),
    [
        ("value: 2.5", 2.5, 0),
        ('type: "uniform" min: -1 max: 3', 1, 4 / np.sqrt(12)),
        ('type: "gaussian" mean: 2 std: 0.5', 2, 0.5),
        ('type: "gaussian" sparse: 10', 0, np.sqrt(0.1)),
        ('type: "xavier"', 0, np.sqrt(1 / 200)),
        ('type: "msra" variance_norm: FAN_OUT', 0, np.sqrt(2 / 100)),
        ('type: "positive_unitball"', 1 / 200, 1 / 200 / np.sqrt(3)),
    ],
)
def test_dummy_data_fillers(filler: str, mean: float, std: float) -> None:
    text = dummy(f"shape {{ dim: 100 dim: 200 }} data_filler {{ {filler} }}", 'top: "n0" top: "n1"')
    first, second = run_layer(text, [], seed=1), run_layer(text, [], seed=2)
    values = first.tops[0]
    assert values.mean() == pytest.approx(mean, abs=5 * std / np.sqrt(values.size) + 1e-7)
    assert values.std() == pytest.approx(std, rel=0.05, abs=1e-7)
    is_random = std > 0
    assert np.array_equal(values, second.tops[0]) == (not is_random)
    assert np.array_equal(values, first.tops[1]) == (not is_random)
    np.testing.assert_array_equal(values, run_layer(text, [], seed=1).tops[0])


def test_hdf5_output_has_no_tops() -> None:
    run = run_layer('type: "HDF5Output" hdf5_output_param { file_name: "out.h5" }', [np.ones((2, 3)), np.ones((2,))])
    assert run.tops == ()
    assert run.net.layers[-1].definition.options.file_name == "out.h5"


def test_hdf5_output_takes_four_axes_at_most() -> None:
    text = 'type: "HDF5Output" hdf5_output_param { file_name: "out.h5" }'
    with pytest.raises(NetError, match="allowed: at most 4 axes"):
        run_layer(text, [np.ones((2, 1, 1, 1, 3)), np.ones(2)])
