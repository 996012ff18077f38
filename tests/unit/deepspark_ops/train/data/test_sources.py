"""Paths of data layers, resolved from the working directory, the solver's folder and its parents."""

from __future__ import annotations

from pathlib import Path

import pytest

from caffe_import.files.prototxt import parse_net
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.shards.manifest import mean_path
from deepspark_ops.train.data.sources import SourceResolver
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images

NET = """
layer { name: "a" type: "Data" top: "x" include { phase: TRAIN }
  transform_param { mean_file: "m.binaryproto" } data_param { source: "db" batch_size: 1 } }
layer { name: "a" type: "Data" top: "x" include { phase: TEST } data_param { source: "db2" batch_size: 1 } }
layer { name: "b" type: "ImageData" top: "y" top: "z" image_data_param { source: "list.txt" root_folder: "img/" } }
layer { name: "c" type: "ImageData" top: "u" top: "v" image_data_param { source: "list.txt" } }
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The solver lies two folders down; the data lie where Caffe was run, and Python runs elsewhere."""
    (tmp_path / "examples" / "digits").mkdir(parents=True)
    for name in ("db", "img"):
        (tmp_path / name).mkdir()
    (tmp_path / "list.txt").write_text("a.png 0\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    return tmp_path


def resolver(project: Path, dataset: Path | None = None) -> SourceResolver:
    return SourceResolver(dataset, project / "examples" / "digits" / "solver.prototxt", project / "run" / "sources")


def test_own_sources_become_absolute(project: Path) -> None:
    train, test, images, without_root = resolver(project).resolve(parse_net(NET)).layer
    assert train.data_param.source == str(project / "db")
    assert images.image_data_param.source == str(project / "list.txt")
    assert images.image_data_param.root_folder == f"{project}/img/"
    assert without_root.image_data_param.root_folder == f"{project}/elsewhere/"  # Caffe: the working directory
    # What exists nowhere is named as Caffe would look for it.
    assert test.data_param.source == str(project / "elsewhere" / "db2")
    assert train.transform_param.mean_file == str(project / "elsewhere" / "m.binaryproto")


@pytest.mark.parametrize(
    ("written", "resolved"),
    [
        ("img/", "{0}/img/"),
        ("img", "{0}/img"),  # Caffe joins texts: whether there is a slash makes a difference
        ("img/cat_", "{0}/img/cat_"),
        ("{0}/img/cat_", "{0}/img/cat_"),
        ("none/cat_", "{0}/elsewhere/none/cat_"),
        ("cat_", "{0}/elsewhere/cat_"),
    ],
)
def test_a_root_folder_may_be_the_beginning_of_a_name(project: Path, written: str, resolved: str) -> None:
    net = parse_net(NET.replace('root_folder: "img/"', f'root_folder: "{written.format(project)}"'))
    layer = resolver(project).resolve(net).layer[2]
    assert layer.image_data_param.root_folder == resolved.format(project)


def test_the_working_directory_comes_first(project: Path) -> None:
    (project / "elsewhere" / "db").mkdir()
    train = resolver(project).resolve(parse_net(NET)).layer[0]
    assert train.data_param.source == str(project / "elsewhere" / "db")


def test_dataset_replaces_sources_by_phase_and_the_mean(project: Path) -> None:
    dataset = project / "digits"
    ingest(IngestConfig(source=write_images(project / "raw", 9), output=dataset), project / "work")
    sources = resolver(project, dataset)
    train, test, images, _ = sources.resolve(parse_net(NET)).layer
    assert train.data_param.source == str(dataset / "train")
    assert test.data_param.source == str(dataset / "test")
    assert images.image_data_param.source == "list.txt"  # in both phases: bound when the net is built
    assert train.transform_param.mean_file == str(mean_path(dataset))
    assert sources.notes == [
        'layer "a": mean_file "m.binaryproto" is replaced by the dataset\'s ' + str(mean_path(dataset))
    ]


def test_given_net_is_not_changed(project: Path) -> None:
    net = parse_net(NET)
    resolver(project).resolve(net)
    assert net == parse_net(NET)


def test_relative_lines_of_hdf5_lists_are_made_absolute_in_a_copy(project: Path) -> None:
    (project / "h5.txt").write_text(f"data/a.h5\n{project}/b.h5\n")
    net = parse_net('layer { name: "h" type: "HDF5Data" top: "x" hdf5_data_param { source: "h5.txt" batch_size: 1 } }')
    sources = resolver(project)
    written = Path(sources.resolve(net).layer[0].hdf5_data_param.source)
    assert sources.resolve(net).layer[0].hdf5_data_param.source == str(written)  # the same list, once
    assert not written.exists()
    sources.write_lists()
    assert written.read_text() == f"{project}/data/a.h5\n{project}/b.h5\n"


def test_hdf5_lists_are_split_at_blanks_before_their_lines_become_absolute(project: Path) -> None:
    (project / "files.txt").write_text("a.h5 data/b.h5\n\tc.h5\n")
    net = parse_net('layer { name: "h" type: "HDF5Data" top: "x" hdf5_data_param { source: "files.txt" } }')
    sources = resolver(project)
    written = Path(sources.resolve(net).layer[0].hdf5_data_param.source)
    sources.write_lists()
    assert written.read_text() == f"{project}/a.h5\n{project}/data/b.h5\n{project}/c.h5\n"
