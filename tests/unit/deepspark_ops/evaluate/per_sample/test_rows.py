import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from deepspark_ops.config.shared_options.task import TASK_NAMES
from deepspark_ops.evaluate.per_sample.rows import SampleRows, join_rows, result_prefixes, rows_schema
from deepspark_ops.evaluate.scores import ScoredBatch, ScoredResult
from deepspark_ops.evaluate.tasks.registry import sum_of
from deepspark_ops.shards.files.parquet_output import parquet_output
from tests.unit.deepspark_ops.evaluate.tasks.test_merge import N, task_answers


def write_scored_rows(path, chosen, values, targets, rows, *, has_scores=False, batch=7):
    total = sum_of(chosen)
    schema = rows_schema([chosen], has_scores=has_scores)
    with parquet_output(path, schema) as output:
        written = SampleRows(output, [chosen], schema)
        for start in range(rows.start, rows.stop, batch):
            part = slice(start, min(start + batch, rows.stop))
            answers = [value[part] for value in values]
            total.add(answers, targets[part], start=start)
            content = np.arange(part.start, part.stop, dtype=np.uint64)
            names = None if start % 2 else [f"s{at}" for at in range(part.start, part.stop)]
            result = ScoredResult(answers, targets[part], total.last())
            written.add(ScoredBatch(start, content, [result]), names)
    return total


@pytest.mark.parametrize("task", TASK_NAMES)
def test_rows_have_the_error_and_the_answer_of_each_sample(task, tmp_path):
    chosen, values, targets = task_answers(task)
    total = write_scored_rows(tmp_path / "rows", chosen, values, targets, range(N))
    rows = pq.read_table(tmp_path / "rows").to_pylist()
    assert [row["index"] for row in rows] == list(range(N))
    assert [row["loss"] for row in rows] == total.samples().loss.tolist()
    assert rows[1]["name"] == "s1"
    assert rows[7]["name"] is None
    for at in (0, 50, N - 1):
        compare_row(task, rows[at], [value[at] for value in values], targets[at])


def compare_row(task, row, values, target):
    if task == "classification":
        assert (row["label"], row["predicted"]) == (target, int(values[0].argmax()))
        assert row["probability"] == pytest.approx(values[0].max(), rel=1e-6)
        assert row["label_probability"] == pytest.approx(values[0][target], rel=1e-6)
        assert "scores" not in row
    elif task == "multi_label":
        assert row["labels"] == target.tolist()
        assert row["probabilities"] == pytest.approx(values[0].tolist(), rel=1e-6)
    elif task == "regression":
        assert (row["true"], row["predicted"]) == (target.tolist(), values[0].tolist())
    elif task == "embedding":
        assert row["is_same"] == bool(target)
        assert row["distance"] == pytest.approx(float(np.linalg.norm(values[0] - values[1])), rel=1e-6)
    elif task == "reconstruction":
        assert row["mae"] == pytest.approx(float(np.abs(values[0] - target).mean()), rel=1e-6)
    else:
        assert row["pixels"] == 25
        assert row["right"] == int((values[0].argmax(axis=0) == target).sum())
        assert row["true_pixels"] == [int((target == k).sum()) for k in range(4)]


def test_samples_that_do_not_count_have_rows_without_an_error(tmp_path):
    chosen, values, targets = task_answers("classification")
    chosen = type(chosen)(**{**vars(chosen), "ignore_label": 2})
    targets[:14] = 2  # two batches, the first of all among them
    write_scored_rows(tmp_path / "rows", chosen, values, targets, range(N), has_scores=True)
    rows = pq.read_table(tmp_path / "rows").to_pylist()
    for row, label, shares in zip(rows, targets, values[0], strict=True):
        assert row["loss"] is None if label == 2 else row["loss"] == pytest.approx(-np.log(shares[label]))
        assert row["label"] == (None if label == 2 else label)
        assert row["scores"] == pytest.approx(shares.tolist(), rel=1e-6)


