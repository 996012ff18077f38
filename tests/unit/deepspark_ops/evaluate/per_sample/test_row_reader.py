import csv
import io

import pyarrow.parquet as pq
import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.per_sample.row_reader import ROWS_NAME, RowQuery, SelectedRows
from deepspark_ops.evaluate.per_sample.rows import join_rows
from tests.unit.deepspark_ops.evaluate.per_sample.test_rows import write_scored_rows
from tests.unit.deepspark_ops.evaluate.tasks.test_merge import N, task_answers


@pytest.fixture
def folder(tmp_path):
    """An evaluation of a classification, with the rows alone."""
    return rows_of("classification", tmp_path)


def rows_of(task, folder):
    chosen, values, targets = task_answers(task)
    write_scored_rows(folder / "part", chosen, values, targets, range(N))
    join_rows(folder / ROWS_NAME, [folder / "part"], "sha256:w")
    return folder


def in_range(value, low, high, *, has_high=True):
    return value is not None and low <= value and (value <= high if has_high else value < high)


CASES = {
    "all": (RowQuery(), lambda row: True),
    "cell": (RowQuery(label=6, predicted=0), lambda row: (row["label"], row["predicted"]) == (6, 0)),
    "class": (RowQuery(label=0, order="loss"), lambda row: row["label"] == 0),
    "wrong": (RowQuery(is_wrong=True), lambda row: row["label"] is not None and row["label"] != row["predicted"]),
    "right": (RowQuery(is_wrong=False, order="index"), lambda row: row["rank"] == 0),
    "bin": (
        RowQuery(min_probability=0.4, max_probability=0.6, order="-probability"),
        lambda row: in_range(row["probability"], 0.4, 0.6, has_high=False),
    ),
    "last bin": (
        RowQuery(min_probability=0.7, max_probability=1, order="probability"),
        lambda row: in_range(row["probability"], 0.7, 1),
    ),
    "loss": (RowQuery(min_loss=0.5, max_loss=1.5), lambda row: in_range(row["loss"], 0.5, 1.5)),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_fulfil_all_conditions_in_order(name, folder):
    query, holds = CASES[name]
    rows = [row for row in pq.read_table(folder / ROWS_NAME).to_pylist() if holds(row)]
    column, sign = query.order.removeprefix("-"), -1 if query.order.startswith("-") else 1
    rows.sort(key=lambda row: (row[column] is None, sign * (row[column] or 0), row["index"]))
    selected = SelectedRows(folder, query, "sha256:w")
    assert selected.n_rows == len(rows) > 0
    assert [row["index"] for row in selected.rows(0, N)] == [row["index"] for row in rows]
    assert selected.rows(1, 2) == [{key: row[key] for key in selected.columns} for row in rows[1:3]]


def test_csv_has_all_selected_rows(folder):
    selected = SelectedRows(folder, RowQuery(label=1), "sha256:w")
    rows = list(csv.DictReader(io.StringIO(selected.csv().decode())))
    assert [int(row["index"]) for row in rows] == [row["index"] for row in selected.rows(0, N)]
    assert {row["label"] for row in rows} == {"1"}


def test_a_task_without_classes_has_its_losses_and_no_lists(tmp_path):
    folder = rows_of("regression", tmp_path)
    selected = SelectedRows(folder, RowQuery(min_loss=0.0, order="-probability"), "sha256:w")
    assert selected.columns == ["index", "name", "content", "loss"]
    assert [row["index"] for row in selected.rows(0, N)] == list(range(N))
    assert SelectedRows(folder, RowQuery(label=1), "sha256:w").n_rows == 0


@pytest.mark.parametrize("fault", ["missing", "damaged", "other weights"])
def test_rows_that_cannot_be_read_are_named(fault, folder):
    if fault == "missing":
        (folder / ROWS_NAME).unlink()
    elif fault == "damaged":
        (folder / ROWS_NAME).write_bytes(b"PAR1")
    digest = "sha256:other" if fault == "other weights" else "sha256:w"
    with pytest.raises(DataError, match=rf"{ROWS_NAME} .*; run \"deepspark evaluate\" again"):
        SelectedRows(folder, RowQuery(), digest)
