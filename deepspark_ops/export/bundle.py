"""Stage export: write the bundle of a run into a hidden folder, compare it with the trained graph, then rename it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.files.mean_file import write_mean
from caffe_import.net.batch_size import set_batch_size, unit_batch
from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.tf_graph.predict import compile_forward
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.shared_options.bundle_formats import BY_DEFAULT
from deepspark_ops.errors import ConfigError, DataError, DeepSparkError
from deepspark_ops.evaluate.metrics import METRICS_NAME, read_metrics
from deepspark_ops.evaluate.sample_scores import SAMPLES_NAME, read_samples
from deepspark_ops.evaluate.tasks.choice import choose_tasks
from deepspark_ops.export.deploy_net import build_deploy, build_deploy_net, deploy_params
from deepspark_ops.export.formats.exported_model import CannotHave, ExportedModel, Format, Reading
from deepspark_ops.export.formats.registry import FORMATS
from deepspark_ops.export.manifest import (
    CARD_NAME,
    FEATURES_NAME,
    LABELS_NAME,
    MANIFEST_NAME,
    MANIFEST_VERSION,
    MEAN_NAME,
    SAVED_MODEL_NAME,
    WEIGHTS_NAME,
    BundleManifest,
    Check,
    OutputContract,
    OutsideCheck,
    file_digest,
)
from deepspark_ops.export.model_card import card_text
from deepspark_ops.export.model_parts import ModelParts, first_batch, parts_of_run
from deepspark_ops.export.served_input import deploy_batch, find_served_inputs, settled_batch, stored_parts
from deepspark_ops.export.served_output import CLASSES, Answers, ServedOutput, served_outputs, served_tasks
from deepspark_ops.export.tf_saved_model import ServedModel
from deepspark_ops.run_paths import RunPaths, sync_folder, write_text_whole
from deepspark_ops.sizes import share_text

ALLOWED_DIFFERENCE = 1e-4
"""Float32 sums in another order differ by about 1e-6; a wrong layout, mean or channel order by far more."""
OnStep = Callable[[str], None]
_READERS_AT_ONCE = 2
"""Each reader loads a framework and the model. More readers would need memory and save no time."""
_OWN_READERS = ("TensorFlow", "DeepSpark")


@dataclass(frozen=True)
class Bundle:
    """A finished bundle: folder and manifest."""

    folder: Path
    manifest: BundleManifest

    def summary(self) -> str:
        """Return the result in one line."""
        return f"bundle={self.folder} max_relative_difference={self.manifest.check.largest():.2g}"


class ExportDiffers(DeepSparkError):
    """Numbers of the exported model differ from the trained graph; nothing was exported."""


def write_bundle(config: ExportConfig, *, on_step: OnStep) -> Bundle:
    """Export a run.

    The bundle is written into a hidden folder beside its destination, checked, and renamed. The rename replaces an
    older bundle.

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
        tasks = served_tasks(model.net, choose_tasks(model.net, model.wish))
        fed = {top for layer in model.samples.layers for top in layer.tops}
        deploy = build_deploy_net(model.message, model.net, tasks, fed)
        self._deploy = deploy.message
        self._unit_batch = unit_batch(self._build, model.samples.batch_size)
        for layer in self._deploy.layer:
            if layer.type == "Input":
                set_batch_size(layer, self._unit_batch)
        self._outputs = served_outputs(tasks, deploy.outputs)
        self._inputs = find_served_inputs(
            model.samples, deploy.inputs, is_trained_on_samples=model.is_trained_on_samples
        )
        self._n_threads = len(os.sched_getaffinity(0))
        batch = first_batch(model.samples, model.samples.batch_size)
        self._trained_batch = settled_batch(batch, deploy.inputs, self._inputs)
        self._batch = deploy_batch(self._trained_batch, deploy.inputs)
        self._deploy_inputs = deploy.inputs

    def write(self) -> BundleManifest:
        model = self._model
        expected = self._expected()
        if not all(np.isfinite(values).all() for values in expected.values()):
            msg = f"{model.weights}: the net's answers are not finite; the weights diverged, export others"
            raise DataError(msg)
        params = deploy_params(model.net.params, model.params, self._build(self._unit_batch).params)
        self._write_labels_and_mean()
        self._copy_metrics()
        check = self._write_formats(self._exported(params), expected)
        manifest = self._manifest(check)
        metrics = self._folder / METRICS_NAME
        card = card_text(self._folder, manifest, read_metrics(metrics) if metrics.is_file() else None)
        write_text_whole(self._folder / CARD_NAME, card)
        manifest = manifest.model_copy(update={"files": self._digests()})
        write_text_whole(self._folder / MANIFEST_NAME, manifest.model_dump_json(indent=1) + "\n")
        return manifest

    def _exported(self, params: Vector) -> ExportedModel:
        @cache
        def served(*, is_portable: bool = False) -> ServedModel:
            trial = {name: values[: self._batch.count] for name, values in self._batch.feeds.items()}
            return ServedModel(
                self._build,
                params,
                self._inputs,
                self._outputs,
                trial=trial,
                unit_batch=self._unit_batch,
                is_portable=is_portable,
            )

        return ExportedModel(
            folder=self._folder,
            deploy=self._deploy,
            build=self._build,
            params=params,
            inputs=self._inputs,
            outputs=self._outputs,
            batch=self._batch,
            n_threads=self._n_threads,
            served=served,
            unit_batch=self._unit_batch,
            calibration=self._calibration(),
        )

    def _calibration(self) -> dict[str, npt.NDArray[Any]] | None:
        stored = self._model.calibration
        if stored is None:
            return None
        parts = stored_parts(stored, self._deploy_inputs)
        return {served.name: served.from_stored(parts[served.blob]) for served in self._inputs}

    def _write_formats(self, exported: ExportedModel, expected: Answers) -> Check:
        """Write the model in every requested format, and compare the written files with the trained graph.

        Raises:
            ConfigError: The net cannot have a format that the user requested by name.
            ExportDiffers: A file gives other numbers.
        """
        readings: dict[str, Sequence[Reading]] = {}
        left_out: dict[str, str] = {}
        # Readers with separate processes run in parallel, while the next format is written.
        with ThreadPoolExecutor(_READERS_AT_ONCE) as pool:
            awaited: dict[str, Future[tuple[Reading, ...]]] = {}
            try:
                for name, form in self._formats().items():
                    self._on_step(f"writing {' and '.join(form.files)}: {exported.params.size:,} parameters")
                    try:
                        form.write(exported)
                        self._on_step(f"checking {' and '.join(form.files)} on {exported.batch.count} samples")
                        if form.is_read_apart:
                            awaited[name] = pool.submit(form.read, exported)
                        else:
                            readings[name] = form.read(exported)
                    except CannotHave as reason:
                        self._leave_out(name, reason, left_out)
                for name, reading in awaited.items():
                    try:
                        readings[name] = reading.result()
                    except CannotHave as reason:
                        self._leave_out(name, reason, left_out)
            finally:
                pool.shutdown(cancel_futures=True)
        found_readings = [entry for name in self._formats() for entry in readings.get(name, ())]
        return compare_readings(found_readings, self._outputs, expected, left_out)

    def _formats(self) -> dict[str, Format]:
        return {name: form for name, form in FORMATS.items() if name in (self._model.formats or BY_DEFAULT)}

    def _leave_out(self, name: str, reason: CannotHave, left_out: dict[str, str]) -> None:
        """Record the reason and remove partial files; refuse if the user requested the format by name."""
        if self._model.formats is not None:
            msg = f"formats={','.join(self._model.formats)}: {name}: {reason}; leave it out"
            raise ConfigError(msg) from reason
        left_out[name] = str(reason)
        self._on_step(f"left out {name}: {reason}")
        for path in (self._folder / file for file in FORMATS[name].files):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def _build(self, batch_size: int) -> NetSpec:
        return build_deploy(self._deploy, batch_size)

    def _write_labels_and_mean(self) -> None:
        if names := self._labels():
            text = "".join(f"{name}\n" for name in names)
            write_text_whole(self._folder / LABELS_NAME, text)
        for table in (served.table for served in self._inputs if served.table is not None):
            write_text_whole(self._folder / FEATURES_NAME, table.model_dump_json(indent=1) + "\n")
        means = [served.transform.mean for served in self._inputs if served.transform is not None]
        for mean in means:
            if mean is not None:
                write_mean(self._folder / MEAN_NAME, mean)

    def _labels(self) -> tuple[str, ...]:
        """Return the names of the main result's classes or labels; empty if the names are unknown."""
        names = self._model.class_names
        return names if len(names) == self._outputs[0].chosen.n_classes else ()

    def _copy_metrics(self) -> None:
        """Copy the model's metrics and per-sample answers into the bundle if they belong to these weights."""
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

    def _expected(self) -> Answers:
        """Return the trained graph's answers for the samples: output -> (n, ...)."""
        names = [output.chosen.output for output in self._outputs]
        forward = compile_forward(self._model.net, n_threads=self._n_threads, outputs=names)
        blobs = forward(self._model.params, self._trained_batch.feeds)
        n = self._batch.count
        return {output.name: output.expected(blobs[output.chosen.output])[:n] for output in self._outputs}

    def _manifest(self, check: Check) -> BundleManifest:
        main = self._outputs[0]
        return BundleManifest(
            format_version=MANIFEST_VERSION,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            net=self._deploy.name,
            inputs=tuple(served.contract() for served in self._inputs),
            output=OutputContract(
                scores=main.name,
                classes=CLASSES if main.has_classes else "",
                n_classes=main.chosen.n_classes,
                labels=self._labels(),
            ),
            outputs=tuple(output.contract() for output in self._outputs),
            origin=self._model.origin,
            check=check,
            files=self._digests(),
            unit_batch=self._unit_batch,
        )

    def _digests(self) -> dict[str, str]:
        return {
            path.relative_to(self._folder).as_posix(): file_digest(path)
            for path in sorted(self._folder.rglob("*"))
            if path.is_file()
        }


