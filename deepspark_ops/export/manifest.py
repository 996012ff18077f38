"""``manifest.json`` of a bundle: its files, the model's inputs and outputs, and digests of every source."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from caffe_import.file_access.regular_file import open_regular, regular_bytes
from deepspark_ops.config.shared_options.bundle_formats import CAFFE, SAVED_MODEL
from deepspark_ops.config.shared_options.task import TaskName
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.frozen_model import FrozenModel, first_problem
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.shards.manifest import SplitRule
from deepspark_ops.shards.preprocessing import ImagePreprocessing
from deepspark_ops.stores.store_path import DataPath

MANIFEST_VERSION: Final = 6
MANIFEST_NAME = "manifest.json"
WEIGHTS_NAME = "weights.caffemodel"
DEPLOY_NAME = "deploy.prototxt"
SAVED_MODEL_NAME = "saved_model"
LABELS_NAME = "labels.txt"
MEAN_NAME = "mean.binaryproto"
FEATURES_NAME = "features.json"
TFLITE_NAME = "model.tflite"
TFLITE_FLOAT16_NAME = "model_float16.tflite"
TFLITE_INT8_NAME = "model_int8.tflite"
ONNX_NAME = "model.onnx"
KERAS_NAME = "model.keras"
CARD_NAME = "README.md"
IMAGE_AXES: Final = "N, H, W, C"


class InputContract(FrozenModel):
    """Input of the SavedModel's ``serving_default``.

    Attributes:
        name: Name of the argument.
        shape: With the batch axis as -1, e.g. ``(-1, 28, 28, 1)``.
        axes: Meaning of the axes, e.g. ``N, H, W, C``.
        dtype: ``uint8`` or ``float32``.
        channels: ``gray``, ``RGB``, or empty without an axis of channels.
        preprocessing: Preprocessing steps inside the model, in order, in words.
        sample_shape: Shape of one sample, without N; None before version 4.
        images: Preprocessing of the training images by ingestion, outside the model: raw images need the same steps.
            None if the steps are unknown, as before version 6, and for inputs without images.
        is_table: The input is a row of a table's features, whose columns ``features.json`` names. Before version 6
            that file is there only if the model fills or standardises features.
    """

    name: str
    shape: tuple[int, ...]
    axes: str
    dtype: Literal["uint8", "float32"]
    channels: str
    preprocessing: tuple[str, ...]
    sample_shape: tuple[int, ...] | None = None
    images: ImagePreprocessing | None = None
    is_table: bool = False

    @property
    def takes_images(self) -> bool:
        """Whether a sample is an image."""
        return self.axes == IMAGE_AXES


class OutputBlob(FrozenModel):
    """One output of the model, float32.

    Attributes:
        name: Name in the signature.
        blob: Blob of deploy.prototxt with the same values.
        task: Kind of result: ``classification`` and ``multi_label`` are probabilities, ``segmentation`` probabilities
            of each pixel, ``embedding`` the vector of one branch of a pair.
        shape: Shape in Caffe's axis order, with the batch axis as -1.
        n_classes: Classes or labels; 0 for other results.
    """

    name: str
    blob: str
    task: TaskName
    shape: tuple[int, ...]
    n_classes: int


class OutputContract(FrozenModel):
    """The main output.

    Attributes:
        scores: Name of the output; for a classification the float32 output (N, n_classes) of class probabilities.
        classes: Name of the int64 output (N,), the most probable class; empty for other results.
        n_classes: Number of classes or labels; 0 for other results.
        labels: Names of the classes or labels in order; empty if the names are unknown.
    """

    scores: str
    classes: str
    n_classes: int
    labels: tuple[str, ...]


class Origin(FrozenModel):
    """Sources of the bundle; digests are ``sha256:<hex>``.

    Attributes:
        run: Name of the run's folder; for converted files the name of the .caffemodel.
        iteration: Iteration of the snapshot; None for weights that are no snapshot.
        weights: File name of the exported weights.
        weights_digest: Digest of that file.
        net_digest: Digest of the run's net.prototxt, or of the converted net.
        solver_digest: Digest of the run's solver.prototxt; None for converted files.
        config_digest: Digest of the run's config.json; None for converted files.
        datasets: Split -> digest of its manifest; empty if the run read the net's own sources.
        started_from: Weights (a,b) or solverstate at the start of the run; None for fresh parameters.
        started_from_digest: Digests of the files in ``started_from``; None without files, or if a file was removed.
        split_rule: Rule that separates training samples from test samples; None if the rule is unknown.
        code_version: Release of DeepSpark at the export; None in version 1.
    """

    run: str
    iteration: int | None
    weights: str
    weights_digest: str
    net_digest: str
    solver_digest: str | None
    config_digest: str | None
    datasets: dict[str, str]
    started_from: str | None
    started_from_digest: str | None
    split_rule: SplitRule | None = None
    code_version: str | None = None


class OutsideCheck(FrozenModel):
    """Comparison of the trained graph with the numbers that a foreign reader computes from the bundle's files.

    Attributes:
        file: The file that was read.
        reader: Program that read the file, in a separate process.
        max_relative_difference: As in ``Check``; None if this reader cannot read this net.
        unread: Reason why the reader cannot read the net; empty if the file was read.
        agreement: Share of the samples with the trained net's most probable class; None for a file that must have
            equal probabilities.
        min_agreement: A smaller share refuses the export; None for a file that must have equal probabilities.
    """

    file: str
    reader: str
    max_relative_difference: float | None
    unread: str = ""
    agreement: float | None = None
    min_agreement: float | None = None


class Check(FrozenModel):
    """How the exported model compares with the trained graph.

    Attributes:
        n_samples: Number of real samples in the check.
        saved_model_max_relative_difference: Largest difference of a number, relative to the largest number of the same
            output; None if the bundle has no SavedModel.
        caffemodel_max_relative_difference: The same for weights.caffemodel read again with deploy.prototxt; None if
            the bundle has no such file.
        allowed: A larger difference refuses the export.
        outside: Comparisons by readers that do not use DeepSpark.
        left_out: Format that the net cannot have -> reason.
    """

    n_samples: int
    saved_model_max_relative_difference: float | None
    caffemodel_max_relative_difference: float | None
    allowed: float
    outside: tuple[OutsideCheck, ...] = ()
    left_out: dict[str, str] = Field(default={})

    def largest(self) -> float:
        """Return the largest difference among files that must have the trained numbers; 0 without such files."""
        differences = [self.saved_model_max_relative_difference, self.caffemodel_max_relative_difference]
        differences += [
            outside_check.max_relative_difference
            for outside_check in self.outside
            if outside_check.min_agreement is None
        ]
        return max((difference for difference in differences if difference is not None), default=0.0)


class BundleManifest(FrozenModel):
    """The whole file.

    Attributes:
        format_version: Version of the manifest. 1 lacks ``split_rule`` and ``code_version``. Before 3 every bundle
            comes from a run. Before 4 a bundle holds only SavedModel and Caffe's files, and the check lacks
            ``outside``. Before 5 every bundle is a classifier, without ``outputs``. Before 6 inputs lack ``images``
            and ``is_table``, and the manifest lacks ``unit_batch``.
        created: UTC, ISO 8601, whole seconds.
        net: Name of the net.
        inputs: Inputs of the model, one entry per argument.
        output: Main result of the model.
        outputs: All outputs except ``classes``, the main output first.
        unit_batch: Number of samples that the net computes together, if a layer fixes the number. The model repeats
            the last sample to fill the last batch. 1: samples are independent.
        origin: Sources of the bundle.
        check: Result of the check.
        files: Every other file of the bundle, relative path -> digest.
    """

    format_version: Literal[1, 2, 3, 4, 5, 6]
    created: str
    net: str
    inputs: tuple[InputContract, ...]
    output: OutputContract
    origin: Origin
    check: Check
    files: dict[str, str]
    outputs: tuple[OutputBlob, ...] = ()
    unit_batch: Annotated[int, Field(ge=1)] = 1

    def results(self) -> tuple[OutputBlob, ...]:
        """Return all outputs except ``classes``, the main output first, for every version."""
        if self.outputs:
            return self.outputs
        n_classes = self.output.n_classes
        scores = self.output.scores
        return (
            OutputBlob(name=scores, blob=scores, task="classification", shape=(-1, n_classes), n_classes=n_classes),
        )

    @property
    def is_classifier(self) -> bool:
        """Is the main result one class a sample?"""
        return self.results()[0].task == "classification"


def file_digest(path: DataPath) -> str:
    """Return ``sha256:<hex>`` of a file's bytes."""
    with open_regular(path) as handle:
        return f"sha256:{hashlib.file_digest(handle, 'sha256').hexdigest()}"


