"""The schema of an output, from the config and the bundle's files alone; without TensorFlow."""

from __future__ import annotations

from contextlib import nullcontext
from math import prod
from typing import Any, Final

import pyarrow as pa

from caffe_import.file_access.allowed_roots import allowed_roots_used
from caffe_import.files.prototxt import read_net
from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import NetSpec
from deepspark_ops.config.commands.predict import BundleInputConfig, FeaturesConfig, PredictConfig
from deepspark_ops.config.shared_options.named_files import AS_GIVEN
from deepspark_ops.errors import ConfigError
from deepspark_ops.export.deploy_net import build_deploy
from deepspark_ops.export.manifest import DEPLOY_NAME, BundleManifest
from deepspark_ops.predict.samples import chunk_size
from deepspark_ops.processes.named_files import limit_named_files

_NUMBERS: Final = pa.list_(pa.float32())


def output_schema(config: BundleInputConfig, manifest: BundleManifest) -> pa.Schema:
    """Return the columns of predictions or features: ``id``, the columns of the answer, ``error``.

    Raises:
        NetError: The net has no such blob; the message lists the blobs.
        ConfigError: The first axis of a blob is not the batch.
    """
    if isinstance(config, FeaturesConfig):
        fields = _feature_fields(config, chunk_size(manifest, config.batch_size))
    else:
        fields = result_fields(manifest, has_scores=isinstance(config, PredictConfig) and config.scores)
    origin = {"deepspark.net": manifest.net, "deepspark.weights": manifest.origin.weights_digest}
    return pa.schema([("id", pa.string()), *fields, ("error", pa.string())], metadata=origin)


def answer_columns(schema: pa.Schema) -> list[str]:
    """Return the names of the columns that an answer fills."""
    return [name for name in schema.names if name not in ("id", "error")]


def deploy_net(config: BundleInputConfig, batch_size: int) -> NetSpec:
    """Return the bundle's net for batches of a size.

    The SavedModel gives predictions: they import no module of a Python layer. The net of a bundle may name no file
    outside of the bundle; the files of the input are those of the user.

    Raises:
        NetError: The net cannot be built.
    """
    named = config.named_files if isinstance(config, FeaturesConfig) else AS_GIVEN.model_copy(update={"confined": True})
    with nullcontext() if isinstance(config, FeaturesConfig) else allowed_roots_used(None):
        limit_named_files(named, (config.bundle,))
        return build_deploy(read_net(config.bundle / DEPLOY_NAME), batch_size)


def blob_shapes(net: NetSpec, config: FeaturesConfig, batch_size: int) -> tuple[tuple[str, Shape], ...]:
    """Return (name, shape without the axes of the batch) of each wanted blob.

    Raises:
        NetError: The net has no such blob; the message lists the blobs.
        ConfigError: The first axes of a blob do not number the samples.
    """
    shapes = []
    for name in config.blob_names:
        shape = net.blob_shape(name)
        starts = (n for n in range(1, len(shape) + 1) if prod(shape[:n]) == batch_size)  # (T, N, ...) of T * N samples
        n_batch_axes = next(starts, None)
        if n_batch_axes is None:
            msg = f'blobs: "{name}" has shape {shape}, no value of its own for each sample'
            raise ConfigError(msg)
        shapes.append((name, shape[n_batch_axes:]))
    return tuple(shapes)


def result_fields(manifest: BundleManifest, *, has_scores: bool = True) -> list[Any]:
    """Return the columns of every result of a bundle: a float, or a vector of numbers in Caffe's order."""
    fields: list[Any] = []
    for at, result in enumerate(manifest.results()):
        if at == 0 and result.task == "classification":
            fields += _class_fields(manifest, has_scores=has_scores)
            continue
        shape = result.shape[1:]
        about = {"shape": ",".join(map(str, shape)), "task": result.task}
        fields.append(pa.field(result.name, pa.float32() if prod(shape) == 1 else _NUMBERS, metadata=about))
        if at == 0 and result.task == "multi_label":
            fields.append(pa.field("predicted", pa.list_(pa.int64())))
            fields += [pa.field("predicted_names", pa.list_(pa.string()))] if manifest.output.labels else []
    return fields


def _class_fields(manifest: BundleManifest, *, has_scores: bool) -> list[Any]:
    has_names = bool(manifest.output.labels)
    kinds = [
        ("predicted", pa.int64(), True),
        ("predicted_name", pa.string(), has_names),
        ("probability", pa.float32(), True),
        ("top_classes", pa.list_(pa.int64()), True),
        ("top_names", pa.list_(pa.string()), has_names),
        ("top_probabilities", _NUMBERS, True),
        ("scores", _NUMBERS, has_scores),
    ]
    return [pa.field(name, kind) for name, kind, is_there in kinds if is_there]


def _feature_fields(config: FeaturesConfig, batch_size: int) -> list[Any]:
    shapes = blob_shapes(deploy_net(config, batch_size), config, batch_size)
    return [pa.field(name, _NUMBERS, metadata={"shape": ",".join(map(str, shape))}) for name, shape in shapes]
