"""Time steps of PyTorch: ``torch_step.py FOLDER VARIANT N_THREADS`` builds the net of ``FOLDER/net.json``.

Variants: ``eager``, ``fused`` (SGD in one kernel), ``channels_last``, ``inductor``, ``inductor_channels_last``. All
variants after ``eager`` have the fused SGD.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from serve import serve
from torch import nn
from torch.nn import functional

Layer = dict[str, Any]


class Crop(nn.Module):
    """The window of the second bottom's size."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        (_, _, self.row, self.column), (_, _, self.height, self.width) = (
            layer["options"]["begin"],
            layer["top_shapes"][0],
        )

    def forward(self, image: torch.Tensor, _reference: torch.Tensor | None = None) -> torch.Tensor:
        return image[:, :, self.row : self.row + self.height, self.column : self.column + self.width]


class WithinChannel(nn.Module):
    """LRN of the square around a pixel."""

    def __init__(self, size: int, alpha: float, beta: float) -> None:
        super().__init__()
        self.size, self.alpha, self.beta = size, alpha, beta

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        mean = functional.avg_pool2d(image * image, self.size, 1, self.size // 2)
        return image * (1 + self.alpha * mean) ** -self.beta


class Lstm(nn.LSTM):
    """An LSTM whose second bias stays 0, as Caffe's has a single bias; sequences begin at the first step."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options["n_inputs"], options["n_hidden"])
        nn.init.zeros_(self.bias_hh_l0).requires_grad_(False)

    def forward(self, steps: torch.Tensor, _cont: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(steps)[0]


class Concat(nn.Module):
    def forward(self, *images: torch.Tensor) -> torch.Tensor:
        return torch.cat(images, 1)


class Sum(nn.Module):
    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return first + second


class Words(nn.Embedding):
    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return super().forward(words.long())


class Loss(nn.Module):
    """Caffe's SoftmaxWithLoss: the mean over all labels."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scores = scores.movedim(self.axis, 1)
        return functional.cross_entropy(scores, labels.long().reshape(scores.shape[0], *scores.shape[2:]))


def convolution(layer: Layer) -> nn.Module:
    options = layer["options"]
    window, has_bias = options["window"], options["has_bias"]
    (_, n_in, *_), (_, n_out, *_) = layer["bottom_shapes"][0], layer["top_shapes"][0]
    kind = nn.ConvTranspose2d if layer["type"] == "Deconvolution" else nn.Conv2d
    size = (window["kernel"], window["stride"], window["pad"])
    return kind(n_in, n_out, *size, groups=options["group"], bias=has_bias)


def pooling(layer: Layer) -> nn.Module:
    options = layer["options"]
    if options["is_global"]:
        return nn.AdaptiveAvgPool2d(1)
    kind = nn.MaxPool2d if options["method"] == "MAX" else nn.AvgPool2d
    return kind(options["kernel"], options["stride"], options["pad"], ceil_mode=True)


def product(layer: Layer) -> nn.Module:
    options, weights = layer["options"], layer["blobs"][f"{layer['name']}[0]"]
    linear = nn.Linear(weights[1], weights[0], bias=options["has_bias"])
    return linear if options["axis"] == len(layer["bottom_shapes"][0]) - 1 else nn.Sequential(nn.Flatten(), linear)


def lrn(layer: Layer) -> nn.Module:
    options = layer["options"]
    size, alpha, beta = options["local_size"], options["alpha"], options["beta"]
    if options["region"] == "WITHIN_CHANNEL":
        return WithinChannel(size, alpha, beta)
    return nn.LocalResponseNorm(size, alpha, beta, options["k"])


KINDS = {
    "Convolution": convolution,
    "Deconvolution": convolution,
    "Pooling": pooling,
    "InnerProduct": product,
    "LRN": lrn,
    "ReLU": lambda layer: nn.ReLU(inplace=True),
    "Dropout": lambda layer: nn.Dropout(layer["options"]["ratio"]),
    "BatchNorm": lambda layer: nn.BatchNorm2d(layer["top_shapes"][0][1], layer["options"]["eps"]),
    "Concat": lambda layer: Concat(),
    "Eltwise": lambda layer: Sum(),
    "Crop": Crop,
    "Embed": lambda layer: Words(*next(iter(layer["blobs"].values()))),
    "LSTM": lambda layer: Lstm(layer["options"]),
    "SoftmaxWithLoss": lambda layer: Loss(layer["options"]["axis"]),
}


class Net(nn.Module):
    """The net of a description; returns the loss in training, else the scores."""

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        self.data, self.scores, layers = description["data"], description["scores"], description["layers"]
        self.parts = nn.ModuleList(KINDS[layer["type"]](layer) for layer in layers)
        self.wires = [(layer["bottoms"], layer["tops"][0], layer["in_forward"]) for layer in layers]
        self.losses = [(layer["tops"][0], layer["loss_weight"]) for layer in layers if layer["loss_weight"]]

    def forward(self, data: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        blobs: dict[str, Any] = {self.data: data, "label": labels, "cont": None}
        for part, (bottoms, top, in_forward) in zip(self.parts, self.wires, strict=True):
            if self.training or in_forward:
                blobs[top] = part(*(blobs[bottom] for bottom in bottoms))
        if not self.training:
            return blobs[self.scores]
        return sum(weight * blobs[top] for top, weight in self.losses)


def load_weights(net: Net, description: dict[str, Any], path: Path) -> None:
    """Set the weights of Caffe's layout."""
    arrays = np.load(path)
    for part, layer in zip(net.parts, description["layers"], strict=True):
        blobs = [torch.from_numpy(arrays[name]) for name in layer["blobs"]]
        if layer["type"] == "LSTM":  # gates: Caffe i f o g, PyTorch i f g o; blobs: x, bias, h
            blobs = [torch.cat([blob.chunk(4)[k] for k in (0, 1, 3, 2)]) for blob in blobs]
            blobs = [blobs[0], blobs[2], blobs[1]]
        trained = [weight for weight in part.parameters() if weight.requires_grad]
        for weight, blob in zip(trained, blobs, strict=True):
            weight.data.copy_(blob)


def main(folder: Path, variant: str, n_threads: int) -> None:
    """Build, load and serve."""
    torch.set_num_threads(n_threads)
    torch.set_num_interop_threads(1)
    description = json.loads((folder / "net.json").read_text())
    net = Net(description)
    load_weights(net, description, folder / "weights.npz")
    feeds = np.load(folder / "feeds.npz")
    data, labels = torch.from_numpy(feeds[description["data"]]), torch.from_numpy(feeds["label"])
    is_last = variant.endswith("channels_last") and data.dim() == 5
    layout = torch.channels_last if is_last else torch.contiguous_format
    net = net.to(memory_format=layout)
    trained = [weight for weight in net.parameters() if weight.requires_grad]
    solver = torch.optim.SGD(trained, 0.0001, momentum=0.9, weight_decay=0.0005, fused=variant != "eager")
    compiled = torch.compile(net) if variant.startswith("inductor") else net

    def batch(number: int) -> torch.Tensor:
        return data[number % len(data)].contiguous(memory_format=layout)

    def step(n_steps: int) -> float:
        compiled.train()
        for number in range(n_steps):
            solver.zero_grad(set_to_none=True)
            loss = compiled(batch(number), labels[number % len(data)])
            loss.backward()
            solver.step()
        return float(loss)

    def forward(n_steps: int) -> None:
        compiled.eval()
        with torch.inference_mode():
            for number in range(n_steps):
                compiled(batch(number)).sum().item()

    def first_loss() -> float:
        return float(net.train()(batch(0), labels[0]))

    facts = {"version": torch.__version__, "n_weights": sum(weight.numel() for weight in trained)}
    serve({"step": step, "forward": forward}, facts, first_loss)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
