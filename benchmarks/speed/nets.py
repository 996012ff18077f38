"""The nets of ``make bench``, and their description for programs without Caffe's messages.

A net has a single definition, the prototxt. ``description`` gives layers with all options resolved, and every framework
builds the same layers, shapes and weights from the description.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from caffe_import.files.prototxt import parse_net, read_net
from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.net_spec import LayerSpec, NetSpec, build_net_spec
from caffe_import.proto import caffe_pb2

ROOT = Path(__file__).parents[2]
PUBLISHED = "tests/fixtures/nets"
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Net:
    """A net of the table.

    Attributes:
        title: Name in the table.
        definition: File of the prototxt, or the text of the prototxt.
        batch_size: Samples of a step; sequences of the LSTM.
        image: Caffe shape of a sample before any crop; empty for a prototxt with an Input layer.
        n_classes: Labels are smaller than this number.
        n_batches: Different batches in memory.
        n_words: Data are words smaller than this number; 0: data are random numbers.
    """

    title: str
    definition: str
    batch_size: int
    image: tuple[int, ...] = ()
    n_classes: int = 1000
    n_batches: int = 2
    n_words: int = 0


def _layer(name: str, kind: str, bottoms: str, top: str, options: str = "") -> str:
    bottom = "".join(f'bottom: "{blob}" ' for blob in bottoms.split())
    tops = "".join(f'top: "{blob}" ' for blob in top.split())
    return f'layer {{ name: "{name}" type: "{kind}" {bottom}{tops}{options} }}\n'


def _input(*shapes: tuple[str, tuple[int, ...]]) -> str:
    dims = "".join(f"shape {{ {' '.join(f'dim: {n}' for n in shape)} }} " for _, shape in shapes)
    return _layer("input", "Input", "", " ".join(blob for blob, _ in shapes), f"input_param {{ {dims} }}")


def _conv(name: str, bottom: str, n: int, options: str, filler: str = "msra") -> str:
    text = f'num_output: {n} {options} weight_filler {{ type: "{filler}" }}'
    return _layer(name, "Convolution", bottom, name, f"convolution_param {{ {text} }}")


_MOBILENET = ((32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2))
_MOBILENET += ((512, 512, 1),) * 5 + ((512, 1024, 2), (1024, 1024, 1))


def mobilenet() -> str:
    """Return MobileNet v1 (Howard et al. 2017, table 1): depthwise and pointwise convolutions, each normalised."""

    def normalised(name: str, bottom: str, n: int, options: str) -> str:
        return (
            _conv(name, bottom, n, f"{options} bias_term: false")
            + _layer(f"{name}/bn", "BatchNorm", name, name)
            + _layer(f"{name}/scale", "Scale", name, name, "scale_param { bias_term: true }")
            + _layer(f"{name}/relu", "ReLU", name, name)
        )

    text = _input(("data", (8, 3, 224, 224)), ("label", (8,)))
    text += normalised("conv1", "data", 32, "kernel_size: 3 stride: 2 pad: 1")
    bottom = "conv1"
    for number, (n_in, n_out, stride) in enumerate(_MOBILENET, 2):
        name = f"conv{number}"
        text += normalised(f"{name}/dw", bottom, n_in, f"kernel_size: 3 stride: {stride} pad: 1 group: {n_in}")
        text += normalised(f"{name}/sep", f"{name}/dw", n_out, "kernel_size: 1")
        bottom = f"{name}/sep"
    text += _layer("pool", "Pooling", bottom, "pool", "pooling_param { pool: AVE global_pooling: true }")
    text += _product("fc", "pool", 1000)
    return text + _layer("loss", "SoftmaxWithLoss", "fc label", "loss")


def _product(name: str, bottom: str, n: int, axis: int = 1, filler: str = "xavier") -> str:
    text = f'num_output: {n} axis: {axis} weight_filler {{ type: "{filler}" }}'
    return _layer(name, "InnerProduct", bottom, name, f"inner_product_param {{ {text} }}")


def language_lstm() -> str:
    """Return the language part of LRCN (Donahue et al. 2015): 20 words, embedded in 1000, an LSTM of 1000 units."""
    text = _input(("data", (20, 16)), ("cont", (20, 16)), ("label", (20, 16)))
    uniform = 'weight_filler { type: "uniform" min: -0.08 max: 0.08 }'
    embed = f"embed_param {{ bias_term: false input_dim: 8801 num_output: 1000 {uniform} }}"
    text += _layer("embedding", "Embed", "data", "embedding", embed)
    recurrent = f"recurrent_param {{ num_output: 1000 {uniform} }}"
    text += _layer("lstm", "LSTM", "embedding cont", "lstm", recurrent) + _product("predict", "lstm", 8801, 2)
    return text + _layer("loss", "SoftmaxWithLoss", "predict label", "loss", "softmax_param { axis: 2 }")


def fcn8s() -> str:
    """Return FCN-8s of VGG-16 (Shelhamer et al. 2017) for an image of 224x224 and 21 classes.

    fc6 and fc7 have 1,024 outputs in place of 4,096: 42 in place of 134 million weights. A process of ours takes
    2.9 GiB, of Keras with XLA 2.5; with 4,096 outputs all processes of a race would need 40 GiB.
    """
    text, bottom = _input(("data", (1, 3, 224, 224)), ("label", (1, 1, 224, 224))), "data"

    def with_relu(name: str, n: int, options: str) -> str:
        return _conv(name, bottom, n, options) + _layer(f"{name}/relu", "ReLU", name, name)

    for stage, (n, depth) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        for number in range(1, depth + 1):
            pad = 100 if bottom == "data" else 1
            text += with_relu(name := f"conv{stage}_{number}", n, f"kernel_size: 3 pad: {pad}")
            bottom = name
        text += _layer(f"pool{stage}", "Pooling", bottom, f"pool{stage}", "pooling_param { kernel_size: 2 stride: 2 }")
        bottom = f"pool{stage}"
    for name, options in (("fc6", "kernel_size: 7"), ("fc7", "kernel_size: 1")):
        text += with_relu(name, 1024, options) + _layer(f"drop_{name}", "Dropout", name, name)
        bottom = name
    text += _conv("score_fr", bottom, 21, "kernel_size: 1")

    def upsampled(name: str, source: str, kernel: int, stride: int) -> str:
        options = f'num_output: 21 bias_term: false kernel_size: {kernel} stride: {stride} weight_filler {{ type: "'
        return _layer(name, "Deconvolution", source, name, f'convolution_param {{ {options}bilinear" }} }}')

    def fused(stage: int, upscore: str, offset: int) -> str:
        scored, cropped, sums = f"score_pool{stage}", f"score_pool{stage}c", f"fuse_pool{stage}"
        return (
            _conv(scored, f"pool{stage}", 21, "kernel_size: 1")
            + _layer(cropped, "Crop", f"{scored} {upscore}", cropped, f"crop_param {{ axis: 2 offset: {offset} }}")
            + _layer(sums, "Eltwise", f"{upscore} {cropped}", sums)
        )

    text += upsampled("upscore2", "score_fr", 4, 2) + fused(4, "upscore2", 5)
    text += upsampled("upscore_pool4", "fuse_pool4", 4, 2) + fused(3, "upscore_pool4", 9)
    text += upsampled("upscore8", "fuse_pool3", 16, 8)
    text += _layer("score", "Crop", "upscore8 data", "score", "crop_param { axis: 2 offset: 31 }")
    return text + _layer("loss", "SoftmaxWithLoss", "score label", "loss")


NETS: Mapping[str, Net] = {
    "lenet": Net("LeNet", "examples/digits/lenet_train_test.prototxt", 64, (1, 28, 28), 10, 20),
    "cifar10_quick": Net(
        "cifar10_quick", "examples/cifar10/cifar10_quick_train_test.prototxt", 100, (3, 32, 32), 10, 20
    ),
    "cifar10_full": Net("cifar10_full", "benchmarks/nets/cifar10_full_train.prototxt", 100, (3, 32, 32), 10, 20),
    "mlp": Net("MLP 784-1000-10", "benchmarks/nets/mlp_train.prototxt", 100, (), 10, 20),
    "lstm": Net("LSTM (LRCN's language part)", language_lstm(), 16, n_classes=8801, n_words=8801),
    "caffenet": Net("CaffeNet", f"{PUBLISHED}/caffenet.prototxt", 32, (3, 256, 256)),
    "googlenet": Net("GoogLeNet", f"{PUBLISHED}/googlenet.prototxt", 16, (3, 256, 256)),
    "resnet50": Net("ResNet-50", f"{PUBLISHED}/resnet50.prototxt", 8, (3, 256, 256)),
    "mobilenet": Net("MobileNet v1", mobilenet(), 8),
    "fcn8s": Net("FCN-8s, 224x224, fc6 and fc7 of 1,024", fcn8s(), 1, n_classes=21),
}


def read_message(net: Net) -> caffe_pb2.NetParameter:
    """Return the net's message with the batch size of the table."""
    is_text = net.definition.startswith("layer")
    message = parse_net(net.definition) if is_text else read_net(ROOT / net.definition)
    for layer in message.layer:
        if layer.type == "Data":
            layer.data_param.batch_size = net.batch_size
    return message


