"""Rows that cannot be used, and splits that are left without any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.findings import Findings
from deepspark_ops.ingest.records import Rejection
from deepspark_ops.ingest.tables.listed_rows import ListedRows, find_in_list
from deepspark_ops.ingest.tables.row_batch import RowRecipe
from deepspark_ops.ingest.tables.row_files import Parts, PartSummary
from deepspark_ops.ingest.tables.selection.split_rows import SplitRows
from deepspark_ops.shards.manifest import SplitName


def named_rejections(parts: Parts) -> tuple[dict[SplitName, tuple[Rejection, ...]], dict[SplitName, int]]:
    """Return the rows of each source that cannot be used: those that are named, and how many there are in all."""
    named: dict[SplitName, tuple[Rejection, ...]] = {}
    for split, summaries in parts.items():
        found, before = [], 0
        for part in summaries:
            for row, name, reason in part.rejects.named:
                found.append(Rejection(before + row, name or f"row {before + row:,}", None, reason))
            before += part.n_rows
        named[split] = tuple(found)
    return named, {split: sum(part.rejects.count for part in summaries) for split, summaries in parts.items()}


def list_findings(listed: ListedRows, held: Mapping[SplitName, SplitRows], parts: Sequence[PartSummary]) -> Findings:
    """Return what there is to say of a list of splits beside the rows that were read."""
    names = np.concatenate([np.empty(0, np.uint64), *(rows.column("name") for rows in held.values())])
    outside, before = [], 0
    for part in parts:
        outside += [(before + row, name) for row, name, _ in part.outside.named]
        before += part.n_rows
    return find_in_list(listed, names, outside, sum(part.outside.count for part in parts))


def asked_splits(rows: RowRecipe, parts: Parts) -> set[SplitName]:
    """Return the splits that must have rows; those of a column or a list are the ones that it names."""
    shares: dict[SplitName, float] = {"test": rows.test_fraction, "validation": rows.validation_fraction}
    if rows.listed is not None:
        return {*parts, *rows.listed.asked()}
    by_share = {split for split, share in shares.items() if share and rows.roles.split is None}
    return {"train", *parts, *by_share}


def require_rows(
    config: IngestConfig,
    split: SplitName,
    n_rows: int,
    n_before: int,
    rejected: Mapping[SplitName, Sequence[Rejection]],
) -> None:
    """Refuse a split that is left without rows.

    Args:
        config: Names the options that may have left it so.
        split: Which.
        n_rows: That it has.
        n_before: That it had before some were left out by wish.
        rejected: Rows that cannot be used, by source.

    Raises:
        ConfigError: An option is why.
        DataError: The rows are why.
    """
    if n_rows:
        return
    if n_before:
        given = ", ".join(
            f"{name}={value}" for name in ("limit", "deduplicate_across", "balance") if (value := getattr(config, name))
        )
        msg = f"{given} leaves the {split} set empty, which had {n_before:,} rows; ask for less"
        raise ConfigError(msg)
    if config.split_list is not None:
        msg = f"split_list={config.split_list} leaves the {split} set empty: it names no usable row for it"
        raise ConfigError(msg)
    first = next((f"; first: {item.name}: {item.reason}" for items in rejected.values() for item in items), "")
    own = {"validation": config.validation_source, "test": config.test_source}.get(split)
    if first or own is not None:
        msg = f"no usable row is left for the {split} set{first}"
        raise DataError(msg)
    if config.split_column is not None:
        msg = f"split_column={config.split_column} leaves the {split} set empty: no row has that word there"
        raise ConfigError(msg)
    option = "validation_fraction" if split == "validation" else "test_fraction"
    msg = (
        f"{option}={getattr(config, option)} leaves the {split} set empty: each row's side is a hash of its group, id"
        f" or content; change {option} or seed, or give {option.removesuffix('_fraction')}_source"
    )
    raise ConfigError(msg)
