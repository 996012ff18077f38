"""Every reader of HDF5 refuses files that lead into others, and reads all other files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest

from caffe_import.data.hdf5_source import Hdf5Source
from caffe_import.errors import CaffeImportError
from caffe_import.files.caffemodel import read_caffemodel
from caffe_import.files.hdf5_file import attribute, data_set, open_hdf5
from caffe_import.files.solverstate import read_solverstate
from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.sample_scores import read_samples
from deepspark_ops.train.snapshots.state_file import read_run_state
from tests.reference.ingest_in_process import index_of


def external_link(file: h5py.File, other: Path) -> None:
    file["data"] = h5py.ExternalLink(other, "/data")


def deep_link(file: h5py.File, other: Path) -> None:
    file["data/conv/0"] = h5py.ExternalLink(other, "/data")


def soft_link_over_it(file: h5py.File, other: Path) -> None:
    file["way/out"] = h5py.ExternalLink(other, "/")
    file["data"] = h5py.SoftLink("/way/out/data")


def virtual(file: h5py.File, other: Path) -> None:
    layout = h5py.VirtualLayout((4,), "f")
    layout[:] = h5py.VirtualSource(other, "data", shape=(4,))
    file.create_virtual_dataset("data", layout)


def virtual_of_its_own(file: h5py.File, other: Path) -> None:
    file["whole"] = np.arange(4.0)
    virtual(file, Path("."))


def external_storage(file: h5py.File, other: Path) -> None:
    file.create_dataset("data", (4,), "f", external=[(str(other), 0, 16)])


LEADING_OUT = {
    external_link: '"data" is an external link to ',
    deep_link: '"data/conv/0" is an external link to ',
    soft_link_over_it: '"way/out" is an external link to ',
    virtual: 'data set "data" is virtual, made of parts of other data sets',
    virtual_of_its_own: 'data set "data" is virtual, made of parts of other data sets',
    external_storage: 'data set "data" is stored in ',
}
READERS: list[Callable[[Path], object]] = [
    read_caffemodel,
    read_solverstate,
    lambda path: Hdf5Source((path,), ("data",)).sample_shapes(),
    partial(index_of, "hdf5"),
    read_samples,
    read_run_state,
]


@pytest.mark.parametrize("lead", LEADING_OUT, ids=lambda lead: lead.__name__)
def test_what_leads_into_another_file_is_refused_everywhere(
    lead: Callable[[h5py.File, Path], None], tmp_path: Path
) -> None:
    other = tmp_path / "other.h5"
    with h5py.File(other, "w") as file:
        file["data"] = np.arange(4, dtype=np.float32)
    path = tmp_path / "net.caffemodel.h5"
    with h5py.File(path, "w") as file:
        lead(file, other)
    for read in READERS:
        with pytest.raises((CaffeImportError, DataError)) as error:
            read(path)
        named = "" if LEADING_OUT[lead].endswith("data sets") else other
        message = f"{path}: {LEADING_OUT[lead]}{named}; files that lead into others are not read"
        assert str(error.value).startswith(message), read


def test_links_inside_a_file_are_no_finding(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["group/data"] = np.arange(4)
        file["hard"] = file["group/data"]
        file["group/up"] = file["/"]  # a circle
        file["soft"] = h5py.SoftLink("/group/data")
        file["nowhere"] = h5py.SoftLink("/group/none")
        file.create_dataset("texts", (3,), h5py.string_dtype(), fillvalue="in the heap")
    with open_hdf5(path) as file:
        assert file["soft"][:].tolist() == file["hard"][:].tolist() == [0, 1, 2, 3]
        assert file["texts"][:].tolist() == [b"in the heap"] * 3


def test_a_refused_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        external_link(file, path)
    with pytest.raises(CaffeImportError):
        open_hdf5(path)
    with h5py.File(path, "a") as file:  # fails if the refused file is still open
        del file["data"]


def test_attributes_are_numbers_and_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.attrs.update({"whole": 3, "real": 0.5, "text": "ü", "bytes": np.bytes_("ab")})
        sequence = np.empty(1, object)
        sequence[0] = np.arange(3)
        file.attrs.create("sequence", sequence, dtype=h5py.vlen_dtype("i8"))
    with open_hdf5(path) as file:
        assert [attribute(file, name) for name in ("whole", "real", "text", "bytes")] == [3, 0.5, "ü", "ab"]
        assert attribute(file, "none", 7) == 7
        with pytest.raises(KeyError):
            attribute(file, "none")
        with pytest.raises(OSError, match="attribute sequence holds neither numbers nor texts"):
            attribute(file, "sequence")


def test_data_sets_are_of_numbers_or_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["numbers"], file["texts"], file["yes"] = np.arange(3), ["a", "b"], np.array([True, False])
        file.create_dataset("sequences", (2,), h5py.vlen_dtype("i8"))
        file["references"] = np.array([file.ref], h5py.ref_dtype)
        file.create_group("group")
    with open_hdf5(path) as file:
        assert [len(data_set(file, name)) for name in ("numbers", "texts", "yes")] == [3, 2, 2]
        for name in ("sequences", "references"):
            with pytest.raises(OSError, match=f"data set {name} holds neither numbers nor texts"):
                data_set(file, name)
        with pytest.raises(OSError, match="group is no data set"):
            data_set(file, "group")
