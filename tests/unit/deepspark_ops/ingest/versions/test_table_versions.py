"""A table that changes: the dataset has the rows of a new ingestion, and the files of the old dataset."""

import logging

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.commit import current_dataset
from deepspark_ops.ingest.inspect.differences import compare_datasets
from deepspark_ops.ingest.inspect.whole import verify_dataset
from deepspark_ops.ingest.recipe import make_recipe
from deepspark_ops.ingest.versions.kept_versions import kept_versions, version_digest
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.shards.verification import verify
from tests.reference.dataset_files import listed
from tests.reference.table_files import a_table, ingest_parts, require_same_rows, without_missing_values, write_table


def table_config(tmp_path, *, output="out", **options) -> IngestConfig:
    usual = {"feature_columns": "f*", "samples_per_shard": 10, "max_rejected_fraction": 0.5}
    return IngestConfig(**{"source": tmp_path / "t.parquet", "output": tmp_path / output, **usual, **options})


def brought_up(tmp_path, table, **options):
    """Ingest as the same command again does."""
    write_table(tmp_path / "t.parquet", table)
    work = tmp_path / "work"
    half = len(table) // 2
    manifests = ingest_parts(
        table_config(tmp_path, **options), [table.slice(0, half), table.slice(half)], work, goes_on=True
    )
    for path in work.iterdir():
        path.unlink()
    return manifests


def require_as_new(tmp_path, table, **options) -> None:
    as_new = brought_up(tmp_path, table, output="whole", full=True, **options)
    require_same_rows(tmp_path / "out", tmp_path / "whole", as_new, ("chosen",))


def test_a_grown_table_adds_shards_shares_the_files_and_keeps_mean_and_deviation(tmp_path):
    table = without_missing_values(a_table(140))
    first = brought_up(tmp_path, table.slice(0, 100))
    digest = version_digest(tmp_path / "out")
    files = {path: path.stat().st_ino for path in (tmp_path / "out").glob("*/*.h5")}
    manifests = brought_up(tmp_path, table)
    for split, manifest in manifests.items():
        assert manifest.shards[: len(first[split].shards)] == first[split].shards
        assert (manifest.version, manifest.previous) == (2, digest)
        assert {shard.version for shard in manifest.shards[len(first[split].shards) :]} == {2}
        assert manifest.table == first["train"].table
    assert files.items() <= {path: path.stat().st_ino for path in (tmp_path / "out").glob("*/*.h5")}.items()
    require_as_new(tmp_path, table)
    kept_paths = kept_versions(tmp_path / "out")
    assert [version_digest(path) for path in kept_paths] == [digest]
    assert sum(verify(kept_paths[0] / split).n_samples for split in first) == 100
    difference = compare_datasets(kept_paths[0], tmp_path / "out")
    assert sorted(name for names in difference.added.values() for name in names) == [str(i) for i in range(1100, 1140)]
    other_changes = (difference.removed, difference.changed, difference.relabelled, difference.moved)
    assert not any(other_changes)


@pytest.mark.parametrize(
    "options",
    [{}, {"balance": "oversample"}, {"deduplicate": True, "shuffle": False}, {"label_column": "price,f0"}],
    ids=str,
)
def test_changed_removed_and_relabelled_rows_are_found(tmp_path, options):
    options = {"feature_columns": "f1,f2", **options}
    table = without_missing_values(a_table(120))
    brought_up(tmp_path, table, **options)
    rows = table.to_pylist()
    rows[3]["f1"] = 77.0
    rows[5]["label"] = {"cat": "dog", "dog": "eel", "eel": "cat"}[rows[5]["label"]]
    changed = pa.Table.from_pylist([row for i, row in enumerate(rows) if i not in (7, 8, 20)], table.schema)
    manifests = brought_up(tmp_path, changed, **options)
    assert manifests["train"].version == 2
    assert any(shard.excluded for manifest in manifests.values() for shard in manifest.shards)
    require_as_new(tmp_path, changed, **options)
    difference = compare_datasets(kept_versions(tmp_path / "out")[0], tmp_path / "out")
    assert sorted(name for names in difference.removed.values() for name in names) == ["1007", "1008", "1020"]
    assert [name for names in difference.changed.values() for name in names] == ["1003"]
    relabelled = [sample.name for moved in difference.relabelled.values() for sample in moved]
    assert relabelled == ([] if "label_column" in options else ["1005"])


def test_without_ids_a_row_is_known_by_all_that_is_in_it(tmp_path):
    table = without_missing_values(a_table(80)).drop_columns("id")
    brought_up(tmp_path, table.append_column("w", pa.array([1.0] * 80)), weight_column="w")
    changed = table.append_column("w", pa.array([1.0] * 79 + [2.0]))
    manifests = brought_up(tmp_path, changed, weight_column="w")
    assert sum(shard.version == 2 for manifest in manifests.values() for shard in manifest.shards) == 1
    with open_dataset(tmp_path / "out" / "train") as train, open_dataset(tmp_path / "out" / "test") as test:
        read = [
            split_data.read(i, 0, shard.n_samples)[2]
            for split_data in (train, test)
            for i, shard in enumerate(split_data.shards)
        ]
    assert sorted(np.concatenate(read)) == [1.0] * 79 + [2.0]
    require_as_new(tmp_path, changed, weight_column="w")


