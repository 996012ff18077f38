"""``deepspark predict`` and ``features`` in this process: a bundle, inputs, and a Parquet file. Loads TensorFlow."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pyarrow as pa

from caffe_import.errors import CaffeImportError
from caffe_import.tf_graph.devices import kind_of_option
from deepspark_ops.config.commands.predict import BundleInputConfig, FeaturesConfig, PredictConfig
from deepspark_ops.devices.host_cores import host_cores
from deepspark_ops.export.manifest import BundleManifest, read_manifest
from deepspark_ops.predict.blob_answer import BlobAnswer
from deepspark_ops.predict.columns import answer_columns, deploy_net, output_schema
from deepspark_ops.predict.datum_output import database_plans, datum_outputs
from deepspark_ops.predict.inputs.choose import open_inputs
from deepspark_ops.predict.loaded_bundle import choose_device, load_bundle
from deepspark_ops.predict.samples import BundleForm, chunk_size, form_of_config, sample_chunks
from deepspark_ops.predict.stream import Answer, OnStep, Progress, RowOutput, Summary, answer_all
from deepspark_ops.processes.batch_passes import passes_at_once
from deepspark_ops.shards.files.parquet_output import parquet_output

_log = logging.getLogger(__name__)


def write_answers(config: BundleInputConfig, *, on_step: OnStep) -> Summary:
    """Write a row for every input: classes and scores, or with ``FeaturesConfig`` the values of blobs.

    The columns are those of ``columns.output_schema``.

    Raises:
        DeepSparkError, CaffeImportError: A mistake of the user; nothing is written.
    """
    return open_answers(config, on_step=on_step)()


def open_answers(config: BundleInputConfig, *, on_step: OnStep) -> Callable[[], Summary]:
    """Load the bundle and return a function that writes the answers; the function may be called repeatedly.

    Raises:
        DeepSparkError, CaffeImportError: A mistake of the user.
    """
    manifest = read_manifest(config.bundle)
    form = form_of_config(config, manifest, config.bundle)
    schema = output_schema(config, manifest)
    output_of = _output_opener(config, schema)
    n_threads = config.threads or host_cores()
    answer = open_answer(config, manifest, form, n_threads=n_threads)
    size = chunk_size(manifest, config.batch_size)
    n_at_once = _chunks_at_once(config, size, n_threads)

    def write() -> Summary:
        inputs = open_inputs(config, form)
        count = "" if inputs.n_records in (None, 1) else f", {inputs.n_records:,} inputs"
        on_step(f"net {manifest.net} of {Path(config.bundle).name} on {config.input}: {inputs.description}{count}")
        for remark in (*form.remarks, *inputs.remarks):
            _log.warning("%s", remark)
        chunks = partial(sample_chunks, sample_of=form.sample, size=size, n_threads=n_threads)
        progress = Progress(inputs.n_records, on_step, form)
        with output_of() as output:
            answer_all(
                inputs,
                lambda opened: chunks(opened.read()),
                answer,
                output,
                answer_columns(schema),
                strict=config.strict or is_lmdb(config),
                progress=progress,
                n_at_once=n_at_once,
            )
            summary = progress.summary(config.output)
            summary.require_answer()
        return summary

    return write


def is_lmdb(config: BundleInputConfig) -> bool:
    """Return whether the output is a database of Datum records, which cannot hold an error."""
    return isinstance(config, FeaturesConfig) and config.format == "lmdb"


def _output_opener(config: BundleInputConfig, schema: pa.Schema) -> Callable[[], AbstractContextManager[RowOutput]]:
    """Return a function that opens the output.

    Raises:
        ConfigError: For a database a blob has too many axes, or the path holds other files.
    """
    if is_lmdb(config):
        assert isinstance(config.output, Path), "the config refuses databases in a store"
        return partial(datum_outputs, database_plans(config.output, schema))
    return partial(parquet_output, config.output, schema)


def open_answer(config: BundleInputConfig, manifest: BundleManifest, form: BundleForm, *, n_threads: int) -> Answer:
    """Load a bundle into this process and return the function that answers samples.

    Raises:
        DeviceError: The device does not exist.
        NetError, ConfigError: A blob does not exist.
    """
    device = choose_device(config.devices, n_threads=n_threads)
    if isinstance(config, FeaturesConfig):
        return BlobAnswer(config, manifest, form, n_threads)
    bundle = load_bundle(config.bundle, manifest, form, device)
    top_k = config.top_k if isinstance(config, PredictConfig) else 1
    return partial(bundle.columns, top_k=top_k)


def _chunks_at_once(config: BundleInputConfig, batch_size: int, n_threads: int) -> int:
    """Return the number of chunks that the net answers at a time."""
    try:
        net = deploy_net(config, batch_size)
    except CaffeImportError:  # the net takes a single batch size
        return 1
    return passes_at_once(net.blob_shapes.values(), n_threads, is_host=kind_of_option(config.devices) == "cpu")
