"""Image lists: the ``path label`` lines of Caffe's convert_imageset, in a folder or inside a tar or zip."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from caffe_import.file_access.regular_file import LIST_BYTES, regular_bytes
from caffe_import.file_access.relative_paths import listed_path
from caffe_import.file_access.text_file import read_text_file
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.archive import is_archive, open_archive, read_member_text, split_member
from deepspark_ops.ingest.files.image_files import file_stamps, is_image_name, listed_reader, source_digest
from deepspark_ops.ingest.files.list_lines import (
    LABEL_WORDS,
    PATH_WORDS,
    ListLines,
    split_lines,
    split_table,
    table_columns,
)
from deepspark_ops.ingest.records import RecordReader, Rejection, SourceIndex, labels_of, sorted_classes
from deepspark_ops.ingest.sources.format import Format, Look
from deepspark_ops.stores.store_path import DataPath, StorePath

_LOOKED_AT = 20
"""Number of lines that distinguish several labels from paths with blanks."""


def index_image_list(config: IngestConfig, source: DataPath, work: DataPath) -> SourceIndex:
    """Read a list; the tasks open the images later.

    Paths start from ``root_folder``, inside an archive a folder of the archive; default: the list's own folder.

    Raises:
        ConfigError: The archive has no such member, or the list no such column.
        DataError: The list has no usable line, or the archive is damaged.
    """
    path, member = split_member(source)
    root_folder, columns = config.root_folder, _columns(config)
    if member is None:
        lines = _read_lines(read_text_file(path), source, columns)
        folder = path.parent if root_folder is None else root_folder
        image_paths = tuple(joined_paths(root_folder, lines.paths))
        return _index(lines, listed_reader(folder, image_paths, named_by=f"the image list {source}"))
    archive = open_archive(path, work)
    lines = _read_lines(read_member_text(archive, member), source, columns)
    prefix = posixpath.dirname(member) if root_folder is None else str(root_folder)
    return _index(lines, archive.reader([posixpath.join(prefix, image) for image in lines.paths]))


def digest_image_list(config: IngestConfig, source: DataPath) -> str:
    """Return a digest of the list and of the images' stamps; for a list in an archive the archive's digest."""
    path, member = split_member(source)
    if member is not None:
        return source_digest(path)
    digest = hashlib.sha256(regular_bytes(path, max_bytes=LIST_BYTES))
    for stamp in image_stamps(config, source):
        digest.update(stamp)
    return digest.hexdigest()


def image_stamps(config: IngestConfig, source: DataPath) -> Iterable[bytes]:
    """Return the stamp of each image of a list; nothing for a list in an archive."""
    path, member = split_member(source)
    if member is not None:
        return ()
    root_folder, columns = config.root_folder, _columns(config)
    folder = path.parent if root_folder is None else root_folder
    text = read_text_file(path)
    lines = split_lines(text) if columns is None else split_table(text, *columns)
    return file_stamps(folder, () if lines is None else tuple(joined_paths(root_folder, lines.paths)), config.stamp)


def joined_paths(root_folder: DataPath | None, paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths of a list as readers take the paths.

    Root folder and path are joined as texts, as ``convert_imageset`` joins them: a root folder may be the beginning of
    a name.
    """
    if root_folder is None or isinstance(root_folder, StorePath):
        yield from paths
        return
    is_folder = root_folder.is_dir()
    start = f"{root_folder.absolute()}{'/' if is_folder else ''}"  # the option's value has lost the last slash
    for path in paths:
        is_plain = "://" in path or (is_folder and not path.startswith("/"))
        yield path if is_plain else listed_path(start, path)


