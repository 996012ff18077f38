"""The split of each record of the training source: by a list, by a column, or by shares of the hashes of owners.

An owner is the group of a record, else its name or id, else the content of a row. One rule turns hashes into splits,
``splits_of_hashes``. The driver applies the rule to images, whose names it has; the tasks apply the rule to rows, since
the driver never sees ids and features. Images and rows keep hash functions of their own: BLAKE2b of a name, and
splitmix64 of Arrow's arrays, which hashes a million rows a second. Another function would move the test samples of
every dataset that was made before.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from caffe_import.file_access.text_file import read_text_file
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.findings import NAMED_OF_A_KIND, Finding, Findings
from deepspark_ops.ingest.records import Positions, Rejection, SourceIndex
from deepspark_ops.ingest.selection.row_hash import Hashes, hash_texts, name_hashes
from deepspark_ops.shards.hash_membership import are_in
from deepspark_ops.shards.manifest import SPLITS, SplitName, SplitRule, sha256_of_file
from deepspark_ops.stores.store_path import DataPath

SPLIT_WORDS: Final[Mapping[str, SplitName]] = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}
"""What lists and columns call a split, in small letters."""
OUTSIDE: Final = -1
"""In the place of a split's number: a record that a list leaves out."""
UNKNOWN_WORD: Final = -2
"""Likewise: a record whose column of splits has another word."""
_SHOWN: Final = 60


@dataclass(frozen=True)
class SplitUp:
    """The records of one source, split by split.

    Attributes:
        positions: Split -> its records, positions in the source, ascending; without the splits that are not asked for.
        rejected: Records whose split nobody knows.
        findings: What there is to say of a list.
    """

    positions: Mapping[SplitName, Positions]
    rejected: tuple[Rejection, ...] = ()
    findings: Findings = field(default_factory=Findings)


def split_up(config: IngestConfig, index: SourceIndex, usable: Positions) -> SplitUp:
    """Return the split of every usable record of the training source.

    Raises:
        ConfigError: The list cannot be read, or the source has no such column.
        DataError: The list names none of the records.
    """
    if config.split_list is not None:
        return _by_list(config.split_list, index, usable)
    if config.split_column is not None:
        return _by_column(config, index, usable)
    shares = split_shares(config)
    owners = index.groups or index.names
    numbers = split_by_hash([owners[i] for i in usable.tolist()], shares, config.seed)
    return SplitUp(
        {split: usable[numbers == SPLITS.index(split)] for split in SPLITS if split == "train" or split in shares}
    )


def split_shares(config: IngestConfig) -> dict[SplitName, float]:
    """Return split -> share of the training source, of the splits that come out of that source."""
    shares: dict[SplitName, float] = {}
    if config.test_source is None and config.test_fraction > 0:
        shares["test"] = config.test_fraction
    if config.validation_source is None and config.validation_fraction > 0:
        shares["validation"] = config.validation_fraction
    return shares


def split_by_hash(names: Sequence[str], shares: Mapping[SplitName, float], seed: int) -> npt.NDArray[np.int8]:
    """Return each record's split, a position in ``SPLITS``, by the hash of (seed, name).

    The split of a record depends on the record's name alone. Other records that come or go never turn a training
    sample into a test sample, and records of one name stay together. A split has its share f only on average: of n
    records, give or take sqrt(n f (1 - f)).

    Args:
        names: (n,) name of each record in the source.
        shares: Expected shares, whose sum is below 1. A larger test set contains a smaller one.
        seed: Another seed gives another choice.

    Returns:
        (n,) int8.

    Example:
        >>> [SPLITS[number] for number in split_by_hash(["a", "b", "c", "d", "a"], {"test": 0.5}, 4)]
        ['test', 'train', 'test', 'test', 'test']
    """
    return splits_of_hashes(name_hashes(names, salt=str(seed).encode()), shares)


def splits_of_hashes(hashes: Hashes, shares: Mapping[SplitName, float]) -> npt.NDArray[np.int8]:
    """Return the (n,) splits of hashes in [0, 2^64): the lowest are the test set, then comes the validation set."""
    test, validation = shares.get("test", 0.0), shares.get("validation", 0.0)
    numbers = np.full(len(hashes), SPLITS.index("train"), np.int8)
    numbers[hashes < np.uint64((test + validation) * 2**64)] = SPLITS.index("validation")
    numbers[hashes < np.uint64(test * 2**64)] = SPLITS.index("test")
    return numbers


def split_rule(config: IngestConfig, *, of_rows: bool) -> SplitRule | None:
    """Return how the config tells the splits of images, or of a table's rows, apart; None of a training set alone."""
    if config.split_list is not None:
        return SplitRule(by="list", named=digest_of_split_list(config.split_list))
    if config.split_column is not None:
        return SplitRule(by="column", named=config.split_column)
    if shares := split_shares(config):
        by_hash: Literal["row_hash", "name_hash"] = "row_hash" if of_rows else "name_hash"
        return SplitRule(
            by=by_hash if config.test_source is None else "test_source",
            seed=config.seed,
            test_fraction=shares.get("test", 0.0),
            validation_fraction=shares.get("validation", 0.0),
        )
    has_sources = config.test_source is not None or config.validation_source is not None
    return SplitRule(by="test_source") if has_sources else None


