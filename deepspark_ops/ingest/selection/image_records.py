"""Images that a choice is made among, by the index of their source."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from deepspark_ops.ingest.images.sample_notes import record_digest
from deepspark_ops.ingest.records import Positions, RecordError, RecordReader, SourceIndex
from deepspark_ops.ingest.selection.records_of_split import About
from deepspark_ops.ingest.selection.row_hash import Hashes, name_hashes, repeats

_THREADS: Final = 4
_RECORDS_OF_A_THREAD: Final = 2_000


@dataclass(frozen=True)
class ImageRecords:
    """Records of a source of images, see ``Choosable``.

    Attributes:
        index: Index of the source.
        positions: (n,) positions of the records in their source, ascending.
        repeats: (n,) number of earlier copies of each record; None without copies.
    """

    unit: ClassVar[str] = "record"
    owner: ClassVar[str] = "name"
    index: SourceIndex
    positions: Positions
    repeats: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.positions)

    def class_numbers(self) -> Positions:
        """See ``Choosable``."""
        return self.index.labels[self.positions]

    def hashes(self, purpose: str, seed: int) -> Hashes:
        """See ``Choosable``."""
        return name_hashes([self.index.names[i] for i in self.positions.tolist()], salt=f"{purpose} {seed}".encode())

    def order(self) -> Positions:
        """See ``Choosable``."""
        return np.arange(len(self))

    def stored_order(self, *, shuffle: bool, seed: int) -> Positions:
        """See ``Choosable``."""
        return np.random.default_rng(seed).permutation(len(self)) if shuffle else self.order()

    def ties(self) -> tuple[Hashes, ...]:
        """See ``Choosable``."""
        return ()

    def selected(self, indexes: Positions) -> ImageRecords:
        """See ``Choosable``."""
        repeated = repeats(indexes)
        if self.repeats is not None:
            repeated += self.repeats[indexes]
        return replace(self, positions=self.positions[indexes], repeats=repeated)

    def contents(self) -> tuple[Hashes, npt.NDArray[np.bool_]]:
        """See ``Choosable``."""
        return content_digests(self.index.reader, self.positions)

    def about(self, index: int) -> About:
        """See ``Choosable``."""
        position = int(self.positions[index])
        return About(self.index.names[position], int(self.index.labels[position]), position)

    def same_text(self, of_split: str, of: About, record: About) -> str:
        """See ``Choosable``."""
        return f"has the content of {of_split} record {of.name}"


def content_digests(reader: RecordReader, positions: Positions) -> tuple[Hashes, npt.NDArray[np.bool_]]:
    """Return ``record_digest`` of each record, (n,), and which could be read, (n,); nothing is decoded."""
    pieces = [positions[at : at + _RECORDS_OF_A_THREAD] for at in range(0, len(positions), _RECORDS_OF_A_THREAD)]
    with ThreadPoolExecutor(_THREADS) as pool:
        parts = list(pool.map(lambda piece: _digests_of(reader, piece), pieces))
    if not parts:
        return np.empty(0, np.uint64), np.empty(0, bool)
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _digests_of(reader: RecordReader, positions: Positions) -> tuple[Hashes, npt.NDArray[np.bool_]]:
    digests, can_be_read = np.zeros(len(positions), np.uint64), np.ones(len(positions), bool)
    with reader.subset(positions).opened() as read:
        for i in range(len(positions)):
            try:
                digests[i] = record_digest(read(i))
            except RecordError:
                can_be_read[i] = False
    return digests, can_be_read
