"""Every task but classification, from a run's folder to metrics, samples and report, against plain numpy."""

from functools import partial

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

from caffe_import.files.caffemodel import read_caffemodel
from deepspark_ops.config.evaluate import EvaluateConfig, ScoreBundleConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.evaluate.evaluation_folder import read_evaluation
from deepspark_ops.evaluate.stage import run_evaluate
from deepspark_ops.registry.gate import decide
from tests.integration.small_run import make_run
from tests.reference.layer_text import inner_product, loss_layer

pytestmark = pytest.mark.tf

N_TEST = 23
DATA = """
name: "{name}"
layer {{ name: "data" type: "HDF5Data" {tops} include {{ phase: TRAIN }}
  hdf5_data_param {{ source: "{folder}/train.txt" batch_size: 8 }} }}
layer {{ name: "data" type: "HDF5Data" {tops} include {{ phase: TEST }}
  hdf5_data_param {{ source: "{folder}/test.txt" batch_size: 8 }} }}
"""

product = partial(inner_product, more='weight_filler { type: "xavier" }')


def trained(folder, layers, columns, *, n_steps=60, **options):
    """Train a net on HDF5 columns; return run, evaluation, weights and the test columns."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in (("train", slice(0, 64)), ("test", slice(64, 64 + N_TEST))):
        with h5py.File(folder / f"{split}.h5", "w") as file:
            for name, values in columns.items():
                file[name] = values[rows].astype(np.float32)
        (folder / f"{split}.txt").write_text(f"{folder}/{split}.h5\n")
    tops = " ".join(f'top: "{name}"' for name in columns)
    net = DATA.format(name=folder.name, folder=folder, tops=tops) + "".join(layers)
    run = make_run(folder, net=net, n_steps=n_steps)
    evaluation = run_evaluate(EvaluateConfig(run_dir=run.root, batch_size=7, **options))
    weights = read_caffemodel(run.snapshot("patches", n_steps, "caffemodel"))
    return (
        run,
        evaluation,
        weights,
        {name: values[64 : 64 + N_TEST].astype(np.float64) for name, values in columns.items()},
    )


def forward(x, weights, name="ip"):
    matrix, bias = weights[name]
    return x.reshape(len(x), -1) @ matrix.astype(np.float64).T + bias


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(5)
    return rng, rng.normal(size=(64 + N_TEST, 6))


def page_of(evaluation, *words):
    page = evaluation.report_path.read_text()
    for word in words:
        assert word in page
    assert "{{" not in page
    return page


def test_regression(tmp_path, numbers):
    rng, x = numbers
    y = x @ rng.normal(size=(6, 2)) + rng.normal(size=(len(x), 2))
    run, evaluation, weights, test = trained(
        tmp_path / "lines", [product("ip", "x", 2), loss_layer("EuclideanLoss", "ip", "y")], {"x": x, "y": y}
    )
    residual = forward(test["x"], weights) - test["y"]
    metrics = evaluation.metrics
    assert (metrics.task, metrics.n_samples, metrics.main.name) == ("regression", N_TEST, "rmse")
    assert metrics.main.value == pytest.approx(np.sqrt((residual**2).mean()), rel=1e-5)
    assert metrics.figures.mae == pytest.approx(np.abs(residual).mean(), rel=1e-5)
    spread = ((test["y"] - test["y"].mean(axis=0)) ** 2).sum(axis=0)
    assert metrics.figures.r2 == pytest.approx((1 - (residual**2).sum(axis=0) / spread).mean(), rel=1e-4)
    assert (metrics.scored.score_blob, metrics.scored.target_blob) == ("ip", "y")
    read = read_evaluation(run.evaluation)
    assert read.metrics == metrics
    np.testing.assert_allclose(read.samples.answers.loss, (residual**2).mean(axis=1), rtol=1e-4)
    page_of(evaluation, "RMSE", "Predicted over true, output 1", "Largest errors")

    # The gate: a net is not better than itself, and better than an untrained net.
    untrained = trained(
        tmp_path / "fresh", [product("ip", "x", 2), loss_layer("EuclideanLoss", "ip", "y")], {"x": x, "y": y}, n_steps=1
    )
    worse = read_evaluation(untrained[0].evaluation)
    decision = decide(read, worse, PromoteConfig())
    assert (decision.promotes, decision.metric, decision.candidate) == (True, "main", metrics.main.value)
    assert decision.reason.startswith(f"promoted: RMSE {metrics.main.text()} against {worse.metrics.main.text()} on 23")
    assert not decide(worse, read, PromoteConfig()).promotes
    assert decide(read, read, PromoteConfig()).reason.endswith("only a better model goes in")
    config = EvaluateConfig(run_dir=run.root, output=tmp_path / "again", production=untrained[0].evaluation)
    page_of(
        run_evaluate(config),
        "Against production",
        "Samples on which its error is the smaller one",
        "less error a sample",
    )


def test_several_labels(tmp_path, numbers):
    rng, x = numbers
    y = x @ rng.normal(size=(6, 3)) > 0.3
    _, evaluation, weights, test = trained(
        tmp_path / "tags",
        [product("ip", "x", 3), loss_layer("SigmoidCrossEntropyLoss", "ip", "y")],
        {"x": x, "y": y},
    )
    probability = 1 / (1 + np.exp(-forward(test["x"], weights)))
    metrics = evaluation.metrics
    assert (metrics.task, metrics.main.name, metrics.main.higher_is_better) == (
        "multi_label", "mean_average_precision", True,
    )  # fmt: skip
    precisions = []
    for label in range(3):
        order = np.argsort(-probability[:, label])
        hits = test["y"][order, label]
        precisions.append((np.cumsum(hits) / np.arange(1, N_TEST + 1))[hits > 0].mean())
    assert metrics.main.value == pytest.approx(np.mean(precisions))
    assert metrics.figures.hamming_loss == pytest.approx(((probability > 0.5) != test["y"]).mean())
    entropy = -np.log(np.where(test["y"] == 1, probability, 1 - probability))
    assert metrics.loss == pytest.approx(entropy.mean(), rel=1e-4)
    page_of(evaluation, "Mean average precision", "Calibration", "Recall")


def test_reconstruction_against_what_the_net_computes_of_its_input(tmp_path, numbers):
    rng, _ = numbers
    x = np.repeat(np.repeat(rng.random((64 + N_TEST, 1, 3, 3)), 2, axis=2), 2, axis=3)
    layers = [
        'layer { name: "flat" type: "Flatten" bottom: "x" top: "flat" }',
        product("code", "flat", 4),
        product("ip", "code", 36),
        loss_layer("SigmoidCrossEntropyLoss", "ip", "flat"),
        'layer { name: "out" type: "Sigmoid" bottom: "ip" top: "out" }',
        loss_layer("EuclideanLoss", "out", "flat", name="l2", options="loss_weight: 0"),
    ]
    _, evaluation, weights, test = trained(tmp_path / "mirror", layers, {"x": x})
    outputs = 1 / (1 + np.exp(-forward(forward(test["x"], weights, "code"), weights)))
    errors = ((outputs - test["x"].reshape(N_TEST, -1)) ** 2).mean(axis=1)
    metrics = evaluation.metrics
    assert (metrics.task, metrics.scored.score_blob, metrics.scored.target_blob) == ("reconstruction", "ip", "flat")
    assert metrics.main.value == pytest.approx(errors.mean(), rel=1e-4)
    assert [sample.index for sample in metrics.figures.worst] == np.argsort(-errors).tolist()
    page = page_of(evaluation, "Worst samples", "given back")
    assert page.count("data:image/png;base64,") == 2 * (12 + 12) + N_TEST  # bars of the errors open each sample


def test_pairs(tmp_path, numbers):
    rng, x = numbers
    other = np.where(np.arange(len(x))[:, None] % 2 == 0, x + 0.1 * rng.normal(size=x.shape), rng.normal(size=x.shape))
    pairs, alike = np.stack([x, other], axis=1), (np.arange(len(x)) % 2 == 0)[:, None]
    shared = 'param { name: "w" } param { name: "b" }'
    layers = [
        'layer { name: "s" type: "Slice" bottom: "pair" top: "a" top: "b" slice_param { slice_dim: 1 } }',
        product("fa", "a", 2, options=shared),
        product("fb", "b", 2, options=shared),
        loss_layer("ContrastiveLoss", "fa", "fb", "alike", options="contrastive_loss_param { margin: 2 }"),
    ]
    _, evaluation, weights, test = trained(tmp_path / "pairs", layers, {"pair": pairs, "alike": alike})
    first, second = (forward(test["pair"][:, at], weights, "fa") for at in (0, 1))
    distance, same = np.linalg.norm(first - second, axis=1), test["alike"].ravel() == 1
    metrics = evaluation.metrics
    assert (metrics.task, metrics.scored.score_blob, metrics.width) == ("embedding", "fa,fb", 2)
    nearer = distance[same][:, None] < distance[~same][None, :]
    assert metrics.main.value == pytest.approx(nearer.mean())
    right = max((((distance <= threshold) == same).mean()) for threshold in [-1.0, *distance])
    assert metrics.figures.best_accuracy == pytest.approx(right)
    contrastive = np.where(same, distance**2, np.maximum(2 - distance, 0) ** 2) / 2
    assert metrics.loss == pytest.approx(contrastive.mean(), rel=1e-4)
    page_of(evaluation, "ROC-AUC of pairs", "ROC curve")


def test_a_class_a_pixel(tmp_path, numbers):
    rng, _ = numbers
    labels = rng.integers(0, 3, (64 + N_TEST, 1, 5, 6))
    x = np.eye(3)[labels[:, 0]].transpose(0, 3, 1, 2) + 0.6 * rng.normal(size=(64 + N_TEST, 3, 5, 6))
    labels[:, :, 0, 0] = 255
    layers = [
        'layer { name: "ip" type: "Convolution" bottom: "x" top: "ip" convolution_param { num_output: 3 kernel_size: 1 '
        'weight_filler { type: "xavier" } } }',
        loss_layer("SoftmaxWithLoss", "ip", "y", options="loss_param { ignore_label: 255 }"),
    ]
    _, evaluation, weights, test = trained(tmp_path / "pixels", layers, {"x": x, "y": labels})
    matrix, bias = (blob.astype(np.float64) for blob in weights["ip"])
    scores = np.einsum("nchw,kc->nkhw", test["x"], matrix[:, :, 0, 0]) + bias[None, :, None, None]
    answer, truth = scores.argmax(axis=1), test["y"][:, 0]
    counts = truth != 255
    ious = [
        ((answer == k) & (truth == k) & counts).sum() / (((answer == k) | (truth == k)) & counts).sum()
        for k in range(3)
    ]
    metrics = evaluation.metrics
    assert (metrics.task, metrics.n_ignored) == ("segmentation", N_TEST)
    assert metrics.main.value == pytest.approx(np.mean(ious))
    assert metrics.figures.pixel_accuracy == pytest.approx((answer == truth)[counts].mean())
    wrong = ((answer != truth) & counts).sum(axis=(1, 2)) / counts.sum(axis=(1, 2))
    assert metrics.loss == pytest.approx(wrong.mean())
    page = page_of(evaluation, "Mean IoU", "Worst images")
    n_of_classes = 8  # each picture has all classes, so these have the same worst pictures
    assert page.count("data:image/png;base64,") == 3 * 12 + n_of_classes


def test_a_class_a_step_has_its_scores_on_the_axis_of_the_loss(tmp_path, numbers):
    from deepspark_ops.export.bundle import write_bundle
    from deepspark_ops.export.scores.bundle_scores import score_bundle

    rng, _ = numbers
    labels = rng.integers(0, 3, (64 + N_TEST, 5))
    x = np.eye(3)[labels] + 0.6 * rng.normal(size=(64 + N_TEST, 5, 3))
    labels[:, 0] = -1
    options = "softmax_param { axis: 2 } loss_param { ignore_label: -1 }"
    layers = [
        product("ip", "x", 3, more='axis: 2 weight_filler { type: "xavier" }'),
        loss_layer("SoftmaxWithLoss", "ip", "y", options=options),
        loss_layer("Accuracy", "ip", "y", name="accuracy", options="accuracy_param { axis: -1 ignore_label: -1 }"),
    ]
    run, evaluation, weights, test = trained(tmp_path / "steps", layers, {"x": x, "y": labels})
    matrix, bias = (blob.astype(np.float64) for blob in weights["ip"])
    answer, counts = (test["x"] @ matrix.T + bias).argmax(axis=2), test["y"] != -1
    metrics = evaluation.metrics
    assert (metrics.task, metrics.kind, metrics.n_ignored) == ("segmentation", "sequence labelling", N_TEST)
    assert (metrics.main.name, metrics.main.label) == ("time_step_accuracy", "Time steps right")
    assert metrics.main.value == pytest.approx((answer == test["y"])[counts].mean())
    page = page_of(evaluation, "Time steps right")
    assert "pixel" not in page.partition("<body")[2].partition("<script")[0].lower()
    bundle = write_bundle(ExportConfig(run_dir=run.root), on_step=lambda step: None)
    assert bundle.manifest.outputs[0].shape == (-1, 5, 3)
    scored = score_bundle(ScoreBundleConfig(run_dir=run.root, bundle=bundle.folder, output=tmp_path / "scored"))
    assert scored.figures.confusion == metrics.figures.confusion


def test_several_outputs_are_each_scored_and_the_user_may_name_one(tmp_path, numbers):
    rng, x = numbers
    kind = (x[:, :1] > 0).astype(np.int64)
    age = x @ rng.normal(size=(6, 1))
    layers = [
        product("ip", "x", 2),
        product("years", "x", 1),
        loss_layer("SoftmaxWithLoss", "ip", "kind"),
        loss_layer("EuclideanLoss", "years", "age", name="l2", options="loss_weight: 0.5"),
    ]
    run, evaluation, weights, test = trained(tmp_path / "both", layers, {"x": x, "kind": kind, "age": age})
    metrics = evaluation.metrics
    assert [result.task for result in metrics.results()] == ["classification", "regression"]
    residual = forward(test["x"], weights, "years") - test["age"]
    assert metrics.top1 == pytest.approx((forward(test["x"], weights).argmax(axis=1) == test["kind"].ravel()).mean())
    assert metrics.others[0].main.value == pytest.approx(np.sqrt((residual**2).mean()), rel=1e-5)
    assert metrics.others[0].scored.score_blob == "years"
    assert read_evaluation(run.evaluation).metrics == metrics
    page_of(evaluation, "Further results", "years")
    rows = pq.read_table(run.evaluation / "samples.parquet")
    assert rows["ip_predicted"].to_pylist() == forward(test["x"], weights).argmax(axis=1).tolist()
    np.testing.assert_allclose(rows["years_loss"].to_numpy(), (residual**2).ravel(), rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(np.stack(rows["years_true"].to_pylist()), test["age"], rtol=1e-6)

    # Slices of every result, here by the classes of the first one.
    sliced = run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path / "sliced", slices="class"))
    page_of(sliced, "By class, years")
    for label in (0, 1):
        inside = test["kind"].ravel() == label
        of_class, of_age = (result.slices[label] for result in sliced.metrics.results())
        right = forward(test["x"], weights)[inside].argmax(axis=1) == label
        assert (of_class.value, of_class.main.value) == (str(label), pytest.approx(right.mean()))
        rmse = np.sqrt((residual[inside] ** 2).mean())
        assert (of_age.value, of_age.main.value) == (str(label), pytest.approx(rmse, rel=1e-5))
    options = {"task": "regression", "output_blob": "years", "target_blob": "age"}
    regression = run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path / "alone", **options)).metrics
    assert (regression.task, regression.others) == ("regression", ())
    assert regression.main.value == pytest.approx(metrics.others[0].main.value, rel=1e-4)

    # Any blob's values as vectors, judged by the classes of the nearest neighbours.
    options = {"task": "embedding", "output_blob": "ip", "target_blob": "kind"}
    neighbours = run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path / "near", batch_size=5, **options))
    vectors, kinds = forward(test["x"], weights), test["kind"].ravel()
    distances = np.linalg.norm(vectors[:, None] - vectors[None], axis=2) + np.diag(np.full(N_TEST, np.inf))
    found_same = kinds[distances.argmin(axis=1)] == kinds
    assert (neighbours.metrics.main.name, neighbours.metrics.main.value) == (
        "recall_at_1",
        pytest.approx(found_same.mean()),
    )
    samples = read_evaluation(tmp_path / "near").samples
    assert samples.answers.loss.tolist() == (~found_same).astype(float).tolist()
    page_of(neighbours, "Nearest neighbours", "One of the nearest five of its class")
    rows = pq.read_table(tmp_path / "near" / "samples.parquet")
    np.testing.assert_allclose(np.stack(rows["vector"].to_pylist()), vectors, rtol=1e-4, atol=1e-5)
    assert rows["class"].to_pylist() == kinds.astype(int).tolist()
