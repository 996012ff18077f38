"""A folder of part files that changes: only new and changed files are read; the rows equal a new ingestion's."""

import itertools
import logging
import os
import shutil

import numpy as np
import pyarrow as pa
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.tables.known_files import read_seen_files
from deepspark_ops.ingest.versions.kept_versions import kept_versions
from deepspark_ops.shards.verification import verify
from tests.reference.dataset_files import listed
from tests.reference.table_files import a_table, ingest_files, require_same_rows, without_missing_values, write_table


def table_config(tmp_path, *, output="out", **options) -> IngestConfig:
    usual = {"feature_columns": "f*", "samples_per_shard": 20, "max_rejected_fraction": 0.5}
    return IngestConfig(**{"source": tmp_path / "t", "output": tmp_path / output, **usual, **options})


def brought_up(tmp_path, **options) -> set[str]:
    """Ingest as the same command again does; returns the names of the files that were read."""
    _, was_read = ingest_files(table_config(tmp_path, **options), tmp_path / "work", goes_on=True)
    shutil.rmtree(tmp_path / "work")
    return {path.name for path in was_read}


def write_files(tmp_path, table, cuts) -> list[str]:
    """Write the rows between cuts as part files; a file with new content gets another time."""
    names = []
    for start, stop in itertools.pairwise(cuts):
        names.append(f"part-{start:05d}.parquet")
        write_table(tmp_path / "t" / names[-1], table.slice(start, stop - start))
    return names


def require_as_new(tmp_path, **options) -> None:
    """Compare with an ingestion that has nothing to go on from, but for what belongs to the first version."""
    as_new, _ = ingest_files(table_config(tmp_path, output="whole", full=True, **options), tmp_path / "work")
    shutil.rmtree(tmp_path / "work")
    require_same_rows(tmp_path / "out", tmp_path / "whole", as_new, ("n_rejected",))


@pytest.mark.slow
def test_only_new_files_are_read_and_only_changed_ones_read_again(tmp_path, caplog):
    table = without_missing_values(a_table(400))
    names = write_files(tmp_path, table, [0, 100, 200, 300])
    assert brought_up(tmp_path) == set(names)
    new = write_files(tmp_path, table, [300, 310])
    with caplog.at_level(logging.INFO):
        assert brought_up(tmp_path) == set(new)
    assert "1 of 4 files are read; the others have not changed" in caplog.text
    assert verify(tmp_path / "out" / "train").version == 2
    require_as_new(tmp_path)
    # The small shard of the previous addition goes into the next shard: its file is read as well.
    caplog.clear()
    newer = write_files(tmp_path, table, [310, 330])
    with caplog.at_level(logging.INFO):
        assert brought_up(tmp_path) == {*new, *newer}
    assert "1 more files are read: small shards" in caplog.text
    require_as_new(tmp_path)
    rows = table.slice(0, 100).to_pylist()
    rows[3]["f1"] = 77.0
    rows[5]["label"] = {"cat": "dog", "dog": "eel", "eel": "cat"}[rows[5]["label"]]
    del rows[8]
    write_table(tmp_path / "t" / names[0], pa.Table.from_pylist(rows, table.schema))
    (tmp_path / "t" / names[1]).touch()
    assert {names[0], names[1]} <= brought_up(tmp_path) <= {*names[:2], *new, *newer}
    require_as_new(tmp_path)


def test_a_removed_file_removes_its_rows_and_moved_rows_stay(tmp_path):
    table = without_missing_values(a_table(300))
    names = write_files(tmp_path, table, [0, 100, 110, 120, 300])
    brought_up(tmp_path)
    old_files = {
        split: {shard.file for shard in verify(tmp_path / "out" / split).shards} for split in ("train", "test")
    }
    for name in names[1:3]:  # as a compaction does: two files become one
        (tmp_path / "t" / name).unlink()
    write_table(tmp_path / "t" / "joined.parquet", table.slice(100, 20))
    assert brought_up(tmp_path) == {"joined.parquet"}
    new_files = {
        split: {shard.file for shard in verify(tmp_path / "out" / split).shards} for split in ("train", "test")
    }
    assert new_files == old_files
    require_as_new(tmp_path)
    (tmp_path / "t" / "joined.parquet").unlink()
    assert brought_up(tmp_path) == set()
    assert sum(verify(tmp_path / "out" / split).n_samples for split in old_files) == 280
    require_as_new(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"label_column": "price,f0"}, {"split_column": "side"}], ids=str)