def _read_lines(text: str, source: DataPath, columns: Sequence[str] | None) -> ListLines:
    lines = split_lines(text) if columns is None else split_table(text, *columns)
    if lines is None:
        msg = (
            f"{source}: no columns {' and '.join(columns or ())} in its first line, {text.splitlines()[:1]};"
            " name them with image_column and label_column"
        )
        raise ConfigError(msg)
    if columns is None and lines.has_commas and (held := table_columns(text)):
        msg = (
            f"{source}: a table of {len(held)} columns ({', '.join(held[:8])}), not the two of an image list, path and"
            f" label; name those of paths and labels: {_guess(held)}"
        )
        raise ConfigError(msg)
    if not lines.paths:
        problem = f'{len(lines.bad):,} lines, none of them "path label"' if lines.bad else "no line"
        msg = f"{source}: the image list is empty: {problem}{_hint(lines)}"
        raise DataError(msg)
    if all(_has_label(path) for path in lines.paths[:_LOOKED_AT]):
        msg = (
            f'{source}: lines hold several labels, e.g. "{lines.paths[0]} {lines.labels[0]}", an image list has one;'
            " keep several in HDF5, which a net's HDF5Data layer reads"
        )
        raise DataError(msg)
    if lines.are_names and all(_is_fraction(label) for label in lines.labels):
        msg = (
            f"{source}: labels are numbers such as {lines.labels[0]}, neither classes counted from 0 nor their names;"
            " keep values to be predicted in HDF5 or in a table"
        )
        raise DataError(msg)
    return lines


def _guess(columns: tuple[str, ...]) -> str:
    """Return a proposal of column options: usual words in the header, else the first and last column."""
    path = next((name for name in columns if name.lower() in PATH_WORDS), columns[0])
    label = next((name for name in columns if name.lower() in LABEL_WORDS), columns[-1])
    return f"image_column={path} label_column={label}"


def _hint(lines: ListLines) -> str:
    texts = [text.lower() for _, text, _ in lines.bad]
    if texts and all(text.endswith((".h5", ".hdf5")) for text in texts):
        return "; it looks like Caffe's list of HDF5 files, which source_format=hdf5 reads"
    if texts and any(all(separator in text for text in texts) for separator in (";", "|")):
        return "; it looks like a table: name its columns with image_column and label_column"
    if texts and all(is_image_name(text) for text in texts):
        return (
            "; it names images without labels: after each path and a blank or comma stands a number or a class's name"
        )
    return ""


def _columns(config: IngestConfig) -> tuple[str, ...] | None:
    if config.image_column is None and config.label_column is None and config.split_column is None:
        return None
    split = () if config.split_column is None else (config.split_column,)
    return (config.image_column or "path", config.label_column or "label", *split)


def _has_label(path: str) -> bool:
    """Return whether ``path`` is an image's path with a number after a blank."""
    parts = path.rsplit(None, 1)
    return len(parts) == 2 and is_image_name(parts[0]) and _is_fraction(parts[1])


def _is_fraction(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _index(lines: ListLines, reader: RecordReader) -> SourceIndex:
    classes = sorted_classes(lines.labels) if lines.are_names else ()
    labels = labels_of(lines.labels, classes) if lines.are_names else [int(label) for label in lines.labels]
    return SourceIndex(
        labels=np.array(labels, np.int64),
        names=list(lines.paths),
        reader=reader,
        # convert_imageset reads every image as colour by default, so a gray one gets three channels.
        decode_color=True,
        rejected=tuple(Rejection(number - 1, text, None, reason) for number, text, reason in lines.bad),
        class_names=classes,
        are_names=lines.are_names,
        splits=lines.splits,
    )


def _looks_like(look: Look) -> bool:
    return look.member is not None or not (look.text is None or is_archive(look.start))


def _resembles(look: Look) -> str | None:
    if look.kind == "folder":
        lists = sorted(look.path.glob("*.txt"))
        return f"is a folder of no known format; did you mean the list {lists[0]}?" if lists else None
    return None


FORMAT = Format(
    kinds=frozenset({"file", "member"}),
    options=frozenset({"root_folder", "image_column", "label_column", "split_column"}),
    looks_like=_looks_like,
    digest=digest_image_list,
    index=index_image_list,
    named_stamps=image_stamps,
    resembles=_resembles,
)
