"""``manifest.json`` of a bundle: what is in it, how the model is called, and digests of everything it came from."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from caffe_import.files.regular_file import open_regular, regular_bytes
from deepspark_ops.config.shared_options.bundle_formats import CAFFE, SAVED_MODEL
from deepspark_ops.config.shared_options.task import TaskName
from deepspark_ops.errors import DataError
from deepspark_ops.shards.manifest import SplitRule
from deepspark_ops.shards.preprocessing import ImagePreprocessing

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


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class InputContract(_Frozen):
    """What the SavedModel's ``serving_default`` takes.

    Attributes:
        name: Name of the argument.
        shape: With the batch axis as -1, e.g. ``(-1, 28, 28, 1)``.
        axes: Meaning of the axes, e.g. ``N, H, W, C``.
        dtype: ``uint8`` or ``float32``.
        channels: ``gray``, ``RGB``, or empty where there is no such axis.
        preprocessing: What the model itself does to the input, in order, in words.
        sample_shape: Of one sample that the model takes, without N; None before version 4.
        images: What was done to the training images before they were such samples, which the model does not do itself:
            raw images need it first. None where it is not known, as before version 6, and where the input is no image.
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


class OutputBlob(_Frozen):
    """One output of the model, float32.

    Attributes:
        name: In the signature.
        blob: Of deploy.prototxt, which holds the same values.
        task: Which result it is: ``classification`` and ``multi_label`` are probabilities, ``segmentation`` those of
            each pixel, ``embedding`` the vector of one side of a pair.
        shape: With the batch axis as -1; behind it Caffe's order.
        n_classes: Classes or labels; 0 where there are none.
    """

    name: str
    blob: str
    task: TaskName
    shape: tuple[int, ...]
    n_classes: int


class OutputContract(_Frozen):
    """The main output.

    Attributes:
        scores: Its name; of a classification the float32 output (N, n_classes) of class probabilities.
        classes: Name of the int64 output (N,), the most probable class; empty for other results.
        n_classes: Number of classes or labels; 0 where there are none.
        labels: Their names in order; empty if they are not known.
    """

    scores: str
    classes: str
    n_classes: int
    labels: tuple[str, ...]


class Origin(_Frozen):
    """What the bundle came from; digests are ``sha256:<hex>``.

    Attributes:
        run: Name of the run's folder; of files that were converted, that of the .caffemodel.
        iteration: Iteration of the snapshot; None for weights that are no snapshot.
        weights: File name of the exported weights.
        weights_digest: Digest of that file.
        net_digest: Digest of the run's net.prototxt, or of the net that was converted.
        solver_digest: Digest of the run's solver.prototxt; None of files that were converted.
        config_digest: Digest of the run's config.json; None likewise.
        datasets: Split -> digest of its manifest; empty if the run read the net's own sources.
        started_from: The weights (a,b) or solverstate that the run began with; None for fresh parameters.
        started_from_digest: Digest of that file, likewise; None if there is none or it is gone.
        split_rule: How training samples were told from test samples; None if it is not known.
        code_version: Release of DeepSpark that exported; None in version 1.
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


class OutsideCheck(_Frozen):
    """How what a reader of others computes from the bundle's files compares with the trained graph.

    Attributes:
        file: The file that was read.
        reader: What read it, in a process of its own.
        max_relative_difference: As in ``Check``; None if this reader cannot read this net.
        unread: Why it cannot; empty if it can.
        agreement: Share of the samples with the trained net's most probable class; None for a file that must give its
            very probabilities.
        min_agreement: A smaller share refuses the export; None likewise.
    """

    file: str
    reader: str
    max_relative_difference: float | None
    unread: str = ""
    agreement: float | None = None
    min_agreement: float | None = None


class Check(_Frozen):
    """How the exported model compares with the trained graph.

    Attributes:
        n_samples: Real samples it ran on.
        saved_model_max_relative_difference: Largest difference of a number, relative to its output's largest;
            None if the bundle has no SavedModel.
        caffemodel_max_relative_difference: The same for weights.caffemodel read back with deploy.prototxt; None
            likewise.
        allowed: A larger difference refuses the export.
        outside: The same by readers that have nothing of ours.
        left_out: Format that the net cannot have -> why.
    """

    n_samples: int
    saved_model_max_relative_difference: float | None
    caffemodel_max_relative_difference: float | None
    allowed: float
    outside: tuple[OutsideCheck, ...] = ()
    left_out: dict[str, str] = {}

    def largest(self) -> float:
        """Return the largest difference of the files that must give what was trained; 0 if there are none."""
        found = [self.saved_model_max_relative_difference, self.caffemodel_max_relative_difference]
        found += [one.max_relative_difference for one in self.outside if one.min_agreement is None]
        return max((difference for difference in found if difference is not None), default=0.0)


class BundleManifest(_Frozen):
    """The whole file.

    Attributes:
        format_version: Version of this form; 1 has no ``split_rule`` and no ``code_version``; before 3
            every bundle is of a run; before 4 there are SavedModel and Caffe's files alone, and no ``outside``;
            before 5 every bundle is a classifier, and there is no ``outputs``; before 6 inputs have no ``images`` and
            no ``is_table``, and there is no ``unit_batch``.
        created: UTC, ISO 8601, whole seconds.
        net: Name of the net.
        inputs: What the model takes, one entry per argument.
        output: Its main result.
        outputs: All that it returns but ``classes``, the main one first.
        unit_batch: Samples that the net computes together, in their order, where a layer fixes the number; the model
            fills the last such batch with its last sample. 1: each sample has an answer of its own.
        origin: What it came from.
        check: How it was checked.
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
        """Return all outputs but ``classes``, the main one first, of every version."""
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


