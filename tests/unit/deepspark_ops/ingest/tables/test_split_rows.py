"""Limit, balance and duplicates among the rows of a table, against a plain loop over the rows."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest.tables import row_files
from tests.unit.deepspark_ops.ingest.tables.test_table_plan import a_table, features_of, held, ingested_table


def ids_of(tmp_path, split="train") -> list[int]:
    return (held(tmp_path, split, "id") - 1000).tolist()


def test_a_limit_takes_of_each_class_its_share_and_the_same_rows_of_a_table_that_grew(tmp_path):
    table = a_table(300)
    kinds = pa.array(["eel" if i % 30 == 0 else "cat" if i % 3 else "dog" for i in range(300)])
    table = table.set_column(table.schema.get_field_index("label"), "label", kinds)
    manifests = ingested_table(tmp_path / "a", table, (70,), limit=60, feature_columns="f*")
    chosen_rows = {split: ids_of(tmp_path / "a", split) for split in manifests}
    rows = np.array([*chosen_rows["train"], *chosen_rows["test"]])
    # Of 10 eels, 200 cats and 90 dogs; split afterwards, by the same side as without a limit.
    assert Counter(kinds.to_pylist()[row] for row in rows) == {"eel": 2, "cat": 40, "dog": 18}
    assert manifests["train"].chosen == {"left_out_by_limit": 240}
    ingested_table(tmp_path / "b", table, feature_columns="f*")
    assert set(chosen_rows["test"]) <= set(ids_of(tmp_path / "b", "test"))
    values = features_of(table)[chosen_rows["train"]]
    np.testing.assert_allclose(manifests["train"].table.mean, np.nanmean(values, axis=0), rtol=1e-11)
    np.testing.assert_allclose(manifests["train"].table.std, np.nanstd(values, axis=0), rtol=1e-11)
    expected = np.nan_to_num((values - np.nanmean(values, axis=0)) / np.nanstd(values, axis=0))
    np.testing.assert_allclose(held(tmp_path / "a", "train", "data"), expected, rtol=1e-5, atol=1e-6)
    grown = pa.concat_tables([table, a_table(310).slice(300)])
    ingested_table(tmp_path / "c", grown, limit=60, feature_columns="f*")
    rows_of_grown = {*ids_of(tmp_path / "c", "train"), *ids_of(tmp_path / "c", "test")}
    assert len(rows_of_grown & set(rows.tolist())) >= 55


def test_a_limit_of_values_looks_at_no_label(tmp_path):
    table = a_table(200)
    manifests = ingested_table(tmp_path, table, limit=50, label_column="price", feature_columns="f*", test_fraction=0)
    assert manifests["train"].n_samples == 50
    assert manifests["train"].chosen == {"left_out_by_limit": 150}


@pytest.mark.parametrize("how", ["oversample", "undersample"])
def test_training_classes_have_as_many_rows(tmp_path, monkeypatch, how):
    label = ["a"] * 90 + ["b"] * 40 + ["c"] * 20
    table = pa.table({"id": np.arange(150) + 1000, "x": np.arange(150) * 1.5, "label": label})
    plain = ingested_table(tmp_path / "plain", table)
    old_counts = Counter(ids_of(tmp_path / "plain"))
    monkeypatch.setattr(row_files, "RUN_BYTES", 200)
    manifests = ingested_table(tmp_path / how, table, (33,), balance=how)
    counts = plain["train"].label_histogram
    size = max(counts) if how == "oversample" else min(counts)
    assert manifests["train"].label_histogram == (size,) * 3
    assert manifests["test"].label_histogram == plain["test"].label_histogram
    times = Counter(ids_of(tmp_path / how))
    assert set(times) <= set(old_counts)
    for number, name in enumerate("abc"):
        of_class = [times[row] for row in old_counts if label[row] == name]
        assert sum(of_class) == size
        assert max(of_class) - min(of_class) <= 1
        assert how == "undersample" or min(of_class) == size // counts[number]
    change = abs(sum(counts) - 3 * size)
    assert manifests["train"].chosen == {
        "repeated_by_balance" if how == "oversample" else "left_out_by_balance": change
    }
    values = np.array([row * 1.5 for row in times.elements()])
    np.testing.assert_allclose(manifests["train"].table.mean, values.mean(), rtol=1e-11)
    np.testing.assert_allclose(manifests["train"].table.std, values.std(), rtol=1e-11)
    assert "duplicate" not in manifests["train"].warnings  # a row that is taken again is none


def test_duplicates_are_left_out_whatever_the_parts(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 90, 120).astype(float)
    table = pa.table({"id": np.arange(120) + 1000, "x": x, "label": rng.integers(0, 2, 120)})
    manifests_of_whole = ingested_table(tmp_path / "a", table, deduplicate=True)
    monkeypatch.setattr(row_files, "RUN_BYTES", 100)
    cut = ingested_table(tmp_path / "b", table, (5, 77), deduplicate=True)
    plain = ingested_table(tmp_path / "c", table)
    for split, manifest in manifests_of_whole.items():
        values = [x[row] for row in ids_of(tmp_path / "a", split)]
        remaining_values = {x[row] for row in ids_of(tmp_path / "c", split)}
        assert sorted(values) == sorted(remaining_values)
        assert [shard.sha256 for shard in cut[split].shards] == [shard.sha256 for shard in manifest.shards]
        assert manifest.warnings["duplicate_left_out"] == plain[split].n_samples - manifest.n_samples
        assert "duplicate" not in manifest.warnings
    across = ingested_table(tmp_path / "d", table, deduplicate=True, deduplicate_across=True)
    train, test = ({x[row] for row in ids_of(tmp_path / "d", split)} for split in ("train", "test"))
    assert not train & test
    assert "duplicate_in_test" in manifests_of_whole["test"].warnings
    assert "duplicate_in_test" not in across["test"].warnings


@pytest.mark.parametrize("options", [{"label_kind": "value"}, {"label_column": "price"}, {"label_column": "price,f0"}])
def test_values_cannot_be_balanced(tmp_path, options):
    table = a_table(60).drop_columns("label").append_column("label", pa.array([0, 1] * 30))
    with pytest.raises(ConfigError, match=r"balance=oversample: the labels of .* are values to be predicted"):
        ingested_table(tmp_path, table, balance="oversample", feature_columns="f1,f2", **options)
    assert not list((tmp_path / "out").rglob("*.h5"))