def read_manifest(bundle: Path) -> BundleManifest:
    """Read the manifest of a bundle for scoring or serving, and compare every file with the manifest.

    Raises:
        DataError: The folder is no bundle, the manifest is damaged, a file is missing or changed, or the bundle lacks
            the formats for scoring and serving.
    """
    manifest = parse_manifest(bundle)
    check = manifest.check
    needed = {CAFFE: check.caffemodel_max_relative_difference, SAVED_MODEL: check.saved_model_max_relative_difference}
    for name, difference in needed.items():
        if difference is None:
            msg = (
                f"{bundle}: the bundle has no {name}; evaluation, prediction, serving and production read "
                f"{CAFFE} and {SAVED_MODEL}: export again with both among --formats"
            )
            raise DataError(msg)
    if (damage := find_damage(bundle, manifest)) is not None:
        msg = f"{bundle}: {damage}; export again"
        raise DataError(msg)
    return manifest


def parse_manifest(bundle: Path) -> BundleManifest:
    """Read a bundle's manifest without its files: a list of models must not read every weight.

    Raises:
        DataError: The folder is no bundle, or the manifest is damaged.
    """
    path = bundle / MANIFEST_NAME
    try:
        return BundleManifest.model_validate_json(regular_bytes(path))
    except FileNotFoundError as error:
        remedy = 'run "deepspark export" first'
        if (versions := bundle / "versions").is_dir():  # of a model
            remedy = (
                f"give a version of the model, a folder in {versions}; the version in production: deepspark models list"
                f' --models {bundle.parent}, or in Python ds.Model("{bundle}").production'
            )
        finding = MANIFEST_NAME if bundle.is_dir() else "such folder"
        msg = f"{bundle}: no {finding}, so no complete bundle; {remedy}"
        raise DataError(msg) from error
    except ValidationError as error:
        msg = f"{path}: {first_problem(error)}; export again (manifest version {MANIFEST_VERSION})"
        raise DataError(msg) from error


