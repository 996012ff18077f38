"""Nets without class scores: the deploy net, and the results of every format."""

import keras
import numpy as np
import onnxruntime
import pytest

from caffe_import.files.prototxt import format_message, parse_net
from caffe_import.net.net_spec import build_net_spec
from deepspark_ops.errors import ConfigError
from deepspark_ops.evaluate.samples import Batch
from deepspark_ops.evaluate.tasks.choice import ChosenTask, choose_tasks
from deepspark_ops.export.deploy_net import build_deploy_net
from deepspark_ops.export.formats import caffe, keras_file, tf_onnx
from deepspark_ops.export.input_steps import FILL, STANDARDIZE, table_of_input
from deepspark_ops.export.served_input import deploy_batch
from deepspark_ops.export.served_output import ServedOutput, served_outputs, served_tasks
from deepspark_ops.export.tf_saved_model import load_saved_model, write_saved_model
from deepspark_ops.shards.table_columns import TableColumns
from tests.reference.exported_models import exported_model
from tests.reference.layer_text import input_layer
from tests.reference.task_nets import CLASSES, NUMBERS, OWN_INPUT, PAIR, PIXELS, SIGMOIDS, net_text

pytestmark = [pytest.mark.tf, pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")]


@pytest.mark.parametrize(
    ("name", "text", "targets", "contracts"),
    [
        ("labels", SIGMOIDS, {"truth": (3,)}, [("prob", "multi_label", (3,))]),
        ("numbers", NUMBERS, {"paid": (2,)}, [("price", "regression", (2,))]),
        ("pixels", PIXELS, {"mask": (1, 4, 4)}, [("prob", "segmentation", (3, 4, 4))]),
        ("autoencoder", OWN_INPUT, {}, [("again", "reconstruction", (3, 4, 4))]),
        (
            "several",
            SIGMOIDS + CLASSES + NUMBERS,
            {"truth": (3,), "paid": (2,), "label": ()},
            [("scores", "classification", (4,)), ("price", "regression", (2,)), ("prob2", "multi_label", (3,))],
        ),
    ],
)
def test_every_format_gives_every_result_by_its_name(name, text, targets, contracts, tmp_path):
    text = net_text("".join(input_layer(blob, *shape) for blob, shape in targets.items()) + text)
    model, expected = exported_model(text, tmp_path)
    assert [(output.name, output.chosen.task, output.shape) for output in model.outputs] == contracts
    assert [layer.top[0] for layer in model.deploy.layer if layer.type == "Input"] == ["data"]
    answers_by_reader = {}
    write_saved_model(tmp_path / "saved", model.served())
    answers_by_reader["TensorFlow"] = load_saved_model(tmp_path / "saved")(model.requests())
    tf_onnx.FORMAT.write(model)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    names = [output.name for output in session.get_outputs()]
    answers_by_reader["ONNX"] = dict(zip(names, session.run(names, model.requests()), strict=True))
    keras_file.FORMAT.write(model)
    run = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    answers_by_reader["Keras"] = {key: np.asarray(value) for key, value in run(model.requests()).items()}
    caffe.FORMAT.write(model)
    readings = caffe.FORMAT.read(model)
    answers_by_reader |= {reading.reader: reading.answers for reading in readings if reading.answers is not None}
    assert "OpenCV" in answers_by_reader
    has_classes = contracts[0][0] == "scores"
    for reader, answers in answers_by_reader.items():
        extra = {"classes"} if has_classes and reader in ("TensorFlow", "ONNX", "Keras") else set()
        assert set(answers) == {name_ for name_, _, _ in contracts} | extra, reader
        for output, values in expected.items():
            np.testing.assert_allclose(answers[output], values, atol=1e-5, rtol=1e-5, err_msg=f"{reader} {output}")


def test_activations_are_those_of_the_losses(tmp_path):
    text = net_text(input_layer("truth", 3) + SIGMOIDS)
    model, expected = exported_model(text, tmp_path)
    images = model.batch.feeds["data"].reshape(5, -1).astype(np.float64)
    views = model.build(1).params.views(model.params)
    raw = images @ views["tags[0]"].T + views["tags[1]"]
    np.testing.assert_allclose(expected["prob"], 1 / (1 + np.exp(-raw)), atol=1e-6)
    assert model.deploy.layer[-1].type == "Sigmoid"


def test_of_a_pair_one_branch_is_exported():
    message = parse_net(PAIR)
    net = build_net_spec(message, phase="TEST")
    (task,) = served_tasks(net, choose_tasks(net))
    assert task.outputs == ("feat",)
    deploy = build_deploy_net(message, net, (task,), {"pair_data", "sim"})
    assert [(model_input.blob, model_input.source, model_input.part) for model_input in deploy.inputs] == [
        ("data", "pair_data", (0, 1))
    ]
    assert [layer.name for layer in deploy.message.layer] == ["data", "feat"]
    assert list(deploy.message.layer[0].input_param.shape[0].dim) == [1, 1, 3, 3], format_message(deploy.message)
    (output,) = served_outputs((task,), deploy.outputs)
    assert (output.name, output.shape, output.has_classes) == ("feat", (2,), False)
    pairs = np.arange(36, dtype=np.float32).reshape(2, 2, 3, 3)
    batch = deploy_batch(Batch(0, 2, {"pair_data": pairs}, {"pair_data": pairs}), deploy.inputs)
    np.testing.assert_array_equal(batch.stored["data"], pairs[:, :1])


def test_a_pair_of_two_models_is_refused():
    net = build_net_spec(parse_net(PAIR.replace('param { name: "w" }', "param { }", 1)), phase="TEST")
    with pytest.raises(
        ConfigError,
        match=r'the two sides of the pair "feat" and "feat_p" do not share the weights of "feat", "feat_p":',
    ):
        served_tasks(net, choose_tasks(net))


def output_of(task, shape, n_classes=0):
    chosen = ChosenTask(
        task, ("o",), None, is_target_fed=False, activation="none", shape=shape, n_classes=n_classes, ignore_label=None,
        found_by="test",
    )  # fmt: skip
    return ServedOutput("o", "o", shape, chosen)


def test_a_rounded_file_is_judged_by_its_answers():
    labels = output_of("multi_label", (2,), 2)
    assert labels.agreement(np.array([[0.4, 0.6], [0.7, 0.2]]), np.array([[0.1, 0.9], [0.4, 0.3]])) == 0.75
    pixels = output_of("segmentation", (2, 1, 2), 2)
    expected = np.array([[[[0.9, 0.2]], [[0.1, 0.8]]]])
    assert pixels.agreement(expected[:, ::-1], expected) == 0
    assert pixels.agreement(expected, expected) == 1
    numbers = output_of("regression", (1,))
    assert numbers.agreement(np.array([[10.0], [1.2]]), np.array([[10.0], [0.1]])) == 0.5


def test_raw_features_of_a_table_go_in_and_are_standardised_inside(tmp_path):
    mean, std = np.array([1e6, -3.0, 0.02]), np.array([0.5, 40.0, 1e-3])
    table = TableColumns(
        features=({"name": "a"}, {"name": "pair", "width": 2}), labels=("y",), label_kind="value", missing="mean",
        is_standardized=True, mean=tuple(mean), std=tuple(std)
    )  # fmt: skip
    net = 'name: "n"\n' + input_layer("data", 3) + input_layer("paid", 2) + NUMBERS
    model, expected = exported_model(net, tmp_path, table=table)
    raw = model.requests()
    np.testing.assert_allclose((raw["data"] - mean) / std, model.batch.feeds["data"], atol=0.07)  # float32 near 1e6
    write_saved_model(tmp_path / "saved", model.served())
    tf_onnx.FORMAT.write(model)
    keras_file.FORMAT.write(model)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    run = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    serve = load_saved_model(tmp_path / "saved")

    def answers(features):
        return (
            serve({"data": features})["price"],
            session.run(["price"], {"data": features})[0],
            np.asarray(run({"data": features})["price"]),
        )

    for prices in answers(raw["data"]):
        np.testing.assert_allclose(prices, expected["price"], atol=1e-5)
    # A missing feature is the mean, which is 0 to the net.
    views = model.build(1).params.views(model.params)
    (weights, added) = views["price[0]"], views["price[1]"]
    for prices in answers(np.array([[np.nan, 37.0, 0.021]], np.float32)):
        np.testing.assert_allclose(prices, [weights @ [0, 1, 1] + added], atol=1e-4)
    (contract,) = (model_input.contract() for model_input in model.inputs)
    assert contract.preprocessing == (FILL, STANDARDIZE)
    (tmp_path / "features.json").write_text(table.model_dump_json())
    assert table_of_input(contract, tmp_path) == table
    older = contract.model_copy(update={"is_table": False})  # of version 5, as its steps say
    assert table_of_input(older, tmp_path) == table
    assert table_of_input(older.model_copy(update={"preprocessing": ()}), tmp_path) is None
