"""Images of several sizes in a net's own source: which images fit the net, and messages for the others."""

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
    ("sizes", "transform", "finding"),
    [
        ([(5, 4), (4, 5)], "scale: 2", "allowed: equal shapes, or a crop_size in transform_param"),
        ([(8, 8), (8, 8), (8, 4)], "crop_size: 5", "allowed: at least crop_size=5 pixels in height and width"),
        ([(8, 8), (8, 9)], 'crop_size: 5 mean_file: "mean"', "images of the size of mean_file; mean_value fits"),
    ],
)
def test_image_that_does_not_fit_is_named(tmp_path, sizes, transform, finding):
    write_mean(tmp_path / "mean", np.zeros((3, *sizes[0]), np.float32))
    net, binding = fed_layer(tmp_path, sizes, transform, batch_size=1)
    (layer,) = binding.fed_layers(net)
    last = len(sizes) - 1
    with pytest.raises(DataError, match=finding) as raised:
        layer.read_wrapped(last, 1)
    shape = (3, *sizes[last])
    named = f'layer "photos": sample {last} ("{last}.png") of source of layer "photos" has shape {shape}'
    assert str(raised.value).startswith(f"{named}, the first sample {(3, *sizes[0])}; ")


def test_image_of_a_list_that_may_not_be_quoted_has_no_name(tmp_path):
    with allowed_roots_used(AllowedRoots.of([tmp_path / "elsewhere"], is_enforced=False)):
        net, binding = fed_layer(tmp_path, [(5, 4), (4, 5)], "scale: 2", batch_size=1)
        (layer,) = binding.fed_layers(net)
        with pytest.raises(DataError) as raised:
            layer.read_wrapped(1, 1)
    assert 'sample 1 of source of layer "photos" has shape (3, 4, 5), the first sample (3, 5, 4)' in str(raised.value)
