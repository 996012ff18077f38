"""Answers of a bundle's SavedModel as columns."""

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
    """Return output -> (n, ...), float32, of samples of any sizes; samples of one size share a call."""
    by_shape: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for row, parts in enumerate(samples):
        by_shape.setdefault(tuple(values.shape for values in parts), []).append(row)
    contracts = [form_of_input.contract for form_of_input in form.inputs]

    def served(rows: Sequence[int]) -> Mapping[str, Values]:
        return serve(
            {
                contract.name: as_input(np.stack([samples[row][at] for row in rows]), contract)
                for at, contract in enumerate(contracts)
            }
        )

    if len(by_shape) == 1:
        served_values = served(range(len(samples)))
        return {output.name: served_values[output.name] for output in outputs}
    answers = {output.name: np.empty((len(samples), *output.shape[1:]), np.float32) for output in outputs}
    for rows in by_shape.values():
        served_values = served(rows)
        for name, values in answers.items():
            values[rows] = served_values[name]
    return answers


def result_columns(answers: Mapping[str, Values], manifest: BundleManifest, top_k: int) -> dict[str, Any]:
    """Return the columns of predictions for every output of ``answers``, (n, ...), as in ``columns.output_schema``."""
    columns: dict[str, Any] = {}
    for at, result in enumerate(manifest.results()):
        if result.name not in answers:
            continue
        values = answers[result.name]
        if at == 0 and result.task == "classification":
            columns |= class_columns(values, manifest.output, top_k)
            continue
        flat = values.reshape(len(values), -1)
        columns[result.name] = flat[:, 0].tolist() if flat.shape[1] == 1 else flat
        if at == 0 and result.task == "multi_label":
            columns |= _label_columns(flat, manifest.output)
    return columns


def _label_columns(probabilities: Values, output: OutputContract) -> dict[str, Any]:
    """Return the labels of each row with a probability above 1/2, and the known names of the labels."""
    likely_labels = [np.flatnonzero(row > 0.5) for row in probabilities]
    columns: dict[str, Any] = {"predicted": [row.tolist() for row in likely_labels]}
    if output.labels:
        columns["predicted_names"] = [[output.labels[label] for label in row] for row in likely_labels]
    return columns


def class_columns(scores: Values, output: OutputContract, top_k: int) -> dict[str, Any]:
    """Return the columns of predictions for float32 scores (n, n_classes); of equal scores the lower class is first."""
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