def build(net: Net, message: caffe_pb2.NetParameter) -> NetSpec:
    """Return the TRAIN net of a message."""
    return build_net_spec(message, phase="TRAIN", sample_shapes=lambda _: (net.image, ()))


def scores_blob(spec: NetSpec) -> str:
    """Return the blob with the scores for the last loss."""
    return next(layer.bottoms[0] for layer in reversed(spec.layers) if layer.type == "SoftmaxWithLoss")


def forward_layers(spec: NetSpec) -> tuple[str, ...]:
    """Return the layers for the scores, without losses and auxiliary classifiers."""
    needed, names = {scores_blob(spec)}, []
    for layer in reversed(spec.layers):
        if needed & set(layer.tops) and not layer.definition.is_data:
            needed |= set(layer.bottoms)
            names.append(layer.name)
    return tuple(reversed(names))


def forward_net(net: Net, spec: NetSpec) -> NetSpec:
    """Return the TEST net of the scores alone, as ``deepspark predict`` runs the net."""
    names = {*forward_layers(spec), *(layer.name for layer in spec.layers if layer.definition.is_data)}
    message = caffe_pb2.NetParameter()
    message.CopyFrom(read_message(net))
    trained = [layer for layer in message.layer if layer.name in names and not layer.include]
    data = [layer for layer in message.layer if layer.name in names and layer.include][:1]
    del message.layer[:]
    for layer in (*data, *trained):
        message.layer.add().CopyFrom(layer)
        del message.layer[-1].include[:]
    return build_net_spec(message, phase="TEST", sample_shapes=lambda _: (net.image, ()))


