"""Time steps of Keras 3: ``keras_step.py FOLDER VARIANT N_THREADS`` builds the net of ``FOLDER/net.json``.

Variants: ``tensorflow``, ``tensorflow_xla``, ``jax``. Images are channels last, Keras's default. Training is ``fit``
and the forward pass is ``predict``, both on arrays in memory.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

FOLDER, VARIANT, N_THREADS = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
BACKEND = VARIANT.partition("_")[0]
os.environ["KERAS_BACKEND"] = BACKEND
if BACKEND == "tensorflow":
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(N_THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(N_THREADS)
# JAX has as many threads as the process has cores.

import keras  # noqa: E402
from keras import layers, ops  # noqa: E402
from serve import serve  # noqa: E402

Layer = dict[str, Any]


class Lrn(layers.Layer):
    """Local response normalisation; Keras has no such layer."""

    def __init__(self, region: str, local_size: int, alpha: float, beta: float, k: float) -> None:
        super().__init__()
        self.within, self.size, self.alpha, self.beta, self.k = region == "WITHIN_CHANNEL", local_size, alpha, beta, k

    def call(self, image: Any) -> Any:
        half, scale = self.size // 2, self.alpha / self.size
        if self.within:
            squares = ops.pad(image * image, ((0, 0), (half, half), (half, half), (0, 0)))
            return image * (1 + self.alpha * ops.average_pool(squares, self.size, 1)) ** -self.beta
        if BACKEND == "tensorflow":
            return tf.nn.lrn(image, half, self.k, scale, self.beta)
        squares = ops.pad(image * image, ((0, 0), (0, 0), (0, 0), (half, half)))
        sums = sum(squares[..., k : k + image.shape[-1]] for k in range(self.size))
        return image * (self.k + scale * sums) ** -self.beta


def convolution(layer: Layer) -> Any:
    options = layer["options"]
    window, n_in, n_out = options["window"], layer["bottom_shapes"][0][1], layer["top_shapes"][0][1]
    kernel, stride, pad = window["kernel"], window["stride"], window["pad"]
    fields = {"kernel_size": kernel, "strides": stride, "use_bias": options["has_bias"]}
    if layer["type"] == "Deconvolution":
        return layers.Conv2DTranspose(n_out, **fields)
    is_same = stride == [1, 1] and [2 * side for side in pad] == [side - 1 for side in kernel]
    fields["padding"] = "same" if is_same and any(pad) else "valid"
    if options["group"] == n_in > 1:
        kind = layers.DepthwiseConv2D(**fields)
    else:
        kind = layers.Conv2D(n_out, groups=options["group"], **fields)
    return kind if is_same or not any(pad) else keras.Sequential([layers.ZeroPadding2D(pad), kind])


def pooling(layer: Layer) -> Any:
    options, is_max = layer["options"], layer["options"]["method"] == "MAX"
    if options["is_global"]:
        return layers.GlobalAveragePooling2D()
    (kernel, _), (stride, _), sides = options["kernel"], options["stride"], layer["bottom_shapes"][0][2:]
    is_valid = (
        options["pad"] == [0, 0] and [(side - kernel) // stride + 1 for side in sides] == layer["top_shapes"][0][2:]
    )
    kind = layers.MaxPooling2D if is_max else layers.AveragePooling2D
    return kind(kernel, stride, padding="valid" if is_valid else "same")


def product(layer: Layer) -> Any:
    options = layer["options"]
    dense = layers.Dense(options["n_outputs"], use_bias=options["has_bias"])
    return keras.Sequential([layers.Flatten(), dense]) if len(layer["bottom_shapes"][0]) == 4 else dense


def crop(layer: Layer) -> Any:
    begins, sides = layer["options"]["begin"][2:], layer["top_shapes"][0][2:]
    extents = layer["bottom_shapes"][0][2:]
    ends = [extent - begin - side for extent, begin, side in zip(extents, begins, sides, strict=True)]
    return layers.Cropping2D(tuple(zip(begins, ends, strict=True)))


def lrn(layer: Layer) -> Any:
    return Lrn(**layer["options"])


KINDS = {
    "Convolution": convolution,
    "Deconvolution": convolution,
    "Pooling": pooling,
    "InnerProduct": product,
    "LRN": lrn,
    "ReLU": lambda layer: layers.ReLU(),
    "Dropout": lambda layer: layers.Dropout(layer["options"]["ratio"]),
    "BatchNorm": lambda layer: layers.BatchNormalization(epsilon=layer["options"]["eps"]),
    "Concat": lambda layer: layers.Concatenate(),
    "Eltwise": lambda layer: layers.Add(),
    "Crop": crop,
    "Embed": lambda layer: layers.Embedding(*next(iter(layer["blobs"].values()))),
    "LSTM": lambda layer: layers.LSTM(layer["options"]["n_hidden"], return_sequences=True),
}


def keras_blobs(layer: Layer, blobs: list[Any]) -> list[Any]:
    """Return the weights of a layer of Caffe's in the order and the axes of Keras."""
    if layer["type"] == "LSTM":  # gates: Caffe i f o g, Keras i f g o; blobs: x, bias, h
        x, bias, h = (np.concatenate([np.split(blob, 4)[k] for k in (0, 1, 3, 2)]) for blob in blobs)
        return [x.T, h.T, bias]
    if layer["type"] in ("Convolution", "Deconvolution"):
        is_depthwise = layer["options"]["group"] == layer["bottom_shapes"][0][1] > 1
        return [blobs[0].transpose(2, 3, 0, 1) if is_depthwise else blobs[0].transpose(2, 3, 1, 0), *blobs[1:]]
    if layer["type"] == "InnerProduct":
        shape = layer["bottom_shapes"][0]
        if len(shape) == 4:
            blobs[0] = blobs[0].reshape(-1, *shape[1:]).transpose(0, 2, 3, 1).reshape(len(blobs[0]), -1)
        return [blobs[0].T, *blobs[1:]]
    return blobs


