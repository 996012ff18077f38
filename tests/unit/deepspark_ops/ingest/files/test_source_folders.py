"""Lists of raw data may name files of their own folders and of allowed folders, also through links."""

from __future__ import annotations

import logging
from pathlib import Path

import h5py
import numpy as np
import pytest

from caffe_import.errors import ForbiddenPathError
from caffe_import.file_access import allowed_roots
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.dry_run import dry_run
from deepspark_ops.ingest.files.source_folders import source_folders, sources_limited
from tests.reference.ingest_in_process import index_of
from tests.reference.raw_sources import write_images


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of images that no list's folder holds; the working directory, a root without confined, is another."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write_images(tmp_path / "outside", 4)
    return tmp_path / "outside"


def list_of(folder: Path, names: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "list.txt"
    path.write_text("".join(f"{name} {number % 2}\n" for number, name in enumerate(names)))
    return path


def folder_config(source: Path, **fields: object) -> IngestConfig:
    return IngestConfig(source=source, output=source.parent / "dataset", test_fraction=0.0, **fields)


@pytest.mark.parametrize("how", ["absolute", "dots", "link"])
def test_a_list_that_leads_out_of_its_folder_is_refused_where_files_are_confined(
    how: str, outside: Path, tmp_path: Path
) -> None:
    names = [f"img/{number}.png" for number in range(4)]
    lists = write_images(tmp_path / "lists", 4)
    other = outside / "img" / "3.png"
    if how == "link":
        (tmp_path / "lists" / "img" / "3.png").unlink()
        (tmp_path / "lists" / "img" / "3.png").symlink_to(other)
    else:
        names[3] = str(other) if how == "absolute" else "../outside/img/3.png"
    source = list_of(lists.parent, names)
    with pytest.raises(ForbiddenPathError, match=r"the image list .*list\.txt names .*outside/img/3\.png.*: it is not"):
        dry_run(folder_config(source, listed_files={"confined": True}))
    forecast = dry_run(folder_config(source, listed_files={"confined": True, "allowed_root": str(outside)}))
    assert forecast["sampled"]["n_rejected"] == 0
    assert dry_run(folder_config(source, root_folder=tmp_path / "lists"))["sampled"]["n_rejected"] == 0


def test_without_it_there_is_a_warning_a_folder(
    outside: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = list_of(tmp_path / "lists", [str(outside / "img" / f"{number}.png") for number in range(4)])
    with caplog.at_level(logging.WARNING):
        assert dry_run(folder_config(source))["sampled"]["n_rejected"] == 0
    (warning,) = [text for text in caplog.messages if "outside of the allowed folders" in text]
    assert str(outside / "img" / "0.png") in warning
    assert allowed_roots._roots is None, "it holds for one ingestion"


def test_a_list_of_hdf5_files_is_confined_before_one_is_opened(outside: Path, tmp_path: Path) -> None:
    with h5py.File(outside / "a.h5", "w") as file:
        file["data"], file["label"] = np.zeros((3, 1, 2, 2), np.float32), np.zeros(3, np.float32)
    source = tmp_path / "lists" / "files.txt"
    source.parent.mkdir()
    source.write_text(f"{outside / 'a.h5'}\n")
    assert index_of("hdf5", source).labels.size == 3
    with (
        sources_limited(folder_config(source, listed_files={"confined": True})),
        pytest.raises(ForbiddenPathError, match=r"the list of HDF5 files .*files\.txt names .*a\.h5"),
    ):
        index_of("hdf5", source)


def test_folders_of_what_was_given(tmp_path: Path) -> None:
    (tmp_path / "classes").mkdir()
    (tmp_path / "cat_1.png").touch()
    config = IngestConfig(source=tmp_path / "a" / "list.txt", root_folder=tmp_path / "cat_", output=tmp_path / "o")
    assert source_folders(config) == [tmp_path / "a", tmp_path]  # the root folder is the beginning of names
    assert source_folders(
        IngestConfig(
            source=tmp_path / "a" / "list.txt",
            test_source=tmp_path / "classes",
            root_folder=tmp_path / "r",
            output=tmp_path / "o",
        )
    ) == [tmp_path / "a", tmp_path / "classes", tmp_path / "r"]
    archive = IngestConfig(source=f"{tmp_path}/a.tar::list.txt", root_folder="img", output=tmp_path / "o")
    assert source_folders(archive) == [tmp_path]
    assert source_folders(IngestConfig(source="table:db.t", output=tmp_path / "o")) == []
