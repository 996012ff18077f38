import json
import os
import subprocess
import sys

import numpy as np
import pytest

from caffe_import.files.caffemodel import read_caffemodel, write_caffemodel
from caffe_import.files.mean_file import read_mean
from caffe_import.files.prototxt import read_net
from caffe_import.net.net_spec import build_net_spec
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.evaluate.stage import run_evaluate
from deepspark_ops.export import bundle as bundle_module
from deepspark_ops.export.bundle import ExportDiffers, write_bundle
from deepspark_ops.export.manifest import file_digest, read_manifest
from deepspark_ops.export.snippets import snippets
from deepspark_ops.export.tf_saved_model import load_saved_model
from tests.integration.small_run import CLASS_NAMES, NET, make_dataset, make_run

pytestmark = pytest.mark.tf

# BatchNorm of vectors reshapes by the batch size, so this net cannot be traced for any batch.
FIXED_BATCH = NET.replace(
    'layer { name: "accuracy"',
    """layer { name: "bn" type: "BatchNorm" bottom: "ip" top: "bn" }
layer { name: "accuracy\"""",
).replace('bottom: "ip" bottom: "label"', 'bottom: "bn" bottom: "label"')


def ignore(text):
    pass


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    root = tmp_path_factory.mktemp("dataset")
    return root, make_dataset(root)


@pytest.fixture(scope="module")
def run(tmp_path_factory, dataset):
    return make_run(tmp_path_factory.mktemp("run"), dataset[0])


@pytest.fixture(scope="module")
def bundle(run):
    run_evaluate(EvaluateConfig(run_dir=run.root))
    return write_bundle(ExportConfig(run_dir=run.root, formats="saved_model,caffe"), on_step=ignore)


def test_bundle_is_complete_and_its_manifest_binds_every_file(bundle, run):
    names = {path.relative_to(bundle.folder).as_posix() for path in bundle.folder.rglob("*") if path.is_file()}
    assert names >= {
        "deploy.prototxt",
        "weights.caffemodel",
        "labels.txt",
        "mean.binaryproto",
        "metrics.json",
        "samples.h5",
        "saved_model/saved_model.pb",
        "README.md",
        "manifest.json",
    }
    manifest = read_manifest(bundle.folder)
    assert manifest == bundle.manifest
    assert set(manifest.files) == names - {"manifest.json"}
    assert manifest.origin.weights_digest == file_digest(run.snapshot("patches", 40, "caffemodel"))
    assert set(manifest.origin.datasets) == {"train", "test"}
    assert (bundle.folder / "labels.txt").read_text().splitlines() == list(CLASS_NAMES)


def test_the_card_has_the_figures_of_the_evaluation(bundle):
    metrics = json.loads((bundle.folder / "metrics.json").read_text())
    low, high = metrics["top1_interval"]
    row = f"| Accuracy (top-1) | {metrics['top1']:.4f} (95 % interval {low:.4f} to {high:.4f}) |"
    assert row in (bundle.folder / "README.md").read_text().splitlines()


def test_input_contract_says_what_the_model_does_itself(bundle):
    (contract,) = bundle.manifest.inputs
    assert contract.name == "images"
    assert contract.shape == (-1, 14, 16, 3)
    assert contract.channels == "RGB"
    assert contract.preprocessing == (
        "channels to BGR",
        "cut out the central 12 x 12 pixels",
        "subtract the mean image (mean.binaryproto)",
        "multiply by 0.0078125",
    )


SCRIPT = """
import json, sys, numpy as np, tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
images = np.load("rgb.npy")
serve = model.signatures["serving_default"]
whole = serve(images=tf.constant(images))
single = [serve(images=tf.constant(images[k:k+1]))["scores"].numpy()[0] for k in range(3)]
np.savez("out.npz", scores=whole["scores"], classes=whole["classes"], single=single)
told = []
for dtype, shape in json.loads(sys.argv[2]):
    try:
        serve(images=tf.zeros(shape, dtype))
        told.append("taken")
    except tf.errors.InvalidArgumentError as error:
        told.append(str(error))
print(json.dumps(told))
assert not [name for name in sys.modules if name.startswith(("caffe_import", "deepspark_ops"))]
"""


