"""``samples.h5``: a net's compact answers for every sample, for a comparison of two nets sample by sample.

Format version 3 has the attributes ``format_version``, ``task``, ``dataset_digest``, ``weights_digest`` and
``n_classes``. The datasets have a single axis, (n_samples,): ``content``, the fields of ``SampleLosses``, for a
classification the fields of ``Answers``, and ``group`` if samples have groups. Version 2 lacks ``group``. Version 1
also lacks ``task``, meaning classification. Texts have a fixed length; older files have texts of variable length.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import numpy.typing as npt

from caffe_import.errors import CaffeImportError
from caffe_import.files.hdf5_file import attribute, data_set, fixed_text, open_hdf5
from deepspark_ops.config.shared_options.task import TASK_NAMES, TaskName
from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.scores import Answers, SampleLosses
from deepspark_ops.run_paths import write_whole

SAMPLES_VERSION: Final = 3
SAMPLES_NAME = "samples.h5"
_WITHOUT_TASK: Final = 1
_WITHOUT_GROUP: Final = 2


@dataclass(frozen=True)
class ScoredSamples:
    """The file.

    Attributes:
        dataset_digest: Of the samples, as in ``metrics.json``.
        weights_digest: Of the weights that were scored.
        n_classes: Classes that the net scores; 0 where there are none.
        answers: One entry per sample that counts; of a classification ``Answers``.
        content: (n_samples,) uint64, hash of each sample's stored values: equal samples, equal numbers.
        task: What the net is for.
        group: (n_samples,) uint64, hash of the name of each sample's group; None where samples have no groups.
    """

    dataset_digest: str
    weights_digest: str
    n_classes: int
    answers: SampleLosses
    content: npt.NDArray[np.uint64]
    task: TaskName = "classification"
    group: npt.NDArray[np.uint64] | None = None

    def classes(self) -> Answers:
        """Return the answers of a classification.

        Raises:
            DataError: They are of another task.
        """
        if not isinstance(self.answers, Answers):
            msg = f"the samples are of a {self.task}, there are no classes to compare; evaluate a classification"
            raise DataError(msg)
        return self.answers


def write_samples(path: Path, samples: ScoredSamples) -> None:
    """Write the file whole."""
    columns = {field.name: getattr(samples.answers, field.name) for field in fields(samples.answers)}
    with write_whole(path) as temporary, h5py.File(temporary, "w") as file:
        file.attrs["format_version"] = SAMPLES_VERSION
        file.attrs["task"] = fixed_text(samples.task)
        file.attrs["dataset_digest"] = fixed_text(samples.dataset_digest)
        file.attrs["weights_digest"] = fixed_text(samples.weights_digest)
        file.attrs["n_classes"] = samples.n_classes
        if samples.group is not None:
            columns["group"] = samples.group
        for name, values in {**columns, "content": samples.content}.items():
            file.create_dataset(name, data=values, compression="gzip", shuffle=True)


def read_samples(path: Path) -> ScoredSamples:
    """Read the file.

    Raises:
        DataError: Missing, damaged or of another version.
    """
    remedy = 'run "deepspark evaluate" again'
    if not path.is_file():
        msg = f"{path}: no such file, so samples cannot be compared one by one; {remedy}"
        raise DataError(msg)
    try:
        with open_hdf5(path) as file:
            version = int(attribute(file, "format_version"))
            if version in (_WITHOUT_TASK, _WITHOUT_GROUP, SAMPLES_VERSION):
                return _samples(file, "classification" if version == _WITHOUT_TASK else str(attribute(file, "task")))
    except CaffeImportError as error:
        raise DataError(str(error)) from error
    except (OSError, KeyError, ValueError, TypeError, RuntimeError) as error:  # h5py's, of a damaged file
        msg = f"{path}: damaged ({error}); {remedy}"
        raise DataError(msg) from error
    msg = f"{path}: format_version is {version}, allowed: {_WITHOUT_TASK} to {SAMPLES_VERSION}; {remedy}"
    raise DataError(msg)


def _samples(file: h5py.File, task: str) -> ScoredSamples:
    if task not in TASK_NAMES:
        msg = f"task is {task!r}"
        raise ValueError(msg)
    form = Answers if task == "classification" else SampleLosses
    columns: dict[str, Any] = {field.name: data_set(file, field.name)[:] for field in fields(form)}
    identity_columns = {
        name: data_set(file, name)[:] for name in ("content", "group") if name == "content" or name in file
    }
    lengths = {name: len(values) for name, values in {**columns, **identity_columns}.items()}
    if len(set(lengths.values())) != 1:
        msg = f"columns of different lengths: {lengths}"
        raise ValueError(msg)
    return ScoredSamples(
        dataset_digest=str(attribute(file, "dataset_digest")),
        weights_digest=str(attribute(file, "weights_digest")),
        n_classes=int(attribute(file, "n_classes")),
        answers=form(**columns),
        content=identity_columns["content"],
        task=task,
        group=identity_columns.get("group"),
    )
