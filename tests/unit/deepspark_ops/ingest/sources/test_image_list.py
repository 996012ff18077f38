"""Image lists in folders and tars: what the driver reads, what a task reads, what a digest sees."""

import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.archive import split_member
from deepspark_ops.ingest.records import RecordError
from tests.reference.ingest_in_process import index_of, index_records, source_digest_of
from tests.reference.raw_sources import write_images, write_tar

index_image_list = partial(index_of, "image_list")
digest_image_list = partial(source_digest_of, "image_list")


def tar_of(folder: Path, path: Path, *, prefix: str = "", mode: str = "w:gz") -> Path:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return write_tar(path, {prefix + str(file.relative_to(folder)): file.read_bytes() for file in files}, mode=mode)


def test_folder_list_gives_names_labels_and_bytes(tmp_path):
    index = index_image_list(write_images(tmp_path / "d", 5), tmp_path)
    assert index.names == [f"img/{i}.png" for i in range(5)]
    assert (index.labels.tolist(), index.labels.dtype) == ([0, 1, 2, 0, 1], np.int64)
    assert index_records(index) == [(tmp_path / "d" / name).read_bytes() for name in index.names]


def test_root_folder_replaces_the_lists_own(tmp_path):
    path = write_images(tmp_path / "d", 3)
    moved = path.rename(tmp_path / "elsewhere.txt")
    assert len(index_records(index_image_list(moved, tmp_path, root_folder=tmp_path / "d"))) == 3


@pytest.mark.parametrize(("root", "line"), [("d", "/img/1.png"), ("d/img/", "1.png"), ("d/img/1", ".png")])
def test_root_folder_and_path_are_one_text_as_for_convert_imageset(tmp_path, root, line):
    write_images(tmp_path / "d", 3)
    source, root_folder = tmp_path / "l.txt", tmp_path / root
    source.write_text(f"{line} 7\n")
    index = index_image_list(source, tmp_path, root_folder=root_folder)
    assert index.names == [line]
    assert index_records(index) == [(tmp_path / "d/img/1.png").read_bytes()]
    old_digest = digest_image_list(source, root_folder=root_folder)
    (tmp_path / "d/img/1.png").write_bytes(b"another")
    assert digest_image_list(source, root_folder=root_folder) != old_digest


def test_a_relative_root_folder_may_begin_names(tmp_path, monkeypatch):
    write_images(tmp_path / "d", 3)
    (tmp_path / "l.txt").write_text(".png 7\n")
    monkeypatch.chdir(tmp_path)
    index = index_image_list(tmp_path / "l.txt", tmp_path, root_folder=Path("d/img/1"))
    assert index_records(index) == [(tmp_path / "d/img/1.png").read_bytes()]


def test_an_absolute_path_outside_of_the_root_folder_is_read(tmp_path):
    write_images(tmp_path / "d", 2)
    (tmp_path / "l.txt").write_text(f"{tmp_path}/d/img/1.png 7\n")
    for root_folder in (None, tmp_path):
        index = index_image_list(tmp_path / "l.txt", tmp_path, root_folder=root_folder)
        assert index_records(index) == [(tmp_path / "d/img/1.png").read_bytes()]


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("prefix", ["", "./", "top/"])
def test_tar_gives_the_same_as_the_folder(tmp_path, mode, prefix):
    folder = write_images(tmp_path / "d", 4).parent
    archive = tar_of(folder, tmp_path / "a.tar", prefix=prefix, mode=mode)
    (tmp_path / "work").mkdir()
    index = index_image_list(Path(f"{archive}::{prefix}list.txt"), tmp_path / "work")
    assert index_records(index) == index_records(index_image_list(folder / "list.txt", tmp_path))
    assert bool(list((tmp_path / "work").iterdir())) == (mode != "w")  # a plain tar is read in place


