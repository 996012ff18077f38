"""Findings of a comparison: the largest relative error per member, and different facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.parity.setting import PLAIN_SETTING, Bounds, Setting

Array = npt.NDArray[Any]


def relative_error(our_values: Array, caffe_values: Array) -> float:
    """Return the largest ``|ours - theirs|`` relative to the element, but at least to a tenth of the largest element.

    An element near zero is the difference of larger terms, so the relative error says nothing. Infinity if the shapes
    differ, or if infinities or NaNs differ.

    Example:
        >>> relative_error(np.float32([1.0, 100.0]), np.float32([1.0, 101.0]))
        0.009900990099009901
        >>> relative_error(np.float32([0.5]), np.float32([0.0]))
        0.5
    """
    our_values, caffe_values = np.asarray(our_values, np.float64), np.asarray(caffe_values, np.float64)
    if our_values.shape != caffe_values.shape:
        return float("inf")
    differs = ~((our_values == caffe_values) | (np.isnan(our_values) & np.isnan(caffe_values)))
    if not differs.any():
        return 0.0
    if not (np.isfinite(our_values[differs]).all() and np.isfinite(caffe_values[differs]).all()):
        return float("inf")
    magnitude = np.abs(caffe_values[np.isfinite(caffe_values)])
    # Where Caffe has only zeros, the error counts absolutely.
    floor = magnitude.max() / 10 or 1.0
    return float((np.abs(our_values - caffe_values)[differs] / np.maximum(np.abs(caffe_values[differs]), floor)).max())


@dataclass
class Findings:
    """Collects the findings of a case. Not thread-safe.

    Attributes:
        setting: How the case is computed.
        errors: Member -> largest relative error.
        faults: One line per member or fact that does not agree.
    """

    setting: Setting = PLAIN_SETTING
    errors: dict[str, float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    n_facts: int = 0

    @property
    def bounds(self) -> Bounds:
        """How near Caffe's numbers must be."""
        return self.setting.bounds

    @property
    def worst(self) -> float:
        """The largest relative error of all members; 0 if only facts were compared."""
        return max(self.errors.values(), default=0.0)

    @property
    def n_compared(self) -> int:
        """Members and facts compared so far."""
        return len(self.errors) + self.n_facts

    def compare(self, member: str, our_values: Array, caffe_values: Array, bound: float) -> None:
        """Record the error of an array, and a fault if the error exceeds ``bound`` or the shapes differ."""
        our_values, caffe_values = np.asarray(our_values), np.asarray(caffe_values)
        if our_values.shape != caffe_values.shape:
            self.fault(f"{member}: shape {our_values.shape}, Caffe has {caffe_values.shape}")
            return
        error = relative_error(our_values, caffe_values)
        self.errors[member] = max(error, self.errors.get(member, 0.0))
        if not error <= bound:
            self.fault(f"{member}: relative error {error:.3g}, bound {bound:g}")

    def agree(self, fact: str, our_fact: object, caffe_fact: object) -> None:
        """Record a fact to be equal."""
        self.n_facts += 1
        if our_fact != caffe_fact:
            self.fault(f"{fact}: {our_fact!r}, Caffe has {caffe_fact!r}")

    def hold(self, *, claim: bool, otherwise: str) -> None:
        """Record a property that must hold; ``otherwise`` says what was found instead."""
        self.n_facts += 1
        if not claim:
            self.fault(otherwise)

    def fault(self, line: str) -> None:
        """Record that something does not agree."""
        self.faults.append(line)


def members_under(archive: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """Return the members below ``prefix/``, named without it, e.g. blob -> array for ``input``."""
    return {name[len(prefix) + 1 :]: archive[name] for name in archive if name.startswith(prefix + "/")}
