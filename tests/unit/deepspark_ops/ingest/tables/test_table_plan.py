"""Tables of features from rows to shards, against numpy and plain h5py."""

import json
import re

import h5py
import numpy as np
import pyarrow as pa
import pytest

from caffe_import.data.hdf5_source import Hdf5Source, read_hdf5_list
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.tables import row_files
from deepspark_ops.shards.manifest import sha256_of_file
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.shards.verification import verify
from tests.reference.dataset_files import listed
from tests.reference.table_files import a_table, ingest_parts, write_table


def config_for(tmp_path, table, **options) -> IngestConfig:
    source = write_table(tmp_path / "t.parquet", table)
    usual = {"source": source, "output": tmp_path / "out", "samples_per_shard": 10, "max_rejected_fraction": 0.5}
    return IngestConfig(**usual | options)


def ingested_table(tmp_path, table, cuts=(), **options):
    parts = [table.slice(a, b - a) for a, b in zip((0, *cuts), (*cuts, len(table)), strict=True)]
    return ingest_parts(config_for(tmp_path, table, **options), parts, tmp_path / "work")


def held(tmp_path, split, name):
    """One data set of all shards of a split, in order."""
    manifest = verify(tmp_path / "out" / split)
    files = [h5py.File(tmp_path / "out" / split / shard.file) for shard in manifest.shards]
    return np.concatenate([file[name][:] for file in files])


def features_of(table) -> np.ndarray:
    return np.stack([table[f"f{i}"].to_numpy() for i in range(3)], axis=1)


@pytest.mark.parametrize("cuts", [(), (1, 30)])
def test_rows_are_standardised_by_the_training_rows_alone(tmp_path, cuts):
    table = a_table(200)
    manifests = ingested_table(tmp_path, table, cuts, feature_columns="f*", test_fraction=0.3)
    ids = {split: held(tmp_path, split, "id") - 1000 for split in manifests}
    assert sorted(np.concatenate(list(ids.values()))) == list(range(200))
    assert 30 < len(ids["test"]) < 90
    values = features_of(table)
    mean, std = (function(values[ids["train"]], axis=0) for function in (np.nanmean, np.nanstd))
    for split, rows in ids.items():
        expected = np.nan_to_num((values[rows] - mean) / std, nan=0.0)
        np.testing.assert_allclose(held(tmp_path, split, "data"), expected, rtol=1e-6, atol=1e-6)
        labels = np.array([{"cat": 0, "dog": 1, "eel": 2}[name] for name in table["label"].to_pylist()])
        np.testing.assert_array_equal(held(tmp_path, split, "label"), labels[rows])
        manifest = manifests[split]
        assert (manifest.class_names, manifest.sample_shape) == (("cat", "dog", "eel"), (3,))
        assert manifest.label_histogram == tuple(np.bincount(labels[rows], minlength=3))
        np.testing.assert_allclose(manifest.table.mean, mean, rtol=1e-11)
        assert max(shard.n_samples for shard in manifest.shards) <= 10
    assert manifests["train"].warnings == {"missing_value": np.isnan(values[ids["train"]]).sum()}


def test_how_a_table_is_cut_into_parts_and_runs_changes_no_byte(tmp_path, monkeypatch):
    table = a_table(200)
    uncut = ingested_table(tmp_path / "a", table, feature_columns="f*")
    monkeypatch.setattr(row_files, "RUN_BYTES", 500)
    cut = ingested_table(tmp_path / "b", table, (9, 70, 71), feature_columns="f*")
    for split in uncut:
        shards = [[(shard.n_samples, shard.sha256) for shard in run[split].shards] for run in (uncut, cut)]
        assert shards[0] == shards[1]


def test_a_row_keeps_its_side_and_a_groups_rows_stay_together(tmp_path):
    table = a_table(300)
    ingested_table(tmp_path / "a", table.slice(0, 100))
    ingested_table(tmp_path / "b", table)
    few, all_of_them = (held(tmp_path / name, "test", "id") for name in "ab")
    assert set(few) == {row for row in all_of_them if row < 1100}

    ingested_table(tmp_path / "c", table, group_column="customer", test_fraction=0.4)
    groups = [set(held(tmp_path / "c", split, "group")) for split in ("train", "test")]
    assert groups[0] | groups[1] == {f"c{i}".encode() for i in range(7)}
    assert not groups[0] & groups[1]


