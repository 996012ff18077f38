"""R-CNN's window files, the source of WindowData layers: images, and windows with a class and an overlap.

Source: BVLC Caffe @9b89154, src/caffe/layers/window_data_layer.cpp, ``DataLayerSetUp``.

Source: BVLC Caffe @9b89154, src/caffe/layers/window_data_layer.cpp, ``DataLayerSetUp``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from caffe_import.errors import DataSourceError
from caffe_import.file_access.allowed_roots import check_named_path, may_quote
from caffe_import.file_access.text_file import read_text_file

_COLOUR_CHANNELS = 3


@dataclass(frozen=True)
class Window:
    """One window.

    Attributes:
        image: Position of its image in the file.
        label: Its class; 0 is background.
        x1: Left column, the first that belongs to it.
        y1: Upper row, likewise.
        x2: Right column, the last that belongs to it.
        y2: Lower row, likewise.
    """

    image: int
    label: int
    x1: int
    y1: int
    x2: int
    y2: int


@dataclass(frozen=True)
class WindowFile:
    """A file's images, and the windows by overlap; windows between both thresholds are left out.

    Attributes:
        images: Their paths as written, in the file's order.
        foreground: Windows with an overlap of fg_threshold or more.
        background: Windows below bg_threshold; their label is 0.
        is_quoted: Whether messages may show words of the file.
    """

    images: tuple[str, ...]
    foreground: tuple[Window, ...]
    background: tuple[Window, ...]
    is_quoted: bool = True

    def shown(self, image: int) -> str:
        """Return what a message calls an image."""
        return self.images[image] if self.is_quoted else f"number {image} (not shown)"


def read_window_file(path: Path, *, fg_threshold: float, bg_threshold: float) -> WindowFile:
    """Return what a window file holds.

    Per image, in free format: ``# index``, path, channels, height, width, number of windows, and for each window
    ``class overlap x1 y1 x2 y2``. The indices count from 0.

    Raises:
        DataSourceError: The file is missing, empty or broken; the message says where.
        ForbiddenPathError: It lies outside of the allowed folders.
    """
    check_named_path(path, named_by="the source of a WindowData layer")
    try:
        text = read_text_file(path)
    except OSError as error:
        msg = f"{path}: no such window file ({error.strerror or error})"
        raise DataSourceError(msg) from error
    words = _Words(path, text)
    images: list[str] = []
    foreground: list[Window] = []
    background: list[Window] = []
    while words.are_left():
        words.expect_image(len(images))
        image, n_windows = _read_image(words)
        images.append(image)
        for _ in range(n_windows):
            label, overlap = words.whole("a window's class"), words.number("a window's overlap")
            corners = [words.whole(f"a window's {name}") for name in ("x1", "y1", "x2", "y2")]
            if overlap >= fg_threshold:
                if label <= 0:
                    finding = f"class {label} with overlap {overlap:g}; a foreground class must be above 0"
                    raise words.refuse(finding)
                foreground.append(Window(len(images) - 1, label, *corners))
            elif overlap < bg_threshold:
                background.append(Window(len(images) - 1, 0, *corners))
    if not images:
        msg = f"{path}: the window file is empty"
        raise DataSourceError(msg)
    return WindowFile(tuple(images), tuple(foreground), tuple(background), is_quoted=may_quote(path))


def _read_image(words: _Words) -> tuple[str, int]:
    path = words.word("an image's path")
    # Caffe reads the image's height and width, too, and then takes the file's own.
    channels, *_ = (words.whole(f"an image's {name}") for name in ("channels", "height", "width"))
    if channels != _COLOUR_CHANNELS:
        finding = f"image {words.unquoted(path)} has {channels} channels; windows are read in colour, allowed: 3"
        raise words.refuse(finding)
    n_windows = words.whole("a number of windows")
    if n_windows < 0:
        finding = f"{n_windows} windows; allowed: 0 or more"
        raise words.refuse(finding)
    return path, n_windows


class _Words:
    """The words of a window file, with the line of the last word for messages."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._words: Iterator[tuple[int, str]] = (
            (number, word) for number, line in enumerate(text.splitlines(), start=1) for word in line.split()
        )
        self._next = next(self._words, None)
        self._line = 1

    def are_left(self) -> bool:
        return self._next is not None

    def refuse(self, finding: str) -> DataSourceError:
        return DataSourceError(f"{self._path}:{self._line}: {finding}")

    def shown(self, word: str) -> str:
        """Return a word of the file for a message; a placeholder for a file outside the allowed folders."""
        return f'"{word}"' if may_quote(self._path) else "a word"

    def unquoted(self, word: str) -> str:
        """Return a word for the middle of a sentence; nothing of a file outside the allowed folders."""
        return word if may_quote(self._path) else "(not shown)"

    def word(self, expected: str) -> str:
        if self._next is None:
            finding = f"the file ends where {expected} was expected"
            raise self.refuse(finding)
        self._line, word = self._next
        self._next = next(self._words, None)
        return word

    def whole(self, expected: str) -> int:
        return int(self.number(expected, kind="a whole number"))

    def number(self, expected: str, *, kind: str = "a number") -> float:
        word = self.word(expected)
        try:
            return float(word) if kind == "a number" else int(word)
        except ValueError as error:
            finding = f"{self.shown(word)} is not {kind}; expected {expected}"
            raise self.refuse(finding) from error

    def expect_image(self, index: int) -> None:
        mark = self.word('"#" and an image\'s index')
        if mark != "#":
            finding = f'{self.shown(mark)} found where "# {index}" was expected: the file, or a number of windows'
            raise self.refuse(finding)
        listed_index = self.whole("an image's index")
        if listed_index != index:
            finding = f"image index {listed_index}; the indices count from 0, expected {index}"
            raise self.refuse(finding)
