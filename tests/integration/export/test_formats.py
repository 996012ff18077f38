"""A bundle's formats: what is written is chosen, and each is read by others than us."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import build_net_spec
from deepspark_ops.config.base import parse_config
from deepspark_ops.config.convert import ConvertConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.evaluate.tasks.choice import TaskWish, choose_task
from deepspark_ops.export import bundle as bundle_module
from deepspark_ops.export.bundle import Bundle, ExportDiffers, write_bundle, write_model
from deepspark_ops.export.convert.from_files import parts_of_files
from deepspark_ops.export.formats.exported_model import CannotHave, ExportedModel, Reading
from deepspark_ops.export.formats.registry import FORMATS
from deepspark_ops.export.manifest import BundleManifest, read_manifest
from deepspark_ops.export.served_output import served_outputs
from deepspark_ops.run_paths import RunPaths
from tests.integration.small_run import CLASS_NAMES, NET, make_run

pytestmark = pytest.mark.tf

# OpenCV knows no Bias layer; without a mean image any size goes, and the centre is cut out of it.
UNKNOWN_TO_OPENCV = NET.replace('type: "ReLU"', 'type: "Bias"').replace('mean_file: "mean"', "mean_value: 100")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, dataset: Path) -> RunPaths:
    return make_run(tmp_path_factory.mktemp("run"), dataset, n_steps=5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, dataset: Path) -> RunPaths:
    """Return a run long enough for classes that do not depend on rounding."""
    return make_run(tmp_path_factory.mktemp("trained"), dataset, n_steps=40)


@pytest.fixture(scope="module")
def bundle(run: RunPaths) -> Bundle:
    return write_bundle(ExportConfig(run_dir=run.root), on_step=lambda _: None)


def test_readers_of_others_compute_what_was_trained(bundle: Bundle) -> None:
    check = bundle.manifest.check
    assert [(reading.file, reading.reader) for reading in check.outside] == [
        ("weights.caffemodel", "OpenCV"),
        ("model.keras", "Keras"),
        ("model.onnx", "onnxruntime"),
        ("model.tflite", "TensorFlow Lite's interpreter"),
    ]
    for reading in check.outside:
        assert reading.max_relative_difference is not None
        assert 0 <= reading.max_relative_difference < 1e-5  # float32 sums in another order
    assert check.left_out == {}


def test_code_of_the_card_runs_as_it_is_in_the_bundles_folder(bundle: Bundle) -> None:
    card = (bundle.folder / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", card, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 6
    blocks.pop()  # Spark's runs in tests/integration/predict/test_in_spark.py
    ends = "\nprint('classes', scores.shape, float(scores.sum()).__round__(4), labels[classes[0]] in labels)\n"
    # One process and no name kept from block to block; TensorFlow is imported once, without a search for garbage.
    first = "import gc; gc.disable(); import tensorflow; gc.freeze(); gc.enable()\n"
    shown = subprocess.run(
        [sys.executable, "-P", "-c", f"{first}for code in {[block + ends for block in blocks]!r}: exec(code, {{}})"],
        cwd=bundle.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr[-2000:]
    assert shown.stdout == "classes (1, 3) 1.0 True\n" * 5


def test_the_card_says_what_the_model_takes_and_where_it_comes_from(bundle: Bundle) -> None:
    card = (bundle.folder / "README.md").read_text()
    assert card.startswith("# patches\n")
    assert "- images: uint8 (N, 14, 16, 3), axes N, H, W, C, RGB. Before the net: channels to BGR; cut out" in card
    assert f"weights patches\\_iter\\_5.caffemodel ({bundle.manifest.origin.weights_digest})" in card
    assert "Nobody has scored these weights on test data." in card
    assert "- 0: red \\<left\\>\n- 1: green\n- 2: blue \\& right" in card  # names are no markup
    assert bundle.manifest.files.keys() >= {"README.md"}


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Let the net have no TensorFlow Lite file, found out when its file is read; give what was written."""
    written: list[str] = []

    def write(model: ExportedModel) -> None:
        (model.folder / "model.tflite").write_bytes(b"half")
        written.append("tflite")

    def read(model: ExportedModel) -> tuple[()]:
        msg = "TensorFlow Lite has no form of tf.Foo"
        raise CannotHave(msg)

    refusing = replace(FORMATS["tflite"], write=write, read=read)
    monkeypatch.setattr(bundle_module, "FORMATS", {"caffe": FORMATS["caffe"], "tflite": refusing})
    yield written
    assert written == ["tflite"]


def test_a_format_that_the_net_cannot_have_is_named_and_left_out(
    run: RunPaths, tmp_path: Path, counting: list[str]
) -> None:
    bundle = write_bundle(ExportConfig(run_dir=run.root, output=tmp_path / "bundle"), on_step=lambda _: None)
    assert bundle.manifest.check.left_out == {"tflite": "TensorFlow Lite has no form of tf.Foo"}
    assert "model.tflite" not in bundle.manifest.files
    assert not (bundle.folder / "model.tflite").exists()
    assert "Left out: tflite. TensorFlow Lite has no form of tf.Foo." in (bundle.folder / "README.md").read_text()


def test_a_format_that_was_asked_for_by_name_is_not_left_out(
    run: RunPaths, tmp_path: Path, counting: list[str]
) -> None:
    config = ExportConfig(run_dir=run.root, output=tmp_path / "bundle", formats="tflite")
    with pytest.raises(ConfigError) as caught:
        write_bundle(config, on_step=lambda _: None)
    assert str(caught.value) == "formats=tflite: tflite: TensorFlow Lite has no form of tf.Foo; leave it out"
    assert list(tmp_path.iterdir()) == []


