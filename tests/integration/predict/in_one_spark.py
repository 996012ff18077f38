"""All answers inside Spark, in one process with one JVM: a start takes longer than the rest.

    python in_one_spark.py BUNDLE IMAGES LIST FOLDER job|rest

Writes below FOLDER what the test looks at.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from deepspark_ops.config.commands.predict import FeaturesConfig, PredictConfig
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.predict.spark_job import answer_on, run_on_spark
from deepspark_ops.predict.spark_udf import predict_udf
from deepspark_ops.spark_ml import DeepSparkModel, DeepSparkTransformer
from examples.predict_in_spark import main as predict_in_spark
from tests.integration.predict.small_bundles import NETS, sample_rows


def refusal_of(session, config):
    try:
        answer_on(session, config)
    except DeepSparkError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def spark_ml(session, bundle: str, listed: Path, images: Path, folder: Path):
    """Return what a transformer and a model give for paths, bytes and vectors, before and after they are saved."""
    names = [line for line in listed.read_text().splitlines() if line.endswith("7.png") or line.startswith("g")]
    rows = [(name, str(images / name), (images / name).read_bytes() if name != "gone.png" else None) for name in names]
    frame = session.createDataFrame(rows, "name string, path string, content binary")
    transformer = DeepSparkTransformer(bundle=bundle, inputCol="path", predictionCol="prediction")
    transformer.write().overwrite().save(str(folder / "transformer"))
    Pipeline(stages=[transformer]).write().overwrite().save(str(folder / "stages"))
    model = DeepSparkModel(bundle=bundle, featuresCol="content")
    PipelineModel([model]).write().overwrite().save(str(folder / "model"))
    (moved,) = PipelineModel.load(str(folder / "model")).stages
    stages = {
        "paths": transformer,
        "loaded": DeepSparkTransformer.load(str(folder / "transformer")),
        "piped": Pipeline.load(str(folder / "stages")).fit(frame),
        "bytes": model,
        "moved": moved,
    }
    answers = {name: [json.loads(row) for row in stage.transform(frame).drop("content").toJSON().collect()]
               for name, stage in stages.items()}  # fmt: skip
    wrong = session.createDataFrame([(Vectors.dense([1.0, 2.0]),)], ["features"])
    vectors = DeepSparkTransformer(bundle=bundle, inputCol="features").transform(wrong).first()
    try:
        transformer.transform(session.createDataFrame([(True,)], ["path"]))
        refused = ""
    except DeepSparkError as error:
        refused = str(error)
    return {"answers": answers, "bundle": moved.getBundle(), "vector": vectors.answer.error, "refused": refused}


def other_kinds(session, folder: Path):
    """Return what the bundles of every kind give, by name: all columns of a stage that was saved and loaded."""
    results: dict[str, object] = {}
    for name in NETS:
        bundle, rows = folder / "kinds" / name, sample_rows(name)
        inputs = list(rows[0])
        schema = ", ".join(f"`{key}` array<float>" for key in inputs)
        frame = session.createDataFrame([tuple(row.values()) for row in rows], schema)
        columns = {"inputCols": inputs} if len(inputs) > 1 else {"inputCol": inputs[0]}
        stage = DeepSparkTransformer(bundle=str(bundle), predictionCol="prediction", **columns)
        has_probabilities = name in ("multi_label", "two_outputs")
        if has_probabilities:
            stage.setParams(probabilityCol="probability")
        stage.write().overwrite().save(str(folder / f"stage_{name}"))
        loaded = DeepSparkTransformer.load(str(folder / f"stage_{name}")).transform(frame)
        results[name] = {
            "answers": [json.loads(row) for row in loaded.toJSON().collect()],
            "columns": loaded.schema["answer"].dataType.names,
            "kinds": {
                column: loaded.schema[column].dataType.simpleString() for column in loaded.columns[len(inputs) :]
            },
            "refused": refusals(bundle, frame, inputs, has_probabilities=has_probabilities),
        }
        if len(inputs) > 1:  # a model of several inputs lists all in inputCols, too; by default without "answer"
            DeepSparkModel(bundle=str(bundle), **columns).write().overwrite().save(str(folder / "several"))
            answered = DeepSparkModel.load(str(folder / "several")).transform(frame)
            results["model"] = [json.loads(row) for row in answered.toJSON().collect()]
            structs = frame.select(predict_udf(bundle)(F.struct(*reversed(inputs))).alias("answer"))
            results["structs"] = [json.loads(row)["answer"] for row in structs.toJSON().collect()]
    # Last: what takes the first row alone ends Python's worker, with the bundles in it.
    results["card"] = list(answer_of_the_card(folder / "kinds" / "two_inputs"))
    return results


def refusals(bundle: Path, frame, inputs, *, has_probabilities: bool):
    """Return the messages of mistakes: a wrong number of columns, missing probabilities."""
    wrong = {"inputCols": [*inputs, inputs[0]]}, *([] if has_probabilities else [{"probabilityCol": "p"}])
    messages = []
    for names in wrong:
        columns = {"inputCols": inputs, **names}
        try:
            DeepSparkTransformer(bundle=str(bundle), **columns).transform(frame)
        except DeepSparkError as error:
            messages.append(str(error))
    return messages


def answer_of_the_card(bundle: Path):
    """Run the code for Spark that the bundle's own README has, in the bundle's folder."""
    block = (bundle / "README.md").read_text().split("### Spark\n\n```python\n")[1].split("```")[0]
    names: dict[str, object] = {}
    os.chdir(bundle)
    exec(block, names)
    return names["answer"].asDict()


def job(bundle: Path, images: Path, listed: Path, folder: Path) -> dict[str, object]:
    """Run the job that the command starts."""
    options = {"bundle": bundle, "input": listed, "root_folder": images, "task_records": 20, "batch_size": 7}
    summary = run_on_spark(PredictConfig(**options, output=folder / "by_master", master="local[1]"))
    return {"by_master": asdict(summary) | {"output": str(summary.output)}}


def other_parts(bundle: Path, images: Path, listed: Path, folder: Path) -> dict[str, object]:
    """Answer in a session of the user's own."""
    options = {"bundle": bundle, "input": listed, "root_folder": images, "task_records": 20, "batch_size": 7}
    results: dict[str, object] = {}
    session = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse")).getOrCreate()
    )  # fmt: skip
    answer_on(session, FeaturesConfig(**options, output=folder / "features", blobs="ip"))
    pictures = session.read.format("binaryFile").option("recursiveFileLookup", "true").load(str(images))
    pictures.select("path", "modificationTime", "content").write.saveAsTable("pictures")
    table = {"bundle": bundle, "input": "table:pictures", "output": "table:answers", "image_column": "content"}
    results["without_id"] = refusal_of(session, PredictConfig(**{**table, "input": "table:none"}))
    config = PredictConfig(**table, id_column="path", scores=False)
    answer_on(session, config)
    results["again"] = refusal_of(session, config)
    answer_on(session, config.model_copy(update={"table_mode": "append"}))
    session.table("answers").write.parquet(str(folder / "answers"))
    results["strict"] = refusal_of(session, PredictConfig(**options, output=folder / "strict", strict=True))
    results["strict_left"] = [path.name for path in folder.iterdir() if "strict" in path.name]

    results["spark_ml"] = spark_ml(session, str(bundle), listed, images, folder)

    results["kinds"] = other_kinds(session, folder)

    results["card"] = answer_of_the_card(bundle)
    predict_in_spark(str(bundle), str(images), str(folder / "example"))
    return results


if __name__ == "__main__":
    *arguments, part = sys.argv[1:]
    paths = [Path(text) for text in arguments]
    results = {"job": job, "rest": other_parts}[part](*paths)
    (paths[-1] / "found.json").write_text(json.dumps(results))