def test_without_an_id_content_decides_and_order_may_stay(tmp_path):
    table = a_table(90).drop_columns("id")
    as_it_is = {"shuffle": False, "standardize": False, "missing": "zero"}
    ingested_table(tmp_path, table, (40,), feature_columns="f*", test_fraction=0, **as_it_is)
    np.testing.assert_array_equal(held(tmp_path, "train", "data"), np.float32(np.nan_to_num(features_of(table))))
    backwards = table.take(list(range(89, -1, -1)))
    for name, rows in (("a", table), ("b", backwards)):
        ingested_table(tmp_path / name, rows, feature_columns="f*")
    for split in ("train", "test"):
        np.testing.assert_array_equal(held(tmp_path / "a", split, "data"), held(tmp_path / "b", split, "data"))


def test_several_labels_and_weights_feed_a_net(tmp_path):
    table = a_table(80).append_column("w", pa.array(np.arange(80) / 4)).append_column("b", pa.array([True, False] * 40))
    ingested_table(tmp_path, table, label_column="price,b", weight_column="w", feature_columns="f*")
    manifest = verify(tmp_path / "out" / "train")
    assert (manifest.n_classes, manifest.label_histogram, manifest.table.label_kind) == (0, (), "value")
    rows = held(tmp_path, "train", "id") - 1000
    expected = np.stack([table["price"].to_numpy(), np.arange(80) % 2 == 0], axis=1).astype(np.float32)[rows]
    np.testing.assert_array_equal(held(tmp_path, "train", "label"), expected)
    with open_dataset(tmp_path / "out" / "train") as dataset:
        assert (dataset.columns, dataset.sample_shapes) == (("data", "label", "weight"), ((3,), (2,), ()))
        data, label, weight = dataset.read(0, 2, 5)
    assert (data.shape, label.dtype) == ((5, 3), np.float32)
    np.testing.assert_array_equal(label, expected[2:7])
    np.testing.assert_array_equal(weight, rows[2:7] / 4)
    # Caffe's own layer reads them by the list.
    files = read_hdf5_list(tmp_path / "out" / "train" / "files.txt", tmp_path)
    assert len(Hdf5Source(files, ("data", "label", "weight"))) == manifest.n_samples


def one_label(values, **more):
    n_rows = len(values)
    return pa.table({"x": np.arange(n_rows) * 0.5, "label": values, **more})


@pytest.mark.parametrize(
    ("values", "options", "n_classes"),
    [
        (np.arange(30) % 3, {}, 3),
        ((np.arange(30) % 3).astype(float), {}, 3),
        (np.arange(30) % 2 * 2 - 1, {}, 0),
        (np.arange(30) * 0.5, {}, 0),
        (np.arange(30) * 1000, {}, 0),
        (np.arange(30) % 3, {"label_kind": "value"}, 0),
        (np.arange(30) * 1000, {"label_kind": "class"}, 29_001),
        (np.arange(30) % 3, {"n_classes": 5}, 5),
    ],
)
def test_labels_are_classes_or_values(tmp_path, values, options, n_classes):
    table = one_label(values)
    assert ingested_table(tmp_path, table, test_fraction=0, **options)["train"].n_classes == n_classes
    assert sorted(held(tmp_path, "train", "label")) == sorted(np.float32(values))


def test_rows_that_cannot_be_used_are_named_and_counted(tmp_path):
    label = pa.array([None, *[i % 3 for i in range(1, 38)], 7, -1])
    x = pa.array([0.0, np.inf, *np.arange(2, 40)])
    table = pa.table({"x": x, "label": label, "id": [f"r{i}" for i in range(40)], "w": [1.0] * 39 + [None]})
    table = table.set_column(3, "w", pa.array([*[1.0] * 5, -2.0, *[1.0] * 34]))
    manifest = ingested_table(tmp_path, table, (20,), n_classes=3, test_fraction=0, weight_column="w")["train"]
    assert (manifest.n_samples, manifest.n_rejected) == (35, 5)
    lines = [json.loads(line) for line in listed(tmp_path / "out" / "train", "rejected.jsonl").read_text().splitlines()]
    assert [(line["position"], line["name"], line["reason"]) for line in lines] == [
        (0, "r0", 'label "label" is missing'),
        (1, "r1", 'column "x": no finite number'),
        (5, "r5", 'weight "w" is -2'),
        (38, "r38", "label 7 is outside [0, 3)"),
        (39, "r39", "label -1 is outside [0, 3)"),
    ]
    with pytest.raises(DataError, match=r"^5 of 40 records cannot be used, .*=0.01 allows 0; first: r0"):
        ingested_table(tmp_path / "b", table, n_classes=3, weight_column="w", max_rejected_fraction=0.01)


