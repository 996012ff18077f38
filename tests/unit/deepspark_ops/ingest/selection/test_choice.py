"""The options about records together, down to what is in the shards."""

import json
from collections import Counter

import pytest

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.shards.verification import verify
from tests.reference.dataset_files import listed
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images


@pytest.fixture
def source(tmp_path):
    """Forty images of four classes with 4, 8, 12 and 16 of them."""
    path = write_images(tmp_path / "raw", 40)
    labels = [0] * 4 + [1] * 8 + [2] * 12 + [3] * 16
    path.write_text("".join(f"img/{i}.png {label}\n" for i, label in enumerate(labels)))
    return path


def ingested_images(tmp_path, source, **options):
    return ingest(parse_config(IngestConfig, {"source": source, "output": tmp_path / "out", **options}), tmp_path / "w")


def image_counts(tmp_path, split) -> Counter[bytes]:
    with open_dataset(tmp_path / "out" / split) as dataset:
        return Counter(
            image.tobytes()
            for i, shard in enumerate(dataset.shards)
            for image in dataset.read(i, 0, shard.n_samples)[0]
        )


def test_oversampling_changes_the_training_set_alone(tmp_path, source):
    plain = ingested_images(tmp_path, source)
    old_counts = {split: image_counts(tmp_path, split) for split in plain}
    manifests = ingested_images(tmp_path, source, balance="oversample", samples_per_shard=9)
    largest = max(plain["train"].label_histogram)
    assert manifests["train"].label_histogram == (largest,) * 4
    assert manifests["train"].chosen == {"repeated_by_balance": 4 * largest - plain["train"].n_samples}
    assert manifests["test"].label_histogram == plain["test"].label_histogram
    assert image_counts(tmp_path, "test") == old_counts["test"]
    assert set(image_counts(tmp_path, "train")) == set(old_counts["train"])
    assert not manifests["train"].warnings  # a record taken twice is no duplicate
    assert verify(tmp_path / "out" / "train")


def test_undersampling_and_a_limit_leave_out_what_they_say(tmp_path, source):
    manifest = ingested_images(tmp_path, source, balance="undersample", limit=20, test_fraction=0)["train"]
    assert manifest.label_histogram == (2, 2, 2, 2)
    assert manifest.chosen == {"left_out_by_limit": 20, "left_out_by_balance": 12}
    first = image_counts(tmp_path, "train")
    ingested_images(tmp_path, source, balance="undersample", limit=20, test_fraction=0)
    assert image_counts(tmp_path, "train") == first


def test_a_limit_takes_of_training_and_test_set_alike(tmp_path, source):
    manifests = ingested_images(tmp_path, source, limit=30, test_fraction=0.5)
    assert manifests["train"].n_samples + manifests["test"].n_samples == 30
    assert 8 <= manifests["test"].n_samples <= 22


def test_the_first_of_equal_records_stays_and_the_others_are_named(tmp_path, source):
    folder = source.parent / "img"
    for number, of in {7: 5, 30: 5, 20: 21}.items():
        (folder / f"{number}.png").write_bytes((folder / f"{of}.png").read_bytes())
    (manifest,) = ingested_images(tmp_path, source, deduplicate=True, test_fraction=0).values()
    assert (manifest.n_samples, manifest.label_histogram) == (37, (4, 7, 11, 15))
    assert manifest.warnings == {"duplicate_left_out": 3}
    assert max(image_counts(tmp_path, "train").values()) == 1
    lines = listed(tmp_path / "out" / "train", "warnings.jsonl").read_text().splitlines()
    assert [(json.loads(line)["name"], json.loads(line)["text"]) for line in lines] == [
        ("img/7.png", "has the content of train record img/5.png"),
        ("img/21.png", "has the content of train record img/20.png"),
        ("img/30.png", "has the content of train record img/5.png"),
    ]


@pytest.mark.parametrize("across", [False, True])
def test_test_records_that_are_trained_on_go_by_wish(tmp_path, source, across):
    folder = source.parent / "img"
    (folder / "39.png").write_bytes((folder / "0.png").read_bytes())
    (tmp_path / "splits.txt").write_text("img/39.png test\nimg/38.png test\n")
    options = {"split_list": tmp_path / "splits.txt", "deduplicate": True, "deduplicate_across": across}
    manifests = ingested_images(tmp_path, source, **options)
    assert (manifests["train"].n_samples, manifests["test"].n_samples) == (38, 1 if across else 2)
    assert manifests["test"].warnings == ({"duplicate_left_out": 1} if across else {"duplicate_in_test": 1})


def test_options_that_leave_nothing_are_refused(tmp_path, source):
    with pytest.raises(ConfigError, match="deduplicate_across=true: says more about deduplicate"):
        ingested_images(tmp_path, source, deduplicate_across=True)
    with pytest.raises(ConfigError, match=r"test_fraction=0\.1 leaves the test set empty"):
        ingested_images(tmp_path, source, limit=1, test_fraction=0.1)
