"""What a bundle's SavedModel gives, as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deepspark_ops.export.manifest import BundleManifest, OutputBlob, OutputContract
from deepspark_ops.export.served_input import Serve, as_input
from deepspark_ops.predict.record import Values
from deepspark_ops.predict.samples import BundleForm, Parts


def served_answers(
    serve: Serve, samples: Sequence[Parts], form: BundleForm, outputs: Sequence[OutputBlob]
) -> dict[str, Values]:
    """Return output -> (n, ...), float32, of samples of any sizes; those of one size go together."""
    by_shape: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for row, parts in enumerate(samples):
        by_shape.setdefault(tuple(values.shape for values in parts), []).append(row)
    contracts = [one.contract for one in form.inputs]

    def served(rows: Sequence[int]) -> Mapping[str, Values]:
        return serve(
            {
                contract.name: as_input(np.stack([samples[row][at] for row in rows]), contract)
                for at, contract in enumerate(contracts)
            }
        )

    if len(by_shape) == 1:
        found = served(range(len(samples)))
        return {one.name: found[one.name] for one in outputs}
    answers = {one.name: np.empty((len(samples), *one.shape[1:]), np.float32) for one in outputs}
    for rows in by_shape.values():
        found = served(rows)
        for name, values in answers.items():
            values[rows] = found[name]
    return answers


def result_columns(answers: Mapping[str, Values], manifest: BundleManifest, top_k: int) -> dict[str, Any]:
    """Return the columns of predictions: those of every output of ``answers``, as ``columns.output_schema`` has them.

    Args:
        answers: Output -> (n, ...), float32.
        manifest: Says what they are.
        top_k: As ``class_columns``.
    """
    columns: dict[str, Any] = {}
    for at, one in enumerate(manifest.results()):
        if one.name not in answers:
            continue
        values = answers[one.name]
        if at == 0 and one.task == "classification":
            columns |= class_columns(values, manifest.output, top_k)
            continue
        flat = values.reshape(len(values), -1)
        columns[one.name] = flat[:, 0].tolist() if flat.shape[1] == 1 else flat
        if at == 0 and one.task == "multi_label":
            columns |= _label_columns(flat, manifest.output)
    return columns


def _label_columns(probabilities: Values, output: OutputContract) -> dict[str, Any]:
    """Return which labels are more likely than not, of each row, and their names where those are known."""
    found = [np.flatnonzero(row > 0.5) for row in probabilities]
    columns: dict[str, Any] = {"predicted": [row.tolist() for row in found]}
    if output.labels:
        columns["predicted_names"] = [[output.labels[label] for label in row] for row in found]
    return columns


def class_columns(scores: Values, output: OutputContract, top_k: int) -> dict[str, Any]:
    """Return the columns of predictions; of equal scores the lower class goes first.

    Args:
        scores: (n, n_classes), float32.
        output: Says what the classes are called.
        top_k: Most probable classes of a row, at most as many as there are.
    """
    order = np.argsort(-scores, axis=1, kind="stable")[:, :top_k].astype(np.int64)
    top = np.take_along_axis(scores, order, axis=1)
    columns: dict[str, Any] = {
        "predicted": order[:, 0].tolist(),
        "probability": top[:, 0].tolist(),
        "top_classes": order,
        "top_probabilities": top,
        "scores": scores,
    }
    if output.labels:
        names = [[output.labels[label] for label in row] for row in order.tolist()]
        columns |= {"predicted_name": [row[0] for row in names], "top_names": names}
    return columns
