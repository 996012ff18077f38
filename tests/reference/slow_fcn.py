"""A small fully convolutional net, one picture at a time, in float64 numpy: forward, backward, Caffe's SGD.

From Caffe's source, layer by layer: Convolution 3x3 with pad 3, ReLU, MAX pooling 2x2 with stride 2 (rounded up, cut at
the border), Convolution 1x1, Deconvolution 4x4 with stride 2 and no bias, Crop with offset 3, SoftmaxWithLoss with
``ignore_label: 255`` and ``normalize: false``.
"""

from __future__ import annotations

import numpy as np

N_CLASSES, IGNORED = 3, 255

SHARED_LAYERS = """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" param { lr_mult: 1 decay_mult: 1 }
  param { lr_mult: 2 decay_mult: 0 }
  convolution_param { num_output: 4 kernel_size: 3 pad: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "score" type: "Convolution" bottom: "pool" top: "score" param { lr_mult: 1 decay_mult: 1 }
  param { lr_mult: 2 decay_mult: 0 }
  convolution_param { num_output: 3 kernel_size: 1 weight_filler { type: "xavier" } } }
layer { name: "up" type: "Deconvolution" bottom: "score" top: "up" param { lr_mult: 1 decay_mult: 1 }
  convolution_param { num_output: 3 kernel_size: 4 stride: 2 bias_term: false weight_filler { type: "xavier" } } }
layer { name: "crop" type: "Crop" bottom: "up" bottom: "data" top: "cropped" crop_param { axis: 2 offset: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "cropped" bottom: "label" top: "loss"
  loss_param { ignore_label: 255 normalize: false } }
"""
"""The layers behind ``data`` (1, 3, H, W) and ``label`` (1, 1, H, W)."""

NAMES = (("conv", 0), ("conv", 1), ("score", 0), ("score", 1), ("up", 0))
MULTIPLIERS = ((1, 1), (2, 0), (1, 1), (2, 0), (1, 1))
"""lr_mult and decay_mult of each blob."""

Blobs = list[np.ndarray]


def forward(blobs: Blobs, image: np.ndarray) -> dict[str, np.ndarray]:
    """Return every blob of the net for ``image`` (3, H, W); ``cropped`` has the scores, (3, H, W)."""
    weights, bias, score_weights, score_bias, up_weights = blobs
    _, height, width = image.shape
    padded = np.zeros((3, height + 6, width + 6))
    padded[:, 3:-3, 3:-3] = image
    conv = np.zeros((4, height + 4, width + 4)) + bias[:, None, None]
    for i in range(3):
        for j in range(3):
            window = padded[:, i : i + height + 4, j : j + width + 4]
            conv += np.einsum("oc,cyx->oyx", weights[:, :, i, j], window)
    relu = np.maximum(conv, 0)
    rows, columns = (-(-(extent + 4 - 2) // 2) + 1 for extent in (height, width))
    pool, argmax = np.zeros((4, rows, columns)), np.zeros((4, rows, columns), int)
    for c in range(4):
        for y in range(rows):
            for x in range(columns):
                window = relu[c, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2]
                best = int(window.argmax())
                pool[c, y, x] = window.flat[best]
                argmax[c, y, x] = (2 * y + best // window.shape[1]) * relu.shape[2] + 2 * x + best % window.shape[1]
    score = np.einsum("oc,cyx->oyx", score_weights[:, :, 0, 0], pool) + score_bias[:, None, None]
    up = np.zeros((3, 2 * rows + 2, 2 * columns + 2))
    for i in range(4):
        for j in range(4):
            spread = np.einsum("co,cyx->oyx", up_weights[:, :, i, j], score)
            up[:, i : i + 2 * rows : 2, j : j + 2 * columns : 2] += spread
    cropped = up[:, 3 : 3 + height, 3 : 3 + width]
    return {
        "padded": padded,
        "conv": conv,
        "argmax": argmax,
        "pool": pool,
        "score": score,
        "up": up,
        "cropped": cropped,
    }


def loss_and_gradient(blobs: Blobs, image: np.ndarray, label: np.ndarray) -> tuple[float, Blobs]:
    """Return loss and gradient for ``image`` (3, H, W) and the classes of its pixels, ``label`` (H, W)."""
    _, _, score_weights, _, up_weights = blobs
    made = forward(blobs, image)
    powers = np.exp(made["cropped"] - made["cropped"].max(axis=0))
    shares = powers / powers.sum(axis=0)
    loss, of_cropped = 0.0, np.zeros_like(shares)
    for y, x in np.ndindex(label.shape):
        if label[y, x] != IGNORED:
            loss -= np.log(shares[label[y, x], y, x])
            of_cropped[:, y, x] = shares[:, y, x]
            of_cropped[label[y, x], y, x] -= 1
    height, width = label.shape
    of_up = np.zeros_like(made["up"])
    of_up[:, 3 : 3 + height, 3 : 3 + width] = of_cropped
    score, pool, padded, conv = (made[name] for name in ("score", "pool", "padded", "conv"))
    _, rows, columns = score.shape
    of_score, of_up_weights = np.zeros_like(score), np.zeros_like(up_weights)
    for i in range(4):
        for j in range(4):
            part = of_up[:, i : i + 2 * rows : 2, j : j + 2 * columns : 2]
            of_score += np.einsum("co,oyx->cyx", up_weights[:, :, i, j], part)
            of_up_weights[:, :, i, j] = np.einsum("cyx,oyx->co", score, part)
    of_score_weights = np.einsum("oyx,cyx->oc", of_score, pool)[:, :, None, None]
    of_pool = np.einsum("oc,oyx->cyx", score_weights[:, :, 0, 0], of_score)
    of_relu = np.zeros_like(conv)
    for c, y, x in np.ndindex(of_pool.shape):
        of_relu[c].flat[made["argmax"][c, y, x]] += of_pool[c, y, x]
    of_conv = np.where(conv > 0, of_relu, 0)
    of_weights = np.zeros((4, 3, 3, 3))
    for i in range(3):
        for j in range(3):
            window = padded[:, i : i + height + 4, j : j + width + 4]
            of_weights[:, :, i, j] = np.einsum("oyx,cyx->oc", of_conv, window)
    return loss, [of_weights, of_conv.sum(axis=(1, 2)), of_score_weights, of_score.sum(axis=(1, 2)), of_up_weights]


def train(
    blobs: Blobs,
    samples: list[tuple[np.ndarray, np.ndarray]],
    *,
    base_lr: float,
    momentum: float,
    weight_decay: float,
    iter_size: int = 1,
) -> list[float]:
    """Train ``blobs`` in place, ``iter_size`` samples an update; return the loss of each update."""
    history = [np.zeros_like(blob) for blob in blobs]
    losses = []
    for start in range(0, len(samples), iter_size):
        passes = [loss_and_gradient(blobs, *sample) for sample in samples[start : start + iter_size]]
        losses.append(sum(loss for loss, _ in passes) / iter_size)
        for k, (rate, decay) in enumerate(MULTIPLIERS):
            gradient = sum(gradients[k] for _, gradients in passes) / iter_size
            gradient = gradient + weight_decay * decay * blobs[k]
            history[k] = momentum * history[k] + base_lr * rate * gradient
            blobs[k] -= history[k]
    return losses
