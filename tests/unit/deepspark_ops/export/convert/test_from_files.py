from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caffe_import.files.caffemodel import write_caffemodel
from caffe_import.files.mean_file import write_mean
from caffe_import.files.prototxt import parse_net
from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.net_spec import build_net_spec
from deepspark_ops.config.base import parse_config
from deepspark_ops.config.convert import ConvertConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.export.convert.from_files import parts_of_files

# The old form of a deploy net: no Input layer, only its fields.
DEPLOY = """
name: "small" input: "data" input_shape { dim: 10 dim: 3 dim: 4 dim: 4 }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.prototxt").write_text(DEPLOY)
    (tmp_path / "flat.prototxt").write_text(DEPLOY.replace("dim: 3 dim: 4 dim: 4", "dim: 48"))
    net = build_net_spec(parse_net(DEPLOY), phase="TEST")
    write_caffemodel(tmp_path / "w.caffemodel", net, initial_vector(net, 3))
    write_mean(tmp_path / "mean.binaryproto", np.full((3, 6, 6), 7, np.float32))
    write_mean(tmp_path / "tiny.binaryproto", np.zeros((3, 2, 2), np.float32))
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    (tmp_path / "three.txt").write_text("cat\ndog\ncow\n")
    return tmp_path


def convert_config(folder: Path, **values: Any) -> ConvertConfig:
    files = {"net": "net.prototxt", "weights": "w.caffemodel", "output": "made"} | values
    in_folder = ("net", "weights", "output", "mean", "class_names", "dataset")
    paths = {name: folder / value if name in in_folder else value for name, value in files.items()}
    return parse_config(ConvertConfig, paths)


def test_pixels_are_cut_to_the_input_centered_and_scaled(folder: Path) -> None:
    with parts_of_files(convert_config(folder, mean="mean.binaryproto", scale=0.5, check_samples=5)) as model:
        batch = model.samples.read(1, 3)
    stored = batch.stored["data"]
    assert (stored.dtype, stored.shape) == (np.uint8, (3, 3, 6, 6))
    expected = (stored[:, :, 1:5, 1:5].astype(np.float32) - 7) * 0.5
    np.testing.assert_array_equal(batch.feeds["data"], expected[[0, 1, 2, 2, 2]])
    assert model.net.inputs == {"data": (5, 3, 4, 4)}
    assert model.class_names == ()
    assert model.origin.weights == "w.caffemodel"


def test_the_samples_are_the_same_each_time_and_differ_from_each_other(folder: Path) -> None:
    batches = []
    for _ in range(2):
        with parts_of_files(convert_config(folder, class_names="labels.txt")) as model:
            batches.append(model.samples.read(0, 32).stored["data"])
            assert model.class_names == ("cat", "dog")
    np.testing.assert_array_equal(batches[0], batches[1])
    assert len(np.unique(batches[0].reshape(32, -1), axis=0)) == 32


def test_an_input_that_is_no_image_takes_numbers_as_they_are(folder: Path) -> None:
    with parts_of_files(convert_config(folder, net="flat.prototxt", check_samples=4)) as model:
        batch = model.samples.read(0, 4)
    assert batch.stored["data"].shape == (4, 48)
    assert batch.stored["data"].min() < 0
    np.testing.assert_array_equal(batch.feeds["data"], batch.stored["data"])


TRAINED = """
name: "small"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 10 dim: 3 dim: 4 dim: 4 } } }
layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 10 LABEL_DIMS } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }
"""


@pytest.mark.parametrize(("dims", "shape"), [("", (32,)), ("dim: 1 dim: 1 dim: 1", (32, 1, 1, 1))])
def test_labels_of_an_input_are_drawn_among_the_classes(folder: Path, dims: str, shape: tuple[int, ...]) -> None:
    (folder / "trained.prototxt").write_text(TRAINED.replace("LABEL_DIMS", dims))
    with parts_of_files(
        convert_config(folder, net="trained.prototxt", mean="mean.binaryproto", check_samples=32)
    ) as model:
        batch = model.samples.read(0, 32)
    assert batch.feeds["label"].shape == shape
    assert set(np.unique(batch.feeds["label"])) == {0.0, 1.0}  # the mean is taken from images alone
    assert batch.feeds["data"].shape == (32, 3, 4, 4)


MISTAKES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"net": "none"}, ConfigError, "net={folder}/none: no such file"),
    ({"weights": "none"}, ConfigError, "weights={folder}/none: no such file"),
    (
        {"class_names": "three.txt"},
        ConfigError,
        "class_names={folder}/three.txt: has 3 lines, the net tells 2 classes apart; one a line",
    ),
    (
        {"mean": "tiny.binaryproto"},
        ConfigError,
        'mean={folder}/tiny.binaryproto: its images have shape (3, 2, 2), layer "input" takes (3, 4, 4);'
        " allowed: the same shape, or larger images and a square that is cut out of them",
    ),
    (
        {"mean": "mean.binaryproto", "mean_values": "1"},
        ConfigError,
        "mean={folder}/mean.binaryproto and mean_values='1': give one",
    ),
    (
        {"net": "flat.prototxt", "scale": 0.5},
        ConfigError,
        "{folder}/flat.prototxt: mean, mean_values and scale are for images, and no Input layer of the net takes any;"
        " allowed: a shape (N, 1, H, W) or (N, 3, H, W)",
    ),
]


@pytest.mark.parametrize(("values", "kind", "message"), MISTAKES, ids=[str(row[0]) for row in MISTAKES])
def test_a_mistake_is_told_with_what_is_allowed(
    folder: Path, values: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as refusal, parts_of_files(convert_config(folder, **values)):
        pytest.fail("it was taken")
    assert str(refusal.value) == message.format(folder=folder)