def test_a_word_in_a_column_of_numbers_is_shown(tmp_path):
    table = pa.table({"age": ["31", "old", " NA", "7.5", "null", ""], "label": [0, 1] * 3, "id": list("abcdef")})
    ingested_table(tmp_path, table, test_fraction=0, feature_columns="age", standardize=False)
    assert sorted(held(tmp_path, "train", "data").ravel()) == [7.5, *[(31 + 7.5) / 2] * 3, 31]
    (line,) = listed(tmp_path / "out" / "train", "rejected.jsonl").read_text().splitlines()
    assert json.loads(line)["reason"] == 'column "age": no finite number, the text is "old"'


def test_a_test_table_has_the_classes_of_the_training_table(tmp_path):
    from dataclasses import replace

    from deepspark_ops.ingest.tables.columns import choose_roles, columns_of
    from deepspark_ops.ingest.tables.measured import text_classes
    from deepspark_ops.ingest.tables.table_source import row_recipe

    config = config_for(tmp_path, a_table(), feature_columns="f*")
    rows = row_recipe(config, choose_roles(config, columns_of(a_table().schema)), [1] * 3)
    (tmp_path / "w").mkdir()
    train = row_files.write_rows(a_table(9).to_batches(), replace(rows, split="train"), tmp_path / "w", 0)
    names = text_classes([train])
    other = a_table(4).set_column(6, "label", pa.array(["eel", "fox", "cat", None]))
    test = row_files.write_rows(other.to_batches(), replace(rows, split="test", class_names=names), tmp_path / "w", 0)
    assert [reason for _, _, reason in test.rejects.named] == [
        'class "fox" is not among the 3 classes',
        'label "label" is missing',
    ]
    assert {run.split for run in test.runs} == {"test"}


@pytest.mark.parametrize(
    ("policy", "message"),
    [("drop-row", None), ("refuse", 'missing=refuse: column "f1" has no value in row 3 of the train source')],
)
def test_missing_features_by_policy(tmp_path, policy, message):
    table = a_table(60)
    usable = np.isfinite(features_of(table)).all(axis=1)
    if message is not None:
        with pytest.raises(DataError, match=message):
            ingested_table(tmp_path, table, feature_columns="f*", missing=policy)
        return
    ingested_table(tmp_path, table, feature_columns="f*", missing=policy, test_fraction=0)
    assert set(held(tmp_path, "train", "id") - 1000) == set(np.flatnonzero(usable))
    assert (~usable).any()


def test_text_is_read_as_numbers_where_it_is_asked_for(tmp_path):
    table = pa.table({"x": ["1", " 2.5 ", "", "old", *map(str, range(20))], "label": [0, 1] * 12})
    ingested_table(
        tmp_path, table, feature_columns="x", test_fraction=0, shuffle=False, standardize=False, missing="zero"
    )
    assert held(tmp_path, "train", "data")[:5, 0].tolist() == [1.0, 2.5, 0.0, 0.0, 1.0]
    assert 'column \\"x\\": no finite number' in listed(tmp_path / "out" / "train", "rejected.jsonl").read_text()


def test_arrays_stand_side_by_side_with_numbers(tmp_path):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 4)).astype(np.float32)
    arrays = [list(row) for row in vectors]
    arrays[3] = arrays[3][:2]
    arrays[4] = None
    table = pa.table(
        {"x": np.arange(30, dtype=np.float32), "v": pa.array(arrays, pa.list_(pa.float32())), "y": [0, 1] * 15}
    )
    manifest = ingested_table(
        tmp_path, table, feature_columns="v,x", test_fraction=0, shuffle=False, standardize=False
    )["train"]
    assert [(column.name, column.width) for column in manifest.table.features] == [("v", 4), ("x", 1)]
    usable = np.delete(np.arange(30), [3, 4])
    expected = np.concatenate([vectors[usable], usable[:, None].astype(np.float32)], axis=1)
    np.testing.assert_array_equal(held(tmp_path, "train", "data"), expected)
    assert manifest.n_rejected == 2


