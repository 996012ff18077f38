"""The config of a fit, without Spark: pyspark's parameters need no JVM."""

from pathlib import Path

import pytest
from pyspark.sql.types import ArrayType, BinaryType, FloatType, StringType

from caffe_import.errors import CaffeImportError
from deepspark_ops.errors import ConfigError
from deepspark_ops.spark_ml import DeepSparkEstimator, DeepSparkModel, DeepSparkTransformer
from tests.paths import ROOT

NUMBERS = ArrayType(FloatType())


EXAMPLES = ROOT / "deepspark_ops" / "examples"
SOLVER = str(EXAMPLES / "digits" / "mlp_solver.prototxt")


def estimator_of(tmp_path, solver=SOLVER, **params):
    return DeepSparkEstimator(solver=str(solver), runsDir=str(tmp_path), **params)


def test_the_stages_get_the_options_and_a_folder_of_their_own(tmp_path):
    estimator = estimator_of(
        tmp_path, testFraction=0.1, trainOptions={"n_workers": 3}, ingestOptions={"missing": "zero"}
    )
    plan, other = (estimator.plan(NUMBERS, "local[2]") for _ in range(2))
    assert plan.folder.parent == tmp_path
    assert plan.folder != other.folder
    assert (plan.ingest.source, plan.ingest.output) == (plan.folder / "table", plan.folder / "dataset")
    assert (plan.ingest.feature_columns, plan.ingest.image_column) == ("sample", None)
    assert (plan.ingest.standardize, plan.ingest.missing, plan.ingest.test_fraction) == (False, "zero", 0.1)
    assert plan.train.solver == Path(SOLVER)
    assert (plan.train.n_workers, plan.train.master, plan.train.dataset) == (3, "local[2]", plan.ingest.output)
    assert plan.export.run_dir == plan.train.run_dir == plan.folder / "run"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [BinaryType(), StringType()])
def test_images_are_read_as_images(tmp_path, kind):
    options = {"resize_height": 8, "resize_width": 8}
    plan = estimator_of(tmp_path, ingestOptions=options).plan(kind, "local[1]")
    assert (plan.ingest.image_column, plan.ingest.feature_columns) == ("sample", None)
    assert plan.ingest.resize_height == 8


def test_mistakes_are_told_before_anything_runs(tmp_path):
    with pytest.raises(ConfigError, match="solver is not set"):
        DeepSparkEstimator(runsDir=str(tmp_path)).plan(NUMBERS, "local[1]")
    with pytest.raises(ConfigError, match="runsDir is not set"):
        DeepSparkEstimator(solver="s").plan(NUMBERS, "local[1]")
    with pytest.raises(ConfigError, match="n_worker=2: Extra inputs are not permitted; known: "):
        estimator_of(tmp_path, trainOptions={"n_worker": 2}).plan(NUMBERS, "local[1]")
    with pytest.raises(ConfigError, match="path=hdfs://a/b: a model is saved with its bundle"):
        DeepSparkEstimator(solver=SOLVER, runsDir="hdfs://a/b").plan(NUMBERS, "local[1]")


def test_labels_are_values_where_the_net_learns_a_number(tmp_path):
    regression = EXAMPLES / "table_mlp" / "regression_solver.prototxt"
    assert estimator_of(tmp_path, regression).plan(NUMBERS, "local[1]").ingest.label_kind == "value"
    assert estimator_of(tmp_path).plan(NUMBERS, "local[1]").ingest.label_kind == "auto"
    estimator = estimator_of(tmp_path, regression, ingestOptions={"label_kind": "class"})
    assert estimator.plan(NUMBERS, "local[1]").ingest.label_kind == "class"


def test_a_solver_that_cannot_be_read_is_told_before_the_rows_are_written(tmp_path):
    with pytest.raises(CaffeImportError, match=r"none\.prototxt"):
        estimator_of(tmp_path, "none.prototxt").plan(NUMBERS, "local[1]")
    assert not list(tmp_path.iterdir())


def test_stages_have_the_columns_of_spark_ml():
    model, transformer = DeepSparkModel(bundle="b"), DeepSparkTransformer(bundle="b", inputCol="x")
    assert [model.getOrDefault(name) for name in ("featuresCol", "predictionCol", "probabilityCol", "outputCol")] == [
        "features", "prediction", "probability", "",
    ]  # fmt: skip
    assert [transformer.getOrDefault(name) for name in ("inputCol", "predictionCol", "outputCol")] == [
        "x",
        "",
        "answer",
    ]
    assert (model.getBundle(), transformer.getOutputCol()) == ("b", "answer")