def test_drift_is_told_and_full_computes_anew(tmp_path):
    table = without_missing_values(a_table(100))
    distant_rows = without_missing_values(a_table(160, seed=1)).slice(100)
    distant_rows = distant_rows.set_column(
        distant_rows.schema.get_field_index("f1"), "f1", pa.array(np.linspace(50, 90, 60))
    )
    first = brought_up(tmp_path, table)
    grown = pa.concat_tables([table, distant_rows])
    manifests = brought_up(tmp_path, grown)
    assert manifests["train"].table == first["train"].table
    assert manifests["train"].warnings["drifted_column"] >= 1
    warning_lines = listed(tmp_path / "out" / "train", "warnings.jsonl").read_text()
    assert '"kind": "drifted_column", "name": "f1"' in warning_lines
    config = table_config(tmp_path)
    assert current_dataset(config, make_recipe(config)) is not None
    assert current_dataset(config.model_copy(update={"full": True}), make_recipe(config)) is None
    full = brought_up(tmp_path, grown, full=True)
    assert (full["train"].version, "drifted_column" in full["train"].warnings) == (1, False)
    with open_dataset(tmp_path / "out" / "train") as dataset:
        values = np.concatenate([dataset.read(i, 0, shard.n_samples)[0] for i, shard in enumerate(dataset.shards)])
    np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(values.std(axis=0), 1, rtol=1e-5)
    assert verify(kept_versions(tmp_path / "out")[0] / "train").n_samples == first["train"].n_samples


@pytest.mark.parametrize(
    ("change", "options", "why"),
    [
        (lambda table: table.append_column("f3", pa.array([0.5] * len(table))), {}, "the table has other features"),
        (lambda table: table, {"standardize": False}, "other options: standardize=False"),
        (
            lambda table: table.set_column(6, "label", pa.array(["ant", *table["label"].to_pylist()[1:]])),
            {},
            "labels would mean other classes: ant stands where cat stood",
        ),
    ],
    ids=["columns", "options", "classes"],
)
def test_what_cannot_be_shared_is_written_anew(tmp_path, caplog, change, options, why):
    table = without_missing_values(a_table(100))
    brought_up(tmp_path, table)
    with caplog.at_level(logging.INFO):
        manifests = brought_up(tmp_path, change(table), **options)
    assert manifests["train"].version == 1
    assert why in caplog.text


def test_another_folder_is_gone_on_from_by_links(tmp_path):
    table = without_missing_values(a_table(100))
    brought_up(tmp_path, table.slice(0, 80), output="before")
    manifests = brought_up(tmp_path, table, previous=tmp_path / "before")
    first = tmp_path / "before" / "train" / manifests["train"].shards[0].file
    assert (tmp_path / "out" / "train" / manifests["train"].shards[0].file).stat().st_ino == first.stat().st_ino
    require_as_new(tmp_path, table)
    assert not DatasetPaths(tmp_path / "out").versions.is_dir()


def test_damaged_records_of_rows_are_named(tmp_path):
    manifest = brought_up(tmp_path, without_missing_values(a_table(60)))["train"]
    (tmp_path / "out" / "train" / manifest.shards[0].rows.file).write_bytes(b"")
    with pytest.raises(DataError, match=r"rows\.npz"):
        verify_dataset(tmp_path / "out", lambda _: None)


def test_a_row_that_balancing_repeats_is_one_row_after_the_table_has_grown(tmp_path):
    table = without_missing_values(a_table(120))
    cats = table.filter(pc.equal(table["label"], "cat"))
    few = pa.concat_tables([cats, table.filter(pc.not_equal(table["label"], "cat")).slice(0, 30)])
    brought_up(tmp_path, few, balance="oversample", test_fraction=0.0)
    brought_up(tmp_path, pa.concat_tables([few, cats_again(cats)]), balance="oversample", test_fraction=0.0)
    brought_up(
        tmp_path,
        pa.concat_tables([few, cats_again(cats)]),
        output="whole",
        full=True,
        balance="oversample",
        test_fraction=0.0,
    )
    assert verify(tmp_path / "out" / "train").version == 2
    difference = compare_datasets(tmp_path / "whole", tmp_path / "out")
    assert (difference.added, difference.removed, difference.is_equal) == ({}, {}, True)


def cats_again(cats: pa.Table) -> pa.Table:
    """Return the rows again with further ids."""
    return cats.set_column(0, "id", pa.array(np.arange(len(cats)) + 5000))
