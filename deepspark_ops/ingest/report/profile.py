"""The distributions of a dataset's training set: classes, sizes of images, brightness and contrast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from deepspark_ops.ingest.versions.kept_versions import version_digest
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.excluded_rows import kept_rows
from deepspark_ops.shards.files.shard_records import LOOK_COLUMNS, read_records
from deepspark_ops.shards.manifest import DatasetManifest, present_splits, read_manifest, shard_folder
from deepspark_ops.stores.store_path import DataPath

Values = npt.NDArray[np.float64]
_SMOOTHING: Final = 0.5
"""Added to every count, so that a bin without a sample does not make a difference infinite."""
N_BINS: Final = 16


@dataclass(frozen=True)
class Profile:
    """Distributions of a training set.

    Attributes:
        digest: Digest of the manifest.
        version: Version of the dataset.
        classes: Class -> samples, in label order.
        looks: (m, 5) for some samples; columns: ``LOOK_COLUMNS``.
        weights: (m,), number of samples that a look stands for.
    """

    digest: str
    version: int
    classes: dict[str, int]
    looks: Values
    weights: Values

    def column(self, name: str) -> tuple[Values, Values]:
        """Return values and weights of a column of the looks, without unknown sizes."""
        values = self.looks[:, LOOK_COLUMNS.index(name)]
        is_known = values > 0 if name in ("height", "width") else np.ones(len(values), bool)
        return values[is_known], self.weights[is_known]


def read_profile(dataset: DataPath) -> Profile:
    """Return the profile of a dataset's training set; without looks for shards without records.

    Raises:
        DataError: The dataset is missing or damaged.
    """
    folder = DatasetPaths(dataset).split("train")
    manifest = read_manifest(folder)
    looks, weights = _looks(folder, manifest)
    names = manifest.class_names or tuple(str(label) for label in range(manifest.n_classes))
    return Profile(
        version_digest(dataset),
        manifest.version,
        dict(zip(names, manifest.label_histogram, strict=True)),
        looks,
        weights,
    )


def _looks(folder: DataPath, manifest: DatasetManifest) -> tuple[Values, Values]:
    looks, weights = [np.empty((0, len(LOOK_COLUMNS)))], [np.empty(0)]
    for shard in manifest.shards:
        if shard.records is None:
            continue
        held = read_records(shard_folder(folder) / shard.records.file).looks
        held = held[np.isin(held[:, 0], kept_rows(shard.excluded, shard.n_rows))]
        looks.append(held)
        weights.append(np.full(len(held), shard.n_samples / max(1, len(held))))
    return np.concatenate(looks), np.concatenate(weights)


def common_edges(parts: Sequence[Values]) -> Values:
    """Return the edges of bins for values of several sets; few whole numbers get a bin for each number."""
    values = np.concatenate(list(parts))
    distinct = np.unique(values)
    if len(distinct) <= N_BINS and (distinct == np.floor(distinct)).all():
        return np.append(distinct, distinct[-1] + 1) if len(distinct) else np.array([0.0, 1.0])
    return np.histogram_bin_edges(values, N_BINS)


def stability_index(earlier: Sequence[float] | Values, now: Sequence[float] | Values) -> float:
    """Return the population stability index of two sets of counts: sum of (q - p) ln(q / p) over the bins.

    Below 0.1 is taken for no change, above 0.25 for a large one (Siddiqi, Credit Risk Scorecards, 2006).

    Example:
        >>> stability_index([50, 50], [50, 50])
        0.0
        >>> round(stability_index([50, 50], [80, 20]), 2)
        0.41
    """
    p, q = (np.asarray(counts, np.float64) + _SMOOTHING for counts in (earlier, now))
    p, q = p / p.sum(), q / q.sum()
    return float(((q - p) * np.log(q / p)).sum())


def chi_square(earlier: Sequence[float] | Values, now: Sequence[float] | Values) -> tuple[float, int, float]:
    """Return Pearson's chi-square of two sets of counts, the degrees of freedom, and the p-value.

    The p-value, by Wilson and Hilferty's cube root, is correct within 0.005. Bins that are empty in both sets are left
    out.
    """
    table = np.array([earlier, now], np.float64)
    table = table[:, table.sum(axis=0) > 0]
    freedom = table.shape[1] - 1
    if freedom < 1 or (table.sum(axis=1) == 0).any():
        return 0.0, max(0, freedom), 1.0
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    statistic = float(((table - expected) ** 2 / expected).sum())
    spread = 2 / (9 * freedom)
    deviation = ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return statistic, freedom, math.erfc(deviation / math.sqrt(2)) / 2


def drift_word(index: float) -> str:
    """Return a stability index in words.

    Example:
        >>> drift_word(0.02), drift_word(0.2), drift_word(0.7)
        ('no change to speak of', 'some change', 'a large change')
    """
    return "no change to speak of" if index < 0.1 else "some change" if index < 0.25 else "a large change"


def resize_text(dataset: DataPath) -> str:
    """Return the sizes that a resize changed, e.g. ``pictures of 40x48 become 28x28 (height x width)``.

    The sizes are those of up to 128 samples of each split's first shard.

    Returns:
        The sentence without a full stop; empty without a resize, or if the resize changed none of these samples.

    Raises:
        DataError: The dataset is missing or damaged.
    """
    manifest = read_manifest(DatasetPaths(dataset).split("train"))
    if not manifest.options.get("resize_height"):
        return ""
    sizes: set[tuple[int, int]] = set()
    for split in present_splits(dataset):
        sizes |= _sizes_of_first_shard(DatasetPaths(dataset).split(split))
    stored = manifest.sample_shape[1:]
    if sizes <= {stored}:
        return ""
    ordered = sorted(sizes, key=lambda size: (int(np.prod(size)), size))
    ends = " to ".join(dict.fromkeys(f"{height}x{width}" for height, width in (ordered[0], ordered[-1])))
    return f"pictures of {ends} become {stored[0]}x{stored[1]} (height x width)"


def _sizes_of_first_shard(folder: DataPath) -> set[tuple[int, int]]:
    """Return (height, width) in the source, in pixels, of the samples with looks."""
    records = next((shard.records for shard in read_manifest(folder).shards if shard.records is not None), None)
    if records is None:
        return set()
    looks = read_records(shard_folder(folder) / records.file).looks
    columns = [LOOK_COLUMNS.index("height"), LOOK_COLUMNS.index("width")]
    return {(int(height), int(width)) for height, width in looks[:, columns].tolist() if height and width}