def test_root_folder_inside_a_tar(tmp_path):
    folder = write_images(tmp_path / "d", 2).parent
    files = {"lists/a.txt": (folder / "list.txt").read_bytes()}
    files |= {f"data/img/{i}.png": (folder / "img" / f"{i}.png").read_bytes() for i in range(2)}
    archive = write_tar(tmp_path / "a.tar", files, mode="w")
    index = index_image_list(Path(f"{archive}::lists/a.txt"), tmp_path, root_folder=Path("data"))
    assert index_records(index)[1] == files["data/img/1.png"]


@pytest.mark.parametrize("in_tar", [False, True])
def test_subset_reads_its_own_records_only(tmp_path, in_tar):
    path = write_images(tmp_path / "d", 6)
    source = Path(f"{tar_of(path.parent, tmp_path / 'a.tar')}::list.txt") if in_tar else path
    index = index_image_list(source, tmp_path)
    with index.reader.subset(np.array([5, 2])).opened() as read:
        assert [read(0), read(1)] == [index_records(index)[5], index_records(index)[2]]
        with pytest.raises(IndexError):
            read(2)


def test_missing_image_is_a_rejected_record(tmp_path):
    (tmp_path / "list.txt").write_text("gone.png 0\n")
    with index_image_list(tmp_path / "list.txt", tmp_path).reader.opened() as read:
        with pytest.raises(RecordError, match=f"^No such file or directory: {tmp_path}/gone.png"):
            read(0)
    archive = write_tar(tmp_path / "a.tar", {"list.txt": b"gone.png 0\n"})
    with index_image_list(Path(f"{archive}::list.txt"), tmp_path).reader.opened() as read:
        with pytest.raises(RecordError, match=r"^no such file in the archive$"):
            read(0)


def test_lines_without_label_are_rejected_with_their_number(tmp_path):
    path = write_images(tmp_path / "d", 2)
    path.write_text("img/0.png 0\n\noops\nimg/1.png 1\n")
    index = index_image_list(path, tmp_path)
    assert index.names == ["img/0.png", "img/1.png"]
    assert [(item.position, item.name, item.label, item.reason) for item in index.rejected] == [
        (2, "oops", None, 'line 3 is not "path label"')
    ]


@pytest.mark.parametrize(
    ("text", "finding"), [("", "no line"), ("\n\n", "no line"), ("a\nb\n", '2 lines, none of them "path label"')]
)
def test_empty_list_says_what_was_found(tmp_path, text, finding):
    (tmp_path / "list.txt").write_text(text)
    with pytest.raises(DataError) as caught:
        index_image_list(tmp_path / "list.txt", tmp_path)
    assert str(caught.value) == f"{tmp_path}/list.txt: the image list is empty: {finding}"


