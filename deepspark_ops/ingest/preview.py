"""A dataset of a source's first samples, made without Spark: checks need its shapes before the data are ingested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from deepspark_ops.config.ingest import IngestConfig, SourceConfig, is_known
from deepspark_ops.config.shared_options.source_formats import TABLE_FORMATS, SourceFormat
from deepspark_ops.ingest.commit import commit_dataset
from deepspark_ops.ingest.files.archive import is_compressed, split_member
from deepspark_ops.ingest.image_plan import plan_images
from deepspark_ops.ingest.plan import DatasetPlan
from deepspark_ops.ingest.recipe import Recipe, make_recipe, own_sources
from deepspark_ops.ingest.records import SourceIndex
from deepspark_ops.ingest.sources.registry import find_format, index_source, require_source, with_own_splits
from deepspark_ops.shards.manifest import SplitName
from deepspark_ops.sizes import size_text
from deepspark_ops.stores.store_path import DataPath, StorePath

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

    dataset: DataPath
    n_samples: Mapping[SplitName, int] | None


def why_no_preview(config: SourceConfig) -> str | None:
    """Return why looking at the first samples would take too long, or needs Spark; None if neither.

    Raises:
        ConfigError: A file is missing.
    """
    if not is_known(config):
        return "Spark reads the table, and check starts no Spark"
    for name in ("source", "test_source", "validation_source", "class_names"):
        path_of_option: DataPath | None = getattr(config, name)
        if path_of_option is None:
            continue
        require_source(path_of_option, option=name)
        path, _ = split_member(path_of_option)
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
    ingest_config = with_own_splits(
        IngestConfig(
            **config.model_dump(),
            output=folder / "dataset",
            shuffle=False,
            max_rejected_fraction=1 - 1 / (2 * N_SAMPLES),
        )
    )
    recipe = make_recipe(ingest_config, is_preview=True)
    work = folder / "work"
    work.mkdir()
    if recipe.sources["train"].format in TABLE_FORMATS:
        _commit(*_plan_first_rows(ingest_config, recipe, work))
        return Preview(ingest_config.output, None)
    is_cut = any(
        find_format(recipe.sources[split].format).is_large(source)
        for split, source in own_sources(ingest_config).items()
    )
    if is_cut and ingest_config.test_source is None:
        # Few labels of many cannot be split as all would be.
        update = {
            "test_source": ingest_config.source,
            "validation_fraction": 0.0,
            "split_list": None,
            "split_column": None,
        }
        ingest_config = ingest_config.model_copy(update=update)
        recipe = make_recipe(ingest_config, is_preview=True)
    plan = plan_images(ingest_config, recipe, work, _index_start, is_preview=True)
    tasks = tuple(
        task.subset(np.arange(min(N_SAMPLES, len(task.positions)))) for task in plan.tasks if task.number == 0
    )
    n_records = sum(len(task.positions) for task in tasks)
    few = replace(plan, tasks=tasks, rejected={}, n_rejected={}, n_records=n_records, findings={}, counts={})
    _commit(ingest_config, recipe, few)
    return Preview(ingest_config.output, None if is_cut else plan.n_samples)


def _commit(config: IngestConfig, recipe: Recipe, plan: DatasetPlan[Any]) -> None:
    commit_dataset(config, recipe, plan, [plan.run(task) for task in plan.tasks])


def _plan_first_rows(config: IngestConfig, recipe: Recipe, work: Path) -> tuple[IngestConfig, Recipe, DatasetPlan[Any]]:
    """Plan a dataset of a table's first rows; where the source is to be split, both splits have all of them."""
    from deepspark_ops.ingest.files.file_batches import first_rows
    from deepspark_ops.ingest.tables.row_files import one_by_one
    from deepspark_ops.ingest.tables.table_source import FirstRows, plan_table_source

    update = {
        "test_source": config.test_source or config.source,
        "validation_fraction": 0.0,
        "split_column": None,
        "split_list": None,
        "limit": None,
        "balance": "none",
        "deduplicate": False,
    }
    config = config.model_copy(update=update)
    sources = own_sources(config)
    recipe = replace(recipe, sources={split: recipe.source(split) for split in sources})
    tables = {
        split: FirstRows(source, first_rows(source, recipe.source(split).format, N_SAMPLES))
        for split, source in sources.items()
    }
    return plan_table_source(config, recipe, tables, one_by_one, work, is_preview=True)


def _index_start(config: IngestConfig, source: DataPath, source_format: SourceFormat, work: DataPath) -> SourceIndex:
    source_type = find_format(source_format)
    if source_type.index_start is None:
        return index_source(config, source, source_format, work)
    return source_type.index_start(config, source, work, N_SAMPLES if source_type.is_large(source) else None)
