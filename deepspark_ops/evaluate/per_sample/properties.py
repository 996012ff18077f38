"""Properties of samples besides the class: folder, shard, a table's group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import ConfigError
from deepspark_ops.evaluate.samples import Samples
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.shards.class_name import class_name

CLASS: Final = "class"
FOLDER: Final = "folder"
SHARD: Final = "shard"
GROUP: Final = "group"
_KEY_DIGITS: Final = 8
"""LMDB keys of ingested images begin with so many digits and ``_``, as ``convert_imageset`` writes them."""


def known_properties(samples: Samples, tasks: Sequence[ChosenTask]) -> tuple[str, ...]:
    """Return the properties of these samples; the class comes from the first classification among the results."""
    properties = [CLASS] if any(task.task == "classification" for task in tasks) else []
    if samples.names(0, 1) is not None:
        properties.append(FOLDER)
    return (*properties, SHARD, *_table_columns(samples))


def check_properties(columns: Sequence[str], samples: Samples, tasks: Sequence[ChosenTask]) -> None:
    """Refuse an unknown property of the samples.

    Raises:
        ConfigError: A property is unknown; the message lists the known properties.
    """
    properties = known_properties(samples, tasks) if columns else ()
    for column in columns:
        if column not in properties:
            msg = f"slices={column}: these samples have no such property; known: {', '.join(properties)}"
            raise ConfigError(msg)


def property_values(
    column: str,
    samples: Samples,
    start: int,
    count: int,
    tasks: Sequence[ChosenTask],
    targets: Sequence[npt.NDArray[Any]],
) -> list[str]:
    """Return the property ``column`` of samples [start, start + count).

    ``targets`` are of each result, (count, ...): they have the classes.
    """
    cache = samples.layers[0].samples
    if column == CLASS:
        at = next(at for at, task in enumerate(tasks) if task.task == "classification")
        names = samples.class_names if at == 0 else ()  # of further results nobody knows whose the names are
        labels = targets[at].reshape(count).astype(int).tolist()
        return [class_name(names, label) for label in labels]
    if column == FOLDER:
        return [folder_of(name) for name in samples.names(start, count) or ()]
    if column == SHARD:
        shards = cache.dataset.shards
        return [Path(shards[shard].name).name for shard, _, n in cache.pieces(start, count) for _ in range(n)]
    return cache.texts(start, count, _table_columns(samples)[column])


def sample_groups(samples: Samples) -> npt.NDArray[np.uint64] | None:
    """Return a hash of each sample's group, (n_samples,); None where the dataset has no groups."""
    dataset = samples.layers[0].samples.dataset
    hashes = [dataset.group_hashes(shard) for shard in range(len(dataset.shards))]
    shard_hashes = [of_shard for of_shard in hashes if of_shard is not None]
    return np.concatenate(shard_hashes) if len(shard_hashes) == len(hashes) else None


def folder_of(name: str) -> str:
    """Return the folder of an image by the key or path.

    Example:
        >>> folder_of("00000017_dir/cat.jpg"), folder_of("cat.jpg"), folder_of("/data/a/1.png")
        ('dir', '.', '/data/a')
    """
    digits, mark, path = name.partition("_")
    is_key = mark and len(digits) == _KEY_DIGITS and digits.isdigit()
    return str(PurePosixPath(path if is_key else name).parent)


def _table_columns(samples: Samples) -> dict[str, str]:
    """Return the properties of a table's rows: name -> column of the shards."""
    manifest = samples.layers[0].samples.dataset.manifest
    if manifest is None or manifest.table is None or manifest.shard_format != "hdf5":
        return {}
    special_columns = {GROUP: manifest.table.group, "id": manifest.table.id}
    named = {name: column for column, name in special_columns.items() if name is not None}
    return named | {column: column for column, name in special_columns.items() if name is not None}
