"""Difference between a net's reconstruction and the input: MSE, MAE and PSNR, sample by sample.

PSNR = 10 log10(peak^2 / MSE) in dB. ``peak`` is the range of the observed values, in place of the range of possible
values of a picture (ITU-T J.340, section 5), which a net's input does not tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.exact_sum import ExactSums
from deepspark_ops.evaluate.figures.extremes import Extremes, NamedSample
from deepspark_ops.evaluate.figures.histogram import HistogramSum
from deepspark_ops.evaluate.figures.regression import ResidualHistogram, refuse_not_finite, shown_histogram

Floats = npt.NDArray[np.floating]
_HISTOGRAM_BOXES = 2048


@dataclass(frozen=True)
class Reconstruction:
    """What was found.

    Attributes:
        n_samples: Samples that count.
        mse: Mean over the samples of their mean squared error.
        mae: Likewise of their mean absolute error.
        rmse: Root of ``mse``.
        peak: Taken for PSNR.
        psnr: Mean over the samples that are not perfect of their PSNR, in dB; None if all are, or ``peak`` is 0.
        n_perfect: Samples without any error: their PSNR is infinite.
        errors: The samples' MSE, counted.
        worst: Samples with the largest MSE; that is their value.
        best: Samples with the smallest.
    """

    n_samples: int
    mse: float
    mae: float
    rmse: float
    peak: float
    psnr: float | None
    n_perfect: int
    errors: ResidualHistogram
    worst: tuple[NamedSample, ...]
    best: tuple[NamedSample, ...]


class ReconstructionSum:
    """Sums over batches. Not thread-safe.

    Example:
        >>> total = ReconstructionSum()
        >>> total.add(np.array([[0.1, 0.9]]), np.array([[0.0, 1.0]]))
        >>> round(total.result().psnr, 6)
        20.0
    """

    def __init__(self, *, shown: int = 0) -> None:
        """Start at nothing; ``shown``: how many worst and how many best samples to keep."""
        self._n_samples = 0
        self._n_perfect = 0
        self._low, self._high = math.inf, -math.inf
        self._sums = ExactSums(3)  # MSE, MAE, log10 of the MSE
        self._errors = HistogramSum(most=_HISTOGRAM_BOXES)
        self._worst = Extremes(shown)
        self._best = Extremes(shown, wants_smallest=True)

    def add(self, given_back: Floats, original: Floats, *, start: int = 0) -> None:
        """Count a batch: outputs and originals (n, ...) of the same shape, position of the first sample.

        Raises:
            DataError: A number is not finite.
        """
        n = len(original)
        if not n:
            return
        output_rows = np.asarray(given_back, np.float64).reshape(n, -1)
        original_rows = np.asarray(original, np.float64).reshape(n, -1)
        refuse_not_finite(
            output_rows, "a value that the net gave back", "the weights diverged, score an earlier snapshot", start
        )
        refuse_not_finite(original_rows, "a value that it should give back", "correct the data", start)
        difference = output_rows - original_rows
        mse = (difference * difference).mean(axis=1)
        mae = np.abs(difference).mean(axis=1)
        perfect = mse == 0.0
        self._n_samples += n
        self._n_perfect += int(np.count_nonzero(perfect))
        self._low, self._high = min(self._low, float(original_rows.min())), max(self._high, float(original_rows.max()))
        self._sums.add(np.stack([mse, mae, np.log10(np.where(perfect, 1.0, mse))], axis=1))
        self._errors.add(mse[:, None])
        self._worst.add(mse, start=start)
        self._best.add(mse, start=start)

    def merge(self, other: ReconstructionSum) -> None:
        """Add the counts of another sum with the same options."""
        self._n_samples += other._n_samples
        self._n_perfect += other._n_perfect
        self._low, self._high = min(self._low, other._low), max(self._high, other._high)
        self._sums.merge(other._sums)
        self._errors.merge(other._errors)
        self._worst.merge(other._worst)
        self._best.merge(other._best)

    def result(self) -> Reconstruction:
        """Return the figures.

        Raises:
            DataError: No sample counted.
        """
        n = self._n_samples
        if not n:
            msg = "no sample to give back"
            raise DataError(msg)
        squared, absolute, logarithms = self._sums.exact()
        peak = self._high - self._low
        imperfect = n - self._n_perfect
        has_psnr = peak > 0 and imperfect > 0
        return Reconstruction(
            n_samples=n,
            mse=float(squared / n),
            mae=float(absolute / n),
            rmse=math.sqrt(squared / n),
            peak=peak,
            psnr=20.0 * math.log10(peak) - 10.0 * float(logarithms / imperfect) if has_psnr else None,
            n_perfect=self._n_perfect,
            errors=shown_histogram(self._errors),
            worst=self._worst.result(),
            best=self._best.result(),
        )