def build(description: dict[str, Any], data_shape: tuple[int, ...], weights: Any) -> tuple[Any, Any, list[float]]:
    """Return the model of all scores with a loss, the model of the last scores, and the losses' weights."""
    source = keras.Input(data_shape)
    blobs: dict[str, Any] = {description["data"]: source}
    weighted, losses = [], []
    for layer in description["layers"]:
        if layer["type"] == "SoftmaxWithLoss":
            losses.append((blobs[layer["bottoms"][0]], layer["loss_weight"]))
            continue
        bottoms = [blobs[bottom] for bottom in layer["bottoms"] if bottom in blobs]
        kind = KINDS[layer["type"]](layer)
        blobs[layer["tops"][0]] = kind(bottoms if layer["type"] in ("Concat", "Eltwise") else bottoms[0])
        weighted.append((kind, layer))
    for kind, layer in weighted:
        if layer["blobs"]:
            arrays = keras_blobs(layer, [weights[name] for name in layer["blobs"]])
            for variable, array in zip(kind.trainable_variables, arrays, strict=True):
                variable.assign(array)
    outputs = [scores for scores, _ in losses]
    model = keras.Model(source, outputs if len(outputs) > 1 else outputs[0])
    return model, keras.Model(source, blobs[description["scores"]]), [weight for _, weight in losses]


def main() -> None:
    """Build, load and serve."""
    description = json.loads((FOLDER / "net.json").read_text())
    feeds = np.load(FOLDER / "feeds.npz")
    images, labels = feeds[description["data"]], feeds["label"].astype(np.int32)
    n_batches, batch_size = len(images), description["batch_size"]
    if images.ndim == 5:
        images, labels = images.transpose(0, 1, 3, 4, 2), labels.reshape(n_batches, batch_size, *labels.shape[3:])
    elif any(layer["type"] == "LSTM" for layer in description["layers"]):
        images, labels = images.transpose(0, 2, 1), labels.transpose(0, 2, 1)
    images, labels = (np.ascontiguousarray(v.reshape(-1, *v.shape[2:])) for v in (images, labels))
    model, scores, loss_weights = build(description, images.shape[1:], np.load(FOLDER / "weights.npz"))
    losses = [keras.losses.SparseCategoricalCrossentropy(from_logits=True) for _ in loss_weights]
    model.compile(
        optimizer=keras.optimizers.SGD(0.0001, momentum=0.9, weight_decay=0.0005),
        loss=losses if len(losses) > 1 else losses[0],
        loss_weights=loss_weights if len(losses) > 1 else None,
        jit_compile=VARIANT != "tensorflow",
        steps_per_execution=10 if BACKEND == "tensorflow" and n_batches >= 10 else 1,
    )
    scores.compile(jit_compile=VARIANT != "tensorflow")

    def rows(n_steps: int) -> tuple[Any, Any]:
        n_times = -(-n_steps // n_batches)
        return tuple(np.concatenate([v] * n_times)[: n_steps * batch_size] for v in (images, labels))

    def targets(values: Any) -> Any:
        return [values] * len(losses) if len(losses) > 1 else values

    def step(n_steps: int) -> None:
        data, classes = rows(n_steps)
        model.fit(data, targets(classes), batch_size=batch_size, epochs=1, shuffle=False, verbose=0)

    def forward(n_steps: int) -> None:
        scores.predict(rows(n_steps)[0], batch_size=batch_size, verbose=0)

    def first_loss() -> float:
        data, classes = images[:batch_size], labels[:batch_size]
        return float(model.compute_loss(data, targets(classes), model(data, training=True)))

    facts = {"version": keras.__version__, "n_weights": sum(int(np.prod(v.shape)) for v in model.trainable_variables)}
    serve({"step": step, "forward": forward}, facts, first_loss)


if __name__ == "__main__":
    main()
