"""Cases of kind ``filler``: exact weights where a filler is not random, else the statistics of one blob."""

from __future__ import annotations

import json
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.file_access.regular_file import regular_text
from caffe_import.files.prototxt import read_net
from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.net_spec import build_net_spec
from caffe_import.parity.case import Case, load_archive
from caffe_import.parity.findings import Findings

Array = npt.NDArray[Any]

# Two samples' estimates rarely differ by more than this many standard errors.
_SPREADS = 6.0


def run(case: Case, findings: Findings) -> None:
    """Fill the blob of layer "l" and compare."""
    prototxt = case.file(".prototxt")
    net = build_net_spec(read_net(prototxt), phase="TRAIN")
    entry = net.params.entry("l", 0)
    weights = initial_vector(net, seed=1)[entry.offset : entry.stop].reshape(entry.shape)
    for path in case.files(".npz"):
        findings.compare("weights", weights, load_archive(path)["weights"], findings.bounds.forward)
    for path in case.files("statistics.json"):
        statistics = json.loads(regular_text(path))[prototxt.stem]
        _compare_statistics(weights, statistics, findings)


def _compare_statistics(weights: Array, caffe_statistics: dict[str, Any], findings: Findings) -> None:
    findings.agree("shape", list(weights.shape), caffe_statistics["shape"])
    n, std, kurtosis = caffe_statistics["count"], caffe_statistics["std"], caffe_statistics["kurtosis"]
    values = weights.astype(np.float64).reshape(-1)
    rows = weights.reshape(weights.shape[0], -1).astype(np.float64)
    share = caffe_statistics["zero_fraction"]
    zero_spread = sqrt(share * (1 - share) / n)
    # Standard errors of two independent samples, hence the factor 2 under the root.
    spreads = {
        "mean": std * sqrt(2 / n),
        "std": std * sqrt(2 * max(kurtosis - 1, 0) / (4 * n)),
        "mean_abs": std * sqrt(2 / n),
        "zero_fraction": zero_spread * sqrt(2),
        "nonzero_per_row_mean": rows.shape[1] * zero_spread * sqrt(2),
        "nonzero_per_column_mean": rows.shape[0] * zero_spread * sqrt(2),
    }
    our_statistics = {
        "mean": values.mean(),
        "std": values.std(),
        "mean_abs": np.abs(values).mean(),
        "zero_fraction": (values == 0).mean(),
        "nonzero_per_row_mean": (rows != 0).sum(axis=1).mean(),
        "nonzero_per_column_mean": (rows != 0).sum(axis=0).mean(),
    }
    for name, value in our_statistics.items():
        _check_near(name, value, caffe_statistics[name], _SPREADS * spreads[name], findings)
    has_fixed_sums = caffe_statistics["row_sum_max"] - caffe_statistics["row_sum_min"] < 1e-4
    # Extremes of a uniform distribution are sharp; those of a normal one, or of rows scaled to one sum, are not.
    is_bounded = kurtosis < 2 and (std == 0 or not has_fixed_sums)
    reach = (caffe_statistics["max"] - caffe_statistics["min"]) * (0.002 if is_bounded else 0.25)
    for name, value in (("min", values.min()), ("max", values.max())):
        _check_near(name, value, caffe_statistics[name], reach, findings)
    # A sum over a row is fixed (positive_unitball) or scatters by std times the root of the row's length.
    row_reach = 0.0 if has_fixed_sums else 3 * std * sqrt(rows.shape[1])
    for name, value in (("row_sum_min", rows.sum(axis=1).min()), ("row_sum_max", rows.sum(axis=1).max())):
        _check_near(name, value, caffe_statistics[name], row_reach, findings)


def _check_near(name: str, our_value: float, caffe_value: float, reach: float, findings: Findings) -> None:
    reach += 1e-5 * max(1.0, abs(caffe_value))
    findings.hold(
        claim=abs(our_value - caffe_value) <= reach,
        otherwise=f"{name}: {our_value:.6g}, Caffe has {caffe_value:.6g}; they may differ by {reach:.3g}",
    )
