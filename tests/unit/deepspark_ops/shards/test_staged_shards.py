"""Datasets in a store: written whole, read by copies on the disk, the next shard ahead of its time."""

import threading

import numpy as np
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.exchange.state.leases import DataLeases, DatasetOrder
from deepspark_ops.ingest.inspect.whole import verify_dataset
from deepspark_ops.ingest.versions.kept_versions import kept_versions, remove_unnamed
from deepspark_ops.shards import staged_shards
from deepspark_ops.shards.manifest import read_manifest
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.shards.verification import verify
from deepspark_ops.stores import staging
from deepspark_ops.stores.staging import Staging, fetched, use_staging
from deepspark_ops.stores.store_path import StorePath, data_path
from tests.processes import wait_until
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images


@pytest.fixture(params=["lmdb", "hdf5"])
def dataset(request, store, tmp_path) -> StorePath:
    """Return a dataset of 5 shards in the store; the same is in ``tmp_path / "here"``."""
    (store / "b").mkdir()
    source = write_images(tmp_path / "d", 20)
    options = {"samples_per_shard": 4, "test_fraction": 0.0, "shard_format": request.param}
    ingest(IngestConfig(source=source, output=tmp_path / "here", **options), tmp_path / "work")
    ingest(IngestConfig(source=source, output=data_path("s3://b/set"), **options), tmp_path / "work2")
    return data_path("s3://b/set")


def test_what_is_written_into_a_store_is_what_the_disk_gets(dataset, store, tmp_path):
    local_files = {
        str(path.relative_to(tmp_path / "here")): path for path in (tmp_path / "here").rglob("*") if path.is_file()
    }
    local_files.pop("train/files.txt", None)
    store_files = {name: store / "b" / "set" / name for name in dataset.entries(is_deep=True)}
    assert set(local_files) <= set(store_files)
    for name in set(local_files) - {
        "dataset.json",
        *(name for name in local_files if name.startswith("train/manifest-")),
    }:
        assert store_files[name].read_bytes() == local_files[name].read_bytes()
    times = {name: path.stat().st_mtime_ns for name, path in store_files.items()}
    assert max(times, key=times.__getitem__) == "dataset.json"


def test_samples_are_those_of_the_disk(dataset, tmp_path):
    with open_dataset(dataset / "train") as staged, open_dataset(tmp_path / "here" / "train") as local:
        assert [shard.n_samples for shard in staged.shards] == [4] * 5
        for shard in range(5):
            for array, expected in zip(staged.read(shard, 1, 3), local.read(shard, 1, 3), strict=True):
                np.testing.assert_array_equal(array, expected)
        assert "s3://b/set/train/train-00000" in staged.sample_name(0, 2)


def test_all_shards_come_ahead_where_there_is_room(dataset):
    manifest = verify(dataset / "train")
    use_staging(Staging(staging.staging().folder.with_name("other")))
    with open_dataset(dataset / "train") as staged:
        staged.read(2, 0, 1)
        copies = staging.staging()
        wait_until(lambda: all(copies.has(shard.sha256) for shard in manifest.shards), "all copies")


def test_with_little_room_a_single_shard_is_prefetched_and_old_shards_go(dataset):
    manifest = verify(dataset / "train", digests=False)
    largest = max(shard.n_bytes for shard in manifest.shards)
    copies = Staging(staging.staging().folder.with_name("other"), n_bytes=int(largest * 2.5))
    use_staging(copies)
    with open_dataset(dataset / "train") as staged:
        staged._source(0)
        wait_until(lambda: copies.has(manifest.shards[1].sha256), "the next copy")
        staged.close()
        for shard in range(5):
            staged.read(shard, 0, 4)
            staged.close()
    assert copies.has(manifest.shards[4].sha256)
    assert sum(copies.has(shard.sha256) for shard in manifest.shards) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("n_readers", [1, 3])
