"""The code of Caffe's notebooks 00-classification and 01-learning-lenet with changed imports, on small data."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

import deepspark_ops.api.pycaffe as caffe
from deepspark_ops.api.pycaffe import layers as L
from deepspark_ops.api.pycaffe import params as P
from deepspark_ops.api.pycaffe.proto import caffe_pb2
from tests.integration.small_run import make_samples, write_split
from tests.paths import ROOT

pytestmark = [pytest.mark.tf, pytest.mark.slow]


def small_lenet(lmdb: str, batch_size: int) -> caffe_pb2.NetParameter:
    n = caffe.NetSpec()
    n.data, n.label = L.Data(
        batch_size=batch_size, backend=P.Data.LMDB, source=lmdb, transform_param=dict(scale=1.0 / 255), ntop=2
    )
    n.conv1 = L.Convolution(n.data, kernel_size=3, num_output=8, weight_filler=dict(type="xavier"))
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.relu1 = L.ReLU(n.pool1, in_place=True)
    n.score = L.InnerProduct(n.relu1, num_output=3, weight_filler=dict(type="xavier"))
    n.loss = L.SoftmaxWithLoss(n.score, n.label)
    return n.to_proto()


@pytest.fixture
def solver_file(tmp_path: Path) -> Path:
    for seed, split, count in ((1, "train", 160), (2, "test", 60)):
        images, labels = make_samples(count, seed=seed)
        images = images.astype(int) // 2
        images[np.arange(count), 2 - labels] += 90
        write_split(tmp_path / "data", split, images.astype(np.uint8), labels)
    shards = {split: next((tmp_path / "data" / split).glob("*lmdb*")) for split in ("train", "test")}
    for split, size in (("train", 32), ("test", 20)):
        (tmp_path / f"{split}.prototxt").write_text(str(small_lenet(str(shards[split]), size)))
    s = caffe_pb2.SolverParameter()
    s.train_net, s.type, s.base_lr, s.lr_policy = str(tmp_path / "train.prototxt"), "SGD", 0.1, "fixed"
    s.test_net.append(str(tmp_path / "test.prototxt"))
    s.test_interval, s.max_iter, s.momentum, s.random_seed = 500, 100, 0.9, 1
    s.test_iter.append(2)
    s.snapshot_prefix = str(tmp_path / "lenet")
    (tmp_path / "solver.prototxt").write_text(str(s))
    return tmp_path / "solver.prototxt"


@pytest.mark.long
def test_learning_lenet(solver_file: Path) -> None:
    caffe.set_mode_cpu()
    caffe.set_random_seed(2)
    solver = caffe.SGDSolver(str(solver_file))
    shapes = {k: v.data.shape for k, v in solver.net.blobs.items()}
    assert shapes["data"] == (32, 3, 14, 16)
    assert shapes["score"] == (32, 3)
    assert [(k, v[0].data.shape) for k, v in solver.net.params.items()] == [
        ("conv1", (8, 3, 3, 3)),
        ("score", (3, 8 * 6 * 7)),
    ]
    solver.net.forward()  # train net
    solver.test_nets[0].forward()  # test net (there can be more than one)
    first = solver.net.blobs["data"].data.copy()
    labels = solver.net.blobs["label"].data.copy()
    assert set(labels) <= {0.0, 1.0, 2.0}
    old_weights = solver.net.params["conv1"][0].data.copy()
    solver.step(1)
    assert not np.array_equal(solver.net.blobs["data"].data, first)  # the next batch
    diff = solver.net.params["conv1"][0].diff[:, 0]
    assert diff.shape == (8, 3, 3)
    assert np.abs(diff).max() > 0
    blob = solver.net.params["conv1"][0]
    assert np.allclose(old_weights - blob.data, 0.1 * blob.diff, atol=1e-6)  # the first step of SGD
    assert solver.test_nets[0].params["conv1"][0].data is not None
    assert np.shares_memory(solver.test_nets[0].params["conv1"][0].data, blob.data)

    niter, test_interval = 60, 30
    train_loss = np.zeros(niter)
    test_acc = []
    for it in range(niter):
        solver.step(1)  # SGD by Caffe
        train_loss[it] = solver.net.blobs["loss"].data
        solver.test_nets[0].forward(start="conv1")
        if it % test_interval == test_interval - 1:
            correct = 0
            for _ in range(3):
                solver.test_nets[0].forward()
                score = solver.test_nets[0].blobs["score"].data
                correct += sum(score.argmax(1) == solver.test_nets[0].blobs["label"].data)
            test_acc.append(correct / 60)
    assert train_loss[-10:].mean() < 0.8 * train_loss[:10].mean()
    assert test_acc[-1] > 0.5

    # A forward pass from conv1 on keeps the data.
    held = solver.test_nets[0].blobs["data"].data.copy()
    solver.test_nets[0].forward(start="conv1")
    assert np.array_equal(solver.test_nets[0].blobs["data"].data, held)

    weights = solver.snapshot()
    saved = [solver.net.params["conv1"][0].data.copy(), solver.iter]
    solver.step(3)
    reached = solver.net.params["conv1"][0].data.copy()
    restored = caffe.get_solver(str(solver_file))
    restored.restore(weights.with_suffix(".solverstate"))
    assert restored.iter == saved[1]
    assert np.array_equal(restored.net.params["conv1"][0].data, saved[0])
    restored.net._feed._next_rows.update(data=32 * saved[1] % 160)
    restored.step(3)
    assert np.allclose(restored.net.params["conv1"][0].data, reached, atol=1e-4)
    for each_solver in (solver, restored):
        each_solver.close()


def test_classification(tmp_path: Path) -> None:
    caffe.set_mode_cpu()
    model_def = ROOT / "tests" / "fixtures" / "caffe" / "nets" / "alex_mini.prototxt"
    net = caffe.Net(str(model_def), caffe.TEST)
    net.save(str(tmp_path / "weights.caffemodel"))
    net = caffe.Net(str(model_def), str(tmp_path / "weights.caffemodel"), caffe.TEST)
    mu = np.array([104.0, 117.0, 123.0])
    transformer = caffe.io.Transformer({"data": net.blobs["data"].data.shape})
    transformer.set_transpose("data", (2, 0, 1))
    transformer.set_mean("data", mu)
    transformer.set_raw_scale("data", 255)
    transformer.set_channel_swap("data", (2, 1, 0))
    net.blobs["data"].reshape(5, 3, 19, 19)
    net.blobs["label"].reshape(5)
    cv2.imwrite(str(tmp_path / "cat.png"), np.random.default_rng(0).integers(0, 256, (30, 40, 3)).astype(np.uint8))
    image = caffe.io.load_image(str(tmp_path / "cat.png"))
    transformed_image = transformer.preprocess("data", image)
    net.blobs["data"].data[...] = transformed_image
    output = net.forward()
    assert set(output) == set(net.outputs)
    shapes = {layer_name: blob.data.shape for layer_name, blob in net.blobs.items()}
    assert shapes["conv1"][0] == 5
    filters = net.params["conv1"][0].data
    assert filters.transpose(0, 2, 3, 1).shape == (4, 5, 5, 3)
    feat = net.blobs["conv1"].data[0, :36]
    assert feat.shape == (4, 8, 8)
    assert np.allclose(net.blobs["fc7"].data[0], net.blobs["fc7"].data[4])
    net.close()
