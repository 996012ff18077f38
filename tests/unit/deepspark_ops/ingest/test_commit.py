"""A whole ingestion without Spark: the manifest, the same bytes again, what a failed one leaves."""

import json
import os
import shutil

import numpy as np
import pytest

from caffe_import.files.mean_file import read_mean
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.commit import current_dataset
from deepspark_ops.ingest.inspect.whole import verify_dataset
from deepspark_ops.ingest.recipe import make_recipe
from deepspark_ops.ingest.versions.kept_versions import kept_versions, remove_unnamed
from deepspark_ops.shards.manifest import SplitRule, present_splits, read_manifest, sha256_of_file
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.shards.verification import verify
from tests.reference.dataset_files import listed
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import image_bgr, write_images


@pytest.fixture
def config(tmp_path):
    return IngestConfig(source=write_images(tmp_path / "raw", 40), output=tmp_path / "out", samples_per_shard=10)


def tree(folder) -> dict[str, str]:
    return {str(p.relative_to(folder)): sha256_of_file(p) for p in sorted(folder.rglob("*")) if p.is_file()}


def test_manifest_says_what_the_shards_hold(tmp_path, config):
    manifests = ingest(config, tmp_path / "work")
    assert {split: manifest.n_samples for split, manifest in manifests.items()} == {"train": 23, "test": 17}
    rule = SplitRule(by="name_hash", seed=1, test_fraction=0.2)
    assert {manifest.split_rule for manifest in manifests.values()} == {rule}
    for split, manifest in manifests.items():
        assert verify(config.output / split) == read_manifest(config.output / split) == manifest
        with open_dataset(config.output / split) as dataset:
            pieces = [dataset.read(i, 0, shard.n_samples) for i, shard in enumerate(dataset.shards)]
        labels = np.concatenate([piece[1] for piece in pieces])
        assert manifest.label_histogram == tuple(np.bincount(labels, minlength=3).tolist())
        assert all(shard.n_samples <= 10 for shard in manifest.shards)
        assert manifest.n_bytes == sum(shard.n_bytes for shard in manifest.shards)
        if split == "train":
            images = np.concatenate([piece[0] for piece in pieces])
    mean = read_mean(listed(config.output / "train", "mean.binaryproto"))
    np.testing.assert_allclose(mean, images.astype(np.float64).mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(manifests["test"].mean_values, mean.mean(axis=(1, 2)), rtol=1e-6)
    assert manifests["train"].mean_values == manifests["test"].mean_values
    mean_name = listed(config.output / "train", "mean.binaryproto").name
    assert mean_name == f"mean-{manifests['train'].mean_file.sha256[:12]}.binaryproto"
    assert manifests["train"].mean_file.file == mean_name
    assert manifests["test"].mean_file.file == f"../train/{mean_name}"


def test_splits_hold_every_image_once(tmp_path, config):
    ingest(config, tmp_path / "work")
    images = []
    for split in ("train", "test"):
        with open_dataset(config.output / split) as dataset:
            for i, shard in enumerate(dataset.shards):
                images += [image.tobytes() for image in dataset.read(i, 0, shard.n_samples)[0]]
    expected = [np.ascontiguousarray(image_bgr(i).transpose(2, 0, 1)).tobytes() for i in range(40)]
    assert sorted(images) == sorted(expected)


@pytest.mark.parametrize("options", [{}, {"shard_format": "hdf5"}, {"encoded": True}])
def test_same_input_gives_the_same_bytes_in_any_order_of_tasks(tmp_path, config, options):
    config = config.model_copy(update=options)
    ingest(config, tmp_path / "work")
    first = tree(config.output)
    ingest(config, tmp_path / "work", backwards=True)
    assert tree(config.output) == first


def test_current_dataset_is_recognized_and_damage_is_not(tmp_path, config):
    assert current_dataset(config, make_recipe(config)) is None
    manifests = ingest(config, tmp_path / "work")
    assert current_dataset(config, make_recipe(config)) == manifests
    other = config.model_copy(update={"seed": 2})
    assert current_dataset(other, make_recipe(other)) is None
    shard = config.output / "test" / manifests["test"].shards[0].file / "data.mdb"
    os.truncate(shard, shard.stat().st_size - 4096)
    assert current_dataset(config, make_recipe(config)) is None
    ingest(config, tmp_path / "work")
    assert current_dataset(config, make_recipe(config)) == manifests


def test_new_ingestion_takes_the_place_of_the_old_which_stays_as_a_version(tmp_path, config):
    first = ingest(config, tmp_path / "work")
    ingest(config.model_copy(update={"shard_format": "hdf5", "samples_per_shard": 40}), tmp_path / "work")
    names = {path.name for path in (config.output / "train").iterdir()}
    assert {shard.file for shard in first["train"].shards} < names  # a run may be reading them
    assert "files.txt" in names
    second = ingest(config.model_copy(update={"test_fraction": 0}), tmp_path / "work")
    assert present_splits(config.output) == ["train"]
    assert not (config.output / "train" / "files.txt").exists()
    versions = kept_versions(config.output)
    assert [read_manifest(path / "test").shard_format for path in versions] == ["lmdb", "hdf5"]
    for path in versions:
        verify_dataset(path, lambda _: None)
        shutil.rmtree(path)
    (config.output / ".dataset.json.k1ll3d.tmp").touch()
    remove_unnamed(config.output)
    assert sorted(path.name for path in config.output.iterdir()) == ["dataset.json", "train"]
    names = sorted(path.name.split("-")[0] for path in (config.output / "train").iterdir())
    assert names == ["manifest", "mean", *["train"] * 2 * len(second["train"].shards)]


def test_hdf5_list_names_every_shard_in_order(tmp_path, config):
    manifests = ingest(config.model_copy(update={"shard_format": "hdf5"}), tmp_path / "work")
    folder = config.output / "train"
    paths = [str(folder.resolve() / shard.file) for shard in manifests["train"].shards]
    assert (folder / "files.txt").read_text().splitlines() == paths


def spoil(config, numbers):
    for number in numbers:
        (config.source.parent / "img" / f"{number}.png").write_bytes(b"spoilt")


def test_few_bad_records_are_listed_beside_the_split(tmp_path, config):
    config = config.model_copy(update={"max_rejected_fraction": 0.1, "test_fraction": 0})
    spoil(config, [3, 30])
    config.source.write_text(config.source.read_text() + "no label\n")
    (manifest,) = ingest(config, tmp_path / "work").values()
    path = listed(config.output / "train", "rejected.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert (manifest.n_samples, manifest.n_rejected, manifest.rejected_file) == (38, 3, path.name)
    assert [(line["position"], line["name"], line["label"]) for line in lines] == [
        (40, "no label", None),
        (3, "img/3.png", 0),
        (30, "img/30.png", 0),
    ]
    assert lines[1]["reason"] == "6 bytes that are no image OpenCV can read (JPEG, PNG, BMP, ...)"


def test_too_many_bad_records_fail_and_keep_the_old_dataset(tmp_path, config):
    ingest(config, tmp_path / "work")
    old_tree = tree(config.output)
    spoil(config, [3, 5, 8])
    with pytest.raises(DataError) as caught:
        ingest(config.model_copy(update={"max_rejected_fraction": 0.05}), tmp_path / "work")
    reason = "6 bytes that are no image OpenCV can read (JPEG, PNG, BMP, ...)"
    assert str(caught.value) == (
        "3 of 40 records cannot be used, max_rejected_fraction=0.05 allows 2; first: "
        f"img/3.png: {reason}; img/5.png: {reason}; img/8.png: {reason}; all are in {config.output}/rejected.jsonl"
    )
    new_tree = tree(config.output)
    assert len((config.output / "rejected.jsonl").read_text().splitlines()) == 3
    del new_tree["rejected.jsonl"]
    assert new_tree == old_tree
    assert verify(config.output / "train")


def test_bad_lines_alone_can_be_too_many(tmp_path, config):
    config.source.write_text(config.source.read_text() + "bad\n" * 10)
    with pytest.raises(DataError, match=r'10 of 50 records cannot be used.*first: bad: line 41 is not "path label"'):
        ingest(config, tmp_path / "work")
    assert [path.name for path in config.output.rglob("*") if path.is_file()] == ["rejected.jsonl"]


def test_bad_lines_labels_and_images_are_found_in_one_run(tmp_path, config):
    config.source.write_text(config.source.read_text() + "bad\nimg/1.png 9\nimg/gone.png 1\n")
    spoil(config, [3])
    config = config.model_copy(update={"n_classes": 3})
    with pytest.raises(DataError, match="4 of 43 records cannot be used"):
        ingest(config, tmp_path / "work")
    rejected = [json.loads(line) for line in (config.output / "rejected.jsonl").read_text().splitlines()]
    assert {item["name"]: item["reason"].partition(":")[0] for item in rejected} == {
        "bad": 'line 41 is not "path label"',
        "img/1.png": "label 9 is outside [0, 3)",
        "img/3.png": "6 bytes that are no image OpenCV can read (JPEG, PNG, BMP, ...)",
        "img/gone.png": "No such file or directory",
    }


def test_empty_shard_is_not_listed(tmp_path, config):
    config = config.model_copy(
        update={"max_rejected_fraction": 0.9, "test_fraction": 0, "shuffle": False, "samples_per_shard": 5}
    )
    spoil(config, range(10, 15))
    (manifest,) = ingest(config, tmp_path / "work").values()
    assert [shard.n_samples for shard in manifest.shards] == [5] * 7
    assert manifest.n_rejected == 5
    assert verify(config.output / "train").n_samples == 35
