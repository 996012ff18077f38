"""Readers of Caffe's files: nets, solvers, weights, states, databases."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from caffe_import.data.hdf5_source import Hdf5Source
from caffe_import.data.image_source import read_image_list
from caffe_import.data.leveldb_source import LeveldbSource
from caffe_import.data.lmdb_pages import walk
from caffe_import.data.window_file import read_window_file
from caffe_import.devices.placement_file import parse_placement
from caffe_import.errors import DataSourceError
from caffe_import.files.caffemodel import read_caffemodel
from caffe_import.files.datum import decode_datum, encode_datum
from caffe_import.files.mean_file import read_mean
from caffe_import.files.prototxt import read_net, read_net_form, read_solver, read_solver_upgrades
from caffe_import.files.solverstate import read_solverstate
from caffe_import.solver.solver_spec import solver_spec
from deepspark_ops.shards.files.lmdb_shard import sample_key, write_lmdb_shard
from tests.fuzz.reader import Reader, file_reader
from tests.paths import FIXTURES
from tests.unit.caffe_import.data.test_leveldb_source import datum, log_file, table_file, write_batch, write_database

CAFFE = FIXTURES / "caffe"
_FIELDS = (
    b"name type bottom top layer layers param include phase: TRAIN shape dim: -1 input_dim: 4 net: base_lr: { }".split()
)
_SOLVER = b"""net: "n.prototxt" base_lr: 0.1 lr_policy: "multistep" gamma: 0.5 stepvalue: 30 stepvalue: 60 max_iter: 100
iter_size: 2 test_iter: 2 test_interval: 10 snapshot_prefix: "tiny" momentum: 0.9 solver_type: NESTEROV random_seed: 7
train_state { level: 1 stage: "a" } weights: "a,b" solver_mode: CPU regularization_type: "L1" clip_gradients: 5
"""


def _files(*patterns: str, largest: int = 60_000) -> Callable[[Path], list[bytes]]:
    """Return a function that makes a corpus of the smallest fixtures of the patterns."""

    def corpus(_: Path) -> list[bytes]:
        paths = [path for pattern in patterns for path in sorted(CAFFE.glob(pattern))]
        return [path.read_bytes() for path in paths if path.stat().st_size <= largest][:24]

    return corpus


def _read_net(path: Path) -> None:
    read_net(path)
    read_net_form(path)


def _read_solver(path: Path) -> None:
    solver_spec(read_solver(path), path=str(path))
    read_solver_upgrades(path)


def _solvers(folder: Path) -> list[bytes]:
    return [_SOLVER, *_files("solvers/*/solver.prototxt")(folder)]


def _read_rows(path: Path) -> None:
    source = Hdf5Source((path,), ("data", "label"))
    try:
        source.read(0, min(2, len(source)))
        with suppress(DataSourceError):  # most have none
            source.texts("id", 0, min(2, len(source)))
    finally:
        source.close()


def _hdf5_shards(folder: Path) -> list[bytes]:
    contents = []
    for options in ({}, {"compression": "gzip", "chunks": (2, 3)}):
        with h5py.File(folder / "a.h5", "w") as file:
            file.create_dataset("data", data=np.arange(12, dtype="f4").reshape(4, 3), **options)
            file["label"] = np.arange(4)
        contents.append((folder / "a.h5").read_bytes())
    with h5py.File(folder / "a.h5", "w") as file:
        file["data"], file["label"], file["id"] = np.arange(12, dtype="f4").reshape(4, 3), np.arange(4), list("abcd")
    contents.append((folder / "a.h5").read_bytes())
    return [*contents, *_files("data/hdf5_*.h5")(folder)]


def _datums(_: Path) -> list[bytes]:
    image = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    jpeg = sorted((CAFFE / "data" / "img").iterdir())[:3]
    from caffe_import.files.datum import encode_datum_jpeg

    return [encode_datum(image, 3), *[encode_datum_jpeg(path.read_bytes(), 1) for path in jpeg]]


def _lmdb(folder: Path) -> list[bytes]:
    contents = []
    for n in (1, 40):
        image = np.zeros((1, 4, 4), np.uint8)
        write_lmdb_shard(folder / f"{n}", [(sample_key(k, "x"), encode_datum(image, k % 2)) for k in range(n)])
        contents.append((folder / f"{n}" / "data.mdb").read_bytes()[:60_000])
    return contents


def _read_lmdb(content: bytes, folder: Path) -> None:
    """Walk the pages, as the separate process does; the finding is the text of the project's error."""
    import lmdb

    database = folder / "db"
    database.mkdir(exist_ok=True)
    (database / "data.mdb").write_bytes(content)
    try:
        walk(database)
    except (lmdb.Error, ValueError) as error:  # check_pages shows what stands on the process' last line
        raise DataSourceError(str(error)) from error


