"""``events.jsonl`` read as it grows: what has come since a place in it, whatever happened meanwhile."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from caffe_import.files.regular_file import open_regular
from deepspark_ops.events import Event, parse_event

_PIECE = 1 << 18
"""Bytes read at once: 100,000 events in small pieces take a fifth less time, since each piece's objects die young."""


@dataclass(frozen=True)
class Place:
    """A place in a file of events.

    Attributes:
        first: CRC of the first line, by which another file in its place is told; None until that line is whole.
        first_length: Bytes of that line with its newline.
        offset: Bytes read: up to here every line is whole.
    """

    first: int | None = None
    first_length: int = 0
    offset: int = 0

    def token(self) -> str:
        """Return the place as a short text for a reader that comes back later."""
        return f"{self.first or 0:08x}.{self.offset}"


class EventTail:
    """Reads the lines that are appended to a file of events. Not thread-safe.

    A line that is still being written waits for its newline. A damaged line, or one of another version, is left out.
    A file that was truncated or replaced is read anew from its beginning.
    """

    def __init__(self, path: Path, *, from_start: bool = False) -> None:
        """Begin at the file's present end, where what is there was shown by somebody else; or at its beginning."""
        self._path = path
        self.place = Place()
        if not from_start and path.exists():
            with open_regular(path) as file:
                self.place = _end_of(file)

    def read(self) -> list[Event]:
        """Return the events that have come since the last call."""
        events: list[Event] = []
        while True:
            before = self.place
            events += [event for event, _ in self.read_placed()[0]]
            if self.place == before:
                return events

    def read_placed(self) -> tuple[list[tuple[Event, int]], bool]:
        """Return the next events, each with the offset behind its line, and whether they are a new file's.

        One call reads a part of a long file; while ``place`` moves, there may be more.

        Raises:
            OSError: The file is there and cannot be read.
        """
        try:
            file = open_regular(self._path)
        except FileNotFoundError:
            is_new, self.place = self.place.offset > 0, Place()
            return [], is_new
        with file:
            is_new = not _continues(file, self.place)
            if is_new:
                self.place = Place()
            return self._read(file), is_new

    def _read(self, file: BinaryIO) -> list[tuple[Event, int]]:
        file.seek(self.place.offset)
        piece = file.read(_PIECE)
        if len(piece) == _PIECE and b"\n" not in piece:
            piece += file.readline()  # events are smaller; whatever this line is, it is passed
        *lines, _ = piece.split(b"\n")
        if not lines:
            return []
        events: list[tuple[Event, int]] = []
        offset = self.place.offset
        for line in lines:
            offset += len(line) + 1
            event = parse_event(line)
            if event is not None:
                events.append((event, offset))
        first, length = self.place.first, self.place.first_length
        if first is None:
            first, length = zlib.crc32(lines[0]), len(lines[0]) + 1
        self.place = Place(first, length, offset)
        return events


def _continues(file: BinaryIO, place: Place) -> bool:
    """Whether the file is the one that ``place`` is in, and not shorter."""
    if place.first is None:
        return True
    first = file.read(place.first_length)
    if not first.endswith(b"\n") or zlib.crc32(first[:-1]) != place.first:
        return False
    return file.seek(0, 2) >= place.offset


def _end_of(file: BinaryIO) -> Place:
    """Return the place behind the last whole line."""
    first = file.readline()
    if not first.endswith(b"\n"):
        return Place()
    end = len(first)
    while piece := file.read(_PIECE):
        if (last := piece.rfind(b"\n")) >= 0:
            end = file.tell() - len(piece) + last + 1
    return Place(zlib.crc32(first[:-1]), len(first), end)