def compare_readings(
    readings: Sequence[Reading], outputs: Sequence[ServedOutput], expected: Answers, left_out: dict[str, str]
) -> Check:
    """Return the comparison of the bundle's files, as each reader ran them, with the trained graph.

    ``expected`` are the answers of the trained graph, output -> (n, ...).

    Raises:
        ExportDiffers: A reading has other numbers.
    """
    differences = [(reading, _largest_difference(reading, expected)) for reading in readings]
    n_samples = len(next(iter(expected.values())))
    for reading, difference in differences:
        if difference is None:
            continue
        if reading.min_agreement is not None:
            _refuse_other_answers(reading, outputs, expected)
        elif not difference <= ALLOWED_DIFFERENCE:
            msg = (
                f"exported {reading.file}, read by {reading.reader}, differs from the trained graph by "
                f"{difference:.2g} relative to the largest {_numbers(outputs)}, on {n_samples} samples; allowed: "
                f"{ALLOWED_DIFFERENCE:g}. Nothing was exported"
            )
            raise ExportDiffers(msg)
    internal = {reading.file: difference for reading, difference in differences if reading.reader in _OWN_READERS}
    return Check(
        n_samples=n_samples,
        saved_model_max_relative_difference=internal.get(SAVED_MODEL_NAME),
        caffemodel_max_relative_difference=internal.get(WEIGHTS_NAME),
        allowed=ALLOWED_DIFFERENCE,
        outside=tuple(
            OutsideCheck(
                file=reading.file,
                reader=reading.reader,
                max_relative_difference=difference,
                unread=reading.unread,
                agreement=None if reading.min_agreement is None else _agreement(reading, outputs, expected),
                min_agreement=reading.min_agreement,
            )
            for reading, difference in differences
            if reading.reader not in _OWN_READERS
        ),
        left_out=left_out,
    )