def file_digest(path: Path) -> str:
    """Return ``sha256:<hex>`` of a file's bytes."""
    with open_regular(path) as handle:
        return f"sha256:{hashlib.file_digest(handle, 'sha256').hexdigest()}"


def read_manifest(bundle: Path) -> BundleManifest:
    """Read the manifest of a bundle that is to be scored or served, and compare every file with it.

    Raises:
        DataError: No bundle there, a damaged manifest, a file that is missing or changed, or a bundle that was written
            without the formats that they read.
    """
    manifest = parse_manifest(bundle)
    check = manifest.check
    needed = {CAFFE: check.caffemodel_max_relative_difference, SAVED_MODEL: check.saved_model_max_relative_difference}
    for name, difference in needed.items():
        if difference is None:
            msg = (
                f"{bundle}: the bundle has no {name}; who scores, predicts, serves or puts it into production reads "
                f"{CAFFE} and {SAVED_MODEL}: export again with both among --formats"
            )
            raise DataError(msg)
    if (damage := find_damage(bundle, manifest)) is not None:
        msg = f"{bundle}: {damage}; export again"
        raise DataError(msg)
    return manifest


def parse_manifest(bundle: Path) -> BundleManifest:
    """Read a bundle's manifest alone: a list of models must not read every weight.

    Raises:
        DataError: No bundle there, or a damaged manifest.
    """
    path = bundle / MANIFEST_NAME
    try:
        return BundleManifest.model_validate_json(regular_bytes(path))
    except FileNotFoundError as error:
        msg = f'{bundle}: no {MANIFEST_NAME}, so no complete bundle; run "deepspark export" first'
        raise DataError(msg) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "file"
        msg = f"{path}: {place}: {first['msg']}; export again (manifest version {MANIFEST_VERSION})"
        raise DataError(msg) from error


def find_damage(bundle: Path, manifest: BundleManifest) -> str | None:
    """Return what is wrong with the first file that is not as the manifest has it; None if all are."""
    for name, digest in manifest.files.items():
        if not (bundle / name).is_file():
            return f"{name} is missing, {MANIFEST_NAME} lists it"
        if file_digest(bundle / name) != digest:
            return f"{name} has changed since {MANIFEST_NAME} was written"
    return None
