"""Nets that a Reshape or an LSTM ties to the batch of the prototxt: scored, exported and served by this batch."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from caffe_import.errors import NetError
from caffe_import.files.caffemodel import read_caffemodel
from deepspark_ops.config.commands.predict import FeaturesConfig, PredictConfig
from deepspark_ops.config.convert import ConvertConfig
from deepspark_ops.config.evaluate import EvaluateConfig, ScoreBundleConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.export.formats.exported_model import NEEDS_ITS_BATCH
from tests.integration.small_run import make_dataset, make_run
from tests.reference.slow_recurrent import slow_lstm

pytestmark = pytest.mark.tf

STEPS, STREAMS = 5, 2
HEAD = """
name: "sequences"
layer { name: "data" type: "Data" top: "data" top: "label"
  transform_param { scale: 0.0078125 } data_param { source: "none" batch_size: 10 backend: LMDB } }
"""
END = """
layer { name: "ip" type: "InnerProduct" bottom: "flat" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
LSTM = (
    HEAD
    + """
layer { name: "steps" type: "Reshape" bottom: "data" top: "steps" reshape_param { shape { dim: 5 dim: 2 dim: -1 } } }
layer { name: "cont" type: "DummyData" top: "cont" dummy_data_param { shape { dim: 5 dim: 2 }
  data_filler { type: "constant" value: 1 } } }
layer { name: "lstm" type: "LSTM" bottom: "steps" bottom: "cont" top: "hidden"
  recurrent_param { num_output: 6 weight_filler { type: "uniform" min: -0.05 max: 0.05 } } }
layer { name: "flat" type: "Reshape" bottom: "hidden" top: "flat" reshape_param { shape { dim: 10 dim: -1 } } }
"""
    + END
)
FIXED = (
    HEAD
    + """
layer { name: "flat" type: "Reshape" bottom: "data" top: "flat" reshape_param { shape { dim: 10 dim: -1 } } }
"""
    + END
)
FRAMES = (
    LSTM[: LSTM.index('layer { name: "flat"')]
    + """
layer { name: "ip" type: "InnerProduct" bottom: "hidden" top: "ip"
  inner_product_param { num_output: 3 axis: 2 weight_filler { type: "xavier" } } }
layer { name: "marks" type: "Reshape" bottom: "label" top: "marks" reshape_param { shape { dim: 5 dim: 2 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "marks" top: "loss" softmax_param { axis: 2 } }
"""
)
NETS = {"lstm": LSTM, "frames": FRAMES, "reshape": FIXED}


@pytest.fixture(scope="module", params=["lstm", "frames", pytest.param("reshape", marks=pytest.mark.long)])
def exported(request, tmp_path_factory):
    """Dataset, 53 test images, run, bundle."""
    from deepspark_ops.evaluate.stage import run_evaluate  # TensorFlow
    from deepspark_ops.export.bundle import write_bundle

    root = tmp_path_factory.mktemp("dataset")
    images, _ = make_dataset(root)["test"]
    run = make_run(tmp_path_factory.mktemp("run"), root, net=NETS[request.param], n_steps=4)
    evaluation = run_evaluate(EvaluateConfig(run_dir=run.root, scores=True))
    assert evaluation.metrics.speed.batch_size == 10
    # A recurrent net in all formats: no test reads the others, but the export compares them with the trained net.
    formats = None if request.param == "frames" else "saved_model,caffe"
    config = ExportConfig(run_dir=run.root, formats=formats)
    written = write_bundle(config, on_step=lambda step: None)
    assert set(written.manifest.check.left_out.values()) <= {NEEDS_ITS_BATCH}
    bundle = written.folder
    return root, images, run, bundle


def scores_by_hand(run, images):
    """Scores of the images by loops: batches of ten in order, the last batch filled with the last image."""
    blobs = read_caffemodel(next(run.root.rglob("*.caffemodel")))
    filled = np.concatenate([images, np.repeat(images[-1:], -len(images) % 10, axis=0)]).astype(np.float64) / 128
    rows = filled.reshape(len(filled), -1)
    if blobs.get("lstm"):
        cont = np.ones((STEPS, STREAMS))
        batches = rows.reshape(-1, STEPS, STREAMS, rows.shape[1])
        rows = np.concatenate([slow_lstm(batch, cont, *blobs["lstm"])[0].reshape(10, -1) for batch in batches])
    weights, bias = blobs["ip"]
    exponents = np.exp(rows @ weights.reshape(3, -1).T + bias.ravel())
    return (exponents / exponents.sum(axis=1, keepdims=True))[: len(images)]


def predicted(bundle, source, output, **options):
    from deepspark_ops.predict.answers import write_answers  # TensorFlow

    config = PredictConfig(bundle=bundle, input=source, output=output, **options)
    write_answers(config, on_step=lambda step: None)
    return np.stack(pq.read_table(output)["scores"].to_pylist())


def test_scores_are_those_of_batches_of_the_nets_own_size(exported, tmp_path):
    root, images, run, bundle = exported
    expected = scores_by_hand(run, images)
    rows = pq.read_table(run.evaluation / "samples.parquet")
    np.testing.assert_allclose(np.stack(rows["scores"].to_pylist()), expected, rtol=1e-4)
    np.testing.assert_allclose(predicted(bundle, root, tmp_path / "p.parquet"), expected, rtol=1e-4)


def test_features_and_the_scores_of_a_bundle_take_the_nets_own_batch(exported, tmp_path):
    from deepspark_ops.evaluate.metrics import read_metrics
    from deepspark_ops.export.scores.bundle_scores import score_bundle  # TensorFlow
    from deepspark_ops.predict.answers import write_answers

    root, images, run, bundle = exported
    features = FeaturesConfig(bundle=bundle, input=root, output=tmp_path / "f.parquet", blobs="ip")
    write_answers(features, on_step=lambda step: None)
    values = np.exp(np.stack(pq.read_table(features.output)["ip"].to_pylist()))
    np.testing.assert_allclose(values / values.sum(axis=1, keepdims=True), scores_by_hand(run, images), rtol=1e-3)
    scored = score_bundle(ScoreBundleConfig(run_dir=run.root, bundle=bundle, output=tmp_path / "scored"))
    run_metrics = read_metrics(run.evaluation / "metrics.json")
    assert (scored.speed.batch_size, scored.loss) == (10, pytest.approx(run_metrics.loss, rel=1e-5))


def test_a_server_answers_each_request_by_batches_of_its_own(exported):
    from deepspark_ops.config.commands.serve import ServeConfig
    from deepspark_ops.serve.service import Service
    from deepspark_ops.serve.start import load_served

    _, images, run, bundle = exported
    config = ServeConfig(bundle=bundle, batch_wait_ms=50)
    service = Service.of(load_served(config), config)
    requests = [images[:3], images[3:24], images[24:25]]
    try:
        waiting = [service.submit([(image,) for image in request]) for request in requests]  # wait for each other
        scores_of_requests = [answer.result(60)["scores"] for answer in waiting]
    finally:
        service.close()
    for request, scores in zip(requests, scores_of_requests, strict=True):
        np.testing.assert_allclose(scores, scores_by_hand(run, request), rtol=1e-4)


def test_a_net_converted_without_a_word_is_checked_on_its_own_batch(exported, tmp_path):
    from deepspark_ops.export.bundle import write_model
    from deepspark_ops.export.convert.from_files import parts_of_files

    root, images, run, bundle = exported
    weights = next(run.root.rglob("*.caffemodel"))
    deploy = bundle / "deploy.prototxt"
    assert "dim: 10 " in " ".join(deploy.read_text().split())
    for net, dataset in ((run.net, root), (deploy, None)):
        config = ConvertConfig(
            net=net, weights=weights, output=tmp_path / "converted", dataset=dataset, formats="caffe,saved_model",
            scale=0.0078125,
        )  # fmt: skip
        with parts_of_files(config) as model:
            made_bundle = write_model(model, config.output, on_step=lambda step: None)
        assert made_bundle.manifest.check.n_samples == 10
        np.testing.assert_allclose(
            predicted(made_bundle.folder, root, tmp_path / "p.parquet"), scores_by_hand(run, images), rtol=1e-4
        )


def test_another_requested_batch_is_refused_with_the_batch_of_the_net(exported, tmp_path):
    from deepspark_ops.evaluate.stage import run_evaluate

    root, _, run, bundle = exported
    with pytest.raises(NetError, match=r"batch_size=7: .*the net's own batch is 10; leave batch_size out"):
        run_evaluate(EvaluateConfig(run_dir=run.root, batch_size=7))
    with pytest.raises(ConfigError, match=r"batch_size=7: .* 10 samples .*; leave batch_size out"):
        predicted(bundle, root, tmp_path / "p.parquet", batch_size=7)
