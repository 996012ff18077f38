"""Rows of a table whose splits a list of ids gives."""

import json

import h5py
import numpy as np
import pyarrow as pa
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.shards.verification import verify
from tests.reference.dataset_files import listed
from tests.reference.table_files import a_table, ingest_parts, write_table


def ingested_by_list(tmp_path, text, table=None, *, goes_on=False, **options):
    table = a_table(60) if table is None else table
    if text is not None:
        (tmp_path / "splits.csv").write_text(text)
    source = write_table(tmp_path / "t.parquet", table)
    usual = {"split_list": tmp_path / "splits.csv", "feature_columns": "f*", "test_fraction": 0.4}
    config = IngestConfig(source=source, output=tmp_path / "out", **usual | options)
    work = tmp_path / "work"
    manifests = ingest_parts(config, [table.slice(0, 25), table.slice(25)], work, goes_on=goes_on)
    for path in work.iterdir():
        path.unlink()
    return manifests


def ids_of(folder, split) -> list:
    return sorted(
        value
        for shard in verify(folder / split).shards
        for value in h5py.File(folder / split / shard.file)["id"][:].tolist()
    )


def lines(pairs) -> str:
    return "".join(f"{name},{split}\n" for name, split in pairs)


def test_rows_go_where_the_list_says_and_the_others_are_counted(tmp_path):
    sides = {1000 + i: ("train", "val", "test")[i % 3] for i in range(50)}
    manifests = ingested_by_list(tmp_path, "id,split\n" + lines(sides.items()) + "9999,test\n")
    for split, word in (("train", "train"), ("validation", "val"), ("test", "test")):
        assert ids_of(tmp_path / "out", split) == [name for name, side in sides.items() if side == word]
        assert manifests[split].split_rule.by == "list"
    assert manifests["train"].warnings["not_in_split_list"] == 10
    assert manifests["train"].warnings["unknown_in_split_list"] == 1
    warnings = [
        json.loads(line) for line in listed(tmp_path / "out" / "train", "warnings.jsonl").read_text().splitlines()
    ]
    outside = [(warning["name"], warning["position"]) for warning in warnings if warning["kind"] == "not_in_split_list"]
    assert outside == [(str(1000 + i), i) for i in range(50, 60)]
    assert [warning["name"] for warning in warnings if warning["kind"] == "unknown_in_split_list"] == ["9999"]


def test_a_list_that_names_no_training_row_leaves_the_others_to_train(tmp_path):
    manifests = ingested_by_list(tmp_path, "1003 test\n1005 validation\n")
    assert (ids_of(tmp_path / "out", "test"), ids_of(tmp_path / "out", "validation")) == ([1003], [1005])
    assert manifests["train"].n_samples == 58
    assert not {"not_in_split_list", "unknown_in_split_list"} & set(manifests["train"].warnings)


def test_lists_in_a_folder_name_texts_with_blanks(tmp_path):
    table = a_table(60).set_column(0, "id", pa.array([f"row {i}, left" for i in range(60)]))
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / "train.txt").write_text("".join(f"row {i}, left\n" for i in range(40)))
    (folder / "test.txt").write_text("".join(f"row {i}, left\n" for i in range(40, 45)))
    manifests = ingested_by_list(tmp_path, None, table, split_list=folder)
    assert {split: manifest.n_samples for split, manifest in manifests.items()} == {"train": 40, "test": 5}
    assert manifests["train"].warnings["not_in_split_list"] == 15


def test_another_list_moves_rows_of_a_dataset_that_is_there(tmp_path):
    names = [1000 + i for i in range(60)]
    ingested_by_list(tmp_path, lines((name, "test" if name < 1010 else "train") for name in names))
    manifests = ingested_by_list(
        tmp_path, lines((name, "test" if name < 1012 else "train") for name in names), goes_on=True
    )
    assert (manifests["train"].version, manifests["train"].n_samples, manifests["test"].n_samples) == (2, 48, 12)


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        (
            "a,train\nb,test\n",
            {},
            DataError,
            'names no row of the source: it has "a", the source "1000"; give the values',
        ),
        ("1000,train\n", {"id_column": None, "drop": True}, ConfigError, "a row of .* has no name .* give id_column"),
        ("1000,train\n77,test\n", {}, ConfigError, "leaves the test set empty: it names no usable row for it"),
    ],
)
def test_lists_that_do_not_fit_are_refused(tmp_path, text, options, error, message):
    table = a_table(60).drop_columns("id") if options.pop("drop", False) else None
    with pytest.raises(error, match=message):
        ingested_by_list(tmp_path, text, table, **options)


def test_a_long_list_is_looked_up_as_a_dictionary_would(tmp_path):
    from deepspark_ops.ingest.selection.splits import read_listed_rows
    from deepspark_ops.ingest.tables.columns import hashes_of

    rng = np.random.default_rng(0)
    sides = dict(zip(map(str, rng.permutation(5000)), rng.choice(["train", "val", "test"], 5000), strict=True))
    (tmp_path / "l").write_text(lines(sides.items()))
    row_names = rng.permutation(6000)
    split_numbers = read_listed_rows(tmp_path / "l").splits_of(hashes_of(pa.array(row_names)))
    number = {"train": 0, "val": 1, "test": 2}
    assert split_numbers.tolist() == [number.get(sides.get(str(name)), -1) for name in row_names.tolist()]
