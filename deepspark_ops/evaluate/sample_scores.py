"""``samples.h5``: what a net answered for every sample, compact, so that two nets can be compared sample by sample.

Format version 1: attributes ``format_version``, ``dataset_digest``, ``weights_digest`` and ``n_classes``; the fields of
``Answers`` and ``content`` as datasets of one axis, (n_samples,).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.scores import Answers
from deepspark_ops.run_paths import write_whole

SAMPLES_VERSION: Final = 1
SAMPLES_NAME = "samples.h5"


@dataclass(frozen=True)
class ScoredSamples:
    """The file.

    Attributes:
        dataset_digest: Of the samples, as in ``metrics.json``.
        weights_digest: Of the weights that were scored.
        n_classes: Classes that the net scores.
        answers: One entry per sample that counts.
        content: (n_samples,) uint64, hash of each sample's stored values: equal samples, equal numbers.
    """

    dataset_digest: str
    weights_digest: str
    n_classes: int
    answers: Answers
    content: npt.NDArray[np.uint64]


def write_samples(path: Path, samples: ScoredSamples) -> None:
    """Write the file whole."""
    columns = {field.name: getattr(samples.answers, field.name) for field in fields(Answers)}
    with write_whole(path) as temporary, h5py.File(temporary, "w") as file:
        file.attrs["format_version"] = SAMPLES_VERSION
        file.attrs["dataset_digest"] = samples.dataset_digest
        file.attrs["weights_digest"] = samples.weights_digest
        file.attrs["n_classes"] = samples.n_classes
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
        with h5py.File(path, "r") as file:
            version = int(file.attrs["format_version"])
            if version == SAMPLES_VERSION:
                return _of_version_1(file)
    except (OSError, KeyError, ValueError, TypeError, RuntimeError) as error:  # h5py's, of a damaged file
        msg = f"{path}: damaged ({error}); {remedy}"
        raise DataError(msg) from error
    msg = f"{path}: format_version is {version}, allowed: {SAMPLES_VERSION}; {remedy}"
    raise DataError(msg)


def _of_version_1(file: h5py.File) -> ScoredSamples:
    columns: dict[str, Any] = {field.name: file[field.name][:] for field in fields(Answers)}
    content = file["content"][:]
    lengths = {name: len(values) for name, values in {**columns, "content": content}.items()}
    if len(set(lengths.values())) != 1:
        msg = f"columns of different lengths: {lengths}"
        raise ValueError(msg)
    return ScoredSamples(
        dataset_digest=str(file.attrs["dataset_digest"]),
        weights_digest=str(file.attrs["weights_digest"]),
        n_classes=int(file.attrs["n_classes"]),
        answers=Answers(**columns),
        content=content,
    )