def test_parts_are_joined_in_order_with_their_metadata(tmp_path):
    chosen, values, targets = task_answers("regression")
    paths = [tmp_path / f"{start}.parquet" for start in (0, 49)]
    write_scored_rows(paths[0], chosen, values, targets, range(49))
    write_scored_rows(paths[1], chosen, values, targets, range(49, N))
    join_rows(tmp_path / "all.parquet", paths, "sha256:7")
    table = pq.read_table(tmp_path / "all.parquet")
    assert table["index"].to_pylist() == list(range(N))
    metadata = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    results = json.loads(metadata.pop("deepspark.results"))
    assert [(result["prefix"], result["task"]) for result in results] == [("", "regression")]
    assert metadata == {
        "deepspark.samples_version": "2",
        "deepspark.task": "regression",
        "deepspark.weights": "sha256:7",
    }


def test_many_numbers_are_left_out():
    chosen, _, _ = task_answers("regression")
    wide = type(chosen)(**{**vars(chosen), "shape": (5_000,)})
    assert rows_schema([wide], has_scores=False).names == ["index", "name", "content", "loss"]


def test_single_vectors_are_rows_with_their_class(tmp_path):
    chosen, values, _ = task_answers("embedding")
    single = type(chosen)(**{**vars(chosen), "outputs": ("a",)})
    labels = np.arange(N) % 4
    write_scored_rows(tmp_path / "rows", single, values[:1], labels, range(N))
    rows = pq.read_table(tmp_path / "rows").to_pylist()
    assert [row["class"] for row in rows] == labels.tolist()
    assert rows[9]["vector"] == values[0][9].tolist()


def test_each_of_several_results_has_its_columns(tmp_path):
    results = [task_answers("classification"), task_answers("regression")]
    tasks = [results[0][0], replace(results[1][0], outputs=("b",))]
    sums = [sum_of(chosen) for chosen in tasks]
    schema = rows_schema(tasks, has_scores=False)
    first, second = result_prefixes(tasks)
    assert first == "_".join(tasks[0].outputs) + "_"
    class_columns = ["label", "predicted", "rank", "probability", "label_probability"]
    assert schema.names == [
        *("index", "name", "content"),
        *(f"{first}{name}" for name in ("loss", *class_columns)),
        *(f"{second}{name}" for name in ("loss", "true", "predicted")),
    ]
    with parquet_output(tmp_path / "rows", schema) as output:
        scored_results = []
        for total, (_, values, targets) in zip(sums, results, strict=True):
            total.add(values, targets, start=0)
            scored_results.append(ScoredResult(values, targets, total.last()))
        SampleRows(output, tasks, schema).add(ScoredBatch(0, np.arange(N, dtype=np.uint64), scored_results), None)
    table = pq.read_table(tmp_path / "rows")
    assert table[f"{first}loss"].to_pylist() == sums[0].samples().loss.tolist()
    assert table[f"{second}loss"].to_pylist() == sums[1].samples().loss.tolist()
    assert table[f"{second}true"].to_pylist() == results[1][2].tolist()
    described = json.loads(table.schema.metadata[b"deepspark.results"])
    assert [(result["prefix"], result["task"]) for result in described] == [
        (first, "classification"),
        (second, "regression"),
    ]


def test_prefixes_tell_results_apart():
    chosen, *_ = task_answers("regression")

    def named(outputs, target):
        return type(chosen)(**{**vars(chosen), "outputs": outputs, "target": target})

    assert result_prefixes([named(("a",), "x")]) == ("",)
    assert result_prefixes([named(("a",), "x"), named(("b", "c"), "y")]) == ("a_", "b_c_")
    assert result_prefixes([named(("a",), "x"), named(("a",), "y")]) == ("a_x_", "a_y_")
    assert result_prefixes([named(("a",), "x"), named(("a",), "x")]) == ("result1_a_x_", "result2_a_x_")
