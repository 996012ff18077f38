"""Everything that answers inside Spark, in one process with one JVM: starting one takes longer than the rest.

    python in_one_spark.py BUNDLE IMAGES LIST FOLDER

Writes below FOLDER what the test looks at.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from pyspark.sql import SparkSession

from deepspark_ops.config.predict import FeaturesConfig, PredictConfig
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.predict.spark_job import answer_on, run_on_spark
from examples.predict_in_spark import main as predict_in_spark


def refusal_of(session, config):
    try:
        answer_on(session, config)
    except DeepSparkError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(bundle: Path, images: Path, listed: Path, folder: Path) -> None:
    given = {"bundle": bundle, "input": listed, "root_folder": images, "task_records": 20, "batch_size": 7}
    summary = run_on_spark(PredictConfig(**given, output=folder / "by_master", master="local[2]"))
    found = {"by_master": asdict(summary) | {"output": str(summary.output)}}

    # This Spark is as of users: started by the session's builder, in the JVM that the job before has started.
    session = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse")).getOrCreate()
    )  # fmt: skip
    answer_on(session, FeaturesConfig(**given, output=folder / "features", blobs="ip"))
    pictures = session.read.format("binaryFile").option("recursiveFileLookup", "true").load(str(images))
    pictures.select("path", "content").write.saveAsTable("pictures")
    table = {"bundle": bundle, "input": "table:pictures", "output": "table:answers", "image_column": "content"}
    found["without_id"] = refusal_of(session, PredictConfig(**{**table, "input": "table:none"}))
    config = PredictConfig(**table, id_column="path", scores=False)
    answer_on(session, config)
    found["again"] = refusal_of(session, config)
    answer_on(session, config.model_copy(update={"table_mode": "append"}))
    session.table("answers").write.parquet(str(folder / "answers"))
    found["strict"] = refusal_of(session, PredictConfig(**given, output=folder / "strict", strict=True))
    found["strict_left"] = [path.name for path in folder.iterdir() if "strict" in path.name]

    predict_in_spark(str(bundle), str(images), str(folder / "example"))
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
