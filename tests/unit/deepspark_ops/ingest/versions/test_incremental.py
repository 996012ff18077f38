"""A source that changes: the dataset has the samples of a new ingestion, and the files of the old dataset."""

import os
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest

from caffe_import.files.mean_file import read_mean
from deepspark_ops.config.base import parse_config
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.inspect.whole import verify_dataset
from deepspark_ops.ingest.versions.base import previous_dataset
from deepspark_ops.ingest.versions.kept_versions import kept_versions, version_digest
from deepspark_ops.shards.manifest import present_splits, read_manifest
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.shards.verification import verify
from tests.reference.dataset_files import listed
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import image_bgr, write_cifar, write_images


@pytest.fixture
def source(tmp_path):
    """A list of 40 of 70 images; the others are there to be added."""
    path = write_images(tmp_path / "raw", 70)
    put(path, range(40))
    return path


def put(path: Path, numbers, labels=None) -> None:
    path.write_text("".join(f"img/{i}.png {(labels or {}).get(i, i % 3)}\n" for i in numbers))


def list_config(tmp_path, source, **options) -> IngestConfig:
    values = {"source": source, "output": tmp_path / "out", "samples_per_shard": 10, **options}
    return parse_config(IngestConfig, values)


def brought_up(tmp_path, source, **options):
    return ingest(list_config(tmp_path, source, **options), tmp_path / "work", goes_on=True)


def samples(folder: Path, split: str) -> Counter[tuple[int, bytes]]:
    with open_dataset(folder / split) as dataset:
        pieces = [dataset.read(i, 0, shard.n_samples) for i, shard in enumerate(dataset.shards)]
    return Counter((int(label), image.tobytes()) for images, labels in pieces for image, label in zip(images, labels))  # noqa: B905


def require_as_new(tmp_path, source, **options) -> None:
    """Compare the dataset with a dataset written as a whole from the same source."""
    config = list_config(tmp_path, source, **{**options, "output": tmp_path / "whole"})
    expected = ingest(config, tmp_path / "work")
    assert present_splits(tmp_path / "out") == list(expected)
    for split, manifest in expected.items():
        grown = verify(tmp_path / "out" / split)
        assert samples(tmp_path / "out", split) == samples(tmp_path / "whole", split)
        assert grown.label_histogram == manifest.label_histogram
        assert (grown.n_samples, grown.n_classes, grown.warnings) == (
            manifest.n_samples,
            manifest.n_classes,
            manifest.warnings,
        )
        assert grown.recipe_sha256 == manifest.recipe_sha256
    mean, whole_mean = (read_mean(listed(tmp_path / name / "train", "mean.binaryproto")) for name in ("out", "whole"))
    np.testing.assert_array_equal(mean, whole_mean)  # sums of whole numbers


def shard_files(folder: Path) -> dict[str, int]:
    return {shard.parent.name: shard.stat().st_ino for shard in folder.glob("*/*/data.mdb")}


def test_a_grown_list_adds_shards_and_shares_the_old_files(tmp_path, source):
    first = brought_up(tmp_path, source)
    old_files, digest = shard_files(tmp_path / "out"), version_digest(tmp_path / "out")
    put(source, range(50))
    manifests = brought_up(tmp_path, source)
    new_files = shard_files(tmp_path / "out")
    assert old_files.items() <= new_files.items()
    for split, manifest in manifests.items():
        assert manifest.shards[: len(first[split].shards)] == first[split].shards
        assert (manifest.version, manifest.previous) == (2, digest)
        assert {shard.version for shard in manifest.shards[len(first[split].shards) :]} <= {2}
    assert len(manifests["train"].shards) > len(first["train"].shards)
    require_as_new(tmp_path, source)


@pytest.mark.parametrize(
    "options", [{}, {"shard_format": "hdf5"}, {"encoded": True}, {"balance": "oversample"}], ids=str
)
def test_changed_removed_and_relabelled_records_are_found(tmp_path, source, options):
    brought_up(tmp_path, source, **options)
    (source.parent / "img" / "3.png").write_bytes((source.parent / "img" / "60.png").read_bytes())
    numbers = [i for i in range(45) if i not in (7, 8, 20)]
    put(source, numbers, {5: 0, 6: 2})
    manifests = brought_up(tmp_path, source, **options)
    assert manifests["train"].version == 2
    assert any(shard.excluded for shard in manifests["train"].shards)
    require_as_new(tmp_path, source, **options)