def test_any_change_gives_the_rows_of_a_new_ingestion(tmp_path, options):
    rng = np.random.default_rng(len(str(options)))
    options = {"feature_columns": "f1,f2", "samples_per_shard": 60, **options}
    table = without_missing_values(a_table(400)).append_column(
        "side", pa.array([("train", "test", "val")[i % 3] for i in range(400)])
    )
    if "label_column" in options:
        table = table.drop_columns("id")
    parts = {f"{i}.parquet": table.slice(60 * i, 60) for i in range(4)}
    for name, part in parts.items():
        write_table(tmp_path / "t" / name, part)
    brought_up(tmp_path, **options)
    n_before = 4 * 60
    for turn in range(6):
        kind = ("add", "remove rows", "repeat", "remove", "rename", "add")[turn]
        name = sorted(parts)[int(rng.integers(len(parts)))]
        if kind == "add":
            name, parts_of = f"new-{turn}.parquet", table.slice(n_before, 40)
            n_before += 40
        elif kind == "remove rows":
            parts_of = parts[name].take(np.sort(rng.permutation(len(parts[name]))[:45]))
        elif kind == "repeat":  # the same rows in a second file
            name, parts_of = f"again-{turn}.parquet", parts[name].slice(0, 9)
        elif kind == "remove":
            parts_of = None
        else:
            parts_of, name = parts.pop(name), f"moved-{name}"
            (tmp_path / "t" / name.removeprefix("moved-")).unlink()
        if parts_of is None:
            del parts[name]
            (tmp_path / "t" / name).unlink()
        else:
            parts[name] = parts_of
            write_table(tmp_path / "t" / name, parts_of)
        brought_up(tmp_path, **options)
        if turn % 2:
            require_as_new(tmp_path, **options)
            shutil.rmtree(tmp_path / "whole")


@pytest.mark.parametrize(
    ("options", "change", "why"),
    [
        ({"limit": 100}, None, "limit chooses among all of them"),
        ({"split_list": "l"}, "list", "the list of the splits has changed"),
        ({}, "kept", "is written anew: "),
        ({}, "touch", "every file has changed"),
        ({}, "class", "all files are read: all is written anew"),
    ],
)
def test_all_is_read_where_that_is_needed_and_the_log_says_why(tmp_path, caplog, options, change, why):
    table = without_missing_values(a_table(240))
    if "split_list" in options:
        options = {"split_list": tmp_path / "l"}
        (tmp_path / "l").write_text("1003 test\n")
    names = write_files(tmp_path, table, [0, 100, 200])
    brought_up(tmp_path, **options)
    new = table.slice(200, 40)
    if change == "list":
        (tmp_path / "l").write_text("1003 test\n1004 test\n")
    elif change == "kept":
        path = tmp_path / "out" / "train" / verify(tmp_path / "out" / "train").source_files.file
        path.write_bytes(path.read_bytes()[:-9] + b"123456789")
    elif change == "class":
        new = new.set_column(6, "label", pa.array(["ant"] * 40))
    elif change == "touch":
        for name in names:
            os.utime(tmp_path / "t" / name, ns=(1, 1))
    write_table(tmp_path / "t" / "new.parquet", new)
    with caplog.at_level(logging.INFO):
        assert brought_up(tmp_path, **options) == {*names, "new.parquet"}
    assert why in caplog.text
    require_as_new(tmp_path, **options)


def test_bad_rows_and_duplicates_of_files_that_are_not_read_are_told_all_the_same(tmp_path):
    label = pa.array([None, *[i % 3 for i in range(1, 100)]])
    table = pa.table({"id": [f"r{i}" for i in range(100)], "f": np.arange(100) % 90 * 1.0, "label": label})
    write_files(tmp_path, table, [0, 100])
    brought_up(tmp_path, feature_columns="f")
    more = pa.table({"id": ["n0", "n1", "n2"], "f": [5.0, 400.0, 500.0], "label": [2, 0, 0]})
    write_table(tmp_path / "t" / "x.parquet", more)
    assert brought_up(tmp_path, feature_columns="f") == {"x.parquet"}
    require_as_new(tmp_path, feature_columns="f")
    warnings = "".join(path.read_text() for path in (tmp_path / "out").glob("*/warnings-*.jsonl"))
    assert '"name": "n0"' in warnings
    rejected = listed(tmp_path / "out" / "train", "rejected.jsonl").read_text()
    assert '"name": "r0"' in rejected


def test_a_test_source_is_compared_by_its_files(tmp_path):
    table = without_missing_values(a_table(200))
    write_files(tmp_path, table, [0, 50, 100])
    for number in range(2):
        write_table(tmp_path / "held" / f"{number}.parquet", table.slice(100 + 40 * number, 40))
    brought_up(tmp_path, test_source=tmp_path / "held")
    write_table(tmp_path / "held" / "2.parquet", table.slice(180, 20))
    assert brought_up(tmp_path, test_source=tmp_path / "held") == {"2.parquet"}
    require_as_new(tmp_path, test_source=tmp_path / "held")
    seen_files = read_seen_files(tmp_path / "out" / "train" / verify(tmp_path / "out" / "train").source_files.file)
    assert set(seen_files.sources["test"].names) == {"0.parquet", "1.parquet", "2.parquet"}
    kept_version = kept_versions(tmp_path / "out")[0]
    assert (kept_version / "train" / verify(kept_version / "train").source_files.file).is_file()