_RECORDS = [(b"k%02d" % k, datum(k % 3)) for k in range(6)]


def _leveldb_tables(_: Path) -> list[bytes]:
    return [table_file([(key, 7, 1, value) for key, value in _RECORDS], snappy=snappy) for snappy in (False, True)]


def _leveldb_logs(_: Path) -> list[bytes]:
    return [log_file(write_batch(10, *[(1, key, value) for key, value in _RECORDS]))]


def _leveldb(content: bytes, folder: Path, *, is_table: bool) -> None:
    database = folder / "db"
    shutil.rmtree(database, ignore_errors=True)
    write_database(database, tables=[(5, content)] if is_table else [], log=_LOG if is_table else content)
    source = LeveldbSource(database)
    try:
        source.read(0, len(source))
    finally:
        source.close()


_LOG = log_file(write_batch(10, (1, b"k", datum(1))))


def _image_lists(_: Path) -> list[bytes]:
    return [b"a.png 0\nb c.png 12\n\nd/e.jpg -1\n", *_files("data/list_*.txt")(Path())]


def _windows(_: Path) -> list[bytes]:
    window = b"# 0\na.png\n3 4 4 2\n1 0.9 0 0 3 3\n0 0.1 0 0 3 3\n# 1\nb.png\n3 8 8 1\n2 0.6 1 1 5 5\n"
    return [window]


def _of_text(read: Callable[[str], object]) -> Callable[[bytes, Path], object]:
    return lambda content, folder: read(content.decode("utf-8", "surrogateescape"))


READERS: Sequence[Reader] = (
    Reader(
        "net",
        _files("nets/*.prototxt", "upgrade/*.prototxt", "layers/*.prototxt"),
        file_reader(_read_net, "n"),
        _FIELDS,
    ),
    Reader("solver", _solvers, file_reader(_read_solver, "s"), _FIELDS),
    Reader("caffemodel", _files("files/*.caffemodel", "solvers/*/*.caffemodel"), file_reader(read_caffemodel, "w")),
    Reader(
        "caffemodel_h5", _files("files/*.caffemodel.h5", "solvers/*/*.caffemodel.h5"), file_reader(read_caffemodel, "w")
    ),
    Reader("solverstate", _files("solvers/*/*.solverstate"), file_reader(read_solverstate, "s")),
    Reader("solverstate_h5", _files("solvers/*/*.solverstate.h5"), file_reader(read_solverstate, "s")),
    Reader("mean", _files("data/mean.binaryproto", "files/infogain*"), file_reader(lambda path: _mean(path), "m")),
    Reader("datum", _datums, lambda content, folder: decode_datum(content)),
    Reader(
        "lmdb",
        _lmdb,
        _read_lmdb,
        may_die="LMDB trusts its pages; they are walked in a process of their own first",
        source_format="caffe_lmdb",
    ),
    Reader("leveldb_table", _leveldb_tables, partial(_leveldb, is_table=True), source_format="caffe_leveldb"),
    Reader("leveldb_log", _leveldb_logs, partial(_leveldb, is_table=False), source_format="caffe_leveldb"),
    Reader("hdf5_rows", _hdf5_shards, file_reader(_read_rows, "d.h5")),
    Reader("image_list", _image_lists, file_reader(read_image_list, "l.txt")),
    Reader(
        "window_file",
        _windows,
        file_reader(lambda path: read_window_file(path, fg_threshold=0.5, bg_threshold=0.5), "w"),
    ),
    Reader(
        "placement",
        lambda folder: [b"# a comment\nconv1: 0\nconv*: 1\nip: split 0 1\n"],
        _of_text(lambda text: parse_placement(text, path="p")),
    ),
)


def _mean(path: Path) -> None:
    from caffe_import.errors import WeightsError

    try:
        read_mean(path)
    except WeightsError as error:
        if "one image (C, H, W)" not in str(error):
            raise
