"""Splits by list, column and share: every record on its side, and helpful messages."""

import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.shards.manifest import SplitRule, present_splits, read_manifest
from deepspark_ops.shards.reader import open_dataset
from tests.reference.ingest_in_process import ingest, planned_images
from tests.reference.raw_sources import write_images


@pytest.fixture
def source(tmp_path):
    return write_images(tmp_path / "raw", 12)


def numbers_of(plan) -> dict[str, list[int]]:
    return {
        split: sorted(int(name[4:-4]) for task in plan.tasks if task.split == split for name in task.names)
        for split in plan.splits()
    }


def test_a_list_says_where_each_record_goes(tmp_path, source):
    words = {0: "train", 1: "Training", 2: "val", 3: "test", 4: "validation", 5: "TEST"}
    lines = ["image,split", *(f"img/{i}.png,{word}" for i, word in words.items()), "img/99.png,test"]
    (tmp_path / "splits.csv").write_text("\n".join(lines))
    plan = planned_images(tmp_path, source, split_list=tmp_path / "splits.csv")
    assert numbers_of(plan) == {"train": [0, 1], "validation": [2, 4], "test": [3, 5]}
    assert plan.findings["train"].counts == {"unknown_in_split_list": 1, "not_in_split_list": 6}


def test_a_list_without_training_records_leaves_the_others_to_training(tmp_path, source):
    (tmp_path / "splits.txt").write_text("img/3.png test\nimg/4.png valid\n")
    plan = planned_images(tmp_path, source, split_list=tmp_path / "splits.txt")
    assert numbers_of(plan) == {"train": [0, 1, 2, *range(5, 12)], "validation": [4], "test": [3]}
    assert not plan.findings["train"].counts


def test_a_folder_of_lists_may_hold_records_or_lines_of_an_image_list(tmp_path, source):
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "val.txt").write_text("img/1.png\nimg/2.png\n")
    (lists / "test.txt").write_text("img/7.png 1\n")
    assert numbers_of(planned_images(tmp_path, source, split_list=lists)) == {
        "train": [0, 3, 4, 5, 6, 8, 9, 10, 11],
        "validation": [1, 2],
        "test": [7],
    }


def test_a_column_says_it_and_another_word_is_a_bad_record(tmp_path, source):
    rows = source.read_text().split("\n")
    words = ["train", "val", "test", "hold-out"] * 3
    table = source.with_name("table.csv")
    lines = [f"{row.split()[0]},{row.split()[1]},{word}" for row, word in zip(rows, words, strict=False)]
    table.write_text("path,label,part\n" + "\n".join(lines))
    plan = planned_images(tmp_path, table, split_column="part")
    assert numbers_of(plan) == {"train": [0, 4, 8], "validation": [1, 5, 9], "test": [2, 6, 10]}
    assert [(item.position, item.reason) for item in plan.rejected["train"]] == [
        (i, 'part is "hold-out"; allowed: train, training, validation, valid, val, dev, test, testing')
        for i in (3, 7, 11)
    ]


def test_a_validation_set_is_a_split_like_the_others(tmp_path):
    source = write_images(tmp_path / "raw", 40)
    config = IngestConfig(source=source, output=tmp_path / "out", validation_fraction=0.3)
    manifests = ingest(config, tmp_path / "work")
    assert list(manifests) == ["train", "validation", "test"] == present_splits(config.output)
    assert sum(manifest.n_samples for manifest in manifests.values()) == 40
    rule = SplitRule(by="name_hash", seed=1, test_fraction=0.2, validation_fraction=0.3)
    assert {manifest.split_rule for manifest in manifests.values()} == {rule}
    with open_dataset(config.output / "validation") as dataset:
        assert len(dataset.read(0, 0, manifests["validation"].n_samples)[0]) == manifests["validation"].n_samples
    ingest(config.model_copy(update={"validation_fraction": 0.0}), tmp_path / "work")
    assert present_splits(config.output) == ["train", "test"]
    assert read_manifest(config.output / "train").splits == ("train", "test")


def test_a_validation_source_is_read_as_the_test_source_is(tmp_path, source):
    (source.parent / "val.txt").write_text("img/3.png 0\nimg/4.png 1\n")
    plan = planned_images(tmp_path, source, validation_source=source.parent / "val.txt", test_fraction=0)
    assert numbers_of(plan) == {"train": list(range(12)), "validation": [3, 4]}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"split_list": "gone.txt"}, ConfigError, "split_list=gone.txt: no such file or folder"),
        ({"split_list": "."}, ConfigError, "a folder without train.txt, validation.txt or test.txt"),
        ({"split_list": "odd.txt"}, ConfigError, 'odd.txt, line 2: expected a record and its split, found "b 3"'),
        ({"split_list": "twice.txt"}, ConfigError, 'line 2: "img/1.png" is in validation and in test; leave it in one'),
        ({"split_list": "other.txt"}, DataError, 'names no record of the source: it has "x/1.png", the source "img/0'),
        ({"split_list": "all.txt"}, ConfigError, "split_list=all.txt leaves the train set empty"),
        ({"split_column": "part"}, ConfigError, "no columns path and label and part in its first line"),
        ({"split_list": "odd.txt", "test_source": "t"}, ConfigError, "split_list and test_source: each says which"),
        ({"validation_fraction": 0.8}, ConfigError, "test_fraction=0.2 and validation_fraction=0.8 leave nothing"),
        ({"validation_fraction": 0.0001}, ConfigError, "validation_fraction=0.0001 leaves the validation set empty"),
    ],
)
def test_mistakes_lead_on(tmp_path, source, monkeypatch, options, error, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.txt").write_text("img/1.png test\nb 3\n")
    (tmp_path / "twice.txt").write_text("img/1.png test\nimg/1.png val\n")
    (tmp_path / "other.txt").write_text("x/1.png test\n")
    (tmp_path / "all.txt").write_text("".join(f"img/{i}.png test\n" for i in range(12)))
    with pytest.raises(error) as caught:
        planned_images(tmp_path, source, **options)
    assert message in str(caught.value)
