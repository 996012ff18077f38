"""Softmax regression trained by Caffe's solvers, number by number, in float64. From solver.cpp and the papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

Matrix = list[list[float]]


@dataclass
class SlowSolver:
    """Options as in a solver prototxt."""

    type: str = "SGD"
    base_lr: float = 0.1
    momentum: float = 0.0
    momentum2: float = 0.999
    rms_decay: float = 0.99
    delta: float = 1e-8
    weight_decay: float = 0.0
    regularization_type: str = "L2"
    clip_gradients: float = -1.0
    iter_size: int = 1
    lr_mult: float = 1.0
    decay_mult: float = 1.0


def loss_and_gradient(weights: Matrix, images: Matrix, labels: Sequence[int]) -> tuple[float, Matrix]:
    """Mean cross entropy of softmax(W x) and its gradient; weights (n_classes, n_inputs)."""
    gradient = [[0.0] * len(weights[0]) for _ in weights]
    loss = 0.0
    for image, label in zip(images, labels, strict=True):
        scores = [sum(w * x for w, x in zip(row, image, strict=True)) for row in weights]
        total = sum(exp(score) for score in scores)
        loss += log(total) - scores[label]
        for k, score in enumerate(scores):
            error = (exp(score) / total - (1.0 if k == label else 0.0)) / len(images)
            for j, x in enumerate(image):
                gradient[k][j] += error * x
    return loss / len(images), gradient


def train(weights: Matrix, batches: Sequence[tuple[Matrix, Sequence[int]]], solver: SlowSolver) -> list[float]:
    """Train in place, one update per iter_size batches; return the losses before each update."""
    rows, columns = len(weights), len(weights[0])
    first = [[0.0] * columns for _ in range(rows)]
    second = [[0.0] * columns for _ in range(rows)]
    losses = []
    for update in range(1, len(batches) // solver.iter_size + 1):
        passes = batches[(update - 1) * solver.iter_size : update * solver.iter_size]
        results = [loss_and_gradient(weights, images, labels) for images, labels in passes]
        losses.append(sum(loss for loss, _ in results) / solver.iter_size)
        summed = [[sum(g[i][j] for _, g in results) for j in range(columns)] for i in range(rows)]
        norm = sqrt(sum(g * g for row in summed for g in row))
        scale = solver.clip_gradients / norm if 0 <= solver.clip_gradients < norm else 1.0
        for i in range(rows):
            for j in range(columns):
                g = summed[i][j] * scale / solver.iter_size
                w = weights[i][j]
                decay = solver.weight_decay * solver.decay_mult
                g += decay * (w if solver.regularization_type == "L2" else (w > 0) - (w < 0))
                rate = solver.base_lr * solver.lr_mult
                step, first[i][j], second[i][j] = one_step(solver, g, rate, first[i][j], second[i][j], update)
                weights[i][j] = w - step
    return losses


def one_step(
    solver: SlowSolver, g: float, rate: float, first: float, second: float, t: int
) -> tuple[float, float, float]:
    """Return (what is subtracted, both histories) for one number."""
    m = solver.momentum
    if solver.type == "SGD":
        first = m * first + rate * g
        return first, first, second
    if solver.type == "Nesterov":
        old_first = first
        first = m * first + rate * g
        return (1 + m) * first - m * old_first, first, second
    if solver.type == "AdaGrad":
        first += g * g
        return rate * g / (sqrt(first) + solver.delta), first, second
    if solver.type == "RMSProp":
        first = solver.rms_decay * first + (1 - solver.rms_decay) * g * g
        return rate * g / (sqrt(first) + solver.delta), first, second
    if solver.type == "AdaDelta":
        first = m * first + (1 - m) * g * g
        value = g * sqrt((second + solver.delta) / (first + solver.delta))
        second = m * second + (1 - m) * value * value
        return rate * value, first, second
    assert solver.type == "Adam"
    first = m * first + (1 - m) * g
    second = solver.momentum2 * second + (1 - solver.momentum2) * g * g
    corrected = rate * sqrt(1 - solver.momentum2**t) / (1 - m**t)
    return corrected * first / (sqrt(second) + solver.delta), first, second