def test_an_epoch_of_few_mixed_shards_fetches_each_about_once(store, tmp_path, n_readers):
    """Readers take pieces in turns, as the workers of a host do."""
    (store / "b").mkdir()
    source = write_images(tmp_path / "d", 64)
    store_folder = data_path("s3://b/many")
    ingest(IngestConfig(source=source, output=store_folder, test_fraction=0.0, samples_per_shard=4), tmp_path / "work")
    manifest = verify(store_folder / "train", digests=False)
    assert len(manifest.shards) == 16
    room = int(max(shard.n_bytes for shard in manifest.shards) * 7.5)

    def fetches(mixed_shards: int, n_epochs: int) -> int:
        use_staging(Staging(tmp_path / f"copies{mixed_shards}", room))
        order = DatasetOrder((4,) * 16, "shuffled", 1, 1, mixed_shards)
        leases = DataLeases("train", order)
        readers = [open_dataset(store_folder / "train") for _ in range(n_readers)]
        fetched.taken()
        for number in range(64 * n_epochs):
            lease, reader = leases.lease(0), readers[number % n_readers]
            reader.will_read(lease.next_shards)
            reader.read(lease.shard, lease.start, lease.count)
        for reader in readers:
            reader.close()
        return fetched.taken()[0]

    # What an epoch read last may be there for the next one, and that one's first shards come ahead. A reader that is
    # behind the others may fetch a shard once more.
    assert 2 * 16 < fetches(3, 3) <= 3 * 16 + 6 + 3 * 3 * (n_readers - 1)
    assert fetches(0, 3) > 3 * 30, "all mixed, most pieces find that their shard has gone"


def test_a_reader_waits_for_room_that_another_one_uses(dataset, monkeypatch):
    manifest = verify(dataset / "train", digests=False)
    use_staging(Staging(staging.staging().folder.with_name("other"), max(s.n_bytes for s in manifest.shards)))
    with open_dataset(dataset / "train") as first, open_dataset(dataset / "train") as second:
        first.read(0, 0, 1)
        threading.Timer(0.3, first.close).start()
        assert len(second.read(3, 1, 2)[0]) == 2
        monkeypatch.setattr(staged_shards, "_ROOM_S", 0.0)
        with pytest.raises(ConfigError, match=r"staging_size=[0-9,]+ bytes in .* are in use but for"):
            first.read(0, 0, 1)


def test_damage_in_the_store_is_found(dataset, store):
    folder = store / "b" / "set" / "train"
    manifest = read_manifest(folder)
    assert verify(dataset / "train") == manifest
    shard = folder / manifest.shards[3].file
    data = shard / "data.mdb" if shard.is_dir() else shard
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    use_staging(Staging(staging.staging().folder.with_name("other")))
    assert verify(dataset / "train", digests=None) == manifest  # sizes are right
    with open_dataset(dataset / "train") as staged, pytest.raises(DataError, match="SHA-256 is"):
        staged.read(3, 0, 1)
    data.write_bytes(content[:-1])
    with pytest.raises(DataError, match=r"manifest says .* bytes, found"):
        verify(dataset / "train", digests=None)
    data.unlink()
    with pytest.raises(DataError, match=r"no such object; the manifest names it"):
        verify(dataset / "train", digests=None)


def test_another_ingestion_takes_away_what_it_no_longer_names(dataset, store, tmp_path):
    source = write_images(tmp_path / "more", 5)
    ingest(IngestConfig(source=source, output=dataset, test_fraction=0.0, samples_per_shard=3), tmp_path / "work3")
    (version,) = kept_versions(dataset)
    verify_dataset(version, lambda _: None)
    (version / "dataset.json").unlink()
    remove_unnamed(dataset)
    named = {shard.file for shard in read_manifest(store / "b/set/train").shards}
    file_names = {name.split("/")[1] for name in dataset.entries(is_deep=True) if name.endswith((".mdb", ".h5"))}
    assert file_names == named
