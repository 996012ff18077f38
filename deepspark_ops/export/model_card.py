"""``README.md`` of a bundle: task, data, scores, inputs and outputs, and code that loads the model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deepspark_ops.config.shared_options.task import TaskName
from deepspark_ops.evaluate.metrics import METRICS_NAME, classes_of
from deepspark_ops.evaluate.tasks.choice import is_of_steps
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport
from deepspark_ops.export.manifest import LABELS_NAME, BundleManifest, InputContract, OutputBlob, OutsideCheck
from deepspark_ops.export.snippets import image_snippet, snippets
from deepspark_ops.shards.preprocessing import ImagePreprocessing
from deepspark_ops.sizes import share_text

_CLASSES_SHOWN = 20
_TASK_TITLES: Final[dict[TaskName, str]] = {
    "classification": "A classifier",
    "multi_label": "A model that says yes or no to each of several labels",
    "regression": "A model that predicts numbers",
    "embedding": "A model that turns a sample into a vector; alike samples have close vectors",
    "reconstruction": "An autoencoder",
    "segmentation": "A model that classifies each pixel",
}
_GIVES: Final[dict[TaskName, str]] = {
    "classification": "probabilities of the classes",
    "multi_label": "the probability of each label; they need not sum up to 1",
    "regression": "the numbers that the net was trained to predict",
    "embedding": "the vector. Trained was a pair of branches that share their weights; this is one of them, so that it"
    " takes one sample. Two samples are compared by the Euclidean distance of their vectors",
    "reconstruction": "the input again, as the net takes it: after the steps above",
    "segmentation": "the probability of each class at each pixel; of one class alone, the probability of yes",
}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&])")


def card_text(bundle: Path, manifest: BundleManifest, metrics: MetricsReport | None) -> str:
    """Return the card in Markdown, for a folder with all files but card and manifest; ``metrics`` are of test data.

    Raises:
        CaffeImportError: The deploy net is damaged.
    """
    parts = [
        f"# {_plain(manifest.net) or 'Model'}",
        f"{_of_steps(_TASK_TITLES, manifest.results()[0])}, exported by DeepSpark. `manifest.json` has the same facts "
        "for programs, with a digest of every file.",
        "## Where it comes from",
        _origin(manifest),
        "## How good it is",
        _metrics(metrics),
        "## What it takes",
        "\n".join(_input(contract) for contract in manifest.inputs),
        *(f"### From an image file to the input\n\n{part}" for part in _raw_images(manifest)),
        "All files but Caffe's do this themselves. `deploy.prototxt` takes what was already "
        "prepared so, as float32, pictures as (N, C, H, W).",
        *(("## Classes", _classes(manifest)) if manifest.is_classifier else ()),
        *(("## What it gives", _results(manifest)) if manifest.outputs and not _is_plain(manifest) else ()),
        "## How it was checked",
        _check(manifest),
        "## How to load it",
        "Each of these runs as it is in the folder of this file, on a sample of zeros.",
        *(f"### {name}\n\n{_fenced(code)}" for name, code in snippets(bundle, manifest, ".").items()),
    ]
    return "\n\n".join(parts) + "\n"


def _plain(text: str) -> str:
    """Return foreign text in one line, with Markdown's and HTML's special characters escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _fenced(code: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{code}\n{fence}"


def _origin(manifest: BundleManifest) -> str:
    origin = manifest.origin
    at = "" if origin.iteration is None else f", iteration {origin.iteration:,}"
    lines = [
        f"- Made from: {_plain(origin.run)}{at}, weights {_plain(origin.weights)} ({origin.weights_digest})",
        f"- Exported: {manifest.created}",
    ]
    lines += [f"- Data, {split}: {digest}" for split, digest in origin.datasets.items()]
    if not origin.datasets:
        lines.append("- Data: not known; they are no dataset that DeepSpark ingested")
    if origin.started_from:
        lines.append(f"- Trained further from: {_plain(origin.started_from)}")
    return "\n".join(lines)


def _metrics(metrics: MetricsReport | None) -> str:
    if metrics is None:
        return "Nobody has scored these weights on test data."
    classes = classes_of(metrics)
    if classes is None:
        rows = [(row.label, row.text()) for row in metrics.rows()]
        more = f"`{METRICS_NAME}` has all figures."
    else:
        low, high = classes.top1_interval
        rows = [("Accuracy (top-1)", f"{classes.top1:.4f} (95 % interval {low:.4f} to {high:.4f})")]
        if classes.top5 is not None:
            rows.append(("Accuracy (top-5)", f"{classes.top5:.4f}"))
        rows.append(("Loss", f"{metrics.loss:.4f}"))
        more = f"`{METRICS_NAME}` has every class and the confusion matrix."
    rows.append(("Samples", f"{metrics.n_samples:,}"))
    scored = metrics.scored
    table = "\n".join(["| metric | value |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)])
    return f"On the {scored.split} samples of {_plain(scored.dataset)} ({scored.dataset_digest}); {more}\n\n{table}"


def _input(contract: InputContract) -> str:
    extents = ", ".join(["N", *("any" if extent < 0 else str(extent) for extent in contract.shape[1:])])
    facts = [f"{contract.dtype} ({extents})", f"axes {contract.axes}", contract.channels]
    steps = "; ".join(contract.preprocessing) or "nothing is done to it"
    description = _plain(", ".join(fact for fact in facts if fact))
    return f"- {_plain(contract.name)}: {description}. Before the net: {_plain(steps)}."


def _raw_images(manifest: BundleManifest) -> list[str]:
    """Return the preprocessing of raw images for each image input, with code."""
    parts = []
    for contract in (contract for contract in manifest.inputs if contract.takes_images):
        lead = f"`{_plain(contract.name)}`: " if len(manifest.inputs) > 1 else ""
        if contract.images is None:
            parts.append(
                f"{lead}What was done to the training images before they were such samples is not known: the weights"
                " were trained elsewhere, or on a database that somebody else made. DeepSpark gives an image the size"
                " above and takes 255 for its largest pixel, unless it is told otherwise."
            )
            continue
        steps = contract.images.in_words()
        steps_text = "; ".join(steps) if steps else "nothing"
        facts = _size_text(contract.images) + _range_text(contract.images)
        parts.append(
            f"{lead}Ingestion did this to the training images: {_plain(steps_text)}.{facts} The files do not do it."
            " `deepspark predict`, `features`, `serve` and Spark's stages do it to raw images. Other programs"
            " must do it before they run the model, or the answers are wrong:"
            + ("" if contract.images.dtype == "float32" else f"\n\n{_fenced(image_snippet(contract))}")
        )
    return parts


def _size_text(images: ImagePreprocessing) -> str:
    if images.height or images.sample_shape is None:
        return ""
    _, height, width = images.sample_shape
    return f" Every training image had {height} x {width} pixels (height x width)."


def _range_text(images: ImagePreprocessing) -> str:
    if images.pixel_range is None:
        return ""
    smallest, largest = images.pixel_range
    return f" After these steps the training pixels are from {smallest:g} to {largest:g}."


def _is_plain(manifest: BundleManifest) -> bool:
    """Is the only result one class per sample?"""
    return manifest.is_classifier and len(manifest.results()) == 1


def _results(manifest: BundleManifest) -> str:
    lines = []
    for output in manifest.results():
        extents = ", ".join(["N", *(str(extent) for extent in output.shape[1:])])
        lines.append(
            f"- {_plain(output.name)}: float32 ({extents}), {_of_steps(_GIVES, output)}. Axes are in Caffe's order."
        )
    if manifest.output.labels and not manifest.is_classifier:
        lines += ["", *(f"- {at}: {_plain(name)}" for at, name in enumerate(manifest.output.labels[:_CLASSES_SHOWN]))]
    return "\n".join(lines)


def _of_steps(texts: Mapping[TaskName, str], output: OutputBlob) -> str:
    """Return the text of an output's task; a single axis beside the classes is one of time steps, not of pixels."""
    text = texts[output.task]
    return text.replace("pixel", "time step") if is_of_steps(output.task, len(output.shape)) else text


def _classes(manifest: BundleManifest) -> str:
    output = manifest.output
    intro = (
        f"{output.n_classes:,} classes. `{output.scores}` is float32 (N, {output.n_classes}), their probabilities; "
        f"`{output.classes}` is int64 (N,), the most probable one."
    )
    if not output.labels:
        return f"{intro} Their names are not known."
    names = "\n".join(f"- {at}: {_plain(name)}" for at, name in enumerate(output.labels[:_CLASSES_SHOWN]))
    n_unlisted = len(output.labels) - _CLASSES_SHOWN
    more = f"\n- and {n_unlisted:,} more" if n_unlisted > 0 else ""
    return f"{intro} `{LABELS_NAME}` has a name a line.\n\n{names}{more}"


def _check(manifest: BundleManifest) -> str:
    check = manifest.check
    own_checks = [
        OutsideCheck(file=file, reader=reader, max_relative_difference=difference)
        for file, reader, difference in (
            ("saved_model/", "TensorFlow", check.saved_model_max_relative_difference),
            ("weights.caffemodel", "DeepSpark", check.caffemodel_max_relative_difference),
        )
        if difference is not None
    ]
    lines = [
        f"Every file was read again and run on {check.n_samples:,} samples. Largest difference of a number from "
        f"the trained net's, relative to the largest; allowed: {check.allowed:g}.",
        "",
        "| file | read by | difference |",
        "| --- | --- | --- |",
        *(f"| {row.file} | {row.reader} | {_difference(row)} |" for row in (*own_checks, *check.outside)),
    ]
    lines += [f"\nLeft out: {name}. {_plain(reason)}." for name, reason in check.left_out.items()]
    return "\n".join(lines)


def _difference(row: OutsideCheck) -> str:
    if row.max_relative_difference is None:
        return f"not read: {_plain(row.unread)}"
    text = f"{row.max_relative_difference:.2g}"
    if row.agreement is None or row.min_agreement is None:
        return text
    return f"{text}; same answer {share_text(row.agreement)}, allowed {share_text(row.min_agreement, 0)}"