def digest_of_split_list(path: DataPath) -> str:
    """Return a digest of the list's content.

    Raises:
        ConfigError: There is no such list.
    """
    if path.is_file():
        return sha256_of_file(path)
    digest = hashlib.sha256()
    for split, file in _files_of_folder(path).items():
        digest.update(f"{split} {sha256_of_file(file)}\n".encode())
    return digest.hexdigest()


def _by_list(path: DataPath, index: SourceIndex, usable: Positions) -> SplitUp:
    named = read_split_list(path, set(index.names))
    numbers = np.array([named.get(name, OUTSIDE) for name in index.names], np.int8)
    if not (numbers[usable] >= 0).any():
        source_names = [index.names[int(usable[0])] if len(usable) else ""]
        raise _names_none(path, "record", next(iter(named), ""), source_names, "the records as the source does")
    numbers[numbers == OUTSIDE] = split_of_others(named)
    left_out = [(position, index.names[position]) for position in np.flatnonzero(numbers == OUTSIDE).tolist()]
    unknown = set(named) - set(index.names)
    findings = _list_findings(path, unknown, "the source has no such record", left_out, len(left_out))
    split_names: set[SplitName] = {"train", *(SPLITS[number] for number in named.values())}
    return SplitUp(_of_numbers(numbers, usable, split_names), findings=findings)


def split_of_others(named: Mapping[str, int]) -> int:
    """Return the number of the split of records that a list does not name: they train if it names none that does."""
    train = SPLITS.index("train")
    return OUTSIDE if train in named.values() else train


def read_split_list(path: DataPath, record_names: Collection[str] | None = None) -> dict[str, int]:
    """Return record -> number of its split.

    Args:
        path: A list of records and splits, or a folder of lists of records.
        record_names: Names of the source's records. A line of a list of records may hold more than a name, since lists
            of images hold labels. None: each line is a name.

    Raises:
        ConfigError: There is no such list, or it is none.
    """
    splits: dict[str, int] = {}
    if path.is_dir():
        for split, file in _files_of_folder(path).items():
            for number, line in _lines(file):
                is_pair = record_names is not None and line not in record_names and _pair(line)[0] in record_names
                key = _pair(line)[0] if is_pair else line
                _note(splits, key, split, f"{file}, line {number}")
        return splits
    for number, line in _lines(path):
        key, word = _pair(line)
        if word.lower() not in SPLIT_WORDS:
            if number == 1 and not splits:
                continue  # a header
            msg = (
                f'{path}, line {number}: expected a record and its split, found "{line[:200]}"; allowed as the last'
                f" word: {', '.join(SPLIT_WORDS)}"
            )
            raise ConfigError(msg)
        _note(splits, key, SPLIT_WORDS[word.lower()], f"{path}, line {number}")
    if not splits:
        msg = f'split_list={path}: no line; expected a record and its split on each, like "cat/1.jpg validation"'
        raise ConfigError(msg)
    return splits


def _note(splits: dict[str, int], key: str, split: SplitName, where: str) -> None:
    number = SPLITS.index(split)
    if splits.setdefault(key, number) != number:
        msg = f'{where}: "{key}" is in {split} and in {SPLITS[splits[key]]}; leave it in one'
        raise ConfigError(msg)


def _files_of_folder(path: DataPath) -> dict[SplitName, DataPath]:
    if not path.is_dir():
        msg = f"split_list={path}: no such file or folder"
        raise ConfigError(msg)
    files: dict[SplitName, DataPath] = {}
    for word, split in SPLIT_WORDS.items():
        if (file := path / f"{word}.txt").is_file():
            files.setdefault(split, file)
    if not files:
        msg = (
            f"split_list={path}: a folder without train.txt, validation.txt or test.txt; each lists records, one a line"
        )
        raise ConfigError(msg)
    return {split: files[split] for split in SPLITS if split in files}


def _lines(path: DataPath) -> list[tuple[int, str]]:
    try:
        text = read_text_file(path)
    except OSError as error:
        msg = f"split_list={path}: {error.strerror or error}"
        raise ConfigError(msg) from error
    return [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]


def _pair(line: str) -> tuple[str, str]:
    """Return what stands before and behind the last comma or blank."""
    row = next(csv.reader([line], skipinitialspace=True), [])
    parts = row if len(row) == 2 else line.rsplit("," if "," in line.split()[-1] else None, 1)
    return (parts[0].strip(), parts[1].strip()) if len(parts) == 2 else (line, "")