def test_a_net_that_opencv_cannot_read_is_noted_and_exported(dataset: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", dataset, net=UNKNOWN_TO_OPENCV, n_steps=5)
    bundle = write_bundle(ExportConfig(run_dir=run.root, formats="caffe,tflite"), on_step=lambda _: None)
    assert {path.name for path in bundle.folder.iterdir()} >= {"deploy.prototxt", "weights.caffemodel", "model.tflite"}
    assert not (bundle.folder / "saved_model").exists()
    by_opencv, by_tflite = bundle.manifest.check.outside
    assert by_opencv.max_relative_difference is None
    assert 'Can\'t create layer "relu" of type "Bias"' in by_opencv.unread
    assert "not read: " in (bundle.folder / "README.md").read_text()
    with pytest.raises(DataError, match=r"the bundle has no saved_model; evaluation, prediction, serving and"):
        read_manifest(bundle.folder)
    assert by_tflite.max_relative_difference is not None
    assert by_tflite.max_relative_difference < 1e-5
    assert (bundle.manifest.inputs[0].shape, bundle.manifest.inputs[0].sample_shape) == ((-1, -1, -1, 3), (12, 12, 3))


def test_rounded_files_are_smaller_and_judged_by_their_classes(trained: RunPaths, tmp_path: Path) -> None:
    names = "saved_model,tflite_float16,tflite_int8"
    config = ExportConfig(run_dir=trained.root, output=tmp_path / "bundle", formats=names, check_samples=50)
    bundle = write_bundle(config, on_step=lambda _: None)
    half, eighth = bundle.manifest.check.outside
    assert (half.file, half.min_agreement) == ("model_float16.tflite", 0.95)
    assert (eighth.file, eighth.min_agreement) == ("model_int8.tflite", 0.9)
    # Rounded to 11 bits, and to 8: the differences are of these sizes, neither none nor any.
    assert 1e-6 < half.max_relative_difference < 2**-9
    assert 2**-10 < eighth.max_relative_difference < 0.2
    assert (bundle.folder / eighth.file).stat().st_size < (bundle.folder / half.file).stat().st_size
    assert bundle.manifest.check.largest() < 1e-5
    card = (bundle.folder / "README.md").read_text()
    assert "### TensorFlow Lite, int8" in card
    assert "allowed 90 % |" in card


def test_a_rounded_file_that_finds_other_classes_is_refused() -> None:
    text = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }'
    net = build_net_spec(parse_net(text + 'layer { name: "p" type: "Softmax" bottom: "x" top: "p" }'), phase="TEST")
    outputs = served_outputs((task := choose_task(net, TaskWish("classification", ("p",))),), {task: "p"})
    expected = {"scores": np.eye(3)[[0, 1, 2, 0, 1, 2, 0, 1, 2, 0]]}
    scores = expected["scores"].copy()
    good = Reading("model_int8.tflite", "a reader", {"scores": scores}, min_agreement=0.9)
    scores[0] = [0, 1, 0]
    check = bundle_module.compare_readings([good], outputs, expected, {})
    assert check.outside[0].agreement == 0.9
    scores[1] = [1, 0, 0]
    with pytest.raises(ExportDiffers, match=r"trained graph's class for 80\.0 % of 10 samples; allowed: 90 % or"):
        bundle_module.compare_readings([good], outputs, expected, {})


def test_eight_bits_without_training_samples_are_refused(bundle: Bundle, tmp_path: Path) -> None:
    config = ConvertConfig(
        net=bundle.folder / "deploy.prototxt",
        weights=bundle.folder / "weights.caffemodel",
        output=tmp_path / "made",
        formats="tflite_int8",
    )
    with (
        parts_of_files(config) as model,
        pytest.raises(ConfigError, match=r"^formats=tflite_int8: tflite_int8: the ranges of 8 bits are taken from"),
    ):
        write_model(model, config.output, lambda _: None)


def test_an_unknown_format_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(ExportConfig, {"run_dir": "r", "formats": "caffe, onx"})
    assert str(caught.value) == (
        "formats='caffe, onx': must be all, or one or several of saved_model, caffe, keras, onnx, tflite, "
        "tflite_float16, tflite_int8, with commas between them"
    )
    assert parse_config(ExportConfig, {"run_dir": "r", "formats": "tflite, caffe"}).formats == ("caffe", "tflite")
    assert parse_config(ExportConfig, {"run_dir": "r", "formats": "all"}).formats is None


def test_manifests_of_older_versions_are_read(bundle: Bundle) -> None:
    fields = bundle.manifest.model_dump(mode="json")
    fields["format_version"] = 3
    for added in ("outside", "left_out"):
        del fields["check"][added]
    for contract in fields["inputs"]:
        for added in ("sample_shape", "images", "is_table"):
            del contract[added]
    read = BundleManifest.model_validate(fields)
    assert (read.check.outside, read.check.left_out, read.inputs[0].sample_shape) == ((), {}, None)
    assert (read.inputs[0].images, read.inputs[0].is_table) == (None, False)
    assert read.check.largest() < 1e-4


def test_the_files_for_caffe_hold_the_blobs_that_opencv_finds(bundle: Bundle) -> None:
    net = cv2.dnn.readNetFromCaffe(str(bundle.folder / "deploy.prototxt"), str(bundle.folder / "weights.caffemodel"))
    assert net.getParam("conv", 0).shape == (8, 3, 3, 3)
    assert np.isfinite(net.getParam("conv", 0)).all()
    assert bundle.manifest.output.labels == CLASS_NAMES
