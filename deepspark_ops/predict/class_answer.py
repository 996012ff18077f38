"""The classes that a bundle's SavedModel gives, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deepspark_ops.export.manifest import OutputContract
from deepspark_ops.export.scores.bundle_scores import as_input
from deepspark_ops.export.tf_saved_model import Serve
from deepspark_ops.predict.record import Values
from deepspark_ops.predict.samples import BundleForm, Parts


def served_scores(serve: Serve, samples: Sequence[Parts], form: BundleForm, output: OutputContract) -> Values:
    """Return the scores (n, n_classes), float32, of samples of any sizes; those of one size go together."""
    scores = np.empty((len(samples), output.n_classes), np.float32)
    by_shape: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for row, parts in enumerate(samples):
        by_shape.setdefault(tuple(values.shape for values in parts), []).append(row)
    contracts = [one.contract for one in form.inputs]
    for rows in by_shape.values():
        arguments = {
            contract.name: as_input(np.stack([samples[row][at] for row in rows]), contract)
            for at, contract in enumerate(contracts)
        }
        scores[rows] = serve(arguments)[output.scores]
    return scores


def class_columns(scores: Values, output: OutputContract, top_k: int) -> dict[str, Sequence[Any]]:
    """Return the columns of predictions; of equal scores the lower class goes first.

    Args:
        scores: (n, n_classes), float32.
        output: Says what the classes are called.
        top_k: Most probable classes of a row, at most as many as there are.
    """
    order = np.argsort(-scores, axis=1, kind="stable")[:, :top_k].astype(np.int64)
    top = np.take_along_axis(scores, order, axis=1)
    columns: dict[str, Sequence[Any]] = {
        "predicted": order[:, 0].tolist(),
        "probability": top[:, 0].tolist(),
        "top_classes": list(order),
        "top_probabilities": list(top),
        "scores": list(scores),
    }
    if output.labels:
        names = [[output.labels[label] for label in row] for row in order.tolist()]
        columns |= {"predicted_name": [row[0] for row in names], "top_names": names}
    return columns