def test_the_version_before_stays_readable_until_its_folder_goes(tmp_path, source):
    brought_up(tmp_path, source)
    old = {split: samples(tmp_path / "out", split) for split in ("train", "test")}
    digests = {}
    for last in (44, 48, 52):
        digests[last] = version_digest(tmp_path / "out")
        put(source, range(10, last))
        brought_up(tmp_path, source)
    versions = kept_versions(tmp_path / "out")
    assert [version_digest(path) for path in versions] == list(digests.values())
    for path in versions:
        assert all(verify(path / split) for split in ("train", "test"))
    assert {split: samples(versions[0], split) for split in old} == old
    # An older run may still read the files by their first names.
    named = {shard.file for path in versions for shard in read_manifest(path / "train").shards}
    assert named > {shard.file for shard in read_manifest(tmp_path / "out" / "train").shards if shard.version < 4}
    assert all((tmp_path / "out" / "train" / file).is_dir() for file in named)
    require_as_new(tmp_path, source)


def test_small_additions_are_put_together(tmp_path, source):
    brought_up(tmp_path, source, test_fraction=0)
    for last in range(41, 57):
        put(source, range(last))
        brought_up(tmp_path, source, test_fraction=0)
    shards = read_manifest(tmp_path / "out" / "train").shards
    assert [shard.n_samples for shard in shards][:4] == [10, 10, 10, 10]
    assert len(shards) <= 4 + 5  # of 16 additions
    require_as_new(tmp_path, source, test_fraction=0)


def test_a_shard_of_which_little_is_left_is_written_anew(tmp_path, source):
    (old_manifest,) = brought_up(tmp_path, source, test_fraction=0, shuffle=False).values()
    put(source, range(6, 40))
    (manifest,) = brought_up(tmp_path, source, test_fraction=0, shuffle=False).values()
    assert manifest.shards[:3] == tuple(shard.model_copy(update={"version": 1}) for shard in old_manifest.shards[1:])
    assert not any(shard.excluded for shard in manifest.shards)
    require_as_new(tmp_path, source, test_fraction=0, shuffle=False)


def test_files_that_were_only_touched_are_read_and_stay(tmp_path, source):
    old_manifests = brought_up(tmp_path, source)
    for path in (source.parent / "img").iterdir():
        os.utime(path, ns=(1, path.stat().st_mtime_ns + 10**9))
    manifests = brought_up(tmp_path, source)
    assert {split: manifest.shards for split, manifest in manifests.items()} == {
        split: manifest.shards for split, manifest in old_manifests.items()
    }


def test_a_source_without_times_of_change_is_compared_by_content(tmp_path):
    path = tmp_path / "data_batch_1.bin"
    write_cifar(path, [0, 1] * 10)
    first = brought_up(tmp_path, path, test_fraction=0)["train"]
    content = bytearray(path.read_bytes())
    content[5 * 3073 + 100] ^= 255
    write_cifar(path, [0, 1] * 12)
    grown = path.read_bytes()
    path.write_bytes(bytes(content) + grown[len(content) :])
    manifest = brought_up(tmp_path, path, test_fraction=0)["train"]
    assert [shard.n_samples for shard in manifest.shards] in ([10, 9, 5], [9, 10, 5])
    assert manifest.shards[0].file == first.shards[0].file
    require_as_new(tmp_path, path, test_fraction=0)


def test_findings_go_with_their_samples(tmp_path, source):
    folder = source.parent / "img"
    for number, of in {9: 5, 30: 5, 44: 6}.items():
        (folder / f"{number}.png").write_bytes((folder / f"{of}.png").read_bytes())
    jpeg = folder / "12.png"
    content = bytearray(_jpeg(12))
    content[-30:-20] = b"\xff\xd4" * 5
    jpeg.write_bytes(bytes(content))
    first = brought_up(tmp_path, source, test_fraction=0)["train"]
    assert first.warnings == {"damaged_image": 1, "duplicate_other_label": 2}
    put(source, [i for i in range(48) if i != 9])
    brought_up(tmp_path, source, test_fraction=0)
    require_as_new(tmp_path, source, test_fraction=0)
    named, new_warnings = (
        sorted(listed(tmp_path / name / "train", "warnings.jsonl").read_text().splitlines())
        for name in ("out", "whole")
    )
    assert named == new_warnings
    put(source, [i for i in range(48) if i not in (9, 12, 30, 44)])
    assert brought_up(tmp_path, source, test_fraction=0)["train"].warnings == {}


def _jpeg(number: int) -> bytes:
    import cv2

    big = cv2.resize(image_bgr(number), (64, 64))
    return cv2.imencode(".jpg", cv2.resize(big, (8, 8)))[1].tobytes()


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        ({}, {"gray": True}, "other options: gray=True (was False)"),
        ({}, {"full": True}, None),
        ({"labels": {i: 1 for i in range(40)}}, {}, "the source has 2 classes now, had 3"),
    ],
)
def test_what_cannot_be_shared_is_written_anew_and_said(tmp_path, source, caplog, change, options, reason):
    caplog.set_level("INFO")
    brought_up(tmp_path, source)
    old_version = version_digest(tmp_path / "out")
    put(source, range(50), {**{i: 0 for i in range(50)}, **change["labels"]} if change else None)
    manifest = brought_up(tmp_path, source, **options)["train"]
    assert (manifest.version, manifest.previous) == (1, None)
    (kept_version,) = kept_versions(tmp_path / "out")
    assert version_digest(kept_version) == old_version
    verify_dataset(kept_version, lambda _: None)
    assert reason is None or any(reason in line for line in caplog.messages)


