"""Images in files: one, those below a folder, or those that the lines of a list name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice

from caffe_import.files.text_file import open_text_file
from deepspark_ops.ingest.files.image_files import is_image_name
from deepspark_ops.predict.record import InputRecord, Inputs
from deepspark_ops.stores.listing import objects_below
from deepspark_ops.stores.store_path import DataPath, StorePath, joined


def one_image(path: DataPath) -> Inputs:
    """Return a single image as inputs."""

    def read(start: int = 0, stop: int | None = None) -> Iterator[InputRecord]:
        return islice(iter([InputRecord(path.name, path)]), start, stop)

    return Inputs("one image", lambda: 1, read)


def images_below(folder: DataPath) -> Inputs:
    """Return the images below a folder, each folder's by name; hidden files are no part of it.

    A record's id is its path relative to the folder. Only the names of one folder, and of those above it, are held.
    """

    def read(start: int = 0, stop: int | None = None) -> Iterator[InputRecord]:
        return (InputRecord(name, folder / name) for name in islice(_names_below(folder), start, stop))

    return Inputs("folder of images", lambda: sum(1 for _ in _names_below(folder)), read)


def has_images(folder: DataPath) -> bool:
    """Return whether there is an image below a folder; looking ends with the first one."""
    return next(_names_below(folder), None) is not None


def listed_images(path: DataPath, root: DataPath) -> Inputs:
    """Return the images that a list names: a path a line, with or without a label behind a blank or comma.

    Args:
        path: The list; a record's id is the path as it stands there.
        root: What relative paths start from.
    """

    def read(start: int = 0, stop: int | None = None) -> Iterator[InputRecord]:
        return (InputRecord(name, joined(root, name)) for name in map(path_of_line, islice(_lines(path), start, stop)))

    return Inputs("image list", lambda: sum(1 for _ in _lines(path)), read)


def _lines(path: DataPath) -> Iterator[str]:
    with open_text_file(path) as file:
        yield from (line.strip() for line in file if line.strip())


def first_listed(path: DataPath) -> str:
    """Return the first path of a list, empty of an empty one."""
    return next((path_of_line(line) for line in _lines(path)), "")


def path_of_line(line: str) -> str:
    """Return the path of a line: all of it if it ends as an image's name does, else without its last field.

    Example:
        >>> path_of_line("a dir/1.jpg"), path_of_line("a dir/1.jpg 3"), path_of_line("1.jpg,cat")
        ('a dir/1.jpg', 'a dir/1.jpg', '1.jpg')
    """
    if is_image_name(line):
        return line
    for separator in (None, ","):
        fields = line.rsplit(separator, 1)
        if len(fields) == 2 and is_image_name(fields[0].strip()):
            return fields[0].strip()
    return line.rsplit(None, 1)[0]


def _names_below(folder: DataPath, prefix: str = "") -> Iterator[str]:
    if isinstance(folder, StorePath):
        names = (name for name in objects_below(folder) if not any(part.startswith(".") for part in name.split("/")))
        yield from (name for name in names if is_image_name(name))
        return
    with os.scandir(folder / prefix) as found:
        entries = sorted((entry.name, entry.is_dir()) for entry in found if not entry.name.startswith("."))
    for name, is_folder in entries:
        if is_folder:
            yield from _names_below(folder, f"{prefix}{name}/")
        elif is_image_name(name):
            yield prefix + name
