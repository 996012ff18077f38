"""HDF5 files with texts where h5py puts a ``str``, and where older versions put texts: in the heap."""

from __future__ import annotations

from pathlib import Path

import h5py


def texts_in_the_heap(path: Path) -> Path:
    """Replace each text attribute of fixed length by a text of variable length, and return the file."""
    with h5py.File(path, "r+") as file:
        texts = [(file, name) for name in file.attrs]
        file.visititems(lambda _, item: texts.extend((item, name) for name in item.attrs))
        for item, name in texts:
            if isinstance(attribute := item.attrs[name], bytes):
                item.attrs[name] = attribute.decode()
    assert b"GCOL" in path.read_bytes()
    return path
