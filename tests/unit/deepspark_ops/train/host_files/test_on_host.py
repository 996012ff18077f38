"""A worker reads the data of the run's start: from its host where the host has these data, else from the driver."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from caffe_import.proto import caffe_pb2
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.versions.kept_versions import version_digest
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.shards.manifest import mean_path
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.stores.staging import Staging, use_staging
from deepspark_ops.stores.store import Entry
from deepspark_ops.stores.store_path import StorePath, on_driver, use_driver_store
from deepspark_ops.train.host_files.on_host import reading_note, with_local_means
from deepspark_ops.train.setup.run_dataset import note_dataset, noted_stamps, stamps_of, with_visible_data
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images

Grow = Callable[[int], str]


class OtherDisk:
    """A driver's disk: the files of ``path`` are in ``folder`` of this host."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._path, self._folder = path, folder

    def _file(self, key: str) -> Path:
        return self._folder / Path(key).relative_to(self._path)

    def entry(self, key: str) -> Entry | None:
        file = self._file(key)
        return Entry(key, file.stat().st_size, file.stat().st_mtime_ns, file.is_dir()) if file.exists() else None

    def opened(self, key: str) -> BinaryIO:
        return io.BytesIO(self._file(key).read_bytes())

    def fetch(self, key: str, target: Path) -> None:
        shutil.copy(self._file(key), target)


@pytest.fixture
def grow(tmp_path: Path) -> Iterator[Grow]:
    """Return a function that adds a number of records to the driver's dataset, and returns the version's digest."""
    source = write_images(tmp_path / "raw", 60)
    lines = source.read_text().splitlines()
    config = IngestConfig(source=source, output=tmp_path / "driver")

    def to(count: int) -> str:
        source.write_text("\n".join(lines[:count]) + "\n")
        ingest(config, tmp_path / "work", goes_on=True)
        return version_digest(tmp_path / "driver")

    use_driver_store(OtherDisk(tmp_path / "set", tmp_path / "driver"))  # type: ignore[arg-type]
    use_staging(Staging(tmp_path / "copies"))
    yield to
    use_driver_store(None)


def start_of_run(tmp_path: Path) -> tuple[TrainConfig, RunPaths]:
    """Return a run that began while the driver's dataset was in ``set``; the note is a copy on the worker's host."""
    (tmp_path / "driver").rename(tmp_path / "set")
    run = RunPaths(tmp_path / "run")
    config = TrainConfig(solver="s", run_dir=run.root, dataset=tmp_path / "set")
    note_dataset(config, run, stamps_of(config.dataset))
    (tmp_path / "set").rename(tmp_path / "driver")
    return config, run


def images(dataset: Path | StorePath) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    with open_dataset(dataset / "train") as opened:
        return np.concatenate([opened.read(i, 0, shard.n_samples)[0] for i, shard in enumerate(opened.shards)])


def test_a_host_without_the_data_reads_the_drivers_and_goes_on_with_the_version_of_the_start(
    tmp_path: Path, grow: Grow
) -> None:
    first = grow(30)
    config, run = start_of_run(tmp_path)
    host_config = with_visible_data(config, run)
    assert host_config.dataset == on_driver(tmp_path / "set")
    assert set(noted_stamps(host_config, run)) == {"train", "test"}
    old_images = images(tmp_path / "driver")
    assert np.array_equal(images(host_config.dataset), old_images)
    grow(40)  # the driver's dataset has another version now
    host_config = with_visible_data(config, run)
    assert host_config.dataset == on_driver(tmp_path / "set" / "versions" / first.removeprefix("sha256:")[:12])
    shutil.rmtree(tmp_path / "copies")
    assert np.array_equal(images(host_config.dataset), old_images)
    shutil.rmtree(tmp_path / "driver" / "versions")
    with pytest.raises(DataError, match="was replaced while the run reads it"):
        noted_stamps(with_visible_data(config, run), run)


@pytest.mark.parametrize("is_same", [True, False], ids=["the run's data", "other data of the same path"])
def test_a_host_with_the_data_reads_its_own_disk(tmp_path: Path, grow: Grow, is_same: bool) -> None:
    grow(30)
    config, run = start_of_run(tmp_path)
    shutil.copytree(tmp_path / "driver", tmp_path / "set")
    if not is_same:
        (tmp_path / "set" / "dataset.json").write_text("{}")
    expected = tmp_path / "set" if is_same else on_driver(tmp_path / "set")
    assert with_visible_data(config, run).dataset == expected


def test_the_mean_image_is_a_copy_where_the_data_are_the_drivers(tmp_path: Path, grow: Grow) -> None:
    grow(30)
    mean = tmp_path / "set" / "train" / mean_path(tmp_path / "driver").name
    nets = [caffe_pb2.NetParameter()]
    for kind in ("Data", "WindowData"):
        nets[0].layer.add(type=kind).transform_param.mean_file = str(mean)
    with_local_means(nets, tmp_path / "set")
    assert nets[0].layer[0].transform_param.mean_file == str(mean)
    with_local_means(nets, on_driver(tmp_path / "set"))
    copy = Path(nets[0].layer[0].transform_param.mean_file)
    assert copy.is_relative_to(tmp_path / "copies")
    assert copy.read_bytes() == (tmp_path / "driver" / "train" / mean.name).read_bytes()
    assert nets[0].layer[1].transform_param.mean_file == str(mean), "a file of the net, not of the dataset"


def test_a_note_says_what_a_host_reads_from_the_driver(tmp_path: Path) -> None:
    use_staging(Staging(tmp_path / "copies", 3 * 2**20))
    assert reading_note(tmp_path / "set", 2**20) == ("", False)
    text, is_warning = reading_note(on_driver(tmp_path / "set"), 2**20)
    assert f"does not see dataset={tmp_path}/set: it reads 1.0 MiB of shards from the driver" in text
    assert not is_warning
    text, is_warning = reading_note(on_driver(tmp_path / "set"), 4 * 2**20)
    assert "staging_size=3.0 MiB holds a part of the shards" in text
    assert is_warning
