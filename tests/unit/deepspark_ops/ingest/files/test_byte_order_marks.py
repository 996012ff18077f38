"""Every reader of a text written by a person gives equal results for each byte order mark of editors."""

import codecs
import re
from functools import partial
from pathlib import Path

import pytest

from caffe_import.data.hdf5_source import hdf5_list_names
from caffe_import.data.image_source import read_image_list
from caffe_import.data.window_file import read_window_file
from deepspark_ops.export.model_parts import class_names_of_file
from deepspark_ops.ingest.recipe import read_class_names
from deepspark_ops.ingest.selection.splits import read_split_list
from deepspark_ops.ingest.sources.registry import detect_format
from deepspark_ops.predict.inputs.image_files import first_listed
from tests.paths import ROOT
from tests.reference.ingest_in_process import index_of, source_digest_of
from tests.reference.raw_sources import write_cifar, write_images, write_tar

MARKS = {
    "utf8": (codecs.BOM_UTF8, "utf-8"),
    "utf16_little": (codecs.BOM_UTF16_LE, "utf-16-le"),
    "utf16_big": (codecs.BOM_UTF16_BE, "utf-16-be"),
}
WINDOWS = "# 0\na.png\n3 20 20\n1\n2 0.9 0 0 5 5\n"


def _index(source):
    index = index_of("image_list", source, source.parent)
    return index.names, index.labels.tolist(), len(index.rejected)


def _in_archive(source):
    content = source.read_bytes()
    tar = source.parent / f"{len(content)}.tar"  # a process keeps the index of an archive by its path
    write_tar(tar, {"list.txt": content, "a.png": b"1", "b.png": b"2"}, mode="w")
    return _index(Path(f"{tar}::list.txt"))


def _split_folder(source):
    folder = source.parent / "splits"
    folder.mkdir(exist_ok=True)
    (folder / "test.txt").write_bytes(source.read_bytes())
    return read_split_list(folder)


def _cifar_names(source):
    folder = source.parent / "cifar"
    folder.mkdir(exist_ok=True)
    write_cifar(folder / "data_batch_1.bin", [0, 1])
    (folder / "batches.meta.txt").write_bytes(source.read_bytes())
    return index_of("cifar_binary", folder).class_names


READERS = {
    "net's image list": ("a.png 3\nb.png 4\n", read_image_list),
    "net's list of HDF5 files": ("a.h5\nb.h5\n", lambda path: hdf5_list_names(path, path.parent)),
    "net's window file": (WINDOWS, lambda path: read_window_file(path, fg_threshold=0.5, bg_threshold=0.1)),
    "image list": ("a.png 3\nb.png 4\n", _index),
    "image list with names": ("a.png,cat\nb.png,dog\n", _index),
    "image list of two columns": (
        "path,label\na.png,cat\nb.png,dog\n",
        lambda path: index_of("image_list", path, image_column="path").names,
    ),
    "image list in an archive": ("a.png 3\nb.png 4\n", _in_archive),
    "ingestion's list of HDF5 files": ("a.h5\nb.h5\n", partial(source_digest_of, "hdf5")),
    "split list": ("a.png test\nb.png train\n", read_split_list),
    "folder of split lists": ("a.png\nb.png\n", _split_folder),
    "names of classes": ("cat\ndog\n", lambda path: read_class_names(path, path.parent)),
    "names of CIFAR's classes": ("cat\ndog\n", _cifar_names),
    "labels of a converted net": ("cat\ndog\n", lambda path: class_names_of_file(path, 2)),
    "list of images to predict": ("a.png\nb.png\n", first_listed),
}


@pytest.fixture
def folder(tmp_path):
    write_images(tmp_path, 1)
    for name in ("a.png", "b.png", "a.h5", "b.h5"):
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("reader", READERS)
def test_a_byte_order_mark_changes_no_list(folder, reader, mark):
    text, read = READERS[reader]
    source = folder / "list.txt"
    source.write_text(text)
    plain = read(source)
    start, encoding = MARKS[mark]
    source.write_bytes(start + text.encode(encoding))
    assert read(source) == plain


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize(("name", "text"), [("hdf5", "a.h5\nb.h5\n"), ("image_list", "a.png 3\nb.png 4\n")])
def test_a_list_is_recognised_behind_a_byte_order_mark(tmp_path, mark, name, text):
    start, encoding = MARKS[mark]
    (tmp_path / "list.txt").write_bytes(start + text.encode(encoding))
    assert detect_format(tmp_path / "list.txt") == name


def test_the_digest_of_a_list_with_a_mark_holds_its_first_image(folder):
    source = folder / "list.txt"
    source.write_bytes(codecs.BOM_UTF8 + b"a.png 3\nb.png 4\n")
    old_digest = source_digest_of("image_list", source)
    (folder / "a.png").write_bytes(b"another content")
    assert source_digest_of("image_list", source) != old_digest


def test_texts_with_paths_are_opened_by_one_function():
    opened = re.compile(r"(read_text|open)\([^)]*surrogateescape")
    sources = [path for package in ("caffe_import", "deepspark_ops") for path in (ROOT / package).rglob("*.py")]
    assert [path for path in sources if opened.search(path.read_text(encoding="utf-8"))] == []
