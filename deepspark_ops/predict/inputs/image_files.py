"""Images in files: a single image, images below a folder, or the images of a list."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, tee

from caffe_import.file_access.text_file import open_text_file
from deepspark_ops.config.commands.predict import BundleInputConfig
from deepspark_ops.ingest.files.image_files import is_image_name, visible_files
from deepspark_ops.ingest.sources.image_list import joined_paths
from deepspark_ops.predict.inputs.named_images import NamedImages
from deepspark_ops.predict.record import InputRecord, Inputs
from deepspark_ops.stores.store_path import DataPath


def one_image(path: DataPath) -> Inputs:
    """Return a single image as inputs."""

    def read(start: int = 0, stop: int | None = None) -> Iterator[InputRecord]:
        return islice(iter([InputRecord(path.name, path)]), start, stop)

    return Inputs("one image", lambda: 1, read)


def images_below(folder: DataPath) -> Inputs:
    """Return the images below a folder; a record's id is the path of the image, relative to the folder."""

    def read(start: int = 0, stop: int | None = None) -> Iterator[InputRecord]:
        return (InputRecord(name, folder / name) for name in islice(_names_below(folder), start, stop))

    return Inputs("folder of images", lambda: sum(1 for _ in _names_below(folder)), read)


def has_images(folder: DataPath) -> bool:
    """Return whether an image lies below a folder; the search ends with the first image."""
    return next(_names_below(folder), None) is not None


def _names_below(folder: DataPath) -> Iterator[str]:
    return filter(is_image_name, visible_files(folder))


def listed_images(config: BundleInputConfig) -> Inputs:
    """Return the images that a list names: a path a line, with or without a label behind a blank or comma.

    A record's id is the path in the list.
    """
    path, named_images = config.input, NamedImages.of(config)

    def read(start: int = 0, stop: int | None = None) -> Iterator[InputRecord]:
        names, texts = tee(map(path_of_line, islice(_lines(path), start, stop)))
        image_paths = joined_paths(config.root_folder, texts)
        return (InputRecord(name, named_images.path(image)) for name, image in zip(names, image_paths, strict=True))

    return Inputs("image list", lambda: sum(1 for _ in _lines(path)), read)


def _lines(path: DataPath) -> Iterator[str]:
    with open_text_file(path) as file:
        yield from (line.strip() for line in file if line.strip())


def first_listed(path: DataPath) -> str:
    """Return the first path of a list; empty for an empty list."""
    return next((path_of_line(line) for line in _lines(path)), "")


def path_of_line(line: str) -> str:
    """Return the path of a line: the line if the line ends as an image's name, else the line without the last field.

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
