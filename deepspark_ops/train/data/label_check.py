"""Check labels of samples against the classes of the reading layers, before a step.

TensorFlow's refusal of a wrong label does not name the sample. On a GPU TensorFlow returns NaN, and Caffe reads memory
outside of the layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.net.label_users import LabelUser


@dataclass(frozen=True)
class LabelColumn:
    """A column of class labels, and the layer that reads the column."""

    column: int
    user: LabelUser

    def first_outside(self, values: npt.NDArray[Any]) -> tuple[int, float] | None:
        """Return position and value of the first label outside of the classes; None without such a label.

        Args:
            values: (samples, ...), any dtype; a fraction is cut off, as in Caffe.
        """
        n_classes, ignored = self.user.labels.n_classes, self.user.labels.ignore_label
        if values.min() > -1 and values.max() < n_classes:  # false for NaN too
            return None
        rows = values.reshape(len(values), -1)
        outside = ~((rows > -1) & (rows < n_classes))
        if ignored is not None:
            outside &= np.trunc(rows) != ignored
        if not outside.any():
            return None
        row, at = np.unravel_index(int(outside.argmax()), outside.shape)
        return int(row), float(rows[row, at])

    def finding(self, label: float, sample: str) -> str:
        """Return the message for a label outside of the classes.

        Args:
            label: The value.
            sample: Name of the sample.
        """
        user = self.user
        n_classes, ignored = user.labels.n_classes, user.labels.ignore_label
        also = f" and {ignored} (ignore_label)" if ignored is not None else ""
        return (
            f'layer "{user.layer}" ({user.layer_type}): label {label:g} of {sample} is none of the {n_classes} classes'
            f' that bottom "{user.scores}" has scores for; allowed: 0 to {n_classes - 1}{also};'
            " correct the label (the first class is 0), or give the net as many outputs as there are classes"
        )
