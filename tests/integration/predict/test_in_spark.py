"""A bundle inside Spark answers as in one process: a separate job, tables of the catalog, a user's script."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deepspark_ops.config.commands.predict import FeaturesConfig, PredictConfig
from deepspark_ops.predict.answers import write_answers
from deepspark_ops.processes.spark_submit import job_variables
from tests.integration.predict.small_bundles import NETS, expected_of, make_small_bundle, sample_rows
from tests.integration.small_run import CLASS_NAMES
from tests.paths import ROOT

pytestmark = [pytest.mark.tf, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]
BAD = "8 bytes that are no image OpenCV can read (JPEG, PNG, BMP, ...)"


@pytest.fixture(scope="module")
def spark(exported, tmp_path_factory):
    """Return what is found in a session of the user's own; see ``in_spark``."""
    return in_spark(exported, tmp_path_factory, "rest", kinds=NETS)


def in_spark(exported, tmp_path_factory, part, *, kinds=()):
    """Return bundle, Spark's folder, Spark's results, images, list: 53 images and two other files."""
    _, _, _, bundle, files = exported
    folder, images = tmp_path_factory.mktemp("spark"), tmp_path_factory.mktemp("files") / "images"
    shutil.copytree(files, images)
    (images / "damaged.png").write_bytes(b"no image")
    names = sorted(path.relative_to(images).as_posix() for path in images.rglob("*.png"))
    listed = folder / "list.txt"
    listed.write_text("".join(f"{name}\n" for name in [*names[:30], "gone.png", *names[30:]]))
    script = ROOT / "tests" / "integration" / "predict" / "in_one_spark.py"
    for name in kinds:
        make_small_bundle(folder / "kinds", name)
    environment = {**os.environ, **job_variables(os.environ), "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": ""}
    command = [sys.executable, str(script), bundle, images, listed, folder, part]
    completed = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=900, check=False, cwd=folder
    )
    assert completed.returncode == 0, completed.stderr[-4000:]
    return bundle, folder, json.loads((folder / "found.json").read_text()), images, listed


@pytest.mark.long
def test_a_job_gives_the_rows_of_one_process(exported, tmp_path_factory, tmp_path):
    bundle, folder, results, images, listed = in_spark(exported, tmp_path_factory, "job")
    options = {"bundle": bundle, "input": listed, "root_folder": images}
    write_answers(PredictConfig(**options, output=tmp_path / "p"), on_step=lambda step: None)
    expected = pq.read_table(tmp_path / "p").to_pylist()
    parts = sorted((folder / "by_master").glob("part-*.parquet"))
    rows = [row for part in parts for row in pq.read_table(part).to_pylist()]
    assert len(parts) == 3  # of 19 records at most
    assert [row["id"] for row in rows] == [row["id"] for row in expected]
    for row, expected_row in zip(rows, expected, strict=True):
        for name in ("predicted", "predicted_name", "top_classes", "top_names", "error"):
            assert row[name] == expected_row[name], (row["id"], name)
        if expected_row["error"] is None:
            np.testing.assert_allclose(row["scores"], expected_row["scores"], rtol=1e-5, atol=1e-7)
            np.testing.assert_allclose(
                row["top_probabilities"], expected_row["top_probabilities"], rtol=1e-5, atol=1e-7
            )
    summary = results["by_master"]
    assert (summary["n_records"], summary["n_errors"]) == (55, 2)
    assert summary["first_errors"] == [
        f"gone.png: No such file or directory: {images / 'gone.png'}",
        f"damaged.png: {BAD}",
    ]


@pytest.mark.long
def test_code_of_the_bundles_card_runs(spark):
    answer = spark[2]["card"]
    assert answer["error"] is None
    assert answer["predicted_name"] in CLASS_NAMES
    assert sum(answer["scores"]) == pytest.approx(1, rel=1e-5)