def test_equal_rows_and_constant_columns_are_counted(tmp_path):
    x = np.arange(60) // 2 * 1.0
    table = pa.table({"x": x, "c": [4.0] * 60, "label": [0, 1] * 15 + [0, 0] * 15, "id": np.arange(60)})
    manifests = ingested_table(tmp_path, table)
    counts = {kind: 0 for kind in ("duplicate", "duplicate_other_label", "duplicate_in_test")}
    is_test = np.isin(np.arange(60), held(tmp_path, "test", "id"))
    for pair in range(30):
        sides = is_test[2 * pair : 2 * pair + 2]
        kind = "duplicate_other_label" if pair < 15 else "duplicate"
        counts["duplicate_in_test" if sides[0] != sides[1] else kind] += 1
    warning_counts = {kind: sum(manifest.warnings.get(kind, 0) for manifest in manifests.values()) for kind in counts}
    assert warning_counts == counts
    assert counts["duplicate_in_test"]
    assert manifests["train"].warnings["constant_column"] == 1
    assert (held(tmp_path, "train", "data")[:, 1] == 0).all()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"encoded": True, "resize_height": 3, "resize_width": 3}, ConfigError, "encoded=True, .* for images"),
        ({"label_column": "f0,f1", "label_kind": "class"}, ConfigError, "several label columns are values"),
        ({"label_kind": "value"}, ConfigError, 'label "label" holds text; make numbers of it by a query: SELECT'),
        ({"test_fraction": 1e-9}, ConfigError, "leaves the test set empty: each row's side is a hash of its group, id"),
        ({"strict": True, "feature_columns": "f0", "label_column": "c"}, DataError, "strict: "),
    ],
)
def test_mistakes_end_with_a_message_and_leave_nothing(tmp_path, options, error, message):
    table = a_table(30).append_column("c", pa.array([0] * 29 + [2]))
    with pytest.raises(error, match=message):
        ingested_table(tmp_path, table, **options)
    assert not list((tmp_path / "out").rglob("*.h5"))


def test_labels_with_decimal_commas_are_refused_as_names_of_classes(tmp_path):
    table = pa.table({"x": np.arange(30.0), "price": [f"{i},5" for i in range(30)]})
    query = re.escape("SELECT *, double(replace(price, ',', '.')) AS price_number FROM source")
    message = f'label_column: "price" holds text such as 0,5, .* by a query: {query}, and give label_column=price_num'
    with pytest.raises(ConfigError, match=message):
        ingested_table(tmp_path, table, label_column="price")
    named = ingested_table(tmp_path, table, label_column="price", label_kind="class")
    assert named["train"].n_classes == 30


def test_numbers_that_float32_cannot_hold_are_standardised_in_float64(tmp_path):
    seconds = 1_700_000_000 + np.arange(100)
    table = pa.table({"t": seconds, "label": [0, 1] * 50})
    ingested_table(tmp_path, table, test_fraction=0, shuffle=False)
    expected = (np.arange(100) - 49.5) / np.std(np.arange(100))
    np.testing.assert_allclose(held(tmp_path, "train", "data")[:, 0], expected, rtol=1e-6)


def test_no_scratch_file_of_a_shard_is_left(tmp_path):
    manifests = ingested_table(tmp_path, a_table(50), test_fraction=0)
    names = {path.name for path in (tmp_path / "out" / "train").iterdir()}
    shards = {shard.file: shard.sha256 for shard in manifests["train"].shards}
    row_files = {f"{name.removesuffix('.h5')}.rows.npz" for name in shards}
    prefixes = {name.split("-")[0] for name in names - {*shards, *row_files}}
    assert names > {*shards, *row_files}
    assert prefixes == {"files.txt", "manifest", "warnings"}
    assert {name: sha256_of_file(tmp_path / "out" / "train" / name) for name in shards} == shards
