"""Which rows of a table become samples: by limit, without duplicates, with classes that have as many.

All of it is decided by the rows' hashes and labels, some 40 bytes each; no row is read for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest.findings import Findings
from deepspark_ops.ingest.selection.row_hash import mixed
from deepspark_ops.ingest.selection.sampling import balanced, stable_sample
from deepspark_ops.ingest.tables.row_batch import RowRecipe
from deepspark_ops.ingest.tables.selection.duplicate_rows import without_duplicates
from deepspark_ops.ingest.tables.selection.split_rows import SplitRows
from deepspark_ops.shards.manifest import SplitName

_LIMIT, _BALANCE = 0x6C696D, 0x62616C
"""Salts: a limit by the hash of the split would take test rows first."""


@dataclass(frozen=True)
class RowChoice:
    """What becomes samples.

    Attributes:
        splits: The rows of each split.
        are_all: Whether every usable row is taken once.
        counts: Split -> why -> rows left out, or taken once more.
        findings: Split -> what there is to say of the rows left out.
    """

    splits: Mapping[SplitName, SplitRows]
    are_all: bool
    counts: Mapping[SplitName, Mapping[str, int]]
    findings: Mapping[SplitName, Findings]


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


def choose_rows(
    config: IngestConfig,
    recipe: RowRecipe,
    folder: Path,
    splits: Mapping[SplitName, SplitRows],
    *,
    n_classes: int,
) -> RowChoice:
    """Return the rows that become samples: first ``limit`` counts, then the splits, duplicates, balance.

    Args:
        config: What is asked for.
        recipe: How rows were read.
        folder: Of the runs.
        splits: All usable rows, in the order of ``SPLITS``.
        n_classes: 0 where labels are values: a limit then looks at no label.

    Raises:
        ConfigError: Balance of values.
    """
    require_classes(config, n_classes)
    counts: dict[SplitName, dict[str, int]] = {}
    findings: dict[SplitName, Findings] = {}
    chosen = dict(splits)
    if config.limit is not None:
        for source, of_source in _by_source(config, chosen).items():
            left_out = _limit(config, chosen, of_source, n_classes=n_classes)
            _note(counts, source, "left_out_by_limit", left_out)
    if config.deduplicate:
        chosen, findings = without_duplicates(folder, recipe, chosen, across=config.deduplicate_across)
    if config.balance != "none" and "train" in chosen:
        train = chosen["train"]
        chosen["train"] = _balanced(config, train)
        change = chosen["train"].n_rows - train.n_rows
        _note(counts, "train", "left_out_by_balance" if change < 0 else "repeated_by_balance", abs(change))
    are_all = config.limit is None and not config.deduplicate and config.balance == "none"
    return RowChoice(chosen, are_all, counts, findings)


def _by_source(config: IngestConfig, splits: Mapping[SplitName, SplitRows]) -> dict[SplitName, list[SplitName]]:
    """Return the splits that come from each source, which is called by the first of them."""
    own: dict[SplitName, object] = {"validation": config.validation_source, "test": config.test_source}
    of_train = [split for split in splits if own.get(split) is None]
    return {"train": of_train, **{split: [split] for split in splits if split not in of_train}}


def _limit(
    config: IngestConfig, chosen: dict[SplitName, SplitRows], of_source: Sequence[SplitName], *, n_classes: int
) -> int:
    """Take ``limit`` rows of a source; return how many are left out."""
    parts = [chosen[split] for split in of_source]
    names = np.concatenate([part.column("name") for part in parts])
    states = np.concatenate([part.column("state") for part in parts])
    labels = np.concatenate([part.label() for part in parts]) if n_classes else np.zeros(len(names))
    assert config.limit is not None
    order = np.argsort(states, kind="stable")  # rows of one name: the same one first, whoever read it when
    hashes = mixed(mixed(names, _LIMIT), config.seed)
    taken = np.sort(order[stable_sample(labels[order].astype(np.int64), hashes[order], config.limit)])
    edges = np.cumsum([0, *(part.n_rows for part in parts)])
    for split, part, start, stop in zip(of_source, parts, edges[:-1], edges[1:], strict=True):
        chosen[split] = part.taken(taken[(taken >= start) & (taken < stop)] - start)
    return len(names) - len(taken)


def _balanced(config: IngestConfig, train: SplitRows) -> SplitRows:
    order = np.argsort(train.column("state"), kind="stable")
    hashes = mixed(mixed(train.column("name"), _BALANCE), config.seed)
    labels = train.label().astype(np.int64)
    return train.taken(np.sort(order[balanced(labels[order], hashes[order], config.balance)]))


def _note(counts: dict[SplitName, dict[str, int]], split: SplitName, why: str, count: int) -> None:
    if count:
        counts.setdefault(split, {})[why] = count
