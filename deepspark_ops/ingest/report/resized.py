"""What the resize of an ingestion changed: the sizes of the pictures before and after it."""

from __future__ import annotations

import numpy as np

from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.manifest import present_splits, read_manifest, shard_folder
from deepspark_ops.shards.shard_records import LOOK_COLUMNS, read_records
from deepspark_ops.stores.store_path import DataPath


def resize_text(dataset: DataPath) -> str:
    """Return the sizes that a resize changed, e.g. ``pictures of 40x48 become 28x28 (height x width)``.

    The sizes are those of up to 128 samples of each split's first shard.

    Returns:
        The sentence without a full stop; empty if no resize was asked for, or it changed none of these samples.

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
    """Return (height, width) in the source, in pixels, of the samples that were looked at."""
    records = next((shard.records for shard in read_manifest(folder).shards if shard.records is not None), None)
    if records is None:
        return set()
    looks = read_records(shard_folder(folder) / records.file).looks
    columns = [LOOK_COLUMNS.index("height"), LOOK_COLUMNS.index("width")]
    return {(int(height), int(width)) for height, width in looks[:, columns].tolist() if height and width}
