"""Opens HDF5 files with all data inside; refuses references to other files.

An HDF5 file may name other files, and HDF5 then reads the other files with the reader's rights. The names are in
external links, external storage of a data set, and virtual data sets. All virtual data sets are refused
unread: HDF5 crashes at damaged virtual data sets, and Caffe writes none.

HDF5 reads through ``global_heap.CheckedFile``, because a damaged global heap would keep HDF5 busy for ever.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from caffe_import.errors import DataSourceError
from caffe_import.files.global_heap import CheckedFile

_READABLE = (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING, h5py.h5t.ENUM)


def open_hdf5(path: Path, **options: Any) -> h5py.File:
    """Open an HDF5 file for reading; ``options`` are h5py's.

    Soft links are followed inside the file only: a way out of the file would pass an external link.

    Raises:
        DataSourceError: A part of the file is in another file; the message names it.
        OSError: The file is missing or damaged; h5py raises other errors, too.
    """
    checked = CheckedFile(path)
    file = h5py.File(checked, "r", **options)
    try:
        checked.length_bytes = file.id.get_create_plist().get_sizes()[1]
        foreign_part = _foreign_part(file, checked)
    except BaseException:
        file.close()
        raise
    if foreign_part:
        file.close()
        msg = f"{path}: {foreign_part}; files that lead into others are not read: store the data in the file itself"
        raise DataSourceError(msg)
    checked.gives_heap = True
    return file


def fixed_text(text: str) -> np.ndarray[tuple[()], np.dtype[np.bytes_]]:
    """Return what stores a text in the object itself, UTF-8; h5py puts a ``str`` into the file's global heap."""
    content = text.encode()
    return np.array(content, h5py.string_dtype("utf-8", max(1, len(content))))


def attribute(holder: h5py.HLObject, name: str, default: Any = None) -> Any:
    """Return an attribute that is a number or a text, of fixed or variable length.

    An attribute of another type may end the process inside the library, so the type is checked first.

    Args:
        holder: Object with the attribute.
        name: Name of the attribute.
        default: Value of a missing attribute; None: the attribute must exist.

    Raises:
        OSError: The attribute is missing or damaged; h5py raises other errors, too.
    """
    if default is not None and name not in holder.attrs:
        return default
    _check_type(h5py.h5a.open(holder.id, name.encode()), f"attribute {name}")
    value = holder.attrs[name]
    return value.decode() if isinstance(value, bytes) else value


def data_set(holder: h5py.Group, name: str) -> h5py.Dataset:
    """Return a data set of numbers or texts of a group, see ``attribute``.

    Raises:
        OSError: The data set is missing or damaged; h5py raises other errors, too.
    """
    item = holder[name]
    if not isinstance(item, h5py.Dataset):
        msg = f"{name} is no data set"
        raise OSError(msg)
    _check_type(item.id, f"data set {name}")
    return item


def _check_type(holder: h5py.h5a.AttrID | h5py.h5d.DatasetID, title: str) -> None:
    if holder.get_type().get_class() not in _READABLE:
        msg = f"{title} holds neither numbers nor texts"
        raise OSError(msg)


def _foreign_part(file: h5py.File, checked: CheckedFile) -> str:
    """Return the first part of the file in another file, else an empty text. Each object is looked at once."""
    hard: list[bytes] = []
    external: list[bytes] = []

    def look(name: bytes, link: Any) -> None:  # an exception in here would be lost in the library
        if link.type == h5py.h5l.TYPE_EXTERNAL:
            external.append(name)
        elif link.type == h5py.h5l.TYPE_HARD:
            hard.append(name)

    try:
        file.id.links.visit(look, info=True)
    except SystemError as error:  # how h5py 3 tells of some damaged links
        msg = f"damaged links: {error}"
        raise OSError(msg) from error
    if external:
        return f'"{_shown(external[0])}" is an external link to {_shown(file.id.links.get_val(external[0])[0])}'
    return next((storage for storage in (_foreign_storage(file, name, checked) for name in hard) if storage), "")


def _foreign_storage(file: h5py.File, name: bytes, checked: CheckedFile) -> str:
    checked.gives_heap = checked.was_asked = False
    try:
        item = h5py.h5o.open(file.id, name)
    except (OSError, KeyError, RuntimeError):
        # Of all objects only a virtual data set needs the heap at opening: the heap lists the data set's sources.
        if checked.was_asked:
            return f'data set "{_shown(name)}" is virtual, made of parts of other data sets'
        raise
    checked.gives_heap = True  # for a value that is filled in
    if isinstance(item, h5py.h5d.DatasetID) and (how := item.get_create_plist()).get_external_count():
        return f'data set "{_shown(name)}" is stored in {_shown(how.get_external(0)[0])}'
    return ""


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")[:200]