def find_bundle(path: Path) -> Path:
    """Return the folder of the bundle of a run, if ``path`` is a run; else ``path``.

    Raises:
        ConfigError: The run has no bundle, or several and none under the usual name.
    """
    run = RunPaths(path)
    if (path / MANIFEST_NAME).is_file():
        return path
    if (run.bundle / MANIFEST_NAME).is_file():
        return run.bundle
    if not run.config.is_file():
        return path
    bundles = sorted(manifest.parent for manifest in path.glob(f"*/{MANIFEST_NAME}"))
    if len(bundles) == 1:
        return bundles[0]
    if bundles:
        msg = f"bundle={path}: a run with {len(bundles)} bundles; give one of them: {', '.join(map(str, bundles))}"
    else:
        content = ", ".join(sorted(entry.name for entry in path.iterdir()))
        msg = f'bundle={path}: a run without a bundle, it holds {content}; run "deepspark export {path}"'
    raise ConfigError(msg)


def find_damage(bundle: Path, manifest: BundleManifest) -> str | None:
    """Return the difference of the first file that does not match the manifest; None if all files match."""
    for name, digest in manifest.files.items():
        if not (bundle / name).is_file():
            return f"{name} is missing, {MANIFEST_NAME} lists it"
        if file_digest(bundle / name) != digest:
            return f"{name} has changed since {MANIFEST_NAME} was written"
    return None


def unlisted_files(bundle: Path, manifest: BundleManifest) -> list[str]:
    """Return the files of a bundle's folder that the manifest does not list."""
    names = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if not path.is_dir()}
    return sorted(names - {MANIFEST_NAME, *manifest.files})
