"""The records of each split, images or rows of a table: first ``limit`` counts, then splits, duplicates, balance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic

import numpy as np

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.findings import Findings
from deepspark_ops.ingest.records import Rejection
from deepspark_ops.ingest.selection.duplicates import without_duplicates
from deepspark_ops.ingest.selection.records_of_split import RecordsOfSplit
from deepspark_ops.ingest.selection.sampling import balanced, stable_sample
from deepspark_ops.shards.manifest import SplitName

Counts = dict[SplitName, dict[str, int]]
"""Split -> why -> records that were left out, or taken once more."""


@dataclass(frozen=True)
class RecordIndex(Generic[RecordsOfSplit]):
    """The usable records of all sources, before a choice.

    Attributes:
        splits: Records of each split after ``limited``, in the order of ``SPLITS``.
        counts: Counts of ``limited``.
        n_before: Number of each split's records before any was left out by an option.
        n_records, n_classes, class_names, rejected, n_rejected, findings: See ``DatasetPlan``.
    """

    splits: Mapping[SplitName, RecordsOfSplit]
    counts: Counts
    n_before: Mapping[SplitName, int]
    n_records: int
    n_classes: int
    class_names: tuple[str, ...]
    rejected: Mapping[SplitName, tuple[Rejection, ...]]
    n_rejected: Mapping[SplitName, int]
    findings: Mapping[SplitName, Findings] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice(Generic[RecordsOfSplit]):
    """What is ingested.

    Attributes:
        splits: The records of each split, in the order of ``SPLITS``; one may stand there several times.
        findings: Split -> records left out as duplicates.
        counts: Records left out or repeated by wish.
    """

    splits: Mapping[SplitName, RecordsOfSplit]
    findings: Mapping[SplitName, Findings]
    counts: Counts


def takes_all(config: IngestConfig) -> bool:
    """Whether every usable record is taken once."""
    return config.limit is None and not config.deduplicate and config.balance == "none"


def limited(
    config: IngestConfig, sources: Mapping[SplitName, RecordsOfSplit], *, has_classes: bool = True
) -> tuple[dict[SplitName, RecordsOfSplit], Counts]:
    """Return ``limit`` records of each source, and how many are left out.

    Args:
        config: What is asked for.
        sources: Usable records of the splits that have a source of their own; those of the training source are not
            split yet.
        has_classes: Whether each class keeps its share.
    """
    limited_records = dict(sources)
    counts: Counts = {}
    for split, records in sources.items():
        if config.limit is None or config.limit >= len(records):
            continue
        order = records.order()
        labels = records.class_numbers() if has_classes else np.zeros(len(records), np.int64)
        hashes = records.hashes("limit", config.seed)
        limited_records[split] = records.selected(
            np.sort(order[stable_sample(labels[order], hashes[order], config.limit)])
        )
        _note(counts, split, "left_out_by_limit", len(records) - len(limited_records[split]))
    return limited_records, counts


def choose(config: IngestConfig, index: RecordIndex[RecordsOfSplit]) -> Choice[RecordsOfSplit]:
    """Return the records of each split that are neither duplicates nor too many of their class.

    Raises:
        ConfigError: Options leave a split empty.
        DataError: A source has no usable record.
    """
    chosen, findings, counts = dict(index.splits), dict[SplitName, Findings](), index.counts
    if config.deduplicate:
        chosen, findings = without_duplicates(index.splits, across=config.deduplicate_across)
    for split, records in chosen.items():
        if not len(records):
            raise _empty(config, split, records, index)
    if config.balance != "none":
        train = chosen["train"]
        order = train.order()
        labels, hashes = train.class_numbers(), train.hashes("balance", config.seed)
        chosen["train"] = train.selected(np.sort(order[balanced(labels[order], hashes[order], config.balance)]))
        change = len(chosen["train"]) - len(train)
        _note(counts, "train", "left_out_by_balance" if change < 0 else "repeated_by_balance", abs(change))
    return Choice(chosen, findings, counts)


def require_classes(config: IngestConfig, n_classes: int) -> None:
    """Refuse to balance what are no classes.

    Raises:
        ConfigError: Labels are values.
    """
    if config.balance != "none" and not n_classes:
        msg = (
            f"balance={config.balance}: the labels of {config.source} are values to be predicted, and only classes can"
            " have as many rows each; give label_kind=class if they are class numbers, or balance=none"
        )
        raise ConfigError(msg)


def _empty(
    config: IngestConfig, split: SplitName, records: RecordsOfSplit, index: RecordIndex[RecordsOfSplit]
) -> ConfigError | DataError:
    """Return why a split is left without a record, and what to do."""
    unit, n_before = records.unit, index.n_before
    if n_before.get(split):
        wishes = ("limit", "deduplicate_across", "balance")
        options_text = ", ".join(f"{name}={value}" for name in wishes if (value := getattr(config, name)))
        return ConfigError(
            f"{options_text} leaves the {split} set empty, which had {n_before[split]:,} {unit}s; ask for less"
        )
    if config.split_list is not None:
        msg = f"split_list={config.split_list} leaves the {split} set empty: it names no usable {unit} for it"
        return ConfigError(msg)
    if config.split_column is not None:
        msg = f"split_column={config.split_column} leaves the {split} set empty: no usable {unit} has that word there"
        return ConfigError(msg)
    sources = {"test": config.test_source, "validation": config.validation_source}
    if sources.get(split) is not None or not any(n for other, n in n_before.items() if sources.get(other) is None):
        first = next(
            (f"; first: {item.name}: {item.reason}" for items in index.rejected.values() for item in items), ""
        )
        return DataError(f"no usable {unit} is left for the {split} set{first}")
    option = "validation_fraction" if split == "validation" or config.test_source is not None else "test_fraction"
    return ConfigError(
        f"{option}={getattr(config, option)} leaves the {split} set empty: each {unit}'s side is a hash of"
        f" its {records.owner}; change {option} or seed, or give {option.removesuffix('_fraction')}_source"
    )


def _note(counts: Counts, split: SplitName, why: str, count: int) -> None:
    if count:
        counts.setdefault(split, {})[why] = count
