"""``deepspark predict`` and ``deepspark features``: a bundle, inputs, and a Parquet file. Loads TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from caffe_import.tf_graph.devices import n_gpus_seen, set_up_devices
from deepspark_ops.config.predict import BundleInputConfig, FeaturesConfig, PredictConfig
from deepspark_ops.devices.host_cores import host_cores
from deepspark_ops.export.manifest import SAVED_MODEL_NAME, BundleManifest, read_manifest
from deepspark_ops.export.tf_saved_model import load_saved_model
from deepspark_ops.predict.blob_answer import BlobAnswer
from deepspark_ops.predict.class_answer import class_columns, served_scores
from deepspark_ops.predict.inputs.choose import open_inputs
from deepspark_ops.predict.inputs.record import Values
from deepspark_ops.predict.parquet_output import numbers, parquet_output
from deepspark_ops.predict.samples import SampleForm, form_of_bundle, sample_chunks
from deepspark_ops.predict.stream import Answer, OnStep, Progress, Summary, answer_all


def write_predictions(config: PredictConfig, *, on_step: OnStep) -> Summary:
    """Write classes and scores of every input.

    Columns: ``id``, ``predicted``, ``predicted_name``, ``probability``, ``top_classes``, ``top_names``,
    ``top_probabilities``, ``scores`` (float32, one per class), ``error``; the names only if the bundle has labels.

    Raises:
        DeepSparkError, CaffeImportError: What the user can correct; nothing is written then.
    """
    manifest = read_manifest(config.bundle)
    fields: list[tuple[str, pa.DataType]] = [
        ("predicted", pa.int64()),
        *([("predicted_name", pa.string())] if manifest.output.labels else []),
        ("probability", pa.float32()),
        ("top_classes", pa.list_(pa.int64())),
        *([("top_names", pa.list_(pa.string()))] if manifest.output.labels else []),
        ("top_probabilities", numbers()),
        *([("scores", numbers())] if config.scores else []),
    ]
    form = _form(config, manifest)
    _set_up(config)
    serve = load_saved_model(config.bundle / SAVED_MODEL_NAME)

    def answer(samples: Sequence[Values]) -> dict[str, Sequence[Any]]:
        return class_columns(served_scores(serve, samples, form, manifest.output), manifest.output, config.top_k)

    return _write(config, manifest, form, fields, answer, on_step)


def write_features(config: FeaturesConfig, *, on_step: OnStep) -> Summary:
    """Write the values of blobs for every input.

    Columns: ``id``, one per blob by its name (float32, in Caffe's order; the schema's field says its shape), ``error``.

    Raises:
        DeepSparkError, CaffeImportError: What the user can correct; nothing is written then.
    """
    manifest = read_manifest(config.bundle)
    form = _form(config, manifest)
    n_threads = _set_up(config)
    answer = BlobAnswer(config, manifest, form, n_threads)
    fields = [pa.field(name, numbers(), metadata={"shape": ",".join(map(str, shape))}) for name, shape in answer.shapes]
    return _write(config, manifest, form, fields, answer, on_step)


def _form(config: BundleInputConfig, manifest: BundleManifest) -> SampleForm:
    return form_of_bundle(
        manifest,
        config.bundle,
        resize_height=config.resize_height,
        resize_width=config.resize_width,
        max_pixel=config.max_pixel,
    )


def _set_up(config: BundleInputConfig) -> int:
    """Set TensorFlow up, on a GPU if it sees one, and return the threads."""
    n_threads = config.threads or host_cores()
    set_up_devices("gpu" if n_gpus_seen() else "cpu", 1, n_threads=n_threads)
    return n_threads


def _write(
    config: BundleInputConfig,
    manifest: BundleManifest,
    form: SampleForm,
    fields: Iterable[Any],
    answer: Answer,
    on_step: OnStep,
) -> Summary:
    inputs = open_inputs(config, n_values=form.n_values, color=form.color)
    count = "" if inputs.n_records in (None, 1) else f", {inputs.n_records:,} inputs"
    on_step(f"net {manifest.net} of {Path(config.bundle).name} on {config.input}: {inputs.what}{count}")
    origin = {"deepspark.net": manifest.net, "deepspark.weights": manifest.origin.weights_digest}
    schema = pa.schema([("id", pa.string()), *fields, ("error", pa.string())], metadata=origin)
    chunks = partial(
        sample_chunks, sample_of=form.sample, size=config.batch_size, n_threads=config.threads or host_cores()
    )
    progress = Progress(inputs.n_records, on_step)
    with parquet_output(config.output, schema) as output:
        answer_all(
            inputs,
            lambda found: chunks(found.read()),
            answer,
            output,
            [name for name in schema.names if name not in ("id", "error")],
            strict=config.strict,
            progress=progress,
        )
    return progress.summary(config.output)
