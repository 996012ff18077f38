"""MLlib's perceptron on the rows that ours was trained on: ``python examples/table_mlp/beside_mllib.py datasets/risk``.

The same net, the same split, the same standardised features, read from the dataset's HDF5 shards.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from pyspark.ml.classification import MultilayerPerceptronClassifier
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame, SparkSession

from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.reader import open_dataset

HIDDEN = 64


def frame_of(spark: SparkSession, dataset: Path, split: str) -> DataFrame:
    """Return a split's rows in MLlib's form."""
    import pandas as pd

    with open_dataset(DatasetPaths(dataset).split(split)) as split_data:
        parts = [split_data.read(shard, 0, info.n_samples)[:2] for shard, info in enumerate(split_data.shards)]
    data, label = (np.concatenate(column) for column in zip(*parts, strict=True))
    rows = pd.DataFrame({"values": list(data.astype(np.float64)), "label": label.astype(np.float64)})
    frame = spark.createDataFrame(rows)
    return frame.select(array_to_vector("values").alias("features"), "label").cache()


def main() -> None:
    """Fit MLlib's classifier and print its accuracy on the test split."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--max-iter", type=int, default=200)
    arguments = parser.parse_args()
    spark = SparkSession.builder.appName("mllib").config("spark.ui.enabled", "false").getOrCreate()
    spark.conf.set("spark.sql.execution.arrow.pyspark.enabled", "true")
    train, test = (frame_of(spark, arguments.dataset, split) for split in ("train", "test"))
    n_rows, n_features = train.count(), len(train.first().features)
    classifier = MultilayerPerceptronClassifier(layers=[n_features, HIDDEN, 2], maxIter=arguments.max_iter, seed=1)
    began = time.monotonic()
    model = classifier.fit(train)
    seconds = time.monotonic() - began
    scored = model.transform(test)
    accuracy = scored.where(scored.prediction == scored.label).count() / test.count()
    sys.stdout.write(f"MLlib: {n_rows:,} rows, accuracy {accuracy:.4f} in {seconds:.1f} s\n")
    spark.stop()


if __name__ == "__main__":
    main()
