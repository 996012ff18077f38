"""model.keras of small nets, loaded anew: a single sample, a few, and more than the exported batch."""

import json
import zipfile

import keras
import numpy as np
import pytest

from caffe_import.data.transform import TransformOptions
from deepspark_ops.export.formats import keras_file
from deepspark_ops.export.formats.exported_model import CannotHave
from tests.reference.exported_models import exported_model
from tests.reference.small_nets import FIXED_BATCH_NET, SMALL_NETS

pytestmark = [pytest.mark.tf, pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")]


def loaded(model):
    keras_file.FORMAT.write(model)
    return keras.saving.load_model(model.folder / "model.keras", compile=False, safe_mode=True)


@pytest.mark.parametrize("name", SMALL_NETS)
def test_keras_computes_what_the_net_computes(name, tmp_path):
    model, answers = exported_model(SMALL_NETS[name], tmp_path)
    expected = answers["scores"]
    run = loaded(model)
    requests = model.requests()
    answer = run(requests)
    np.testing.assert_allclose(answer["scores"], expected, atol=1e-5)
    np.testing.assert_array_equal(answer["classes"], expected.argmax(axis=1))
    (row,) = (run({name: values[2:3] for name, values in requests.items()})["scores"],)
    np.testing.assert_allclose(row, expected[2:3], atol=1e-5)
    twice = run({name: np.concatenate([values, values]) for name, values in requests.items()})["scores"]
    np.testing.assert_allclose(twice, np.concatenate([expected, expected]), atol=1e-5)


def test_layers_with_automatic_names_of_keras_keep_their_names(tmp_path):
    keras.backend.clear_session()
    text = SMALL_NETS["lenet"].replace('name: "conv1"', 'name: "reshape"').replace('name: "pool1"', 'name: "reshape_1"')
    model, answers = exported_model(text.replace('name: "conv2"', 'name: "transpose_2"'), tmp_path)
    run = loaded(model)
    assert {"reshape", "reshape_1", "transpose_2"} <= {layer.name for layer in run.layers}
    np.testing.assert_allclose(run(model.requests())["scores"], answers["scores"], atol=1e-5)


def test_images_are_cut_and_their_mean_is_subtracted_inside(tmp_path):
    mean = np.random.default_rng(3).uniform(90, 150, (3, 18, 20)).astype(np.float32)
    options = TransformOptions(crop_size=16, mean=mean, scale=1 / 64)
    model, answers = exported_model(SMALL_NETS["cifar10_quick"], tmp_path, transform=options, stored=(3, 18, 20))
    expected = answers["scores"]
    run = loaded(model)
    np.testing.assert_allclose(run(model.requests())["scores"], expected, atol=1e-5)
    with pytest.raises(ValueError, match=r"expected shape=\(None, 18, 20, 3\), found shape=\(2, 18, 21, 3\)"):
        run({"images": np.zeros((2, 18, 21, 3), np.uint8)})


def test_any_size_is_taken_where_the_centre_alone_counts(tmp_path):
    options = TransformOptions(crop_size=16, mean_values=(100.0,), scale=1 / 64)
    model, answers = exported_model(SMALL_NETS["cifar10_quick"], tmp_path, transform=options, stored=(3, 19, 16))
    expected = answers["scores"]
    run = loaded(model)
    assert run.inputs[0].shape == (None, None, None, 3)
    np.testing.assert_allclose(run.predict(model.requests(), verbose=0)["scores"], expected, atol=1e-5)


def test_the_file_names_keras_alone_and_runs_no_code(tmp_path):
    model, _ = exported_model(SMALL_NETS["inception"], tmp_path)
    keras_file.FORMAT.write(model)
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        text = archive.read("config.json").decode()
    assert "inc_3x3" in text
    modules = set()

    def collect(node):
        if isinstance(node, dict):
            modules.add(node.get("module"))
            assert node.get("class_name") not in ("Lambda", "__lambda__", "function")
            for value in node.values():
                collect(value)
        elif isinstance(node, list):
            for value in node:
                collect(value)

    collect(json.loads(text))
    assert {module for module in modules if module and module.split(".")[0] != "keras"} == set()


def test_a_layer_without_a_keras_form_is_named(tmp_path):
    added = 'layer { name: "columns" type: "Im2col" bottom: "data" top: "c" convolution_param { kernel_size: 1 } }'
    text = SMALL_NETS["lenet"].replace('bottom: "data"', 'bottom: "c"')
    first = text.index('layer { name: "conv1"')
    model, _ = exported_model(f"{text[:first]}{added}\n{text[first:]}", tmp_path)
    with pytest.raises(CannotHave, match=r'^layer "columns": type Im2col has no Keras form: no Keras operation'):
        keras_file.FORMAT.write(model)


def test_a_net_of_a_fixed_batch_has_none(tmp_path):
    model, _ = exported_model(FIXED_BATCH_NET, tmp_path)
    with pytest.raises(CannotHave, match=r"^the net computes with its whole batch"):
        keras_file.FORMAT.write(model)


def test_the_reader_has_nothing_of_ours_and_finds_the_same(tmp_path):
    model, answers = exported_model(SMALL_NETS["lenet"], tmp_path)
    expected = answers["scores"]
    keras_file.FORMAT.write(model)
    (reading,) = keras_file.FORMAT.read(model)
    assert (reading.file, reading.reader) == ("model.keras", "Keras")
    np.testing.assert_allclose(reading.answers["scores"], expected, atol=1e-5)
