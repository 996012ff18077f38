"""Stage export: the deliverable of a run, written aside, checked against the trained graph, then put in place whole."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from caffe_import.files.caffemodel import write_caffemodel
from caffe_import.files.mean_file import write_mean
from caffe_import.files.prototxt import format_message, read_net
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.net.param_layout import Vector
from caffe_import.proto import caffe_pb2
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.errors import ConfigError, DataError, DeepSparkError
from deepspark_ops.evaluate.metrics import METRICS_NAME, read_metrics
from deepspark_ops.evaluate.sample_scores import SAMPLES_NAME, read_samples
from deepspark_ops.evaluate.score_blob import ScoreBlob, find_score_blob
from deepspark_ops.evaluate.tf_predict import compile_probabilities
from deepspark_ops.evaluate.trained_net import load_params, set_batch_size
from deepspark_ops.export.caffe_weights import deploy_params
from deepspark_ops.export.deploy_net import build_deploy_net
from deepspark_ops.export.manifest import (
    DEPLOY_NAME,
    LABELS_NAME,
    MANIFEST_NAME,
    MANIFEST_VERSION,
    MEAN_NAME,
    SAVED_MODEL_NAME,
    WEIGHTS_NAME,
    BundleManifest,
    Check,
    OutputContract,
    file_digest,
)
from deepspark_ops.export.model_parts import ModelParts, parts_of_run
from deepspark_ops.export.served_input import find_served_inputs
from deepspark_ops.export.tf_saved_model import CLASSES, SCORES, load_saved_model, write_saved_model
from deepspark_ops.run_paths import RunPaths, sync_folder, write_text_whole

ALLOWED_DIFFERENCE = 1e-4
"""Float32 sums in another order differ by about 1e-6; a wrong layout, mean or channel order by far more."""
OnStep = Callable[[str], None]
Probabilities = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Bundle:
    """A finished bundle: its folder and what its manifest says."""

    folder: Path
    manifest: BundleManifest

    def summary(self) -> str:
        """Return the result in one line."""
        difference = self.manifest.check.saved_model_max_relative_difference
        return f"bundle={self.folder} max_relative_difference={difference:.2g}"


class ExportDiffers(DeepSparkError):
    """The exported model does not compute what the trained graph computes; nothing was put in place."""


def write_bundle(config: ExportConfig, *, on_step: OnStep) -> Bundle:
    """Export a run.

    The bundle is written into a hidden folder beside its place, checked there, and renamed; a bundle that was there
    before is replaced only then.

    Args:
        config: What to export.
        on_step: Told, in a few words, what is done next.

    Raises:
        DeepSparkError, CaffeImportError: What the user can correct, or ``ExportDiffers``; nothing is put in place.
    """
    output = config.output or RunPaths(config.run_dir).bundle
    refuse_foreign(output)
    with parts_of_run(config) as model:
        return write_model(model, output, on_step)


def write_model(model: ModelParts, output: Path, on_step: OnStep) -> Bundle:
    """Export a model into the folder ``output``, as ``write_bundle`` does.

    Raises:
        DeepSparkError, CaffeImportError: What the user can correct, or ``ExportDiffers``; nothing is put in place.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}."))
    try:
        manifest = _Export(model, temporary, on_step).write()
        temporary.chmod(0o755)
        _put_in_place(temporary, output)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Bundle(output, manifest)