def _by_column(config: IngestConfig, index: SourceIndex, usable: Positions) -> SplitUp:
    if not index.splits:
        msg = (
            f"split_column={config.split_column}: source={config.source} has no columns; give split_list, a file with a"
            " record and its split on each line"
        )
        raise ConfigError(msg)
    codes = {word: split_of_word(word) for word in set(index.splits)}
    numbers = np.array([codes[word] for word in index.splits], np.int8)
    rejected = tuple(
        Rejection(
            position,
            index.names[position],
            int(index.labels[position]),
            unknown_word(config.split_column, index.splits[position]),
        )
        for position in usable[numbers[usable] == UNKNOWN_WORD].tolist()
    )
    split_names: set[SplitName] = {"train", *(SPLITS[code] for code in codes.values() if code != UNKNOWN_WORD)}
    return SplitUp(_of_numbers(numbers, usable, split_names), rejected)


def split_of_word(word: str) -> int:
    """Return the number of the split that a column's word names, or ``UNKNOWN_WORD``."""
    split = SPLIT_WORDS.get(word.strip().lower())
    return UNKNOWN_WORD if split is None else SPLITS.index(split)


def unknown_word(column: str | None, word: str) -> str:
    """Return the reject reason of a record whose split column has an unknown word."""
    return f'{column} is "{word[:_SHOWN]}"; allowed: {", ".join(SPLIT_WORDS)}'


def _of_numbers(
    numbers: npt.NDArray[np.int8], usable: Positions, split_names: set[SplitName]
) -> dict[SplitName, Positions]:
    return {split: usable[numbers[usable] == SPLITS.index(split)] for split in SPLITS if split in split_names}


@dataclass(frozen=True)
class ListedRows:
    """Rows of a table by split, as a list assigns the rows.

    Attributes:
        path: The list.
        hashes: (n,) of the ids, ascending.
        numbers: (n,) their splits, places in ``SPLITS``.
        other_split: Split of the rows that the list does not name; ``OUTSIDE`` where they are left out.
    """

    path: DataPath
    hashes: Hashes
    numbers: npt.NDArray[np.int8]
    other_split: int

    def splits_of(self, ids: Hashes) -> npt.NDArray[np.int8]:
        """Return the (n,) splits of rows by the hashes of their ids; ``OUTSIDE`` for one that is left out."""
        indexes = np.minimum(np.searchsorted(self.hashes, ids), len(self.hashes) - 1)
        return np.where(self.hashes[indexes] == ids, self.numbers[indexes], np.int8(self.other_split))

    def named_splits(self) -> set[SplitName]:
        """Return the splits that the list names; rows that train there are always some."""
        return {"train", *(SPLITS[number] for number in np.unique(self.numbers).tolist())}


def read_listed_rows(path: DataPath) -> ListedRows:
    """Return what a list says.

    Raises:
        ConfigError: There is no such list, or it is none.
    """
    named = read_split_list(path)
    hashes = _hashes(list(named))
    order = np.argsort(hashes)
    numbers = np.array(list(named.values()), np.int8)
    return ListedRows(path, hashes[order], numbers[order], split_of_others(named))


def _hashes(names: Sequence[str]) -> Hashes:
    """Return the (n,) hashes of names as a table's texts have them, where no byte is other than UTF-8."""
    parts = [name.encode("utf-8", "replace") for name in names]
    return hash_texts(np.cumsum([0, *map(len, parts)]), np.frombuffer(b"".join(parts), np.uint8))


def find_in_list(listed: ListedRows, names: Hashes, outside: Sequence[tuple[int, str]], n_outside: int) -> Findings:
    """Return the ids of a list that no usable row has, and the rows that it leaves out.

    Args:
        listed: The list.
        names: Hashes of the ids of the usable rows that are not left out.
        outside: (row of the source, id) of rows left out, the first ones.
        n_outside: All of them.

    Raises:
        DataError: It names no row at all.
    """
    is_there = are_in(listed.hashes, names)
    named = list(read_split_list(listed.path))
    if not is_there.any():
        row_names = [name for _, name in outside[:1]]
        raise _names_none(listed.path, "row", named[0], row_names, "the values of the id column")
    has_row = is_there[np.searchsorted(listed.hashes, _hashes(named))]
    unknown = [name for name, is_known in zip(named, has_row.tolist(), strict=True) if not is_known]
    return _list_findings(listed.path, unknown, "no usable row has this id", outside, n_outside)


def _names_none(path: DataPath, unit: str, listed: str, source_names: Sequence[str], remedy: str) -> DataError:
    """Return the error of a list that names nothing of the source."""
    source = f', the source "{source_names[0]}"' if source_names else ""
    return DataError(f'split_list={path} names no {unit} of the source: it has "{listed}"{source}; give {remedy}')


def _list_findings(
    path: DataPath, unknown: Iterable[str], why: str, left_out: Sequence[tuple[int, str]], n_left_out: int
) -> Findings:
    """Return the entries of a list that the source lacks, and the records that the list leaves out, the first named."""
    findings = Findings()
    for name in sorted(unknown):
        findings.add(Finding("unknown_in_split_list", name, f"{path} names it, {why}"))
    for position, name in left_out[:NAMED_OF_A_KIND]:
        findings.named.append(Finding("not_in_split_list", name, f"{path} does not name it", position))
    if n_left_out:
        findings.counts["not_in_split_list"] = n_left_out
    return findings
