"""Pixels against Caffe's recorded batches and against a slow loop."""

import json

import numpy as np
import pytest
from google.protobuf import text_format

from caffe_import.data import open_source, read_wrapped
from caffe_import.data.sample_source import column_of
from caffe_import.data.transform import (
    TransformOptions,
    cut_to_one_size,
    transform_batch,
    transform_options,
)
from caffe_import.errors import DataSourceError, NetError
from caffe_import.proto import caffe_pb2
from tests.paths import FIXTURES
from tests.reference.slow_transform import transform_image

CAFFE = FIXTURES / "caffe"
CASES = {case["name"]: case for case in json.loads((CAFFE / "transforms" / "index.json").read_text())}
EXACT = sorted(name for name, case in CASES.items() if not case.get("random"))


def layer_of(name: str) -> caffe_pb2.LayerParameter:
    text = (CAFFE / "transforms" / f"{name}.prototxt").read_text()
    return text_format.Parse(text, caffe_pb2.NetParameter()).layer[0]


def batch_size_of(layer: caffe_pb2.LayerParameter) -> int:
    return max(layer.data_param.batch_size, layer.hdf5_data_param.batch_size) or layer.image_data_param.batch_size


def run_layer(name: str):
    """Yield (recorded batch, our batch) per top, batch after batch, going round the data as Caffe does."""
    layer = layer_of(name)
    recorded = np.load(CAFFE / "transforms" / f"{name}.npz")
    source = open_source(layer, CAFFE)
    options = transform_options(layer.transform_param, root=CAFFE)
    n_batches = len({member.split("/")[0] for member in recorded.files if member.startswith("batch")})
    for k in range(n_batches):
        columns = read_wrapped(source, k * batch_size_of(layer), batch_size_of(layer))
        if source.is_transformed:
            columns[0] = transform_batch(columns[0], options, phase=CASES[name]["phase"])
        for top, values in zip(layer.top, columns, strict=True):
            yield recorded[f"batch{k + 1}/{top}"], values
    source.close()


@pytest.mark.parametrize("name", EXACT)
def test_batches_equal_caffes(name):
    tolerance = 2 if "jpg" in name else 0  # JPEG decoders may differ by a level or two
    pairs = list(run_layer(name))
    assert len(pairs) >= 3
    for recorded, values in pairs:
        assert values.shape == recorded.shape
        np.testing.assert_allclose(values, recorded, rtol=0, atol=tolerance)


def test_random_cases_are_present():
    assert sorted(set(CASES) - set(EXACT)) == ["data_random_crop_mirror_meanfile", "data_random_mirror_test_phase"]


