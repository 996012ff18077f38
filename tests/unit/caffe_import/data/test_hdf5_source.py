"""HDF5 sources: rows over file borders, and lists and files that do not do."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from caffe_import.data.hdf5_source import Hdf5Source, read_hdf5_list
from caffe_import.errors import DataSourceError


def write_h5(path: Path, **datasets) -> Path:
    with h5py.File(path, "w") as handle:
        for name, values in datasets.items():
            handle[name] = values
    return path


@pytest.fixture
def three_files(tmp_path):
    """Rows 0..3, 4, 5..9: ``data`` (2,) double, ``label`` int."""
    files = []
    for name, rows in [("a", range(4)), ("b", range(4, 5)), ("c", range(5, 10))]:
        label = np.array(rows)
        files.append(write_h5(tmp_path / f"{name}.h5", data=np.stack([label, -label], axis=1) / 2, label=label))
    source = Hdf5Source(tuple(files), ("label", "data"))
    yield source
    source.close()


@pytest.mark.parametrize(("start", "count"), [(0, 10), (0, 1), (3, 3), (4, 1), (4, 6), (9, 1)])
def test_rows_go_on_over_file_borders(three_files, start, count):
    label, data = three_files.read(start, count)
    assert label.dtype == data.dtype == np.float32
    assert label.tolist() == list(range(start, start + count))
    np.testing.assert_array_equal(data, np.stack([label, -label], axis=1) / 2)


@pytest.mark.parametrize(("start", "count"), [(0, 10), (2, 2), (3, 3), (5, 5), (6, 2), (9, 1)])
def test_texts_go_on_over_file_borders(three_files, start, count):
    assert three_files.texts("label", start, count) == [str(row) for row in range(start, start + count)]


def test_length_and_shapes_follow_the_tops(three_files):
    assert (len(three_files), three_files.sample_shapes()) == (10, ((), (2,)))
    assert not three_files.is_transformed


def test_unknown_dataset_lists_what_there_is(tmp_path):
    path = write_h5(tmp_path / "a.h5", data=np.zeros(3), label=np.zeros(3))
    with pytest.raises(DataSourceError) as caught:
        len(Hdf5Source((path,), ("pixels",)))
    assert str(caught.value) == f'{path}: no dataset "pixels"; the file holds data, label'


def test_unequal_lengths_are_refused(tmp_path):
    path = write_h5(tmp_path / "a.h5", data=np.zeros((3, 2)), label=np.zeros(4))
    with pytest.raises(DataSourceError, match=r"different numbers of rows \(data 3, label 4\)"):
        len(Hdf5Source((path,), ("data", "label")))


def test_files_of_different_shapes_are_refused(tmp_path):
    files = (write_h5(tmp_path / "a.h5", data=np.zeros((3, 2))), write_h5(tmp_path / "b.h5", data=np.zeros((3, 5))))
    with pytest.raises(DataSourceError, match=r"b\.h5: rows have shapes \(\(5,\),\), those of .*a\.h5 \(\(2,\),\)"):
        len(Hdf5Source(files, ("data",)))


def test_missing_and_damaged_files_are_told_apart(tmp_path):
    with pytest.raises(DataSourceError, match=r"x\.h5: No such file or directory$"):
        len(Hdf5Source((tmp_path / "x.h5",), ("data",)))
    (tmp_path / "y.h5").write_bytes(b"text")
    with pytest.raises(DataSourceError, match=r"y\.h5: not a readable HDF5 file"):
        len(Hdf5Source((tmp_path / "y.h5",), ("data",)))


def test_no_rows_at_all_is_refused(tmp_path):
    path = write_h5(tmp_path / "a.h5", data=np.zeros((0, 2)))
    with pytest.raises(DataSourceError, match="the HDF5 files hold no rows"):
        len(Hdf5Source((path,), ("data",)))


def test_list_is_relative_to_root_and_skips_blank_lines(tmp_path):
    (tmp_path / "list.txt").write_text("d/a.h5\n\n  /abs/b.h5 \n")
    assert read_hdf5_list(tmp_path / "list.txt", tmp_path) == (tmp_path / "d/a.h5", Path("/abs/b.h5"))


def test_any_blank_separates_the_files_of_a_list_as_in_caffe(tmp_path):
    (tmp_path / "list.txt").write_text("a.h5 b.h5\tc.h5\n d/e.h5  \n")
    assert read_hdf5_list(tmp_path / "list.txt", tmp_path) == tuple(
        tmp_path / name for name in ("a.h5", "b.h5", "c.h5", "d/e.h5")
    )


def test_a_line_with_blanks_that_names_a_file_is_one_name(tmp_path):
    folder = tmp_path / "my runs"
    folder.mkdir()
    (folder / "two words.h5").touch()
    (tmp_path / "list.txt").write_text(f"my runs/two words.h5\n{folder}/none.h5\na.h5 b.h5\n")
    assert read_hdf5_list(tmp_path / "list.txt", tmp_path) == (
        folder / "two words.h5",
        folder / "none.h5",  # the folder exists, the file is missing
        tmp_path / "a.h5",
        tmp_path / "b.h5",
    )


def test_missing_and_empty_lists_are_refused(tmp_path):
    with pytest.raises(DataSourceError, match="no such list of HDF5 files"):
        read_hdf5_list(tmp_path / "list.txt", tmp_path)
    (tmp_path / "list.txt").write_text("\n \n")
    with pytest.raises(DataSourceError, match="the list names no HDF5 file"):
        read_hdf5_list(tmp_path / "list.txt", tmp_path)
