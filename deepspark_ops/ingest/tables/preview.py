"""A dataset of a table's first rows, made without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.shared_options.source_formats import SourceFormat
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.commit import commit_dataset
from deepspark_ops.ingest.plan import Recipe, own_sources, plan_ingest, read_class_names
from deepspark_ops.ingest.tables.arrow_columns import columns_of
from deepspark_ops.ingest.tables.columns import TableRoles, choose_roles
from deepspark_ops.ingest.tables.file_batches import first_rows
from deepspark_ops.ingest.tables.image_rows import index_images, pack_images
from deepspark_ops.ingest.tables.planning.classes import text_classes
from deepspark_ops.ingest.tables.planning.row_recipe import row_recipe
from deepspark_ops.ingest.tables.planning.table_plan import plan_table
from deepspark_ops.ingest.tables.row_files import PartSummary, write_rows
from deepspark_ops.shards.manifest import SplitName


def ingest_first_rows(
    config: IngestConfig, formats: Mapping[str, SourceFormat], recipe: Recipe, work: Path, n_rows: int
) -> None:
    """Make a dataset of the first rows; where the source is to be split, both splits have all of them.

    Args:
        config: What is asked for, with the folder to write.
        formats: Of ``source`` and, if there is one, ``test_source``.
        recipe: Of the sources.
        work: Scratch folder; it is made.
        n_rows: Of each source.

    Raises:
        ConfigError: Options that do not fit the table.
        DataError: The rows cannot be used.
    """
    work.mkdir()
    config = config.model_copy(
        update={
            "test_source": config.test_source or config.source,
            "validation_fraction": 0.0,
            "split_column": None,
            "split_list": None,
            "limit": None,
            "balance": "none",
            "deduplicate": False,
        }
    )
    own = own_sources(config)
    of_name: dict[SplitName, str] = {"train": "source", "validation": "validation_source", "test": "test_source"}
    batches = {
        split: first_rows(source, formats.get(of_name[split], formats["source"]), n_rows)
        for split, source in own.items()
    }
    recipe = replace(recipe, sources={split: recipe.source(split) for split in own})
    roles = choose_roles(config, columns_of(batches["train"].schema))
    if roles.image is not None:
        _ingest_images(config, recipe, roles, batches, work)
        return
    names = () if config.class_names is None else read_class_names(config.class_names, work)
    rows = replace(row_recipe(config, roles, _widths(config, roles, batches["train"]), names), split="train")
    is_text = roles.labels[0].kind == "text"
    parts: dict[SplitName, list[PartSummary]] = {}
    for part, (split, batch) in enumerate(batches.items()):
        own_rows = replace(rows, split=split, class_names=names if is_text else ())
        parts[split] = [write_rows([batch], own_rows, work, part)]
        names = text_classes(parts["train"]) if is_text and not names else names
    plan = plan_table(config.model_copy(update={"shard_format": "hdf5"}), recipe, rows, parts, work, names)
    commit_dataset(config, recipe, plan, [plan.run(task) for task in plan.tasks])


def _widths(config: IngestConfig, roles: TableRoles, batch: pa.RecordBatch) -> list[int]:
    widths = [1] * len(roles.features)
    for place, column in enumerate(roles.features):
        if column.kind != "numbers":
            continue
        lengths = (len(values) for values in batch.column(column.name).to_pylist() if values)
        found = next(lengths, None)
        if found is None:
            msg = f'{config.source}: column "{column.name}" has no numbers in the first {batch.num_rows:,} rows'
            raise DataError(msg)
        widths[place] = found
    return widths


def _ingest_images(
    config: IngestConfig,
    recipe: Recipe,
    roles: TableRoles,
    batches: Mapping[SplitName, pa.RecordBatch],
    work: Path,
) -> None:
    root = config.root_folder or (config.source if config.source.is_dir() else config.source.parent)
    indexes = [
        index_images([pack_images([batch], roles, work, part)], roles, config.source, root, work)
        for part, batch in enumerate(batches.values())
    ]
    found = iter(indexes)
    plan = plan_ingest(config, recipe, work, lambda *_: next(found))
    commit_dataset(config, recipe, plan, [plan.run(task) for task in plan.tasks])