def _numbers(outputs: Sequence[ServedOutput]) -> str:
    return "probability" if outputs[0].chosen.task == "classification" else "number"


def _largest_difference(reading: Reading, expected: Answers) -> float | None:
    """Return the largest difference over all outputs; None if the file was not read."""
    if reading.answers is None:
        return None
    differences = [relative_difference(reading.answers[name], values) for name, values in expected.items()]
    return float(np.max(differences))  # NaN if one is


def _agreement(reading: Reading, outputs: Sequence[ServedOutput], expected: Answers) -> float:
    """Return the share of answers that agree with the trained net, for the output with the smallest share."""
    if reading.answers is None:
        return 0.0
    return min(output.agreement(reading.answers[output.name], expected[output.name]) for output in outputs)


def _refuse_other_answers(reading: Reading, outputs: Sequence[ServedOutput], expected: Answers) -> None:
    agreement = _agreement(reading, outputs, expected)
    if reading.min_agreement is not None and agreement < reading.min_agreement:
        answer_noun = "class" if outputs[0].chosen.task == "classification" else "answer"
        n_samples = len(next(iter(expected.values())))
        msg = (
            f"exported {reading.file}, read by {reading.reader}, gives the trained graph's {answer_noun} for "
            f"{share_text(agreement)} of {n_samples} samples; allowed: {share_text(reading.min_agreement, 0)} or more. "
            "Leave this format out. Nothing was exported"
        )
        raise ExportDiffers(msg)


def relative_difference(actual: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """Return the largest difference of two arrays relative to the largest expected value; NaN if an array has a NaN.

    Example:
        >>> relative_difference(np.array([0.5, 0.25]), np.array([0.5, 0.0]))
        0.5
    """
    largest = float(np.abs(expected).max())
    return float(np.abs(actual - expected).max()) / (
        largest or 1.0
    )  # all expected values are 0: the absolute difference


def refuse_foreign(output: Path) -> None:
    """Refuse to replace a folder that is no bundle.

    Raises:
        ConfigError: ``output`` has files, but is no bundle.
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
