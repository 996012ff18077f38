"""Whether a dataset is whole: every byte and every record of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from caffe_import.files.mean_file import read_mean
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.inspect.facts import read_splits
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.excluded_rows import kept_rows
from deepspark_ops.shards.files.row_records import read_row_records
from deepspark_ops.shards.files.shard_records import read_records
from deepspark_ops.shards.manifest import DatasetManifest, require_one_recipe, require_unedited, shard_folder
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.shards.verification import verify
from deepspark_ops.stores.staging import local_copy
from deepspark_ops.stores.store_path import DataPath

_SAMPLES_READ: Final = 256
_MEAN_ERROR: Final = 1e-3
"""The mean image is float32; its mean may differ so much from that of the exact sums."""


def verify_dataset(dataset: Path, on_split: Callable[[str], None]) -> None:
    """Compute all digests anew, read every record, and count the labels; ``on_split`` is called with each good split.

    Raises:
        DataError: Names what is damaged, a line for each split in which something is.
    """
    findings = []
    manifests = read_splits(dataset)
    for split in manifests:
        folder = DatasetPaths(dataset).split(split)
        try:
            manifest = verify(folder)
            _read_all(folder, manifest)
            require_unedited(folder)
        except DataError as error:
            findings.append(str(error))
            continue
        on_split(
            f"{split}: {manifest.n_samples:,} samples in {len(manifest.shards):,} shards, {manifest.n_bytes:,} bytes:"
            " every digest is right, every record can be read"
        )
    try:
        require_one_recipe(dataset, manifests)
    except DataError as error:
        findings.append(str(error))
    if findings:
        raise DataError("\n".join(findings))


def _read_all(folder: DataPath, manifest: DatasetManifest) -> None:
    if manifest.split != folder.name:
        msg = f"{folder}: the manifest says that this is the {manifest.split} set"
        raise DataError(msg)
    if manifest.split == "train" and manifest.mean_file is not None:
        with local_copy(shard_folder(folder) / manifest.mean_file.file) as path:
            mean = read_mean(path).mean(axis=(1, 2))
        if not np.allclose(mean, manifest.mean_values, rtol=_MEAN_ERROR, atol=_MEAN_ERROR):
            msg = f"{folder / manifest.mean_file.file}: means are {mean.tolist()}, mean_values {manifest.mean_values}"
            raise DataError(msg)
    counts = np.zeros(manifest.n_classes, np.int64)
    with open_dataset(folder) as dataset:
        for number, shard in enumerate(manifest.shards):
            if dataset.is_encoded(number) != manifest.encoded:
                msg = f"{folder / shard.file}: encoded is {not manifest.encoded}, the manifest says {manifest.encoded}"
                raise DataError(msg)
            labels = []
            for start in range(0, shard.n_samples, _SAMPLES_READ):
                columns = dataset.read(number, start, min(_SAMPLES_READ, shard.n_samples - start))
                if not all(np.isfinite(column).all() for column in columns if column.dtype.kind == "f"):
                    msg = f"{folder / shard.file}: samples from {start:,} on hold values that are not finite"
                    raise DataError(msg)
                labels.append(columns[1])
            found = np.concatenate(labels)
            _compare_records(folder, manifest, number, found)
            if manifest.n_classes:
                counts += np.bincount(found, minlength=manifest.n_classes)[: manifest.n_classes]
    if manifest.n_classes and tuple(counts.tolist()) != manifest.label_histogram:
        msg = f"{folder}: the shards hold {counts.tolist()} samples of each label, the manifest says otherwise"
        raise DataError(msg)


def _compare_records(folder: DataPath, manifest: DatasetManifest, number: int, labels: np.ndarray) -> None:
    shard = manifest.shards[number]
    if shard.rows is not None and len(read_row_records(shard_folder(folder) / shard.rows.file).states) != shard.n_rows:
        msg = f"{folder / shard.rows.file}: tells of another number of rows than {shard.file} holds; ingest with full"
        raise DataError(msg)
    if shard.records is None:
        return
    held = read_records(shard_folder(folder) / shard.records.file).labels
    if len(held) != shard.n_rows or (held[kept_rows(shard.excluded, shard.n_rows)] != labels).any():
        msg = f"{folder / shard.records.file}: says other labels than {shard.file} holds; ingest with full"
        raise DataError(msg)
