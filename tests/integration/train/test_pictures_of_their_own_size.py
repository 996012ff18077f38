"""A fully convolutional net on pictures of several sizes: each minibatch has the size of its picture, as in Caffe."""

import re
from pathlib import Path

import cv2
import lmdb
import numpy as np
import pytest

import deepspark_ops as ds
from caffe_import.errors import CaffeImportError
from caffe_import.files.caffemodel import read_caffemodel
from caffe_import.files.datum import encode_datum
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.commands.single_net import NetTestConfig
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.preflight.inspect_solver import inspect_solver
from tests.integration.train.in_process import Finished, run_in_process
from tests.reference import slow_fcn
from tests.reference.slow_windows import slow_convolution

pytestmark = pytest.mark.tf

SIZES = [(7, 9), (5, 6), (9, 7), (7, 9), (6, 11), (10, 5), (8, 8)]
MEAN = np.array([90.0, 100.0, 110.0])[:, None, None]
DATA = """
layer {{ name: "pictures" type: "Data" top: "data" include {{ phase: {phase} }}
  transform_param {{ scale: 0.01 mean_value: 90 mean_value: 100 mean_value: 110 }}
  data_param {{ source: "{folder}/pictures" batch_size: {batch_size} backend: LMDB }} }}
layer {{ name: "marks" type: "Data" top: "label" include {{ phase: {phase} }}
  data_param {{ source: "{folder}/marks" batch_size: {batch_size} backend: LMDB }} }}
"""
SOLVER = """
net: "{net}" base_lr: 0.002 momentum: 0.9 weight_decay: 0.01 lr_policy: "fixed" max_iter: {max_iter} display: 1
snapshot_prefix: "fcn" random_seed: 5 test_iter: 7 test_interval: {max_iter} iter_size: {iter_size}
"""
RATES = {"base_lr": 0.002, "momentum": 0.9, "weight_decay": 0.01}


