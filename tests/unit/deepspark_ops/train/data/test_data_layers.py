"""Images of several sizes in a net's own source: which images fit the net, and messages for the others."""

from dataclasses import replace
from functools import partial

import cv2
import numpy as np
import pytest

from caffe_import.file_access.allowed_roots import AllowedRoots, allowed_roots_used
from caffe_import.files.mean_file import write_mean
from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import build_net_spec
from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.samples import Samples, scored_layers
from deepspark_ops.train.data.data_binding import DataBinding

LAYER = """
layer {{ name: "photos" type: "ImageData" top: "data" top: "label" transform_param {{ {transform} }}
  image_data_param {{ source: "list.txt" root_folder: "{root}/" batch_size: {batch_size} {more} }} }}
"""


@pytest.mark.parametrize("mirror", [False, True])
def test_a_batch_of_one_image_has_the_size_of_the_image(tmp_path, mirror):
    sizes = [(6, 9), (6, 9), (5, 7), (6, 9)]
    net, binding = fed_layer(tmp_path, sizes, f"mean_value: 3 mirror: {str(mirror).lower()}", batch_size=1)
    (layer,) = binding.fed_layers(net)
    for index, size in enumerate(sizes):
        columns = layer.read_wrapped(index, 1)
        shapes = layer.shapes_of(columns)
        assert shapes == {"data": (1, 3, *size), "label": (1,)}
        feeds = {top: np.empty(shape, np.float32) for top, shape in shapes.items()}
        layer.fill(columns, feeds, (1, index))
        pixels = cv2.imread(str(tmp_path / f"{index}.png")).transpose(2, 0, 1) - np.float32(3)
        fed = feeds["data"][0]
        assert any(np.array_equal(fed, form) for form in ([pixels, pixels[..., ::-1]] if mirror else [pixels]))
        assert feeds["label"].tolist() == [index]


def test_images_of_several_sizes_are_scored_one_at_a_time(tmp_path):
    """The net is built for batches of 3; a batch whose images have the first size is whole."""
    sizes = [(6, 9), (6, 9), (6, 9), (5, 7), (6, 9), (8, 4), (6, 9)]
    net, binding = fed_layer(tmp_path, sizes, "scale: 2", batch_size=3)
    samples = Samples(scored_layers(replace(binding, single=frozenset({"photos"})), net, "test"))
    batches = list(samples.batches())
    shapes = [batch.feeds["data"].shape for batch in batches]
    assert shapes == [(3, 3, 6, 9), (1, 3, 5, 7), (1, 3, 6, 9), (1, 3, 8, 4), (3, 3, 6, 9)]
    assert [(batch.start, batch.count) for batch in batches] == [(0, 3), (3, 1), (4, 1), (5, 1), (6, 1)]
    for batch in batches:
        for row in range(batch.count):
            pixels = cv2.imread(str(tmp_path / f"{batch.start + row}.png")).transpose(2, 0, 1)
            np.testing.assert_array_equal(batch.feeds["data"][row], pixels * np.float32(2))
            np.testing.assert_array_equal(batch.stored["data"][row], pixels)
            assert batch.feeds["label"][row] == batch.start + row
    with pytest.raises(DataError, match=r"samples 2 to 3 have several sizes, such as \(3, 5, 7\) and \(3, 6, 9\)"):
        samples.read(2, 2)


def fed_layer(folder, sizes, transform, *, batch_size=2, more="", phase="TEST"):
    rng = np.random.default_rng(1)
    for index, size in enumerate(sizes):
        cv2.imwrite(str(folder / f"{index}.png"), rng.integers(0, 256, (*size, 3), dtype=np.uint8))
    (folder / "list.txt").write_text("".join(f"{index}.png {index}\n" for index in range(len(sizes))))
    text = LAYER.format(root=folder, transform=transform, batch_size=batch_size, more=more)
    binding = DataBinding(None, folder)
    net = build_net_spec(parse_net(text), phase=phase, sample_shapes=partial(binding.sample_shapes, phase))
    return net, binding


def test_crops_of_several_sizes_are_fed_and_scored_image_by_image(tmp_path):
    sizes = [(6, 9), (8, 7), (5, 5), (7, 7)]
    net, binding = fed_layer(tmp_path, sizes, "crop_size: 5 mean_value: 3", batch_size=3)
    (layer,) = binding.fed_layers(net)
    feeds = {top: np.empty(shape, np.float32) for top, shape in layer.tops.items()}
    layer.fill(layer.read_wrapped(2, 3), feeds, (0,))
    for fed, index in zip(feeds["data"], (2, 3, 0), strict=True):
        pixels = cv2.imread(str(tmp_path / f"{index}.png")).transpose(2, 0, 1)
        row, column = ((extent - 5) // 2 for extent in sizes[index])
        np.testing.assert_array_equal(fed, pixels[:, row : row + 5, column : column + 5] - np.float32(3))
    samples = Samples(scored_layers(binding, net, "test"))
    scored = np.concatenate([batch.feeds["data"][: batch.count] for batch in samples.batches()])
    np.testing.assert_array_equal(scored[[2, 3, 0]], feeds["data"])


@pytest.mark.parametrize(
    ("sizes", "transform", "batch_size", "finding"),
    [
        ([(5, 4), (4, 5)], "scale: 2", 2, "allowed: equal shapes, a crop_size in transform_param, or batch_size: 1"),
        ([(8, 8), (8, 8), (8, 4)], "crop_size: 5", 1, "allowed: at least crop_size=5 pixels in height and width"),
        ([(8, 8), (8, 9)], 'crop_size: 5 mean_file: "mean"', 1, "images of the size of mean_file; mean_value fits"),
        ([(8, 8), (8, 9)], 'mean_file: "mean"', 1, "images of the size of mean_file; mean_value fits"),
    ],
)
def test_image_that_does_not_fit_is_named(tmp_path, sizes, transform, batch_size, finding):
    write_mean(tmp_path / "mean", np.zeros((3, *sizes[0]), np.float32))
    net, binding = fed_layer(tmp_path, sizes, transform, batch_size=batch_size)
    (layer,) = binding.fed_layers(net)
    last = len(sizes) - 1
    with pytest.raises(DataError, match=finding) as raised:
        layer.read_wrapped(last, 1)
    shape = (3, *sizes[last])
    named = f'layer "photos": sample {last} ("{last}.png") of source of layer "photos" has shape {shape}'
    assert str(raised.value).startswith(f"{named}, the first sample {(3, *sizes[0])}; ")


def test_image_of_a_list_that_may_not_be_quoted_has_no_name(tmp_path):
    with allowed_roots_used(AllowedRoots.of([tmp_path / "elsewhere"], is_enforced=False)):
        net, binding = fed_layer(tmp_path, [(5, 4), (4, 5)], "scale: 2", batch_size=2)
        (layer,) = binding.fed_layers(net)
        with pytest.raises(DataError) as raised:
            layer.read_wrapped(1, 1)
    assert 'sample 1 of source of layer "photos" has shape (3, 4, 5), the first sample (3, 5, 4)' in str(raised.value)
