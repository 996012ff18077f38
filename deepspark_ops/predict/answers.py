"""``deepspark predict`` and ``deepspark features``: a bundle, inputs, and a Parquet file. Loads TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from deepspark_ops.config.predict import BundleInputConfig, FeaturesConfig, PredictConfig
from deepspark_ops.devices.host_cores import host_cores
from deepspark_ops.export.manifest import BundleManifest, read_manifest
from deepspark_ops.predict.blob_answer import BlobAnswer
from deepspark_ops.predict.inputs.choose import open_inputs
from deepspark_ops.predict.loaded_bundle import choose_device, load_bundle
from deepspark_ops.predict.parquet_output import numbers, parquet_output
from deepspark_ops.predict.samples import BundleForm, Parts, form_of_bundle, sample_chunks
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
    bundle = load_bundle(config.bundle, manifest, form, _set_up(config))

    def answer(samples: Sequence[Parts]) -> dict[str, Sequence[Any]]:
        return bundle.columns(bundle.scores(samples), config.top_k)

    return _write(config, manifest, form, fields, answer, on_step)


def write_features(config: FeaturesConfig, *, on_step: OnStep) -> Summary:
    """Write the values of blobs for every input.

    Columns: ``id``, one per blob by its name (float32, in Caffe's order; the schema's field says its shape), ``error``.

    Raises:
        DeepSparkError, CaffeImportError: What the user can correct; nothing is written then.
    """
    manifest = read_manifest(config.bundle)
    form = _form(config, manifest)
    _set_up(config)
    answer = BlobAnswer(config, manifest, form, _n_threads(config))
    fields = [pa.field(name, numbers(), metadata={"shape": ",".join(map(str, shape))}) for name, shape in answer.shapes]
    return _write(config, manifest, form, fields, answer, on_step)


def _form(config: BundleInputConfig, manifest: BundleManifest) -> BundleForm:
    return form_of_bundle(
        manifest,
        config.bundle,
        resize_height=config.resize_height,
        resize_width=config.resize_width,
        max_pixel=config.max_pixel,
    )


def _n_threads(config: BundleInputConfig) -> int:
    return config.threads or host_cores()


def _set_up(config: BundleInputConfig) -> str:
    return choose_device(config.devices, n_threads=_n_threads(config))


def _write(
    config: BundleInputConfig,
    manifest: BundleManifest,
    form: BundleForm,
    fields: Iterable[Any],
    answer: Answer,
    on_step: OnStep,
) -> Summary:
    inputs = open_inputs(config, form)
    count = "" if inputs.n_records in (None, 1) else f", {inputs.n_records:,} inputs"
    on_step(f"net {manifest.net} of {Path(config.bundle).name} on {config.input}: {inputs.what}{count}")
    origin = {"deepspark.net": manifest.net, "deepspark.weights": manifest.origin.weights_digest}
    schema = pa.schema([("id", pa.string()), *fields, ("error", pa.string())], metadata=origin)
    chunks = partial(sample_chunks, sample_of=form.sample, size=config.batch_size, n_threads=_n_threads(config))
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
