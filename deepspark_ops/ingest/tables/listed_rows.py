"""The splits of a table's rows by a list of ids: by the ids' hashes, so that a list of millions travels to tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deepspark_ops.errors import DataError
from deepspark_ops.ingest.findings import NAMED_OF_A_KIND, Finding, Findings
from deepspark_ops.ingest.selection.row_hash import Hashes
from deepspark_ops.ingest.selection.splits import read_split_list, split_of_others
from deepspark_ops.ingest.tables.arrow_columns import hashes_of
from deepspark_ops.shards.manifest import SPLITS, SplitName
from deepspark_ops.stores.store_path import DataPath


@dataclass(frozen=True)
class ListedRows:
    """What a list says of the rows of a table.

    Attributes:
        path: The list.
        hashes: (n,) of the ids, ascending.
        numbers: (n,) their splits, places in ``SPLITS``.
        others: Split of the rows that the list does not name; ``OUTSIDE`` where they are left out.
    """

    path: DataPath
    hashes: Hashes
    numbers: npt.NDArray[np.int8]
    others: int

    def splits_of(self, ids: Hashes) -> npt.NDArray[np.int8]:
        """Return the (n,) splits of rows by the hashes of their ids; ``OUTSIDE`` for one that is left out."""
        places = np.minimum(np.searchsorted(self.hashes, ids), len(self.hashes) - 1)
        return np.where(self.hashes[places] == ids, self.numbers[places], np.int8(self.others))

    def asked(self) -> set[SplitName]:
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
    # A byte that is no UTF-8 is in no text of a table.
    return hashes_of(pa.array([name.encode("utf-8", "replace").decode() for name in names], pa.string()))


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
    is_there = np.isin(listed.hashes, names)
    named = list(read_split_list(listed.path))
    if not is_there.any():
        other = f', the source "{outside[0][1]}"' if outside else ""
        msg = (
            f'split_list={listed.path} names no row of the source: it has "{named[0]}"{other}; give the values of the'
            " id column"
        )
        raise DataError(msg)
    found = Findings()
    if not is_there.all():
        unknown = [
            name
            for name, hashed in zip(named, _hashes(named), strict=True)
            if not is_there[np.searchsorted(listed.hashes, hashed)]
        ]
        for name in sorted(unknown):
            text = f"{listed.path} names it, no usable row has this id"
            found.add(Finding("unknown_in_split_list", name, text))
    for position, name in outside[:NAMED_OF_A_KIND]:
        found.named.append(Finding("not_in_split_list", name, f"{listed.path} does not name it", position))
    if n_outside:
        found.counts["not_in_split_list"] = n_outside
    return found
