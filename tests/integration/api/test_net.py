"""``ds.Net``'s habits on a small net, against plain numpy: ranges of layers, reshape, weights, and what fails."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import deepspark_ops as ds
from deepspark_ops.api import pycaffe
from deepspark_ops.single_net.passes import net_process

pytestmark = [pytest.mark.tf, pytest.mark.slow]

NET = """
name: "two" force_backward: true
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "one" type: "InnerProduct" bottom: "data" top: "one" inner_product_param { num_output: 4
  weight_filler { type: "xavier" } bias_filler { type: "constant" value: 0.1 } } }
layer { name: "relu" type: "ReLU" bottom: "one" top: "one" }
layer { name: "two" type: "InnerProduct" bottom: "one" top: "two" inner_product_param { num_output: 2
  weight_filler { type: "xavier" } } }
"""
RNG = np.random.default_rng(5)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("net") / "two.prototxt"
    path.write_text(NET)
    return path


@pytest.fixture(scope="module")
def shared(file: Path) -> Iterator[ds.Net]:
    with ds.Net(file, "TEST", devices="cpu") as net:
        yield net


@pytest.fixture
def net(shared: ds.Net) -> ds.Net:
    shared.blobs["data"].reshape(2, 3)
    shared.reshape()
    for blobs in shared.params.values():
        for blob in blobs:
            blob.data[...] = RNG.normal(size=blob.shape)
    shared.clear_param_diffs()
    for blob in shared.blobs.values():
        blob.data[...] = blob.diff[...] = 0.0
    return shared


def slow(net: ds.Net, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    (w1, b1), (w2, b2) = ([blob.data.astype(np.float64) for blob in net.params[name]] for name in ("one", "two"))
    hidden = np.maximum(data @ w1.T + b1, 0.0)
    return hidden, hidden @ w2.T + b2


def test_forward_by_keyword_by_blob_and_in_parts(net: ds.Net) -> None:
    data = RNG.normal(size=(2, 3)).astype(np.float32)
    hidden, two = slow(net, data)
    answer = net.forward(data=data)
    assert list(answer) == ["two"]
    assert np.allclose(answer["two"], two, atol=1e-5)
    assert answer["two"] is not None
    assert np.shares_memory(answer["two"], net.blobs["two"].data)
    assert np.allclose(net.forward(blobs=["one"])["one"], hidden, atol=1e-5)
    net.blobs["one"].data[...] = 1.0
    changed = net.forward(start="two")["two"]
    w2, b2 = (blob.data for blob in net.params["two"])
    assert np.allclose(changed, np.ones((2, 4)) @ w2.T + b2, atol=1e-5)
    net.blobs["two"].data[...] = 7.0
    before_relu = net.forward(end="one", data=data)
    w1, b1 = (blob.data for blob in net.params["one"])
    assert list(before_relu) == ["one"]
    assert np.allclose(before_relu["one"], data @ w1.T + b1, atol=1e-5)
    assert (net.blobs["two"].data == 7.0).all()


def test_backward_from_outputs_and_from_a_layer(net: ds.Net) -> None:
    data = RNG.normal(size=(2, 3)).astype(np.float32)
    net.forward(data=data)
    hidden, _ = slow(net, data)
    upper = RNG.normal(size=(2, 2))
    w2 = net.params["two"][0].data
    of_hidden = (upper @ w2) * (hidden > 0)
    answer = net.backward(two=upper)
    assert list(answer) == ["data"]
    assert np.allclose(net.params["two"][0].diff, upper.T @ hidden, atol=1e-4)
    assert np.allclose(net.params["one"][0].diff, of_hidden.T @ data, atol=1e-4)
    assert np.allclose(net.params["one"][1].diff, of_hidden.sum(0), atol=1e-4)
    net.backward(two=upper)
    assert np.allclose(net.params["two"][0].diff, 2 * upper.T @ hidden, atol=1e-4)  # added, as in Caffe
    net.clear_param_diffs()
    net.blobs["one"].diff[...] = 1.0
    net.backward(start="relu", end="relu")
    assert (net.params["one"][0].diff == 0).all()
    net.blobs["one"].diff[...] = 1.0
    net.backward(start="one")
    assert np.allclose(net.params["one"][0].diff, np.ones((4, 2)) @ data, atol=1e-4)
    assert (net.params["two"][0].diff == 0).all()


def test_net_without_a_loss_has_forced_gradients_only_and_ends_its_process(net: ds.Net, tmp_path: Path) -> None:
    data = np.abs(RNG.normal(size=(2, 3))).astype(np.float32)
    net.forward(data=data)
    hidden, _ = slow(net, data)
    upper = np.ones((2, 2))
    expected = ((upper @ net.params["two"][0].data) * (hidden > 0)) @ net.params["one"][0].data
    assert np.allclose(net.backward(two=upper)["data"], expected, atol=1e-4)
    (tmp_path / "unforced.prototxt").write_text(NET.replace("force_backward: true", ""))
    other = ds.Net(tmp_path / "unforced.prototxt", "TEST", devices="cpu")  # Caffe computes none then
    other.share_with(net)
    net.clear_param_diffs()
    assert np.allclose(other.forward(data=data)["two"], slow(net, data)[1], atol=1e-5)
    assert (other.backward(two=upper)["data"] == 0).all()
    assert (other.params["two"][0].diff == 0).all()
    process = other._process._running._process  # type: ignore[union-attr]
    del other
    assert process.wait(30) is not None


def test_reshape_keeps_parameters_and_computes_the_new_batch(net: ds.Net) -> None:
    old_weights = net.params["one"][0].data.copy()
    net.blobs["data"].reshape(5, 3)
    assert net.blobs["data"].shape == (5, 3)
    assert net.blobs["two"].shape == (2, 2)  # the net follows when it is told, or at the next pass
    net.blobs["data"].data[...] = 3.0
    net.reshape()
    assert net.blobs["two"].shape == (5, 2)
    assert (net.blobs["data"].data == 3.0).all()
    assert np.array_equal(net.params["one"][0].data, old_weights)
    data = RNG.normal(size=(5, 3)).astype(np.float32)
    assert np.allclose(net.forward(data=data)["two"], slow(net, data)[1], atol=1e-5)
    net.blobs["data"].reshape(5, 4)
    with pytest.raises(ds.ConfigError, match='layer "one" would need parameters of another shape'):
        net.forward()
    assert net.blobs["data"].shape == (5, 3)
    assert np.allclose(net.forward(data=data)["two"], slow(net, data)[1], atol=1e-5)


def test_any_number_of_samples_in_batches(net: ds.Net) -> None:
    data = RNG.normal(size=(7, 3)).astype(np.float32)
    assert np.allclose(net.forward_all(data=data)["two"], slow(net, data)[1], atol=1e-5)


@pytest.mark.parametrize("name", ["w.caffemodel", "w.caffemodel.h5"])
def test_saved_weights_are_read_again(net: ds.Net, file: Path, tmp_path: Path, name: str) -> None:
    net.save(tmp_path / name)
    with ds.Net(file, tmp_path / name, ds.TEST, devices="cpu") as other:
        for layer, blobs in net.params.items():
            for blob, saved in zip(other.params[layer], blobs, strict=True):
                assert np.array_equal(blob.data, saved.data)


def test_equal_seeds_fill_equal_parameters(file: Path) -> None:
    pycaffe.set_random_seed(3)
    first = ds.Net(file, "TRAIN").params["one"][0].data.copy()
    pycaffe.set_random_seed(3)
    assert np.array_equal(ds.Net(file, "TRAIN").params["one"][0].data, first)
    assert not np.array_equal(ds.Net(file, "TRAIN").params["one"][0].data, first)


def test_killed_process_is_told_of_and_the_next_pass_has_another_one(net: ds.Net) -> None:
    data = RNG.normal(size=(2, 3)).astype(np.float32)
    net.forward(data=data)
    running = net._process._running
    assert running is not None
    os.kill(running._process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while running.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert np.allclose(net.forward(data=data)["two"], slow(net, data)[1], atol=1e-5)


def test_interrupted_pass_keeps_the_values_and_the_next_pass_works(
    net: ds.Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = RNG.normal(size=(2, 3)).astype(np.float32)
    net.forward(data=data)
    params = net.params["one"][0].data.copy()

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(net_process, "is_readable", interrupted)
        with pytest.raises(KeyboardInterrupt):
            net.forward(data=data)
    assert np.array_equal(net.params["one"][0].data, params)
    assert np.allclose(net.forward(data=data)["two"], slow(net, data)[1], atol=1e-5)


MISTAKES = [
    (lambda net: net.forward(label=1), "inputs label: the net has data: give all of them"),
    (
        lambda net: net.forward(data=np.zeros((3, 3))),
        r"data: shape \(3, 3\); allowed: \(2, 3\); reshape",
    ),
    (lambda net: net.forward(start="three"), "start='three': no such layer; allowed: data, one, relu, two"),
    (lambda net: net.forward(blobs=["three"]), "blob 'three': no such blob; allowed: data, one, two"),
    (lambda net: net.backward(one=0), "one: no output; allowed: two"),
    (lambda net: net.blobs["two"].reshape(1), 'blob "two": only inputs can be reshaped: data'),
    (lambda net: net.blobs["data"].reshape(0, 3), r"reshape\(0, 3\): allowed: whole numbers from 1 on"),
    (lambda net: net.params["one"][0].reshape(1), "shapes of parameters are fixed"),
    (lambda net: net.copy_from("nowhere.caffemodel"), "nowhere.caffemodel: cannot be read: No such file"),
    (lambda net: ds.Net("nowhere.prototxt", ds.TEST), "nowhere.prototxt: no such file"),
    (lambda net: ds.Net("nowhere.prototxt", None, 5), r"phase=5: allowed: ds.TEST \(1\)"),
    (lambda net: ds.Net("nowhere.prototxt", devices="tpu"), "devices='tpu': allowed: 'auto', 'cpu', 'gpu'"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_mistakes_name_what_is_allowed(net: ds.Net, call: object, message: str) -> None:
    with pytest.raises(ds.ConfigError, match=message):
        call(net)  # type: ignore[operator]


def test_a_prompt_shows_net_and_blob_in_a_line(net: ds.Net) -> None:
    name = next(iter(net.blobs))
    assert repr(net.blobs[name]) == f"Blob({name!r}, shape={net.blobs[name].shape})"
    assert repr(net).startswith(f"Net('{net._message.name}', ")
    assert repr(net).endswith(f", inputs={net.inputs}, outputs={net.outputs})")


def test_card_has_the_layers_escaped(net: ds.Net) -> None:
    html = net._repr_html_()
    assert "InnerProduct" in html
    assert "4x3" in html
