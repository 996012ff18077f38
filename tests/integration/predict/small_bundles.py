"""Bundles of every kind of result, from nets of one layer or two: the answers are a line of numpy each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caffe_import.files.caffemodel import write_caffemodel
from caffe_import.files.prototxt import read_net
from caffe_import.net.net_spec import build_net_spec
from deepspark_ops.config.convert import ConvertConfig
from tests.reference.layer_text import inner_product, input_layer

NETS = {
    "regression": (input_layer("x", 4) + inner_product("price", "x", 1), "regression", "price"),
    "multi_label": (
        input_layer("x", 4)
        + inner_product("ip", "x", 3)
        + 'layer { name: "tags" type: "Sigmoid" bottom: "ip" top: "tags" }',
        "multi_label",
        "tags",
    ),
    "embedding": (input_layer("x", 4) + inner_product("feat", "x", 2), "embedding", "feat"),
    "reconstruction": (
        input_layer("x", 4) + inner_product("code", "x", 2) + inner_product("again", "code", 4),
        "reconstruction",
        "again",
    ),
    "segmentation": (
        input_layer("data", 1, 3, 2)
        + 'layer { name: "each" type: "Convolution" bottom: "data" top: "each"'
        " convolution_param { num_output: 2 kernel_size: 1 } }\n"
        + 'layer { name: "pixels" type: "Softmax" bottom: "each" top: "pixels" }',
        "segmentation",
        "pixels",
    ),
    "two_inputs": (
        input_layer("left", 3)
        + input_layer("right", 2)
        + 'layer { name: "both" type: "Concat" bottom: "left" bottom: "right" top: "both" }\n'
        + inner_product("price", "both", 2),
        "regression",
        "price",
    ),
    "two_outputs": (
        input_layer("x", 4)
        + input_layer("drawn")
        + 'layer { name: "label" type: "Threshold" bottom: "drawn" top: "label" }\n'
        + input_layer("paid", 1)
        + inner_product("ip", "x", 3)
        + inner_product("price", "x", 1)
        + 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" loss_weight: 2 }\n'
        + 'layer { name: "off" type: "EuclideanLoss" bottom: "price" bottom: "paid" top: "off" }',
        "auto",
        None,
    ),
}  # fmt: skip


def params_of(name: str, n_params: int) -> NDArray[np.float32]:
    """Return the weights of a bundle, in Caffe's order."""
    return np.random.default_rng(len(name)).normal(size=n_params).astype(np.float32)


def sample_rows(name: str) -> list[dict[str, list[float]]]:
    """Return six rows, input -> its numbers: the fourth has none, the last too many."""
    random = np.random.default_rng(7)
    sizes = {"two_inputs": {"left": 3, "right": 2}, "segmentation": {"data": 6}}.get(name, {"x": 4})
    rows = [{key: random.integers(0, 9, size).astype(float).tolist() for key, size in sizes.items()} for _ in range(6)]
    first = next(iter(sizes))
    rows[3][first] = None
    rows[5][first] = [*rows[5][first], 1.0]
    return rows


def expected_of(name: str) -> dict[str, NDArray[np.float64]]:
    """Return output -> what a bundle gives for the usable rows, by numpy."""
    rows = [row for at, row in enumerate(sample_rows(name)) if at not in (3, 5)]
    x = np.array([[number for part in row.values() for number in part] for row in rows])

    def product(features, params, n):
        weights = params[: n * features.shape[1]].reshape(n, -1)
        return features @ weights.T + params[weights.size : weights.size + n]

    match name:
        case "regression":
            return {"price": product(x, params_of(name, 5), 1)}
        case "multi_label":
            return {"tags": 1 / (1 + np.exp(-product(x, params_of(name, 15), 3)))}
        case "embedding":
            return {"feat": product(x, params_of(name, 10), 2)}
        case "reconstruction":
            params = params_of(name, 22)
            return {"again": product(product(x, params, 2), params[10:], 4)}
        case "segmentation":
            weights, bias = params_of(name, 4).reshape(2, 2)
            each = np.exp(x[:, np.newaxis] * weights[:, np.newaxis] + bias[:, np.newaxis])
            return {"pixels": (each / each.sum(axis=1, keepdims=True)).reshape(len(x), -1)}
        case "two_inputs":
            return {"price": product(x, params_of(name, 12), 2)}
        case "two_outputs":
            params = params_of(name, 20)
            each = np.exp(product(x, params, 3))
            return {"scores": each / each.sum(axis=1, keepdims=True), "price": product(x, params[15:], 1)}
    raise KeyError(name)


def make_small_bundle(folder: Path, name: str) -> Path:
    """Write the bundle ``name`` below ``folder``, with random weights; returns its folder."""
    from deepspark_ops.export.convert.__main__ import main as convert  # TensorFlow

    text, task, blob = NETS[name]
    work = folder / f"{name}_made_of"
    work.mkdir(parents=True)
    (work / "net.prototxt").write_text(f'name: "{name}"\n{text}')
    net = build_net_spec(read_net(work / "net.prototxt"), phase="TEST")
    params = params_of(name, net.params.n_params)
    write_caffemodel(work / "w.caffemodel", net, params)
    config = ConvertConfig(
        net=work / "net.prototxt", weights=work / "w.caffemodel", output=folder / name, formats="caffe,saved_model",
        task=task, output_blob=blob,
    )  # fmt: skip
    (work / "convert.json").write_text(config.model_dump_json())
    convert(work / "convert.json")
    return folder / name