def description(net: Net) -> dict[str, Any]:
    """Return the TRAIN net as plain values: no data layers and splits, BatchNorm and Scale as a single layer."""
    spec = build(net, read_message(net))
    weights = [entry for entry in spec.params.entries if entry.kind == "weight"]
    forward = set(forward_layers(spec))
    return {
        "layers": [{**layer, "in_forward": layer["name"] in forward} for layer in _plain_layers(spec)],
        "data": next(iter(spec.inputs)),
        "scores": _sources(spec)[scores_blob(spec)],
        "n_weights": sum(entry.size for entry in weights),
        "batch_size": net.batch_size,
    }


def _sources(spec: NetSpec) -> Mapping[str, str]:
    """Return blob -> source: the split blob of a Split layer's top, else the blob itself."""
    sources = {blob: blob for layer in spec.layers for blob in layer.tops}
    for layer in spec.layers:
        if layer.type == "Split":
            sources |= dict.fromkeys(layer.tops, sources[layer.bottoms[0]])
    return sources


def _plain_layers(spec: NetSpec) -> Iterator[dict[str, Any]]:
    sources = _sources(spec)
    computed = [layer for layer in spec.layers if layer.type != "Split" and not layer.definition.is_data]
    following = [*computed[1:], None]
    for layer, next_layer in zip(computed, following, strict=True):
        if layer.type == "Scale":
            continue  # BatchNorm before has the two blobs
        plain = _plain(layer, sources)
        if layer.type == "BatchNorm":
            if next_layer is None or next_layer.type != "Scale" or next_layer.tops != layer.tops:
                msg = f"{layer.name}: only BatchNorm with a Scale in place after BatchNorm is described"
                raise ValueError(msg)
            plain["blobs"] = {
                f"{next_layer.name}[{k}]": blob.shape for k, blob in enumerate(next_layer.definition.blobs)
            }
        yield plain


def _plain(layer: LayerSpec, sources: Mapping[str, str]) -> dict[str, Any]:
    options = layer.definition.options
    return {
        "name": layer.name,
        "type": layer.type,
        "bottoms": [sources[blob] for blob in layer.bottoms],
        "tops": list(layer.tops),
        "bottom_shapes": layer.bottom_shapes,
        "top_shapes": layer.definition.top_shapes,
        "options": asdict(options) if is_dataclass(options) and not isinstance(options, type) else {},
        "blobs": {f"{layer.name}[{k}]": blob.shape for k, blob in enumerate(layer.definition.blobs)},
        "loss_weight": layer.loss_weights[0],
    }


def feeds(net: Net, spec: NetSpec) -> dict[str, Array]:
    """Return blob -> float32 (n_batches, ...): the same data in every process."""
    rng = np.random.default_rng(0)
    values = {}
    for blob, shape in spec.inputs.items():
        shape = (net.n_batches, *shape)
        if blob == "cont":
            batch = np.ones(shape)
            batch[:, 0] = 0
        elif blob == "label" or net.n_words:
            batch = rng.integers(0, net.n_words or net.n_classes, shape)
        else:
            batch = rng.random(shape)
        values[blob] = batch.astype(np.float32)
    return values


def write_for_peers(name: str, folder: Path) -> None:
    """Write description, first weights and data into a folder, for processes without this project's packages."""
    net = NETS[name]
    spec = build(net, read_message(net))
    vector = initial_vector(spec, seed=1)
    weights = {e.name: vector[e.offset : e.stop].reshape(e.shape) for e in spec.params.entries if e.kind == "weight"}
    (folder / "net.json").write_text(json.dumps(description(net)))
    np.savez(folder / "weights.npz", **weights)
    np.savez(folder / "feeds.npz", **feeds(net, spec))
