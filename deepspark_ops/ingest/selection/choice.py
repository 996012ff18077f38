"""The records that make up each split, once all options about it have been followed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.findings import Findings
from deepspark_ops.ingest.records import Positions, Rejection, SourceIndex
from deepspark_ops.ingest.selection.duplicates import without_duplicates
from deepspark_ops.ingest.selection.sampling import balanced, stable_sample
from deepspark_ops.ingest.selection.splits import require_samples, split_up
from deepspark_ops.ingest.shard_assignment import name_hashes
from deepspark_ops.shards.manifest import SPLITS, SplitName


@dataclass(frozen=True)
class Choice:
    """What is ingested.

    Attributes:
        positions: Split -> positions in its source, in the order of ``SPLITS``; one may stand there several times.
        rejected: Records of the training source whose split nobody knows.
        findings: Split -> what there is to say of it.
        counts: Split -> why -> records that were left out, or taken once more.
    """

    positions: Mapping[SplitName, Positions]
    rejected: tuple[Rejection, ...]
    findings: Mapping[SplitName, Findings]
    counts: Mapping[SplitName, Mapping[str, int]]


def choose_records(
    config: IngestConfig, indexes: Mapping[SplitName, SourceIndex], usable: Mapping[SplitName, Positions]
) -> Choice:
    """Return the records of each split: first ``limit`` counts, then the splits, duplicates, balance.

    Args:
        config: What is asked for.
        indexes: Split -> its own source's index, ``train`` among them.
        usable: Positions whose labels are good.

    Raises:
        ConfigError: Options that do not fit the source, or leave a split empty.
        DataError: A source has no usable record.
    """
    counts: dict[SplitName, dict[str, int]] = {}
    taken = {split: _limited(config, indexes[split], usable[split]) for split in usable}
    parts = split_up(config, indexes["train"], taken["train"])
    positions = {**taken, **parts.positions}
    positions = {split: positions[split] for split in SPLITS if split in positions}
    for split in taken:
        _note(counts, split, "left_out_by_limit", len(usable[split]) - len(taken[split]))
    findings: dict[SplitName, Findings] = {"train": parts.findings}
    of_split = {split: indexes.get(split, indexes["train"]) for split in positions}
    if config.deduplicate:
        positions, found = without_duplicates(of_split, positions, across=config.deduplicate_across)
        for split, more in found.items():
            findings.setdefault(split, Findings()).merge(more)
    for split, chosen in positions.items():
        require_samples(config, split, chosen)
    n_before = len(positions["train"])
    positions["train"] = _balanced(config, indexes["train"], positions["train"])
    change = len(positions["train"]) - n_before
    _note(counts, "train", "left_out_by_balance" if change < 0 else "repeated_by_balance", abs(change))
    return Choice(positions, parts.rejected, findings, counts)


def _limited(config: IngestConfig, index: SourceIndex, positions: Positions) -> Positions:
    if config.limit is None or config.limit >= len(positions):
        return positions
    hashes = _hashes(config, index, positions, "limit")
    taken: Positions = positions[stable_sample(index.labels[positions], hashes, config.limit)]
    return taken


def _balanced(config: IngestConfig, index: SourceIndex, positions: Positions) -> Positions:
    if config.balance == "none":
        return positions
    hashes = _hashes(config, index, positions, "balance")
    taken: Positions = positions[balanced(index.labels[positions], hashes, config.balance)]
    return taken


def _hashes(config: IngestConfig, index: SourceIndex, positions: Positions, what: str) -> npt.NDArray[np.uint64]:
    """Return hashes that have nothing to do with those of the split, or a limit would take test records first."""
    return name_hashes([index.names[i] for i in positions.tolist()], salt=f"{what} {config.seed}".encode())


def _note(counts: dict[SplitName, dict[str, int]], split: SplitName, why: str, count: int) -> None:
    if count:
        counts.setdefault(split, {})[why] = count