def test_new_classes_keep_the_labels_of_the_others_or_all_is_written_anew(tmp_path, caplog):
    caplog.set_level("INFO")
    root = tmp_path / "root"
    everything = write_images(tmp_path / "raw", 30).parent / "img"
    for number in range(20):
        folder = root / ("cat" if number % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        (everything / f"{number}.png").rename(folder / f"{number}.png")
    brought_up(tmp_path, root)
    (root / "emu").mkdir()
    for number in range(20, 25):
        (everything / f"{number}.png").rename(root / "emu" / f"{number}.png")
    assert brought_up(tmp_path, root)["train"].version == 2
    require_as_new(tmp_path, root)
    (root / "ant").mkdir()
    for number in range(25, 30):
        (everything / f"{number}.png").rename(root / "ant" / f"{number}.png")
    assert brought_up(tmp_path, root)["train"].version == 1
    assert any("ant stands where cat stood" in line for line in caplog.messages)
    require_as_new(tmp_path, root)


def test_another_folder_may_be_what_is_gone_on_from(tmp_path, source):
    """As the DAGs do it, whose datasets are a folder for each state of a source."""
    brought_up(tmp_path, source)
    put(source, range(45))
    manifests = brought_up(tmp_path, source, output=tmp_path / "next", previous=tmp_path / "out")
    assert manifests["train"].version == 2
    assert kept_versions(tmp_path / "next") == []
    inodes = shard_files(tmp_path / "next")
    assert shard_files(tmp_path / "out").items() <= inodes.items()
    (tmp_path / "out").rename(tmp_path / "gone")
    (tmp_path / "next").rename(tmp_path / "out")
    require_as_new(tmp_path, source)


def test_the_newest_dataset_of_the_same_source_and_options_is_found(tmp_path, source):
    def ingested(name, **options):
        config = list_config(tmp_path, source, output=tmp_path / "sets" / name, **options)
        ingest(config, tmp_path / "work")
        return config

    config = list_config(tmp_path, source, output=tmp_path / "sets" / "next")
    assert previous_dataset(config) is None
    ingested("first")
    second = ingested("second")
    ingested("gray", gray=True)
    (tmp_path / "sets" / ".tmp").mkdir()
    assert previous_dataset(config) == second.output
    assert previous_dataset(second) is None  # exists already
    assert previous_dataset(config.model_copy(update={"full": True})) is None
    other = write_images(tmp_path / "other", 10)
    assert previous_dataset(config.model_copy(update={"source": other})) is None


def test_a_split_that_is_new_takes_its_records_from_the_others(tmp_path, source):
    lists = tmp_path / "splits.txt"
    lists.write_text("".join(f"img/{i}.png test\n" for i in range(5)))
    brought_up(tmp_path, source, split_list=lists)
    lists.write_text("".join(f"img/{i}.png {'test' if i % 2 else 'val'}\n" for i in range(8)))
    manifests = brought_up(tmp_path, source, split_list=lists)
    assert {split: manifest.n_samples for split, manifest in manifests.items()} == {
        "train": 32,
        "validation": 4,
        "test": 4,
    }
    require_as_new(tmp_path, source, split_list=lists)


def test_the_requested_number_of_shards_stays(tmp_path, source):
    options = {"shards": 1, "samples_per_shard": 10_000, "test_fraction": 0}
    first = brought_up(tmp_path, source, **options)["train"]
    put(source, range(50))
    second = brought_up(tmp_path, source, **options)["train"]
    assert [len(manifest.shards) for manifest in (first, second)] == [1, 1]
    assert (second.n_samples, sorted(samples(tmp_path / "out", "train").values())) == (50, [1] * 50)


def test_images_of_a_new_size_make_a_new_dataset(tmp_path, source):
    brought_up(tmp_path, source)
    digest = version_digest(tmp_path / "out")
    for number in range(40):
        cv2.imwrite(str(source.parent / "img" / f"{number}.png"), image_bgr(number, (6, 5)))
    manifests = brought_up(tmp_path, source)
    assert {(manifest.sample_shape, manifest.version) for manifest in manifests.values()} == {((3, 6, 5), 1)}
    assert sum(manifest.n_samples for manifest in manifests.values()) == 40
    assert [version_digest(path) for path in kept_versions(tmp_path / "out")] == [digest]
