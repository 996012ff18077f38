"""The images that an ImageData layer's list names ("path label" lines), decoded and resized as Caffe does.

Source: BVLC Caffe @9b89154, src/caffe/layers/image_data_layer.cpp and ReadImageToCVMat of src/caffe/util/io.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from caffe_import.data.sample_source import Column, check_range, column_of
from caffe_import.errors import DataSourceError
from caffe_import.file_access.allowed_roots import check_named_path, may_quote
from caffe_import.file_access.regular_file import IMAGE_BYTES, regular_bytes
from caffe_import.file_access.relative_paths import listed_path
from caffe_import.file_access.text_file import read_text_file
from caffe_import.files.datum import Image, decode_image, resize_image
from caffe_import.net.layer_registry import Shape


@dataclass(frozen=True)
class ListedImage:
    """A line of an image list: path of the image, as written, and label."""

    path: str
    label: int


@dataclass(frozen=True)
class BadLine:
    """A line that is no ``path label``; ``number`` counts from 1."""

    number: int
    text: str


def parse_image_list(text: str) -> list[ListedImage | BadLine]:
    """Return an entry for each line but blank lines. The label is after the last blank; a path may hold blanks.

    Example:
        >>> parse_image_list("a dir/cat.jpg 3")
        [ListedImage(path='a dir/cat.jpg', label=3)]
        >>> parse_image_list("cat.jpg")
        [BadLine(number=1, text='cat.jpg')]
    """
    entries: list[ListedImage | BadLine] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        match = re.fullmatch(r"(.*\S)\s+([-+]?\d{1,18})", line.strip())
        entries.append(ListedImage(match[1], int(match[2])) if match else BadLine(number, line.strip()))
    return entries


class ImageSource:
    """Images in the list's order, each decoded when read. Holds no open file.

    Attributes:
        is_transformed: True: Caffe's ImageData layer transforms its images.
        is_quoted: Whether messages may show words of the list.
    """

    is_transformed = True

    def __init__(
        self,
        images: Sequence[ListedImage],
        root_folder: str,
        *,
        is_color: bool,
        new_height: int = 0,
        new_width: int = 0,
        listed_in: Path | None = None,
    ) -> None:
        """Keep the list (at least one image).

        Args:
            images: Paths behind ``root_folder``.
            root_folder: Caffe's, which ``listed_path`` joins with a path.
            is_color: True decodes as BGR, False as gray.
            new_height: Resize to this height, pixels; 0 together with ``new_width`` keeps each image's size.
            new_width: Resize to this width, pixels.
            listed_in: The list that names the images. Of a list that may not be quoted no message shows a word.
        """
        self._images = images
        self._root_folder = root_folder
        self._is_color = is_color
        self._size = (new_height, new_width)
        self._list_name = "the image list" if listed_in is None else f"the image list {listed_in}"
        self.is_quoted = listed_in is None or may_quote(listed_in)

    def key(self, index: int) -> str:
        """Return the path of the image at ``index``, as in its line."""
        return self._images[index].path

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self._images)

    def sample_shapes(self) -> tuple[Shape, ...]:
        """Return the first image's shape after the resize, and the label's."""
        return self._image(0).shape, ()

    def read(self, start: int, count: int) -> list[Column]:
        """Return ``[images (count, C, H, W) uint8, labels (count,) int64]``.

        Raises:
            DataSourceError: An image is missing or damaged.
        """
        check_range(start, count, len(self))
        images = [self._image(i) for i in range(start, start + count)]
        labels = np.array([entry.label for entry in self._images[start : start + count]], np.int64)
        return [column_of(images), labels]

    def close(self) -> None:
        """Nothing is open between reads."""

    def _shown(self, index: int) -> str:
        """Return what a message calls an image."""
        return self._path(index) if self.is_quoted else "an image (not shown)"

    def _image(self, index: int) -> Image:
        path = self._path(index)
        line = f"line {index + 1} of {self._list_name}"
        check_named_path(path, named_by=line, is_quoted=self.is_quoted)
        try:
            compressed = regular_bytes(path, max_bytes=IMAGE_BYTES)
        except OSError as error:
            msg = f"{self._shown(index)}: {error.strerror or error}; {line}"
            raise DataSourceError(msg) from error
        image = decode_image(compressed, color=self._is_color, where=self._shown(index))
        return resize_image(image, *self._size) if all(self._size) else image

    def _path(self, index: int) -> str:
        return listed_path(self._root_folder, self._images[index].path)


def read_image_list(path: Path) -> list[ListedImage]:
    """Return the images that an ImageData ``source`` lists.

    Raises:
        DataSourceError: The list is missing, empty, or has a line that is no ``path label``.
        ForbiddenPathError: It lies outside of the allowed folders.
    """
    check_named_path(path, named_by="the source of an ImageData layer")
    if not path.is_file():
        msg = f"{path}: no such image list"
        raise DataSourceError(msg)
    try:
        text = read_text_file(path)
    except OSError as error:
        msg = f"{path}: the image list cannot be read: {error.strerror or error}"
        raise DataSourceError(msg) from error
    images = []
    for entry in parse_image_list(text):
        if isinstance(entry, BadLine):
            line_text = f'"{entry.text}" is not' if may_quote(path) else "is not"
            msg = f'{path}:{entry.number}: {line_text} "path label"'
            raise DataSourceError(msg)
        images.append(entry)
    if not images:
        msg = f"{path}: the image list is empty"
        raise DataSourceError(msg)
    return images
