"""Readers of raw data that are ingested."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from deepspark_ops.ingest.files.archive import open_archive, read_start
from deepspark_ops.ingest.records import SourceIndex
from tests.fuzz.corpus.caffe_files import _hdf5_shards
from tests.fuzz.reader import Reader
from tests.paths import FIXTURES
from tests.reference.ingest_in_process import index_of
from tests.reference.raw_sources import write_cifar, write_idx, write_tar

_MOST_RECORDS = 4


def _indexed(name: str, index: Callable[[Path, Path], SourceIndex]) -> Callable[[bytes, Path], None]:
    """Return a reader that indexes a file called ``name`` and reads the first records."""

    def read(content: bytes, folder: Path) -> None:
        work = folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        path = folder / name
        path.write_bytes(content)
        indexed = index(path, work)
        with indexed.reader.opened() as record:
            for record_index in range(min(_MOST_RECORDS, len(indexed.labels))):
                record(record_index)

    return read


def _idx(folder: Path) -> list[bytes]:
    contents = []
    for shape in ((3, 4, 4), (3, 2, 4, 4)):
        contents.append(write_idx(folder / "a", np.zeros(shape, np.uint8)).read_bytes())
    return [*contents, gzip.compress(contents[0])]


def _index_idx(path: Path, work: Path) -> SourceIndex:
    labels = path.with_name("labels")
    if not labels.exists():
        write_idx(labels, np.arange(3, dtype=np.uint8))
    return index_of("idx", path, work, labels=labels)


def _cifar(folder: Path) -> list[bytes]:
    write_cifar(folder / "a.bin", [1, 2])
    return [(folder / "a.bin").read_bytes()]


def _tar(folder: Path) -> list[bytes]:
    files = {"list.txt": b"a.png 0\nb.png 1\n", "a.png": b"\x89PNG", "b.png": b"\x89PNG12"}
    return [write_tar(folder / "a.tar", files, mode=mode).read_bytes() for mode in ("w", "w:gz", "w:xz", "w:bz2")]


def _zip(folder: Path) -> list[bytes]:
    import zipfile

    contents = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(folder / "a.zip", "w", method) as archive:
            archive.writestr("list.txt", "a.png 0\nb.png 1\n")
            archive.writestr("a.png", b"\x89PNG" * 9)
            archive.writestr("b.png", b"\x89PNG")
        contents.append((folder / "a.zip").read_bytes())
    return contents


def _read_archive(name: str) -> Callable[[bytes, Path], None]:
    def index(path: Path, work: Path) -> SourceIndex:
        open_archive.cache_clear()
        read_start(path, 16)
        return index_of("image_list", Path(f"{path}::list.txt"), work)

    return _indexed(name, index)


def _fixtures(*names: str) -> Callable[[Path], Sequence[bytes]]:
    return lambda folder: [(FIXTURES / name).read_bytes() for name in names]


_TFRECORDS = ("tfrecord/images-00000-of-00002", "tfrecord/images.tfrecord.gz", "tfrecord/raw.tfrecords")
_SEQUENCES = tuple(f"sequence_file/datum_{kind}.seq" for kind in ("block", "bzip2", "gzip", "none", "record"))
_TABLE = b"path,label,split\na.png,0,train\nb.png,1,test\n"

READERS: Sequence[Reader] = (
    Reader("idx", _idx, _indexed("images-idx3-ubyte", _index_idx), source_format="idx"),
    Reader(
        "cifar",
        _cifar,
        _indexed("data_batch_1.bin", partial(index_of, "cifar_binary")),
        source_format="cifar_binary",
    ),
    Reader(
        "raw_image_list",
        lambda folder: [b"a.png 0\nb.png 1\n", b"a b.png cat\nc.png dog\n", _TABLE],
        lambda content, folder: _listed(content, folder),
        source_format="image_list",
    ),
    Reader("tar", _tar, _read_archive("a.tar")),
    Reader("zip", _zip, _read_archive("a.zip")),
    Reader(
        "tfrecord",
        _fixtures(*_TFRECORDS),
        _indexed("a.tfrecord", partial(index_of, "tfrecord")),
        source_format="tfrecord",
    ),
    Reader(
        "sequence_file",
        _fixtures(*_SEQUENCES),
        _indexed("a.seq", partial(index_of, "sequence_file")),
        source_format="sequence_file",
    ),
    Reader("raw_hdf5", _hdf5_shards, _indexed("a.h5", partial(index_of, "hdf5")), source_format="hdf5"),
)


def _listed(content: bytes, folder: Path) -> None:
    path = folder / "list.txt"
    path.write_bytes(content)
    options = {"image_column": "path"} if content.startswith(b"path,") else {}
    index_of("image_list", path, folder, **options)