@pytest.mark.long
def test_features_are_those_of_one_process(spark, tmp_path):
    bundle, folder, _, images, listed = spark
    options = {"bundle": bundle, "input": listed, "root_folder": images}
    write_answers(FeaturesConfig(**options, output=tmp_path / "f", blobs="ip"), on_step=lambda step: None)
    expected = {row["id"]: row["ip"] for row in pq.read_table(tmp_path / "f").to_pylist()}
    features = {row["id"]: row["ip"] for row in pq.read_table(folder / "features").to_pylist()}
    assert features.keys() == expected.keys()
    for name, values in expected.items():
        assert (values is None) == (features[name] is None)
        if values is not None:
            np.testing.assert_allclose(features[name], values, rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_tables_of_the_catalog_are_read_and_written(spark, tmp_path):
    bundle, folder, results, images, _ = spark
    rows = pq.read_table(folder / "answers").to_pylist()
    assert len(rows) == 2 * 54  # appended
    config = PredictConfig(bundle=bundle, input=images, output=tmp_path / "p", scores=False)
    write_answers(config, on_step=lambda step: None)
    expected = {row["id"]: row for row in pq.read_table(tmp_path / "p").to_pylist()}
    for row in rows:
        expected_row = expected[row["id"].split("/images/")[1]]
        assert (row["predicted"], row["error"]) == (expected_row["predicted"], expected_row["error"])
    assert "scores" not in rows[0]
    assert results["without_id"].startswith("ConfigError: input=table:none, output=table:answers: ")
    assert "cannot be found" in results["without_id"]
    assert results["again"].startswith("ConfigError: ")
    assert "already exists" in results["again"]


@pytest.mark.long
def test_strict_writes_nothing(spark):
    _, _, results, _, _ = spark
    assert results["strict"].startswith("DataError: ")
    assert "nothing was written (strict)" in results["strict"]
    assert results["strict_left"] == []


@pytest.mark.long
def test_the_example_answers_inside_a_plain_spark_script(spark, tmp_path):
    bundle, folder, _, images, _ = spark
    rows = {row["path"].split("/images/")[1]: row for row in pq.read_table(folder / "example").to_pylist()}
    assert len(rows) == 54
    write_answers(PredictConfig(bundle=bundle, input=images, output=tmp_path / "p"), on_step=lambda step: None)
    for expected_row in pq.read_table(tmp_path / "p").to_pylist():
        row = rows[expected_row["id"]]
        assert (row["predicted"], row["error"]) == (expected_row["predicted"], expected_row["error"])
        if expected_row["error"] is None:
            np.testing.assert_allclose(row["scores"], expected_row["scores"], rtol=1e-5, atol=1e-7)
            assert row["predicted_name"] == expected_row["predicted_name"]


@pytest.mark.long
def test_spark_ml_stages_answer_alike_before_and_after_they_are_saved(spark, tmp_path):
    bundle, folder, results, images, _ = spark
    answers = results["spark_ml"]["answers"]
    write_answers(PredictConfig(bundle=bundle, input=images, output=tmp_path / "p"), on_step=lambda step: None)
    expected = {row["id"]: row for row in pq.read_table(tmp_path / "p").to_pylist()}
    assert [row["name"] for row in answers["paths"]].count("gone.png") == 1
    for name, rows in answers.items():
        assert len(rows) == 6, name
        for row in rows:
            expected_row = expected.get(row["name"])
            assert ("prediction" in row) == (expected_row is not None), (name, row)
            if expected_row is not None:
                assert row["prediction"] == expected_row["predicted"]
                scores = row["answer"]["scores"] if "answer" in row else row["probability"]["values"]
                np.testing.assert_allclose(scores, expected_row["scores"], rtol=1e-5, atol=1e-7)
    assert next(row["answer"]["error"] for row in answers["paths"] if row["name"] == "gone.png")
    assert results["spark_ml"]["bundle"].startswith(str(folder / "model"))  # a copy
    assert "2 numbers, the bundle takes images" in results["spark_ml"]["vector"]
    assert results["spark_ml"]["refused"].startswith('column "path" is boolean; allowed: a vector, an array of numbers')


KINDS = {
    "regression": ("double", None),
    "multi_label": ("array<double>", "vector"),
    "embedding": ("vector", None),
    "reconstruction": ("vector", None),
    "segmentation": ("vector", None),
    "two_inputs": ("vector", None),
    "two_outputs": ("double", "vector"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", NETS)
def test_every_kind_of_bundle_is_answered_as_deepspark_predict_answers_it(name, spark, tmp_path):
    _, folder, results, _, _ = spark
    result = results["kinds"][name]
    rows = sample_rows(name)
    table = tmp_path / "rows.parquet"
    pq.write_table(pa.table({key: [row[key] for row in rows] for key in rows[0]}), table)
    options = {"bundle": folder / "kinds" / name, "input": table}
    options |= {} if name == "two_inputs" else {"feature_columns": next(iter(rows[0]))}
    write_answers(PredictConfig(**options, output=tmp_path / "p"), on_step=lambda step: None)
    predicted = pq.read_table(tmp_path / "p")
    assert result["columns"] == predicted.column_names[1:]  # but id

    expected = expected_of(name)
    main = next(iter(expected))
    usable = [at for at in range(len(rows)) if at not in (3, 5)]
    answers = [row["answer"] for row in result["answers"]]
    for output, values in expected.items():
        for source in (answers, predicted.to_pylist()):
            found_values = np.array([np.atleast_1d(source[at][output]) for at in usable])
            np.testing.assert_allclose(found_values, values, rtol=1e-4, atol=1e-5)
        assert [answers[at].get(output) for at in (3, 5)] == [None, None]
    assert [bool(row.get("error")) for row in answers] == [False, False, False, True, False, True]
    assert "numbers, the bundle takes" in answers[5]["error"]

    prediction, probability = KINDS[name]
    kinds = {"prediction": prediction, **({"probability": probability} if probability else {})}
    assert {key: kind for key, kind in result["kinds"].items() if key != "answer"} == kinds
    assert [at for at, row in enumerate(result["answers"]) if "prediction" in row] == usable
    for row, values in zip(usable, expected[main], strict=True):
        value = result["answers"][row]["prediction"]
        if name == "two_outputs":
            assert value == values.argmax()
        elif name == "multi_label":
            assert value == np.flatnonzero(values > 0.5).tolist()
        else:
            numbers = value["values"] if isinstance(value, dict) else [value]
            np.testing.assert_allclose(numbers, values, rtol=1e-4, atol=1e-5)
        if probability:
            options = result["answers"][row]["probability"]["values"]
            np.testing.assert_allclose(options, values, rtol=1e-4, atol=1e-5)
    assert "name a column for each with inputCols" in result["refused"][0]
    assert len(result["refused"]) == (1 if probability else 2)


@pytest.mark.long
def test_several_inputs_are_columns_or_a_struct_of_their_names(spark):
    kinds = spark[2]["kinds"]
    rows = kinds["two_inputs"]["answers"]
    assert [row["answer"] for row in rows] == kinds["structs"]
    assert [row.get("prediction") for row in rows] == [row.get("prediction") for row in kinds["model"]]
    assert not any("probability" in row or "answer" in row for row in kinds["model"])
    assert kinds["card"] == kinds["two_inputs"]["columns"]
