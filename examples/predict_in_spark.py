"""Classes of a bundle inside a Spark job of your own: a folder of images in, a Parquet table out.

    python examples/predict_in_spark.py BUNDLE IMAGES OUTPUT
    spark-submit --master ... examples/predict_in_spark.py BUNDLE IMAGES OUTPUT

Driver and workers see BUNDLE and IMAGES under the same paths, and have deepspark with its extras train and spark.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from deepspark_ops.predict.spark_udf import predict_udf


def main(bundle: str, images: str, output: str) -> None:
    """Read image files as Spark does, answer each, and write path, class and scores."""
    spark = SparkSession.builder.appName("predict").getOrCreate()
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(images)
    answered = files.select("path", predict_udf(bundle)("content").alias("answer")).select("path", "answer.*")
    answered.write.mode("overwrite").parquet(output)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