def test_missing_member_lists_the_text_files(tmp_path):
    archive = write_tar(tmp_path / "a.tar.gz", {"train.txt": b"", "test.txt": b"", "x.jpg": b""})
    with pytest.raises(ConfigError) as caught:
        index_image_list(Path(f"{archive}::list.txt"), tmp_path)
    assert str(caught.value) == f'{archive}: no member "list.txt"; its text files: test.txt, train.txt'


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz", "w"])
def test_archive_cut_short_is_damaged(tmp_path, mode):
    archive = tar_of(write_images(tmp_path / "d", 6).parent, tmp_path / "a.tar", mode=mode)
    os.truncate(archive, archive.stat().st_size // 3)
    with pytest.raises(DataError, match=r"a\.tar: (damaged or cut short|not a readable tar|the tar is cut short)"):
        index_image_list(Path(f"{archive}::list.txt"), tmp_path)


def test_file_that_is_no_tar_says_so(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"text" * 1000)
    with pytest.raises(DataError, match=r"a\.tar: not a readable tar"):
        index_image_list(Path(f"{tmp_path}/a.tar::list.txt"), tmp_path)


def test_digest_changes_with_list_and_images(tmp_path):
    path = write_images(tmp_path / "d", 3)
    digest = digest_image_list(path)
    assert digest_image_list(path) == digest
    os.utime(tmp_path / "d" / "img" / "1.png", ns=(1, 1))
    touched = digest_image_list(path)
    (tmp_path / "d" / "img" / "2.png").unlink()
    gone = digest_image_list(path)
    path.write_text(path.read_text() + "img/0.png 2\n")
    assert len({digest, touched, gone, digest_image_list(path)}) == 4


def test_member_names_are_normalized():
    assert split_member(Path("a.tar::./b/../c.txt")) == (Path("a.tar"), "c.txt")
    assert split_member(Path("d/list.txt")) == (Path("d/list.txt"), None)


def test_a_table_asks_for_its_columns_and_is_read_by_them(tmp_path):
    folder = write_images(tmp_path / "d", 3).parent
    rows = "".join(f'{i},"img/{i}.png",{["cat", "dog"][i % 2]},{i / 7}\n' for i in range(3))
    (folder / "t.csv").write_text("id,file,species,score\n" + rows + "9,img/0.png,,0\n")
    with pytest.raises(ConfigError) as caught:
        index_image_list(folder / "t.csv", tmp_path)
    assert str(caught.value) == (
        f"{folder}/t.csv: a table of 4 columns (id, file, species, score), not the two of an image list, path and"
        " label; name those of paths and labels: image_column=file label_column=score"
    )
    index = index_image_list(folder / "t.csv", tmp_path, image_column="file", label_column="species")
    assert (index.names, index.class_names) == ([f"img/{i}.png" for i in range(3)], ("cat", "dog"))
    assert index.labels.tolist() == [0, 1, 0]
    assert [(item.position, item.reason) for item in index.rejected] == [(4, 'line 5 is not "path label"')]
    assert index_image_list(folder / "t.csv", tmp_path, image_column="file", label_column="id").labels.tolist() == [
        0,
        1,
        2,
        9,
    ]
    with pytest.raises(ConfigError, match=r"no columns file and kind in its first line, \['id,file,species,score'\]"):
        index_image_list(folder / "t.csv", tmp_path, image_column="file", label_column="kind")
    digest = digest_image_list(folder / "t.csv", image_column="file", label_column="species")
    os.utime(folder / "img" / "1.png", ns=(1, 1))
    assert digest_image_list(folder / "t.csv", image_column="file", label_column="species") != digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train/a.h5\ntrain/b.h5\n", "it looks like Caffe's list of HDF5 files, which source_format=hdf5 reads"),
        ("a.jpg\nmy b.jpg\n", "it names images without labels: after each path and a blank or comma stands a number"),
        (
            "a.jpg 0 1\nb.jpg 1 1\n",
            'lines hold several labels, e.g. "a.jpg 0 1", an image list has one',
        ),
        ("file;kind\na.jpg;x\n", "it looks like a table: name its columns with image_column and label_column"),
        ("a.jpg 0.5\nb.jpg 1.25\n", "labels are numbers such as 0.5, neither classes counted from 0 nor their names"),
    ],
)
def test_a_list_of_something_else_leads_on(tmp_path, text, message):
    (tmp_path / "list.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        index_image_list(tmp_path / "list.txt", tmp_path)


def test_lists_with_commas_and_names_are_read(tmp_path):
    path = write_images(tmp_path / "d", 3)
    path.write_text("path,label\nimg/0.png,1\nimg/2.png,0\n")
    index = index_image_list(path, tmp_path)
    assert (index.labels.tolist(), index.class_names, index.are_names) == ([1, 0], (), False)
    path.write_text("img/0.png dog\nimg/2.png cat\n")
    index = index_image_list(path, tmp_path)
    assert (index.labels.tolist(), index.class_names, index.are_names) == ([1, 0], ("cat", "dog"), True)
    assert len(index_records(index)) == 2
