"""Difference between predicted and true numbers: MAE, RMSE, R2, bias, residuals, for each output and over all.

A residual is predicted minus true. With n samples, true values y and residuals r of an output: MAE = sum |r| / n, RMSE
= sqrt(sum r^2 / n), bias = sum r / n, R2 = 1 - sum r^2 / sum (y - mean y)^2. Sums are exact if the squares of the
values are exact in float64, as for float32 values. So a mean far from zero does not affect R2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.exact_sum import ExactSums
from deepspark_ops.evaluate.figures.extremes import Extremes, NamedSample
from deepspark_ops.evaluate.figures.histogram import HistogramSum
from deepspark_ops.evaluate.figures.ranking import mean_of_numbers

Floats = npt.NDArray[np.floating]

MAX_HISTOGRAMS = 16
"""Outputs with a histogram and a density of their own; those behind them have figures alone."""
_HISTOGRAM_BOXES = 2048
_DENSITY_BOXES = 64
SHOWN_BARS = 40


@dataclass(frozen=True)
class ResidualHistogram:
    """Residuals, counted.

    Attributes:
        low: Where the first bar begins.
        width: Of a bar, a power of two.
        counts: Samples in each bar, at most ``SHOWN_BARS``.
        below: Samples below the first bar: at most 0.5 % of all, so that a few do not squeeze the rest.
        above: Samples above the last.
    """

    low: float
    width: float
    counts: tuple[int, ...]
    below: int
    above: int

    def bounds(self, bar: int) -> tuple[float, float]:
        """Return where a bar begins, and where the next bar begins; both exact."""
        return self.low + bar * self.width, self.low + (bar + 1) * self.width

    def bars_of(self, values: Floats) -> npt.NDArray[np.int64]:
        """Return the bar of each value, (n,); -1 outside of all bars."""
        # Bars begin at multiples of their width, a power of two, so both quotients are exact.
        bars = np.floor(np.asarray(values, np.float64) / self.width) - self.low / self.width
        return np.where((bars >= 0) & (bars < len(self.counts)), bars, -1).astype(np.int64)


@dataclass(frozen=True)
class Density:
    """Predicted against true values, counted in squares.

    Attributes:
        low_true: Where the first column begins.
        low_predicted: Where the first row begins.
        width: Side of a square.
        counts: One row per interval of the predicted value, ascending, in it one per interval of the true value.
    """

    low_true: float
    low_predicted: float
    width: float
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class OutputFigures:
    """One output.

    Attributes:
        name: Given by the caller, else the output's number.
        mae: Mean absolute error.
        rmse: Root of the mean squared error.
        r2: None where all true values are equal.
        bias: Mean residual.
        mean_true: Mean of the true values.
        residuals: None from the ``MAX_HISTOGRAMS``-th output on.
        density: Likewise.
    """

    name: str
    mae: float
    rmse: float
    r2: float | None
    bias: float
    mean_true: float
    residuals: ResidualHistogram | None
    density: Density | None


@dataclass(frozen=True)
class Regression:
    """What was found.

    Attributes:
        n_samples: Samples that count.
        mae: Over all samples and outputs.
        rmse: Likewise.
        r2: Mean of the outputs' R2 that there are; None if there is none.
        bias: Mean residual over all samples and outputs.
        outputs: In their order.
        worst: Samples with the largest mean squared residual over their outputs; that is their value.
    """

    n_samples: int
    mae: float
    rmse: float
    r2: float | None
    bias: float
    outputs: tuple[OutputFigures, ...]
    worst: tuple[NamedSample, ...]


class RegressionSum:
    """Sums over batches. Not thread-safe.

    Example:
        >>> total = RegressionSum(1)
        >>> total.add(np.array([[1.0], [3.0]]), np.array([[2.0], [4.0]]))
        >>> result = total.result()
        >>> result.mae, result.rmse, result.bias, result.r2
        (1.0, 1.0, -1.0, 0.0)
    """

    def __init__(self, n_outputs: int, *, worst: int = 0) -> None:
        """Start at nothing; ``worst``: how many samples to keep."""
        self._n_outputs = n_outputs
        self._n_samples = 0
        self._sums = tuple(ExactSums(n_outputs) for _ in range(5))  # of what ``add`` adds
        n_drawn = min(n_outputs, MAX_HISTOGRAMS)
        self._histograms = [HistogramSum(most=_HISTOGRAM_BOXES) for _ in range(n_drawn)]
        self._densities = [HistogramSum(2, most=_DENSITY_BOXES) for _ in range(n_drawn)]
        self._worst = Extremes(worst)

    def add(self, predicted: Floats, true: Floats, *, start: int = 0) -> None:
        """Count a batch: predicted and true numbers (n, n_outputs), position of the first sample.

        Raises:
            DataError: A number is not finite.
        """
        prediction = np.asarray(predicted, np.float64)
        truth = np.asarray(true, np.float64)
        refuse_not_finite(prediction, "the net's prediction", "the weights diverged, score an earlier snapshot", start)
        refuse_not_finite(truth, "the true value", "correct the data", start)
        residual = prediction - truth
        self._n_samples += len(residual)
        addends = (np.abs(residual), residual, residual * residual, truth, truth * truth)
        for total, values in zip(self._sums, addends, strict=True):
            total.add(values)
        for at, (histogram, density) in enumerate(zip(self._histograms, self._densities, strict=True)):
            histogram.add(residual[:, at : at + 1])
            density.add(np.stack([prediction[:, at], truth[:, at]], axis=1))
        self._worst.add((residual * residual).mean(axis=1), start=start)

    def merge(self, other: RegressionSum) -> None:
        """Add the counts of another sum with the same options."""
        self._n_samples += other._n_samples
        for total, other_total in zip(self._sums, other._sums, strict=True):
            total.merge(other_total)
        for mine, further in zip(
            [*self._histograms, *self._densities], [*other._histograms, *other._densities], strict=True
        ):
            mine.merge(further)
        self._worst.merge(other._worst)

    def result(self, names: Sequence[str] = ()) -> Regression:
        """Return the figures; outputs beyond ``names`` are called by number.

        Raises:
            DataError: No sample counted.
        """
        n = self._n_samples
        if not n:
            msg = "no sample to compare predictions with"
            raise DataError(msg)
        absolute, residual, squared, true, true_squared = (total.exact() for total in self._sums)
        r2 = [_r2(*sums, n) for sums in zip(squared, true, true_squared, strict=True)]
        everything = n * self._n_outputs
        return Regression(
            n_samples=n,
            mae=float(sum(absolute) / everything),
            rmse=math.sqrt(sum(squared) / everything),
            r2=mean_of_numbers(r2),
            bias=float(sum(residual) / everything),
            outputs=tuple(
                OutputFigures(
                    name=names[at] if at < len(names) else str(at),
                    mae=float(absolute[at] / n),
                    rmse=math.sqrt(squared[at] / n),
                    r2=r2[at],
                    bias=float(residual[at] / n),
                    mean_true=float(true[at] / n),
                    residuals=shown_histogram(self._histograms[at]) if at < len(self._histograms) else None,
                    density=_shown_density(self._densities[at]) if at < len(self._densities) else None,
                )
                for at in range(self._n_outputs)
            ),
            worst=self._worst.result(),
        )


def refuse_not_finite(values: Floats, subject: str, remedy: str, start: int) -> None:
    """Refuse a number of (n, ...) that is not finite, with the position of its sample.

    Raises:
        DataError: A number is not finite.
    """
    broken = np.argwhere(~np.isfinite(values))
    if len(broken):
        row = broken[0]
        msg = f"sample {start + row[0]}: {subject} is {values[tuple(row)]}, not a finite number; {remedy}"
        raise DataError(msg)


def _r2(squared: Fraction, total: Fraction, total_squared: Fraction, n: int) -> float | None:
    spread = total_squared - total * total / n
    # The square of a float64 is rounded by 2^-53 of it at most, so that equal values can leave a trace of a spread.
    return float(1 - squared / spread) if spread > total_squared * Fraction(1, 1 << 52) else None


def shown_histogram(total: HistogramSum) -> ResidualHistogram:
    """Return a few merged bars, without bars that have only the outermost 0.5 % on either side."""
    histogram = total.result()
    counts = histogram.counts
    n = int(counts.sum())
    running = np.cumsum(counts)
    boxes = round(histogram.low[0] / histogram.width) + np.arange(len(counts))  # exact: edges are whole widths
    first = int(boxes[np.searchsorted(running, n * 0.005, side="right")])
    last = int(boxes[np.searchsorted(running, n - n * 0.005, side="left")])
    doublings = 0
    while (last >> doublings) - (first >> doublings) >= SHOWN_BARS:
        doublings += 1
    first_bar, last_bar = first >> doublings, last >> doublings
    bars = np.clip(boxes >> doublings, first_bar - 1, last_bar + 1) - (first_bar - 1)
    below, *inside, above = (
        np.bincount(bars, weights=counts, minlength=last_bar - first_bar + 3).astype(np.int64).tolist()
    )
    width = histogram.width * 2**doublings
    return ResidualHistogram(first_bar * width, width, tuple(inside), below, above)


def _shown_density(total: HistogramSum) -> Density:
    histogram = total.result()
    low_predicted, low_true = histogram.low
    return Density(low_true, low_predicted, histogram.width, tuple(map(tuple, histogram.counts.tolist())))
