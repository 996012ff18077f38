"""The interface of a format of raw data, and the cheap look at a path that recognises a format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from caffe_import.file_access.text_file import decode_text
from deepspark_ops.config.ingest import IngestConfig, is_catalog_table
from deepspark_ops.ingest.files.archive import read_start, split_member
from deepspark_ops.ingest.records import SourceIndex
from deepspark_ops.shards.manifest import SplitName
from deepspark_ops.stores.store_path import DataPath

Kind = Literal["folder", "file", "member", "table"]
"""What a source can be; a member is part of an archive, ``ARCHIVE::MEMBER``, a table one of Spark's catalog."""


@dataclass(frozen=True)
class Look:
    """An existing path for all formats: the first bytes are read once and cached for every format.

    Attributes:
        source: As the user named it.
    """

    source: DataPath

    @property
    def path(self) -> DataPath:
        """The file or folder, without the member of an archive."""
        return split_member(self.source)[0]

    @property
    def member(self) -> str | None:
        """Name inside the archive; None for a plain path."""
        return split_member(self.source)[1]

    @cached_property
    def kind(self) -> Kind:
        """Folder, file, member of an archive, or table."""
        if is_catalog_table(self.source):
            return "table"
        if self.member is not None:
            return "member"
        return "folder" if self.path.is_dir() else "file"

    @cached_property
    def start(self) -> bytes:
        """The first bytes of a file's content, after decompression; none of a folder.

        Raises:
            DataError: The compressed file is damaged.
        """
        return b"" if self.path.is_dir() else read_start(self.path)

    @cached_property
    def text(self) -> str | None:
        """The first characters of a text without a byte order mark; None of a binary file. The last line may be cut.

        Raises:
            DataError: The compressed file is damaged.
        """
        text = decode_text(self.start)
        return None if "\0" in text else text


@dataclass(frozen=True)
class Format:
    """One format of raw data, as functions independent of other formats.

    Attributes:
        kinds: What a source of it can be.
        looks_like: Whether a look says that it is of this format. Cheap: the first bytes, names in a folder.
        digest: Returns a digest that changes when the source's content does. ConfigError: a part is missing; DataError
            or OSError: it cannot be read.
        index: Returns the index of all records; the last argument is a scratch folder for decompressed copies. Errors
            as ``digest``.
        options: Fields of ``SourceConfig`` that say how this format is read, and that not every format takes.
        resembles: What to say of a path that is of no format but resembles this one, with what to do; None if it does
            not. It is the rest of a sentence that begins with ``source=PATH``.
        usual_test: Returns the test set that comes with a well-known training set under its usual name, if it is there.
        own_splits: Returns split -> source, with ``train`` among them, inside a source that holds several; None if it
            does not.
        is_large: Whether indexing reads the records themselves and there are too many for a look at the first ones.
        named_stamps: Yields a stamp of size and time for each file that the source names and that is not in its folder.
            Errors as ``digest``.
        index_start: Returns the index of the first records alone, as many as the last argument says, of all if it is
            None; for a process that must not die of a damaged file.
        index_unlabelled: As ``index``, of a source whose labels nobody reads: they may be missing, or be no classes;
            None where every record has a label.
    """

    kinds: frozenset[Kind]
    looks_like: Callable[[Look], bool]
    digest: Callable[[IngestConfig, DataPath], str]
    index: Callable[[IngestConfig, DataPath, DataPath], SourceIndex]
    options: frozenset[str] = frozenset()
    resembles: Callable[[Look], str | None] = lambda _: None
    usual_test: Callable[[DataPath], DataPath | None] = lambda _: None
    own_splits: Callable[[DataPath], Mapping[SplitName, DataPath] | None] = lambda _: None
    is_large: Callable[[DataPath], bool] = lambda _: False
    named_stamps: Callable[[IngestConfig, DataPath], Iterable[bytes]] = lambda _config, _source: ()
    index_start: Callable[[IngestConfig, DataPath, DataPath, int | None], SourceIndex] | None = None
    index_unlabelled: Callable[[IngestConfig, DataPath, DataPath], SourceIndex] | None = None


def usual_neighbour(source: DataPath, pairs: tuple[tuple[str, str], ...]) -> DataPath | None:
    """Return the test file with the usual name in the folder of a training file; None if no such file exists.

    Args:
        source: A file, or the folder that holds it.
        pairs: (start of a training file's name, what stands in its place for the test file).
    """
    if source.is_dir():
        candidates = [source / test for train, test in pairs if (source / train).is_file()]
    else:
        candidates = [
            source.with_name(source.name.replace(train, test)) for train, test in pairs if source.name.startswith(train)
        ]
    return next((path for path in candidates if path.is_file()), None)
