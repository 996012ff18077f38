"""Parts of a bundle, for a model from a run or from files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from caffe_import.data.transform import cut_to_one_size
from caffe_import.file_access.text_file import read_text_file
from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.proto import caffe_pb2
from deepspark_ops.config.base import file_list_text
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.shared_options.bundle_formats import TFLITE_INT8
from deepspark_ops.errors import ConfigError
from deepspark_ops.evaluate.samples import Batch, Samples
from deepspark_ops.evaluate.tasks.choice import NO_WISH, TaskWish, choose_task, task_wish
from deepspark_ops.evaluate.trained_net import TrainedNet, open_trained_net
from deepspark_ops.export.drawn_samples import DrawnSamples
from deepspark_ops.export.manifest import Origin, file_digest
from deepspark_ops.shards.manifest import split_digests
from deepspark_ops.train.data.sample_sizes import net_of_largest_sample

CALIBRATION_SAMPLES: Final = 100
"""TensorFlow Lite's guide recommends about 100."""
CheckSamples = Samples | DrawnSamples
"""Samples for the check of an exported model."""


@dataclass(frozen=True)
class ModelParts:
    """A model that can be exported.

    Attributes:
        message: The net's layers in phase TEST.
        net: Net built from ``message`` for batches of ``samples.batch_size``.
        params: Parameter vector of ``net``, shape (n_params,), read only.
        weights: File of the parameters.
        samples: Samples for the check of the bundle.
        class_names: In label order; empty if unknown.
        origin: Sources of the model, for the manifest.
        evaluation: Folder that may hold the model's scores; None if the model was not scored.
        formats: Requested formats, names as in ``config.bundle_formats``; None for all formats that the net can have.
        wish: The user's options about the net's task.
        is_trained_on_samples: Whether the net was trained on such samples: ingestion's preprocessing of their images
            then belongs to the model.
        calibration: Blob -> training samples as stored, (n, ...), for formats that measure ranges of values.
    """

    message: caffe_pb2.NetParameter
    net: NetSpec
    params: Vector
    weights: Path
    samples: CheckSamples
    class_names: tuple[str, ...]
    origin: Origin
    evaluation: Path | None
    formats: tuple[str, ...] | None = None
    calibration: Mapping[str, npt.NDArray[Any]] | None = None
    wish: TaskWish = NO_WISH
    is_trained_on_samples: bool = True


@contextmanager
def parts_of_run(config: ExportConfig) -> Iterator[ModelParts]:
    """Open a run's last snapshot, or the weights that ``config`` names, with the run's net and test samples.

    Raises:
        DeepSparkError, CaffeImportError: As ``open_trained_net``.
    """
    with open_trained_net(
        config.run_dir, weights=config.weights, dataset=None, split="test", default_batch_size=config.check_samples
    ) as trained:
        _, sizes = net_of_largest_sample(trained.net, trained.samples.layers)
        if sizes:
            msg = (
                f"run_dir={config.run_dir}: {sizes.partition(';')[0]}; a bundle takes samples of one size: give the"
                " data layers a crop_size, or images of one size; the net's prototxt with the snapshot's .caffemodel"
                " takes any size (ds.Net, Caffe)"
            )
            raise ConfigError(msg)
        wish = task_wish(config.task, config.output_blob, None)
        main = choose_task(trained.net, wish)
        names = trained.samples.answer_names(main.task)
        if config.class_names is not None:
            names = class_names_of_file(config.class_names, main.n_classes)
        yield ModelParts(
            trained.message,
            trained.net,
            trained.params,
            trained.weights.path,
            trained.samples,
            names,
            _origin_of_run(trained),
            trained.run.evaluation,
            config.formats,
            _calibration(config),
            wish,
        )


def class_names_of_file(path: Path, n_classes: int) -> tuple[str, ...]:
    """Return the names of a net's classes, a line each.

    Raises:
        ConfigError: There is no such file, or it has another number of lines; the message says so.
    """
    if not path.is_file():
        msg = f"class_names={path}: no such file"
        raise ConfigError(msg)
    names = tuple(read_text_file(path).splitlines())
    if len(names) != n_classes:
        msg = f"class_names={path}: has {len(names):,} lines, the net tells {n_classes:,} classes apart; one a line"
        raise ConfigError(msg)
    return names


def _calibration(config: ExportConfig) -> Mapping[str, npt.NDArray[Any]] | None:
    if TFLITE_INT8 not in (config.formats or ()):
        return None
    with open_trained_net(
        config.run_dir, weights=config.weights, dataset=None, split="train", default_batch_size=CALIBRATION_SAMPLES
    ) as trained:
        return first_samples(trained.samples)


def first_samples(samples: CheckSamples) -> Mapping[str, npt.NDArray[Any]]:
    """Return the first samples, at most ``CALIBRATION_SAMPLES``, as stored: blob -> (n, ...)."""
    return first_batch(samples, CALIBRATION_SAMPLES).stored


def first_batch(samples: CheckSamples, most: int) -> Batch:
    """Return at most ``most`` samples of the first batch; stored images are cut to one size, as a request needs."""
    batch = samples.read(0, min(most, samples.batch_size, samples.n_samples))
    stored = dict(batch.stored)
    for layer in samples.layers:
        for top in layer.tops:
            if layer.transform is not None and stored[top].dtype == np.object_:
                stored[top] = cut_to_one_size(stored[top], layer.transform.crop_size)
    return replace(batch, stored=stored)


def _origin_of_run(trained: TrainedNet) -> Origin:
    config, run = trained.config, trained.run
    digests = {} if config.dataset is None else split_digests(config.dataset)
    start = config.weights or ((config.resume,) if config.resume else ())
    return Origin(
        run=run.root.name,
        iteration=trained.weights.iteration,
        weights=trained.weights.path.name,
        weights_digest=file_digest(trained.weights.path),
        net_digest=file_digest(run.net),
        solver_digest=file_digest(run.solver),
        config_digest=file_digest(run.config),
        datasets={str(split): digest for split, digest in digests.items()},
        started_from=file_list_text(start) or None,
        started_from_digest=",".join(file_digest(path) for path in start if path.is_file()) or None,
        split_rule=trained.samples.split_rule,
        code_version=code_version(),
    )


def code_version() -> str | None:
    """Return the installed release of DeepSpark; None for a checkout that is not installed."""
    try:
        return version("deepspark")
    except PackageNotFoundError:
        return None
