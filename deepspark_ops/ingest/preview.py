"""A dataset of a source's first samples, made without Spark: checks need its shapes before the data are ingested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from deepspark_ops.config.ingest import IngestConfig, SourceConfig, is_known
from deepspark_ops.config.shared_options.source_formats import TABLE_FORMATS, SourceFormat
from deepspark_ops.ingest.commit import commit_dataset
from deepspark_ops.ingest.files.archive import is_compressed, split_member
from deepspark_ops.ingest.plan import Recipe, own_sources, plan_ingest
from deepspark_ops.ingest.records import SourceIndex
from deepspark_ops.ingest.shard_task import ShardTask
from deepspark_ops.ingest.sources.registry import (
    find_format,
    index_start,
    require_source,
    resolve_format,
    with_own_splits,
)
from deepspark_ops.ingest.versions.sample_options import options_of_samples
from deepspark_ops.shards.manifest import SourceRecord, SplitName
from deepspark_ops.sizes import size_text
from deepspark_ops.stores.store_path import StorePath

N_SAMPLES: Final = 100
"""Records of each split that are read."""
UNPACK_UP_TO_BYTES: Final = 2**28
"""Larger files are neither unpacked nor fetched from a store for a look."""


@dataclass(frozen=True)
class Preview:
    """The first samples of a source.

    Attributes:
        dataset: The dataset's folder: splits, manifests and mean file as an ingestion makes them, with few samples.
        n_samples: Samples that each split will have, unreadable ones included; None if not all labels were read.
    """

    dataset: Path
    n_samples: Mapping[SplitName, int] | None


def why_no_preview(config: SourceConfig) -> str | None:
    """Return why looking at the first samples would take too long, or needs Spark; None if neither.

    Raises:
        ConfigError: A file is missing.
    """
    if not is_known(config):
        return "Spark reads the table, and check starts no Spark"
    for name in ("source", "test_source", "validation_source", "class_names"):
        given: Path | None = getattr(config, name)
        if given is None:
            continue
        require_source(given, option=name)
        path, _ = split_member(given)
        if not path.is_file() or (n_bytes := path.stat().st_size) <= UNPACK_UP_TO_BYTES:
            continue
        if isinstance(path, StorePath):
            return f"{path} is in a store and has {size_text(n_bytes)}"
        if is_compressed(path):
            return f"{path} is compressed and has {size_text(n_bytes)}"
    return None


def make_preview(config: SourceConfig, folder: Path) -> Preview:
    """Ingest the first samples of a source into ``folder``, which is the caller's to remove.

    Raises:
        ConfigError: Options that do not fit the source.
        CaffeImportError: An LMDB is damaged.
        DataError: No usable record, or a damaged source.
        OSError: A file cannot be read.
    """
    whole = with_own_splits(
        IngestConfig(
            **config.model_dump(),
            output=folder / "dataset",
            shuffle=False,
            max_rejected_fraction=1 - 1 / (2 * N_SAMPLES),
        )
    )
    formats = {name: resolve_format(whole, getattr(whole, name)) for name in _source_fields(whole)}
    if formats["source"] in TABLE_FORMATS:
        from deepspark_ops.ingest.tables.preview import ingest_first_rows

        ingest_first_rows(whole, formats, _recipe(whole, formats), folder / "work", N_SAMPLES)
        return Preview(whole.output, None)
    is_cut = any(find_format(found).is_large(getattr(whole, name)) for name, found in formats.items())
    if is_cut and whole.test_source is None:
        # Few labels of many cannot be split as all would be.
        whole = whole.model_copy(
            update={
                "test_source": whole.source,
                "validation_fraction": 0.0,
                "split_list": None,
                "split_column": None,
            }
        )
        formats["test_source"] = formats["source"]
    recipe = _recipe(whole, formats)
    work = folder / "work"
    work.mkdir()
    plan = plan_ingest(whole, recipe, work, _index_start, is_preview=True)
    n_samples = {
        split: sum(len(task.positions) for task in plan.tasks if task.split == split) for split in plan.splits()
    }
    tasks = tuple(_first_records(task) for task in plan.tasks if task.number == 0)
    n_records = sum(len(task.positions) for task in tasks)
    few = replace(plan, tasks=tasks, rejected={}, n_records=n_records, findings={}, counts={})
    commit_dataset(whole, recipe, few, [plan.run(task) for task in tasks])
    return Preview(whole.output, None if is_cut else n_samples)


def _source_fields(config: SourceConfig) -> list[str]:
    return [name for name in ("source", "validation_source", "test_source") if getattr(config, name) is not None]


def _recipe(config: IngestConfig, formats: Mapping[str, SourceFormat]) -> Recipe:
    """Return a recipe without the digests, which would read every byte of the sources."""
    fields: dict[SplitName, str] = {"train": "source", "validation": "validation_source", "test": "test_source"}
    sources = own_sources(config)
    return Recipe(
        {
            split: SourceRecord(path=str(source), format=formats[fields[split]], sha256="")
            for split, source in sources.items()
        },
        sha256="",
        options=options_of_samples(config),
    )


def _index_start(config: IngestConfig, source: Path, source_format: SourceFormat, work: Path) -> SourceIndex:
    is_large = find_format(source_format).is_large(source)
    return index_start(config, source, source_format, work, N_SAMPLES if is_large else None)


def _first_records(task: ShardTask) -> ShardTask:
    first = np.arange(min(N_SAMPLES, len(task.positions)))
    return replace(
        task,
        positions=task.positions[first],
        names=task.names[: len(first)],
        groups=None if task.groups is None else task.groups[first],
        labels=task.labels[first],
        reader=task.reader.subset(first),
    )
