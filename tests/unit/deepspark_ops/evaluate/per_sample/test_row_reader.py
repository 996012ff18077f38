import csv
import io

import numpy as np
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
    folder = rows_of("embedding", tmp_path)
    selected = SelectedRows(folder, RowQuery(min_loss=0.0, order="-probability"), "sha256:w")
    assert selected.columns == ["index", "name", "content", "loss", "is_same", "distance"]
    assert [row["index"] for row in selected.rows(0, N)] == list(range(N))
    assert SelectedRows(folder, RowQuery(label=1), "sha256:w").n_rows == 0


@pytest.mark.parametrize("is_same", [True, False])
def test_pairs_of_a_kind_within_a_range_of_distances(is_same, tmp_path):
    folder = rows_of("embedding", tmp_path)
    of_kind = [row for row in pq.read_table(folder / ROWS_NAME).to_pylist() if row["is_same"] == is_same]
    low, high = np.quantile([row["distance"] for row in of_kind], [0.2, 0.8], method="nearest").tolist()
    query = RowQuery(is_same=is_same, min_distance=low, max_distance=high, order="-distance")
    distances = [row["distance"] for row in SelectedRows(folder, query, "sha256:w").rows(0, N)]
    assert distances == sorted((row["distance"] for row in of_kind if low <= row["distance"] < high), reverse=True)
    assert distances[-1] == low


@pytest.mark.parametrize("output", [0, 2])
def test_a_regression_has_the_numbers_of_an_output_and_a_range_of_residuals(output, tmp_path):
    folder = rows_of("regression", tmp_path)
    expected = [
        (row["index"], row["true"][output], row["predicted"][output], row["predicted"][output] - row["true"][output])
        for row in pq.read_table(folder / ROWS_NAME).to_pylist()
    ]
    low, high = expected[7][3], expected[3][3] if expected[3][3] > expected[7][3] else 9.0
    query = RowQuery(output=output, min_residual=low, max_residual=high, order="-residual")
    selected = SelectedRows(folder, query, "sha256:w")
    assert selected.columns == ["index", "name", "content", "loss", "true", "predicted", "residual"]
    rows = [tuple(row[name] for name in ("index", "true", "predicted", "residual")) for row in selected.rows(0, N)]
    assert rows == sorted((row for row in expected if low <= row[3] < high), key=lambda row: -row[3]) != []
    assert rows[-1][0] == 7  # the lower end is included
    assert SelectedRows(folder, RowQuery(predicted=0), "sha256:w").n_rows == 0  # a number is no class
    assert SelectedRows(folder, RowQuery(output=3, min_residual=-9.0), "sha256:w").n_rows == 0


def test_two_regressions_have_the_truth_once(tmp_path):
    first, second = two_evaluations(tmp_path, "regression")
    query = RowQuery(output=1, order="residual")
    selected = SelectedRows(first, query, "sha256:first", (second, "sha256:second"))
    assert selected.columns[4:] == [
        *("true", "predicted", "residual", "other_loss", "other_predicted", "other_residual", "loss_difference"),
    ]
    rows = selected.rows(0, N)
    assert [row["residual"] for row in rows] == sorted(row["residual"] for row in rows)
    assert all(row["other_residual"] == row["other_predicted"] - row["true"] for row in rows)


@pytest.mark.parametrize("fault", ["missing", "damaged", "other weights"])
def test_rows_that_cannot_be_read_are_named(fault, folder):
    if fault == "missing":
        (folder / ROWS_NAME).unlink()
    elif fault == "damaged":
        (folder / ROWS_NAME).write_bytes(b"PAR1")
    digest = "sha256:other" if fault == "other weights" else "sha256:w"
    with pytest.raises(DataError, match=rf"{ROWS_NAME} .*; run \"deepspark evaluate\" again"):
        SelectedRows(folder, RowQuery(), digest)


def two_evaluations(tmp_path, task="classification", *, is_other_data=False):
    """Return the folders of two evaluations of one task: the second net answers the samples in reversed order."""
    chosen, values, targets = task_answers(task)
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder, answers in zip(folders, (values, [blob[::-1] for blob in values]), strict=True):
        folder.mkdir()
        part = range(N - 1) if is_other_data and folder == folders[1] else range(N)
        write_scored_rows(folder / "part", chosen, answers, targets, part)
        join_rows(folder / ROWS_NAME, [folder / "part"], f"sha256:{folder.name}")
    return folders


OUTCOMES = {
    "this": lambda first, second: first and not second,
    "other": lambda first, second: second and not first,
    "both": lambda first, second: first and second,
    "neither": lambda first, second: not first and not second,
}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_of_two_nets_the_samples_by_who_is_right(outcome, tmp_path):
    first, second = two_evaluations(tmp_path)
    pairs = list(zip(*(pq.read_table(folder / ROWS_NAME).to_pylist() for folder in (first, second)), strict=True))
    expected = {
        mine["index"]: other
        for mine, other in pairs
        if mine["label"] is not None
        and OUTCOMES[outcome](mine["label"] == mine["predicted"], other["label"] == other["predicted"])
    }
    query = RowQuery(outcome=outcome, order="-loss_difference")
    rows = SelectedRows(first, query, "sha256:first", (second, "sha256:second")).rows(0, N)
    assert {row["index"] for row in rows} == set(expected) != set()
    for row in rows:
        other = expected[row["index"]]
        assert (row["other_predicted"], row["other_loss"]) == (other["predicted"], other["loss"])
        assert row["loss_difference"] == other["loss"] - row["loss"]
    differences = [row["loss_difference"] for row in rows]
    assert differences == sorted(differences, reverse=True)


def test_of_two_regressions_the_samples_with_the_smaller_loss(tmp_path):
    first, second = two_evaluations(tmp_path, "regression")
    losses = [pq.read_table(folder / ROWS_NAME)["loss"].to_pylist() for folder in (first, second)]
    for outcome, sign in (("this", 1), ("other", -1)):
        query = RowQuery(outcome=outcome, order="index")
        selected = SelectedRows(first, query, "sha256:first", (second, "sha256:second"))
        better = [at for at, (mine, other) in enumerate(zip(*losses, strict=True)) if sign * (other - mine) > 0]
        assert [row["index"] for row in selected.rows(0, N)] == better != []
    assert SelectedRows(first, RowQuery(outcome="both"), "sha256:first", (second, "sha256:second")).n_rows == 0


def test_a_cell_of_the_second_net(tmp_path):
    first, second = two_evaluations(tmp_path)
    table = pq.read_table(second / ROWS_NAME).to_pylist()
    query = RowQuery(other_predicted=1, order="index")
    rows = SelectedRows(first, query, "sha256:first", (second, "sha256:second")).rows(0, N)
    assert [row["index"] for row in rows] == [row["index"] for row in table if row["predicted"] == 1] != []


def test_two_evaluations_of_different_samples_are_refused(tmp_path):
    first, second = two_evaluations(tmp_path, is_other_data=True)
    with pytest.raises(DataError, match="have different samples"):
        SelectedRows(first, RowQuery(), "sha256:first", (second, "sha256:second"))