@pytest.fixture(scope="module")
def requests(bundle):
    """Types and shapes of requests: an accepted request, another type, and wrong shapes."""
    height, width, channels = bundle.manifest.inputs[0].shape[1:]
    good = [2, height, width, channels]
    wrong = [
        [],
        [height],
        good[1:],
        [2, height, width],
        [*good, 1],
        [2, 1, 1, channels],
        [2, height, width, 1],
        [0, *good[1:]],
    ]
    return [("uint8", good), ("float32", good), *(("uint8", shape) for shape in wrong)]


@pytest.fixture(scope="module")
def without_our_code(bundle, dataset, requests, tmp_path_factory):
    """Return the SavedModel's scores, and its errors for wrong requests, in a process without this project's code."""
    folder = tmp_path_factory.mktemp("elsewhere")
    images, _ = dataset[1]["test"]
    np.save(folder / "rgb.npy", images[:, ::-1].transpose(0, 2, 3, 1))
    completed = subprocess.run(
        [sys.executable, "-c", SCRIPT, bundle.folder / "saved_model", json.dumps(requests)],
        cwd=folder,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr[-2000:]
    return np.load(folder / "out.npz"), json.loads(completed.stdout)


def test_saved_model_in_a_process_without_our_code_gives_the_evaluation_again(bundle, dataset, without_our_code):
    _, labels = dataset[1]["test"]
    arrays, _ = without_our_code
    assert arrays["scores"].shape == (53, 3)
    np.testing.assert_allclose(arrays["scores"].sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(arrays["single"], arrays["scores"][:3], rtol=1e-4)  # other batch, other order of sums
    np.testing.assert_array_equal(arrays["classes"], arrays["scores"].argmax(axis=1))
    metrics = json.loads((bundle.folder / "metrics.json").read_text())
    assert (arrays["classes"] == labels).mean() == pytest.approx(metrics["top1"])
    loss = -np.log(arrays["scores"][np.arange(53), labels]).mean()
    assert loss == pytest.approx(metrics["loss"], rel=1e-4)


def test_a_request_that_the_model_cannot_take_is_refused_and_ends_no_process(bundle, requests, without_our_code):
    height, width, channels = bundle.manifest.inputs[0].shape[1:]
    _, (first_answer, other_type, *refusals) = without_our_code
    assert first_answer == "taken"
    assert "expected to be a uint8 tensor but is a float tensor" in other_type
    for (_, shape), refusal in zip(requests[2:], refusals, strict=True):
        sizes = " ".join(map(str, shape))
        assert f"has shape] [{sizes}] [allowed: (N, {height}, {width}, {channels}) with N of at least 1" in refusal


def test_the_code_on_a_models_page_runs_unchanged(bundle):
    by_tensorflow, by_opencv = {}, {}
    code = snippets(bundle.folder, bundle.manifest)
    exec(code["TensorFlow"], by_tensorflow)
    exec(code["OpenCV or Caffe"], by_opencv)
    assert by_tensorflow["images"].shape == (1, 14, 16, 3)
    assert by_opencv["data"].shape == (1, 3, 12, 12)
    for answer in (by_tensorflow, by_opencv):
        assert answer["scores"].shape == (1, 3)
        assert float(answer["scores"].sum()) == pytest.approx(1.0, abs=1e-5)
        assert answer["labels"][answer["classes"][0]] in CLASS_NAMES
    # What one net takes raw the other takes prepared: black is (0 - mean) * scale.
    mean = read_mean(bundle.folder / "mean.binaryproto")[:, 1:13, 2:14]
    net = by_opencv["net"]
    net.setInput((-mean * 0.0078125)[np.newaxis].astype(np.float32), "data")
    np.testing.assert_allclose(net.forward("prob"), by_tensorflow["scores"], atol=1e-4)


def test_deploy_net_and_weights_stand_alone(bundle):
    message = read_net(bundle.folder / "deploy.prototxt")
    assert [layer.type for layer in message.layer] == [
        "Input",
        "Convolution",
        "ReLU",
        "Pooling",
        "Dropout",
        "InnerProduct",
        "Softmax",
    ]
    net = build_net_spec(message, phase="TEST")
    assert net.inputs == {"data": (1, 3, 12, 12)}
    assert net.blob_shapes["prob"] == (1, 3)
    blobs = read_caffemodel(bundle.folder / "weights.caffemodel")
    assert [array.shape for array in blobs["conv"]] == [(8, 3, 3, 3), (8,)]
    assert blobs["data"] == []


def test_check_refuses_a_model_that_computes_something_else(run, tmp_path, monkeypatch):
    def shifted(trained, params, deploy):
        vector = params.copy()
        vector[-3] += 0.01  # one bias of three
        return vector

    monkeypatch.setattr(bundle_module, "deploy_params", shifted)
    with pytest.raises(
        ExportDiffers, match=r"^exported saved_model, read by TensorFlow, differs from the trained graph by 0\.00\d+"
    ):
        write_bundle(ExportConfig(run_dir=run.root, output=tmp_path / "bundle", formats="saved_model"), on_step=ignore)
    assert list(tmp_path.iterdir()) == []


def test_old_bundle_stays_when_the_new_one_fails(bundle, run, monkeypatch):
    old_manifest = (bundle.folder / "manifest.json").read_bytes()
    monkeypatch.setattr(bundle_module, "ALLOWED_DIFFERENCE", -1.0)
    with pytest.raises(ExportDiffers):
        write_bundle(ExportConfig(run_dir=run.root, formats="saved_model"), on_step=ignore)
    assert (bundle.folder / "manifest.json").read_bytes() == old_manifest
    assert [path.name for path in run.root.iterdir() if path.name.startswith(".")] == []


def test_export_again_replaces_the_bundle(run, tmp_path):
    config = ExportConfig(run_dir=run.root, output=tmp_path / "bundle", formats="saved_model")
    write_bundle(config, on_step=ignore)
    (tmp_path / "bundle" / "left over").write_text("x")
    write_bundle(config, on_step=ignore)
    assert not (tmp_path / "bundle" / "left over").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_file_may_name_the_classes(run, tmp_path):
    names, config = tmp_path / "names.txt", ExportConfig(run_dir=run.root, output=tmp_path / "b", formats="caffe")
    config = config.model_copy(update={"class_names": names})
    with pytest.raises(ConfigError, match=r"^class_names=.*names.txt: no such file$"):
        write_bundle(config, on_step=ignore)
    names.write_text("one\ntwo\n")
    with pytest.raises(ConfigError, match=r"names.txt: has 2 lines, the net tells 3 classes apart"):
        write_bundle(config, on_step=ignore)
    names.write_text("one\ntwo\nthree\n")
    assert write_bundle(config, on_step=ignore).manifest.output.labels == ("one", "two", "three")


def test_foreign_folder_is_not_replaced(run, tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(ConfigError) as caught:
        write_bundle(ExportConfig(run_dir=run.root, output=tmp_path), on_step=ignore)
    assert str(caught.value) == (
        f"output={tmp_path}: exists and is no bundle (no manifest.json in it); give another folder or remove it"
    )
    assert (tmp_path / "mine.txt").exists()


def test_metrics_of_other_weights_stay_out(run, bundle, tmp_path):
    other = tmp_path / "other.caffemodel"
    net = build_net_spec(read_net(bundle.folder / "deploy.prototxt"), phase="TEST")
    write_caffemodel(other, net, np.zeros(net.params.n_params, np.float32))
    config = ExportConfig(run_dir=run.root, weights=other, output=tmp_path / "bundle", formats="saved_model")
    new_bundle = write_bundle(config, on_step=ignore)
    assert {"metrics.json", "samples.h5"}.isdisjoint(new_bundle.manifest.files)
    assert new_bundle.manifest.origin.iteration is None


def test_net_that_needs_its_batch_size_is_served_sample_by_sample(dataset, tmp_path):
    run = make_run(tmp_path, dataset[0], net=FIXED_BATCH, n_steps=5)
    bundle = write_bundle(ExportConfig(run_dir=run.root, formats="saved_model"), on_step=ignore)
    assert bundle.manifest.check.saved_model_max_relative_difference < 1e-5
    images = dataset[1]["test"][0][:, ::-1].transpose(0, 2, 3, 1)
    serve = load_saved_model(bundle.folder / "saved_model")
    assert serve({"images": images[:1]})["scores"].shape == (1, 3)
    assert serve({"images": images[:5]})["classes"].dtype == np.int64