def write_databases(folder: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Write a database of pictures and a database of their pixels' classes; return what the net sees."""
    rng = np.random.default_rng(4)
    samples = []
    for size in SIZES:
        mark = rng.choice([0, 1, 2, slow_fcn.IGNORED], size, p=[0.4, 0.3, 0.2, 0.1]).astype(np.uint8)
        brightness = np.where(mark == slow_fcn.IGNORED, 0, mark) * 60
        picture = (rng.integers(0, 120, (3, *size)) + brightness).astype(np.uint8)
        samples.append((picture, mark))
    for name, images in (
        ("pictures", [picture for picture, _ in samples]),
        ("marks", [mark[np.newaxis] for _, mark in samples]),
    ):
        with lmdb.open(str(folder / name), map_size=2**24) as environment, environment.begin(write=True) as transaction:
            for index, image in enumerate(images):
                transaction.put(b"%08d" % index, encode_datum(image, 0))
    return [((picture - MEAN) * 0.01, mark) for picture, mark in samples]


def write_net(folder: Path, *, max_iter, iter_size=1, batch_size=1, more="") -> Path:
    """Write net and solver; return the solver's file."""
    net, solver = folder / "net.prototxt", folder / "solver.prototxt"
    data = "".join(DATA.format(phase=phase, folder=folder, batch_size=batch_size) for phase in ("TRAIN", "TEST"))
    net.write_text('name: "fcn"' + data + slow_fcn.SHARED_LAYERS + more)
    solver.write_text(SOLVER.format(net=net, max_iter=max_iter, iter_size=iter_size))
    return solver


def train(folder: Path, *, max_iter, iter_size=1, batch_size=1, more="", **options) -> Finished:
    solver = write_net(folder, max_iter=max_iter, iter_size=iter_size, batch_size=batch_size, more=more)
    return run_in_process(TrainConfig(solver=solver, run_dir=folder / "run", **options))


def start_blobs(finished: Finished) -> list[np.ndarray]:
    views = finished.prepared.run.train_net.params.views(finished.start.center)
    return [views[f"{layer}[{index}]"].astype(np.float64) for layer, index in slow_fcn.NAMES]


def end_blobs(finished: Finished) -> list[np.ndarray]:
    (weights,) = finished.prepared.run.paths.root.rglob("*.caffemodel")
    blobs = read_caffemodel(weights)
    return [blobs[layer][index].astype(np.float64) for layer, index in slow_fcn.NAMES]


def mean_loss(blobs: list[np.ndarray], samples) -> float:
    return float(np.mean([slow_fcn.loss_and_gradient(blobs, *sample)[0] for sample in samples]))


@pytest.mark.parametrize("comm_period", [1, 5])
@pytest.mark.parametrize("iter_size", [1, 3])
def test_each_minibatch_has_the_loss_of_the_reference(tmp_path, iter_size, comm_period):
    samples = write_databases(tmp_path)
    finished = train(tmp_path, max_iter=12, iter_size=iter_size, n_workers=1, comm_period=comm_period)
    blobs = start_blobs(finished)
    n_passes = 12 * iter_size
    order = [samples[k % len(samples)] for k in range(n_passes)]
    first_test = mean_loss(blobs, samples)
    losses = slow_fcn.train(blobs, order, iter_size=iter_size, **RATES)
    np.testing.assert_allclose([event.data["loss"] for event in finished.events("loss")], losses, rtol=1e-4)
    for own, expected in zip(end_blobs(finished), blobs, strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-3, atol=1e-5)
    tests = [event.data["loss"] for event in finished.events("evaluation")]
    np.testing.assert_allclose(tests, [first_test, mean_loss(blobs, samples)], rtol=1e-4)


def test_two_workers_share_the_pictures(tmp_path):
    samples = write_databases(tmp_path)
    finished = train(tmp_path, max_iter=60, n_workers=2, strategy="easgd", comm_period=3)
    assert [outcome.ending for outcome in finished.outcomes] == ["finished", "finished"]
    first, last = (event.data["loss"] for event in finished.events("evaluation"))
    assert (first, last) == (
        pytest.approx(mean_loss(start_blobs(finished), samples), rel=1e-4),
        pytest.approx(mean_loss(end_blobs(finished), samples), rel=1e-4),
    )
    assert last < 0.8 * first


def test_evaluation_scores_each_picture_in_its_own_size(tmp_path):
    from deepspark_ops.evaluate.stage import run_evaluate  # TensorFlow

    samples = write_databases(tmp_path)
    finished = train(tmp_path, max_iter=40, n_workers=1)
    metrics = run_evaluate(EvaluateConfig(run_dir=finished.prepared.run.paths.root)).metrics
    blobs = end_blobs(finished)
    confusion = np.zeros((3, 3), int)
    for image, mark in samples:
        predicted = slow_fcn.forward(blobs, image)["cropped"].argmax(axis=0)
        for truth, answer in zip(mark.ravel(), predicted.ravel(), strict=True):
            if truth != slow_fcn.IGNORED:
                confusion[truth, answer] += 1
    assert metrics.figures.confusion == tuple(map(tuple, confusion.tolist()))
    assert (metrics.task, metrics.figures.n_samples) == ("segmentation", len(samples))


def test_caffe_test_is_the_mean_over_the_pictures(tmp_path):
    from deepspark_ops.single_net.mean_outputs import mean_outputs  # TensorFlow

    samples = write_databases(tmp_path)
    finished = train(tmp_path, max_iter=3, n_workers=1)
    (weights,) = finished.prepared.run.paths.root.rglob("*.caffemodel")
    means = mean_outputs(NetTestConfig(net=tmp_path / "net.prototxt", weights=weights))
    assert (means.n_batches, means.n_samples) == (7, 7)
    assert means.outputs["loss"] == pytest.approx(mean_loss(end_blobs(finished), samples), rel=1e-5)


def test_an_output_that_depends_on_the_size_has_no_mean(tmp_path):
    write_databases(tmp_path)
    more = 'layer { name: "shares" type: "Softmax" bottom: "cropped" top: "shares" include { phase: TEST } }'
    finished = train(tmp_path, max_iter=3, n_workers=1, more=more)
    (outcome,) = finished.outcomes
    assert outcome.ending == "refused"
    assert 'output "shares" has shape (1, 3, 5, 6) for one sample and (1, 3, 7, 9) for the first' in outcome.message


def test_a_picture_is_predicted_as_in_pycaffe(tmp_path):
    samples = write_databases(tmp_path)
    finished = train(tmp_path, max_iter=3, n_workers=1)
    (weights,) = finished.prepared.run.paths.root.rglob("*.caffemodel")
    deploy = tmp_path / "deploy.prototxt"
    shape = "input_param { shape { dim: 1 dim: 3 dim: 4 dim: 4 } }"
    layers = slow_fcn.SHARED_LAYERS.partition('layer { name: "loss"')[0]
    deploy.write_text(f'layer {{ name: "data" type: "Input" top: "data" {shape} }}' + layers)
    net = ds.Net(deploy, weights, ds.TEST)
    try:
        for image, _ in samples[:3]:
            net.blobs["data"].reshape(1, *image.shape)
            net.blobs["data"].data[0] = image
            scores = net.forward()["cropped"][0]
            np.testing.assert_allclose(
                scores, slow_fcn.forward(end_blobs(finished), image)["cropped"], rtol=1e-4, atol=1e-5
            )
    finally:
        net.close()


def test_a_bundle_is_refused(tmp_path):
    from deepspark_ops.export.bundle import write_bundle  # TensorFlow

    write_databases(tmp_path)
    run_dir = train(tmp_path, max_iter=3, n_workers=1).prepared.run.paths.root
    message = r'layer "pictures": 6 sizes among the first 7 samples, 5 x 6 to 6 x 11 pixels; a bundle takes .* one size'
    with pytest.raises(ConfigError, match=message):
        write_bundle(ExportConfig(run_dir=run_dir), on_step=lambda step: None)
    assert not (run_dir / "bundle").exists()


def test_check_forecasts_the_largest_picture_and_says_so(tmp_path):
    write_databases(tmp_path)
    write_net(tmp_path, max_iter=3)
    report = inspect_solver(CheckConfig(solver=tmp_path / "solver.prototxt"))
    assert {problem.severity for problem in report.problems} == {"warning"}
    sizes = [p.finding for p in report.problems if "6 sizes among the first 7 samples, 5 x 6 to 6 x 11" in p.finding]
    assert all(re.search(r"about \d\.\d MiB for the graph of each size, of 64 at most", finding) for finding in sizes)
    assert len(sizes) == 2  # train, test
    (data,) = [layer for layer in report.nets[0].layers if layer.name == "pictures"]
    assert data.top_shapes == ((1, 3, 6, 11),)


@pytest.mark.parametrize(
    ("batch_size", "more", "message"),
    [
        (
            2,
            "",
            r'layer "pictures": .* has shape \(3, 5, 6\), the first sample \(3, 7, 9\); allowed: equal shapes, .* or'
            r" batch_size: 1 with a net that takes any size",
        ),
        (
            1,
            'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }',
            r'layer "ip" \(InnerProduct\): its parameters have shapes \(2, 189\) and \(2,\), bottoms of shape'
            r" \(1, 3, 5, 6\) need \(2, 90\)",
        ),
    ],
)
def test_what_caffe_cannot_do_is_refused(tmp_path, batch_size, more, message):
    write_databases(tmp_path)
    if batch_size == 1:
        with pytest.raises(CaffeImportError, match=message):
            train(tmp_path, max_iter=3, n_workers=1, more=more)
        return
    (outcome,) = train(tmp_path, max_iter=3, n_workers=1, batch_size=batch_size).outcomes
    assert outcome.ending == "refused"
    assert re.search(message, outcome.message)


LIST_NET = """
name: "photos"
layer { name: "photos" type: "ImageData" top: "data" top: "label" transform_param { scale: 0.01 }
  image_data_param { source: "FOLDER/list.txt" root_folder: "FOLDER/" batch_size: 1 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: AVE global_pooling: true } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def test_a_classifier_with_a_global_pooling_scores_photos_of_a_list(tmp_path):
    from deepspark_ops.evaluate.stage import run_evaluate  # TensorFlow

    rng = np.random.default_rng(3)
    photos = [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in SIZES]
    for index, photo in enumerate(photos):
        cv2.imwrite(str(tmp_path / f"{index}.png"), photo)
    (tmp_path / "list.txt").write_text("".join(f"{index}.png {index % 3}\n" for index in range(len(photos))))
    (tmp_path / "net.prototxt").write_text(LIST_NET.replace("FOLDER", str(tmp_path)))
    solver = tmp_path / "solver.prototxt"
    solver.write_text(SOLVER.format(net=tmp_path / "net.prototxt", max_iter=9, iter_size=1))
    finished = run_in_process(TrainConfig(solver=solver, run_dir=tmp_path / "run", n_workers=1))
    metrics = run_evaluate(EvaluateConfig(run_dir=tmp_path / "run", saliency=3)).metrics
    (weights,) = finished.prepared.run.paths.root.rglob("*.caffemodel")
    blobs = read_caffemodel(weights)
    once = {"stride": (1, 1), "pad": (0, 0), "dilation": (1, 1)}
    losses, n_right = [], 0
    for index, photo in enumerate(photos):
        image = photo.transpose(2, 0, 1)[np.newaxis] * 0.01
        pooled = slow_convolution(image, *blobs["conv"], **once).mean(axis=(2, 3))[0]
        scores = blobs["ip"][0].reshape(3, 4) @ pooled + blobs["ip"][1].ravel()
        losses.append(np.log(np.exp(scores).sum()) - scores[index % 3])
        n_right += int(scores.argmax() == index % 3)
    assert metrics.loss == pytest.approx(np.mean(losses), rel=1e-4)
    assert metrics.top1 == pytest.approx(n_right / len(photos))


def test_a_data_layer_of_ds_net_reads_one_size(tmp_path):
    write_databases(tmp_path)
    write_net(tmp_path, max_iter=3)
    net = ds.Net(tmp_path / "net.prototxt", ds.TEST)
    try:
        net.forward()
        message = r'layer "pictures": .* has shape \(3, 5, 6\), the first sample another; a data layer of ds\.Net reads'
        with pytest.raises((ConfigError, DataError), match=message):
            net.forward()
    finally:
        net.close()