class _Export:
    """Writes one bundle into ``folder``. Used once."""

    def __init__(self, model: ModelParts, folder: Path, on_step: OnStep) -> None:
        self._model = model
        self._folder = folder
        self._on_step = on_step
        self._scores: ScoreBlob = find_score_blob(model.net)
        fed = {top for layer in model.samples.layers for top in layer.tops}
        self._deploy, self._probability = build_deploy_net(model.message, model.net, self._scores, fed)
        self._inputs = find_served_inputs(model.samples, [layer.top[0] for layer in self._deploy_inputs()])

        self._n_threads = len(os.sched_getaffinity(0))
        self._batch = model.samples.read(0, min(model.samples.batch_size, model.samples.n_samples))

    def write(self) -> BundleManifest:
        model = self._model
        expected = self._probabilities(model.net, model.params, self._scores)
        if not np.isfinite(expected).all():
            msg = f"{model.weights}: the net's scores are not finite; the weights diverged, export others"
            raise DataError(msg)
        net = self._build(1)
        params = deploy_params(model.net.params, model.params, net.params)
        self._on_step(f"writing {DEPLOY_NAME} and {WEIGHTS_NAME}: {net.params.n_params:,} parameters")
        write_text_whole(self._folder / DEPLOY_NAME, format_message(self._deploy))
        write_caffemodel(self._folder / WEIGHTS_NAME, net, params)
        self._write_labels_and_mean()
        self._copy_metrics()
        self._on_step(f"writing {SAVED_MODEL_NAME}/")
        write_saved_model(
            self._folder / SAVED_MODEL_NAME,
            self._build,
            params,
            self._inputs,
            self._probability,
            trial={name: values[: self._batch.count] for name, values in self._batch.feeds.items()},
        )
        check = self._check(expected)
        manifest = self._manifest(net, check)
        write_text_whole(self._folder / MANIFEST_NAME, manifest.model_dump_json(indent=1) + "\n")
        return manifest

    def _deploy_inputs(self) -> list[caffe_pb2.LayerParameter]:
        return [layer for layer in self._deploy.layer if layer.type == "Input"]

    def _build(self, batch_size: int) -> NetSpec:
        return _build_deploy(self._deploy, batch_size)

    def _write_labels_and_mean(self) -> None:
        if self._model.class_names:
            text = "".join(f"{name}\n" for name in self._model.class_names)
            write_text_whole(self._folder / LABELS_NAME, text)
        means = [served.transform.mean for served in self._inputs if served.transform is not None]
        for mean in means:
            if mean is not None:
                write_mean(self._folder / MEAN_NAME, mean)

    def _copy_metrics(self) -> None:
        """Take the model's metrics, and its answers sample by sample, along if they are of these weights."""
        evaluation = self._model.evaluation
        if evaluation is None or not (evaluation / METRICS_NAME).is_file():
            return
        digest = file_digest(self._model.weights)
        if read_metrics(evaluation / METRICS_NAME).scored.weights_digest != digest:
            return
        shutil.copyfile(evaluation / METRICS_NAME, self._folder / METRICS_NAME)
        samples = evaluation / SAMPLES_NAME
        if samples.is_file() and read_samples(samples).weights_digest == digest:
            shutil.copyfile(samples, self._folder / SAMPLES_NAME)

    def _probabilities(self, net: NetSpec, params: Vector, scores: ScoreBlob) -> Probabilities:
        predict = compile_probabilities(net, params, scores, n_threads=self._n_threads)
        return predict(self._batch.feeds)[: self._batch.count]

    def _check(self, expected: Probabilities) -> Check:
        """Compare the files that were written with the trained graph, on real samples.

        Raises:
            ExportDiffers: One of them gives other numbers.
        """
        count = self._batch.count
        self._on_step(f"checking the exported model on {count} samples")
        check = Check(
            n_samples=count,
            saved_model_max_relative_difference=relative_difference(self._serve(), expected),
            caffemodel_max_relative_difference=relative_difference(self._read_back(), expected),
            allowed=ALLOWED_DIFFERENCE,
        )
        found = {
            SAVED_MODEL_NAME: check.saved_model_max_relative_difference,
            WEIGHTS_NAME: check.caffemodel_max_relative_difference,
        }
        for name, difference in found.items():
            if not difference <= ALLOWED_DIFFERENCE:
                msg = (
                    f"exported {name} differs from the trained graph by {difference:.2g} relative to the largest "
                    f"probability, on {count} samples; allowed: {ALLOWED_DIFFERENCE:g}. Nothing was exported"
                )
                raise ExportDiffers(msg)
        return check

    def _serve(self) -> Probabilities:
        """Run the SavedModel as read from disk on samples as stored."""
        serve = load_saved_model(self._folder / SAVED_MODEL_NAME)
        arguments = {served.name: served.from_stored(self._batch.stored[served.blob]) for served in self._inputs}
        return serve(arguments)[SCORES].astype(np.float64)

    def _read_back(self) -> Probabilities:
        """Run deploy.prototxt with weights.caffemodel, both as read from disk."""
        net = _build_deploy(read_net(self._folder / DEPLOY_NAME), self._model.samples.batch_size)
        params = load_params(net, self._folder / WEIGHTS_NAME)
        scores = ScoreBlob(
            name=self._probability,
            n_classes=self._scores.n_classes,
            is_probability=True,
            label=None,
            ignore_label=None,
            found_by="deploy net",
        )
        return self._probabilities(net, params, scores)

    def _manifest(self, net: NetSpec, check: Check) -> BundleManifest:
        return BundleManifest(
            format_version=MANIFEST_VERSION,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            net=net.name,
            inputs=tuple(served.contract() for served in self._inputs),
            output=OutputContract(
                scores=SCORES,
                classes=CLASSES,
                n_classes=self._scores.n_classes,
                labels=self._model.class_names,
            ),
            origin=self._model.origin,
            check=check,
            files={
                path.relative_to(self._folder).as_posix(): file_digest(path)
                for path in sorted(self._folder.rglob("*"))
                if path.is_file()
            },
        )


def relative_difference(found: Probabilities, expected: Probabilities) -> float:
    """Return the largest difference of two arrays relative to the largest expected value; NaN if one has a NaN.

    Example:
        >>> relative_difference(np.array([0.5, 0.25]), np.array([0.5, 0.0]))
        0.5
    """
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def _build_deploy(deploy: caffe_pb2.NetParameter, batch_size: int) -> NetSpec:
    message = caffe_pb2.NetParameter()
    message.CopyFrom(deploy)
    for layer in message.layer:
        if layer.type == "Input":
            set_batch_size(layer, batch_size)
    return build_net_spec(message, phase="TEST")


def refuse_foreign(output: Path) -> None:
    """Refuse to replace a folder that is no bundle.

    Raises:
        ConfigError: ``output`` is one.
    """
    if output.exists() and not (output / MANIFEST_NAME).is_file() and (not output.is_dir() or any(output.iterdir())):
        msg = f"output={output}: exists and is no bundle (no {MANIFEST_NAME} in it); give another folder or remove it"
        raise ConfigError(msg)


def _put_in_place(folder: Path, output: Path) -> None:
    """Rename ``folder`` to ``output``; an older bundle goes away after, and comes back if the rename fails."""
    if not output.exists():
        folder.rename(output)
        sync_folder(output.parent)
        return
    old = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}.old."))
    try:
        output.rename(old / output.name)
        try:
            folder.rename(output)
        except OSError as error:
            (old / output.name).rename(output)
            msg = f"output={output}: cannot be replaced: {error.strerror}"
            raise DataError(msg) from error
        sync_folder(output.parent)
    finally:
        shutil.rmtree(old, ignore_errors=True)
