"""Users' files are opened by ``caffe_import/file_access/regular_file.py`` alone: no other module opens a file to read.

A named pipe blocks every other way of opening. A library that opens by name gets ``regular_path(...)`` as argument.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.paths import ROOT

OWN_FILES = {
    "caffe_import/file_access/regular_file.py": "it is the reader",
    "caffe_import/file_access/whole_file.py": "syncs files and folders that this process has written",
    "caffe_import/files/datum.py": "a file in memory",
    "caffe_import/files/hdf5_file.py": "the library reads from CheckedFile, which regular_file opens",
    "caffe_import/data/lmdb_environment.py": "LMDB opens a folder; data.mdb was seen to be a regular file",
    "caffe_import/data/lmdb_pages.py": "LMDB opens a folder; data.mdb was seen to be a regular file",
    "caffe_import/devices/onednn.py": "the kernel's files",
    "deepspark_ops/devices/cgroups.py": "the kernel's files",
    "deepspark_ops/devices/executor_share.py": "the kernel's files",
    "deepspark_ops/devices/host_cores.py": "the kernel's files",
    "deepspark_ops/devices/memory_there.py": "the kernel's files",
    "deepspark_ops/processes/handed_signals.py": "the kernel's files",
    "deepspark_ops/processes/process_table.py": "the kernel's files",
    "deepspark_ops/processes/worker_archive.py": "the files of this installation, and an archive that it writes",
    "deepspark_ops/train/worker/loop/progress.py": "the kernel's files",
    "deepspark_ops/train/worker/fault_file.py": "a note of the run's own worker, for a process that loads no more",
    "deepspark_ops/train/worker/run_copy.py": "a mark of the run's own driver, for a process that loads no more",
    "deepspark_ops/train/worker/starts.py": "a count of the run's own workers, for a process that loads no more",
    "deepspark_ops/exchange/server/center_updates.py": "opens a round of the exchange, no file",
    "deepspark_ops/exchange/state/journal.py": "a server's journal, in a folder that the server made",
    "deepspark_ops/exchange/state/pending_snapshot.py": "written by the servers of the run a moment ago",
    "deepspark_ops/export/formats/keras_reader.py": "a script without our modules, in the export's scratch",
    "deepspark_ops/export/formats/onnx_reader.py": "a script without our modules, in the export's scratch",
    "deepspark_ops/export/formats/opencv_reader.py": "a script without our modules, in the export's scratch",
    "deepspark_ops/export/formats/outside_reader.py": "the answers of those scripts, in the export's scratch",
    "deepspark_ops/export/formats/tf_lite_reader.py": "a script without our modules, in the export's scratch",
    "deepspark_ops/file_lock.py": "locks a folder",
    "deepspark_ops/ingest/tables/row_files.py": "rows in the ingestion's own scratch folder",
    "deepspark_ops/ingest/tables/split_rows.py": "rows in the ingestion's own scratch folder",
    "deepspark_ops/ingest/tables/table_shards.py": "rows in the ingestion's own scratch folder",
    "deepspark_ops/shards/files/lmdb_shard.py": "LMDB makes the database that is opened",
    "deepspark_ops/stores/arrow_store.py": "a shard that this process has written",
    "deepspark_ops/stores/hadoop_store.py": "a copy that Hadoop's client has made, or a mount of HDFS",
    "deepspark_ops/stores/staging.py": "a copy that this process has made",
    "deepspark_ops/stores/store_path.py": "objects of a store",
}
"""Module -> why it may open a file by itself."""

OPENS_BY_NAME = {
    "np.load": 1,
    "np.memmap": 2,
    "np.fromfile": 9,
    "np.loadtxt": 9,
    "np.genfromtxt": 9,
    "h5py.File": 1,
    "lmdb.open": 9,
    "tarfile.open": 1,
    "gzip.open": 1,
    "zipfile.ZipFile": 1,
    "cv2.imread": 9,
    "pq.ParquetFile": 9,
    "pq.read_metadata": 9,
    "pq.read_schema": 9,
    "pq.read_table": 9,
    "pa.parquet.ParquetFile": 9,
    "pa.csv.open_csv": 9,
    "pa.csv.read_csv": 9,
    "pa_csv.open_csv": 9,
    "pa_csv.read_csv": 9,
    "pa_orc.ORCFile": 9,
    "pa.memory_map": 9,
    "pa.OSFile": 9,
}
"""Function of a library -> position of its mode; 9: it only reads."""

PATH_METHODS = {"open": 0, "read_text": 9, "read_bytes": 9}
WRITING_FLAGS = ("O_CREAT", "O_RDWR", "O_WRONLY")


def opened_files(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each direct call that opens a file for reading."""
    tree = ast.parse(source)
    handles = names_of_handles(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and opens_by_itself(node, handles):
            yield node.lineno, ast.unparse(node)


def names_of_handles(tree: ast.AST) -> set[str]:
    """Return names that ``with open_regular(...) as NAME`` gives to open files."""
    return {
        item.optional_vars.id
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        for item in node.items
        if isinstance(item.optional_vars, ast.Name)
        if isinstance(item.context_expr, ast.Call) and ast.unparse(item.context_expr.func) == "open_regular"
    }


def opens_by_itself(call: ast.Call, handles: set[str]) -> bool:
    name = ast.unparse(call.func)
    first = ast.unparse(call.args[0]) if call.args else ""
    if name == "os.open":
        return not any(flag in ast.unparse(call) for flag in WRITING_FLAGS)
    if name == "open":
        return not writes(mode_of(call, 1))
    if name in OPENS_BY_NAME:
        is_open = first in handles or any(keyword.arg == "fileobj" for keyword in call.keywords)
        is_checked = is_open or first.startswith(("regular_path(", "open_regular("))
        return not is_checked and not writes(mode_of(call, OPENS_BY_NAME[name]))
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in PATH_METHODS:
        return False
    mode = mode_of(call, PATH_METHODS[call.func.attr])
    is_resource = "files(" in name or (mode is not None and not isinstance(mode, str))
    return not is_resource and not writes(mode)


def mode_of(call: ast.Call, position: int) -> object:
    """Return the mode: a text, None if absent, the expression if not a constant."""
    chosen = next((keyword.value for keyword in call.keywords if keyword.arg == "mode"), None)
    chosen = chosen or (call.args[position] if len(call.args) > position else None)
    return chosen.value if isinstance(chosen, ast.Constant) else chosen


def writes(mode: object) -> bool:
    return isinstance(mode, str) and bool(set(mode) & set("wax+"))


def modules() -> list[str]:
    return [
        str(path.relative_to(ROOT)) for top in ("caffe_import", "deepspark_ops") for path in (ROOT / top).rglob("*.py")
    ]


def test_no_module_opens_a_users_file_by_itself() -> None:
    faults = [
        f"{name}:{line}: {call[:100]}"
        for name in modules()
        if name not in OWN_FILES
        for line, call in opened_files((ROOT / name).read_text(encoding="utf-8"))
    ]
    remedy = "read by caffe_import/file_access/regular_file.py, or add the module and its reason here"
    assert not faults, "\n".join([remedy, *faults])


@pytest.mark.parametrize("name", OWN_FILES)
def test_each_exception_is_still_needed(name: str) -> None:
    assert list(opened_files((ROOT / name).read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "call",
    [
        "open(path)",
        'open(path, "rb")',
        'open(path, mode="r")',
        "os.open(path, os.O_RDONLY)",
        'path.open("rb")',
        "path.open()",
        "path.open(encoding='utf-8')",
        "(folder / name).read_text()",
        "path.read_bytes()",
        "np.load(path)",
        "np.memmap(path, np.uint8, 'r')",
        "h5py.File(path)",
        "h5py.File(path, 'r')",
        "pq.ParquetFile(path)",
        "tarfile.open(local, 'r:')",
    ],
)
def test_a_call_that_reads_by_itself_is_seen(call: str) -> None:
    assert [text for _, text in opened_files(f"def f():\n    {call}")]


@pytest.mark.parametrize(
    "call",
    [
        'open(path, "w")',
        'path.open("ab")',
        "os.open(path, os.O_RDWR | os.O_CREAT)",
        "np.load(regular_path(path))",
        "h5py.File(path, 'w')",
        "files('deepspark_ops').joinpath('a.css').read_text()",
        "Center.open(path, token)",
        "open_regular(path)",
    ],
)
def test_a_call_that_writes_or_is_checked_is_left_alone(call: str) -> None:
    assert not list(opened_files(f"def f():\n    {call}"))