def every_crop(image, options, phase):
    """All possible results of a random transform of an image."""
    crop, (_, height, width) = options.crop_size, image.shape
    centre = ((height - crop) // 2, (width - crop) // 2)
    rows = [centre[0]] if phase == "TEST" else range(height - crop + 1)
    columns = [centre[1]] if phase == "TEST" else range(width - crop + 1)
    return [
        transform_image(image, mean=options.mean, scale=options.scale, crop=crop, row=row, column=column, flip=flip)
        for row in rows
        for column in columns
        for flip in (False, True)
    ]


@pytest.mark.parametrize("name", ["data_random_crop_mirror_meanfile", "data_random_mirror_test_phase"])
def test_random_batches_of_caffe_and_ours_are_among_the_possible_crops(name):
    layer, phase = layer_of(name), CASES[name]["phase"]
    options = transform_options(layer.transform_param, root=CAFFE)
    source = open_source(layer, CAFFE)
    images, _ = source.read(0, 7)
    source.close()
    recorded = np.load(CAFFE / "transforms" / f"{name}.npz")["batch1/data"]
    batch = transform_batch(images, options, phase=phase, rng=np.random.default_rng(3))
    for image, caffes, our in zip(images, recorded, batch, strict=True):
        possible = every_crop(image, options, phase)
        assert any(np.array_equal(caffes, crop) for crop in possible)
        assert any(np.array_equal(our, crop) for crop in possible)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("mean_kind", ["file", "values", "one value", "none"])
@pytest.mark.parametrize(("crop", "mirror", "phase"), [(5, True, "TRAIN"), (0, True, "TEST"), (4, True, "TEST")])
def test_random_transform_equals_slow_loop(dtype, mean_kind, crop, mirror, phase):
    rng = np.random.default_rng(11)
    images = rng.integers(0, 256, (6, 3, 7, 9)).astype(dtype)
    mean = rng.normal(100, 20, (3, 7, 9)).astype(np.float32)
    fields = {"file": {"mean": mean}, "values": {"mean_values": (1.5, 2.5, 3.5)}, "one value": {"mean_values": (7.5,)}}
    options = TransformOptions(scale=0.5, mirror=mirror, crop_size=crop, **fields.get(mean_kind, {}))
    subtracted = {"file": mean, "values": [1.5, 2.5, 3.5], "one value": [7.5] * 3, "none": None}[mean_kind]
    batch = transform_batch(images, options, phase=phase, rng=np.random.default_rng(5))

    draws = np.random.default_rng(5)
    flips = draws.integers(0, 2, 6)
    rows, columns = np.full(6, (7 - crop) // 2), np.full(6, (9 - crop) // 2)
    if crop and phase == "TRAIN":
        rows, columns = draws.integers(0, 7 - crop + 1, 6), draws.integers(0, 9 - crop + 1, 6)
    if not crop:
        rows, columns = np.zeros(6, int), np.zeros(6, int)
    for i in range(6):
        slow = transform_image(
            images[i], mean=subtracted, scale=0.5, crop=crop, row=rows[i], column=columns[i], flip=flips[i]
        )
        np.testing.assert_array_equal(batch[i], slow)


@pytest.mark.parametrize("mean_values", [(), (7.5,), (1.5, 2.5, 3.5)])
@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_images_of_several_sizes_are_cut_each_in_its_own_place(phase, mirror, mean_values):
    """Caffe transforms datum by datum: each image has its own random or central crop."""
    rng = np.random.default_rng(11)
    shapes = [(3, 7, 9), (3, 9, 7), (3, 5, 5), (3, 12, 6), (3, 7, 9)]
    images = column_of(
        [rng.integers(0, 256, shape).astype(dtype) for shape, dtype in zip(shapes, "BfBBf", strict=True)]
    )
    options = TransformOptions(scale=0.5, mirror=mirror, crop_size=5, mean_values=mean_values)
    ours = transform_batch(images, options, phase=phase, rng=np.random.default_rng(5))

    draws = np.random.default_rng(5)
    flips = draws.integers(0, 2, len(shapes)) if mirror else [False] * len(shapes)
    if phase == "TRAIN":
        rows = [int(draws.integers(0, height - 5 + 1)) for _, height, _ in shapes]
        columns = [int(draws.integers(0, width - 5 + 1)) for _, _, width in shapes]
    else:
        rows, columns = ([(shape[axis] - 5) // 2 for shape in shapes] for axis in (1, 2))
    means = None if not mean_values else [*mean_values] * (3 // len(mean_values))
    for image, our, row, column, flip in zip(images, ours, rows, columns, flips, strict=True):
        slow = transform_image(image, mean=means, scale=0.5, crop=5, row=row, column=column, flip=flip)
        np.testing.assert_array_equal(our, slow)


def test_crop_of_an_image_cut_to_the_smallest_size_is_that_of_the_whole_image():
    rng = np.random.default_rng(2)
    sizes = [(7, 12), (8, 9), (10, 11), (7, 9), (13, 10)]
    images = column_of([rng.integers(0, 256, (3, *size), dtype=np.uint8) for size in sizes])
    for crop in (3, 4, 7):
        options = TransformOptions(crop_size=crop)
        cut = cut_to_one_size(images, crop)
        assert cut.shape == (5, 3, 7, 9)
        np.testing.assert_array_equal(
            transform_batch(cut, options, phase="TEST"), transform_batch(images, options, phase="TEST")
        )


def test_crop_of_no_images_is_empty():
    images = np.zeros((0, 3, 8, 9), np.uint8)
    assert transform_batch(images, TransformOptions(crop_size=4), phase="TEST").shape == (0, 3, 4, 4)


def test_train_crops_and_flips_reach_every_place():
    image = np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4)
    options = TransformOptions(crop_size=3, mirror=True)
    corners = transform_batch(np.repeat(image, 400, axis=0), options, phase="TRAIN", rng=np.random.default_rng(0))[
        :, 0, 0
    ]
    starts = {tuple(row) for row in corners[:, :2].astype(int).tolist()}
    assert starts == {(0, 1), (1, 2), (4, 5), (5, 6), (2, 1), (3, 2), (6, 5), (7, 6)}


def test_same_generator_state_gives_same_batch():
    images = np.random.default_rng(0).integers(0, 256, (8, 3, 6, 6), dtype=np.uint8)
    options = TransformOptions(crop_size=4, mirror=True)
    first, second = (transform_batch(images, options, phase="TRAIN", rng=np.random.default_rng(9)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_input_is_not_written():
    images = np.full((2, 1, 3, 3), 9.0, np.float32)
    transform_batch(images, TransformOptions(scale=2.0, mean_values=(1.0,)), phase="TEST")
    assert (images == 9.0).all()


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_result_is_written_into_out(phase):
    images = np.random.default_rng(0).integers(0, 256, (8, 3, 6, 6), dtype=np.uint8)
    options = TransformOptions(crop_size=4, scale=0.25, mean_values=(3.0,))
    ring = np.full((10, 3, 4, 4), np.nan, np.float32)
    returned = transform_batch(images, options, phase=phase, rng=np.random.default_rng(2), out=ring[1:9])
    assert np.shares_memory(returned, ring)
    np.testing.assert_array_equal(
        ring[1:9], transform_batch(images, options, phase=phase, rng=np.random.default_rng(2))
    )
    assert np.isnan(ring[[0, 9]]).all()


def test_more_images_than_are_converted_at_once():
    images = np.random.default_rng(0).integers(0, 256, (50, 3, 40, 41), dtype=np.uint8)
    mean = np.random.default_rng(1).random((3, 40, 41), np.float32)
    result = transform_batch(images, TransformOptions(mean=mean), phase="TRAIN")
    np.testing.assert_array_equal(result, images.astype(np.float32) - mean)


def test_random_transform_without_generator_is_refused():
    images = np.zeros((1, 1, 4, 4), np.uint8)
    with pytest.raises(ValueError, match="needs rng"):
        transform_batch(images, TransformOptions(crop_size=2), phase="TRAIN")
    assert transform_batch(images, TransformOptions(crop_size=2), phase="TEST").shape == (1, 1, 2, 2)


def test_crop_larger_than_image_names_both_sizes():
    with pytest.raises(NetError) as caught:
        transform_batch(np.zeros((1, 3, 8, 9), np.uint8), TransformOptions(crop_size=9), phase="TEST")
    assert str(caught.value) == "crop_size=9 is larger than the image, 8 x 9 pixels"


def test_mean_of_another_size_names_both_shapes():
    options = TransformOptions(mean=np.zeros((3, 4, 4), np.float32))
    with pytest.raises(DataSourceError) as caught:
        transform_batch(np.zeros((1, 3, 8, 9), np.uint8), options, phase="TEST")
    assert str(caught.value) == (
        "mean_file holds shape (3, 4, 4), the images have (3, 8, 9); allowed: equal shapes, or mean_value in place of"
        " mean_file"
    )


def test_wrong_number_of_mean_values_says_what_is_allowed():
    with pytest.raises(DataSourceError, match=r"2 mean_value for images of 3 channels; allowed: 1 or 3"):
        transform_batch(np.zeros((1, 3, 8, 9), np.uint8), TransformOptions(mean_values=(1.0, 2.0)), phase="TEST")


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ('mean_file: "m" mean_value: 3', 'layer "d": transform_param has mean_file "m" and mean_value'),
        ("force_color: true force_gray: true", 'layer "d": transform_param has force_color and force_gray'),
    ],
)
def test_excluding_fields_are_refused(text, finding):
    message = text_format.Parse(text, caffe_pb2.TransformationParameter())
    with pytest.raises(NetError) as caught:
        transform_options(message, root=CAFFE, layer="d")
    assert str(caught.value) == f"{finding}; allowed: one of them"
