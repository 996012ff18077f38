"""A Caffe net inside a Spark ML pipeline: scale rows, train, score with Spark's evaluator, save, load, answer again.

    python examples/spark_ml_pipeline.py RUNS MODEL
    spark-submit --master ... examples/spark_ml_pipeline.py RUNS MODEL

RUNS gets a folder for each fit, MODEL the saved pipeline; driver and workers see both under the same paths, and have
deepspark with its extras train, spark and tables. Run the script in the top folder of the repository: the rows are the
repository's digits.
"""

from __future__ import annotations

import gzip
import sys

import numpy as np
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import MinMaxScaler, VectorAssembler
from pyspark.sql import DataFrame, SparkSession

from deepspark_ops.spark_ml import DeepSparkEstimator


def digits(spark: SparkSession) -> DataFrame:
    """Return the digits as a table: 64 columns of numbers from 0 to 16, and the label."""
    with gzip.open("examples/digits/digits8x8-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 64)
    with gzip.open("examples/digits/digits8x8-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    columns = [f"p{number}" for number in range(64)]
    rows = [[*map(int, row), int(label)] for row, label in zip(pixels, labels, strict=True)]
    return spark.createDataFrame(rows, [*columns, "label"])


def main(runs: str, model: str, overrides: str = "", n_workers: int = 2) -> None:
    """Train on four fifths of the digits and answer the others, before and after the pipeline is saved.

    ``overrides`` changes the solver, e.g. ``max_iter: 100``; each of ``n_workers`` is a task of Spark.
    """
    spark = SparkSession.builder.appName("pipeline").getOrCreate()
    train, test = digits(spark).randomSplit([0.8, 0.2], seed=1)
    pipeline = Pipeline(
        stages=[
            VectorAssembler(inputCols=[f"p{number}" for number in range(64)], outputCol="raw"),
            MinMaxScaler(inputCol="raw", outputCol="features"),
            DeepSparkEstimator(
                solver="examples/digits/mlp_solver.prototxt",
                runsDir=runs,
                trainOptions={"n_workers": n_workers, "strategy": "easgd", "overrides": overrides},
            ),
        ]
    )
    fitted = pipeline.fit(train)
    evaluator = MulticlassClassificationEvaluator(metricName="accuracy")
    print(f"accuracy={evaluator.evaluate(fitted.transform(test)):.4f}")
    fitted.write().overwrite().save(model)
    reloaded_answers = PipelineModel.load(model).transform(test)
    print(f"accuracy={evaluator.evaluate(reloaded_answers):.4f} after saving and loading")
    reloaded_answers.select("label", "prediction", "probability").show(5, truncate=60)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
