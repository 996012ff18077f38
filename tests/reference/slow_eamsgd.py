"""EASGD and EAMSGD in plain numpy of 64 bits, from the paper's listings (Zhang, Choromanska, LeCun 2015), not our code.

Algorithms 1 and 2 of arXiv 1412.6651 are the asynchronous form of equations 2 to 5: beta = p alpha, and one worker at a
time meets the center. A worker takes its gradient after lines a) and b), as our worker does without overlap.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


@dataclass
class PaperWorker:
    """Worker i: variable x and velocity v, as in Algorithm 2; with delta 0 Algorithm 1."""

    x: Numbers
    delta: float
    v: Numbers = field(init=False)

    def __post_init__(self) -> None:
        self.v = np.zeros_like(self.x)

    def meet(self, center: Numbers, alpha: float) -> None:
        """Lines a) and b): both sides by the same x; the center is changed in place."""
        difference = self.x - center
        self.x = self.x - alpha * difference
        center += alpha * difference

    @property
    def gradient_point(self) -> Numbers:
        """The point of the gradient: x + delta v."""
        return self.x + self.delta * self.v

    def step(self, gradient: Numbers, rate: float) -> None:
        """The last lines: v = delta v - rate g, x = x + v."""
        self.v = self.delta * self.v - rate * gradient
        self.x = self.x + self.v


def logistic_gradient(params: Numbers, rows: Numbers, labels: npt.NDArray[np.int64], n_classes: int) -> Numbers:
    """Return the gradient of the mean log loss of a linear classifier, sample by sample.

    Args:
        params: Weights, (n_classes, n_features) flat, then biases.
        rows: (n, n_features).
        labels: Class numbers, (n,).
        n_classes: Number of classes.
    """
    n_features = rows.shape[1]
    weights = params[: n_classes * n_features].reshape(n_classes, n_features)
    biases = params[n_classes * n_features :]
    of_weights, of_biases = np.zeros_like(weights), np.zeros_like(biases)
    for row, label in zip(rows, labels, strict=True):
        scores = weights @ row + biases
        powers = np.exp(scores - scores.max())
        errors = powers / powers.sum()
        errors[label] -= 1.0
        of_weights += np.outer(errors, row) / len(rows)
        of_biases += errors / len(rows)
    return np.concatenate([of_weights.ravel(), of_biases])
