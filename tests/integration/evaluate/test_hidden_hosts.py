"""Evaluate, predict and features in Spark on a host that sees neither run, dataset, bundle, inputs nor output.

The host is a namespace of this machine with a network and empty folders. Takes minutes, and needs the right to make
namespaces (root has the right); `make test-cluster` runs the file.
"""

from __future__ import annotations

import secrets
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from deepspark_ops.config.commands.predict import BundleInputConfig, FeaturesConfig, PredictConfig
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.metrics import MetricsReport, read_metrics
from deepspark_ops.evaluate.spark_job import context_of, score_on
from deepspark_ops.evaluate.stage import run_evaluate
from deepspark_ops.predict.answers import write_answers
from deepspark_ops.predict.spark_job import answer_on
from deepspark_ops.predict.spark_udf import predict_udf
from deepspark_ops.shards.manifest import read_manifest
from deepspark_ops.spark_ml import DeepSparkTransformer
from tests.integration.predict.small_bundles import make_small_bundle
from tests.integration.small_run import NET, make_dataset, make_run
from tests.integration.train.namespaces import HOST, rooms
from tests.integration.train.test_cluster import REGISTERED, spark_class, standalone_master, worker_arguments

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.tf, pytest.mark.slow, pytest.mark.timeout(900)]


class HiddenFiles:
    """Files of the driver's host, in a folder that is empty on the cluster's host.

    Attributes:
        context: Spark's, with two slots on the cluster's host.
        folder: The folder.
        data, run, images, bundle: Dataset, run, the test images as files, and the run's bundle in the folder.
    """

    def __init__(self, folder: Path) -> None:
        from deepspark_ops.config.export import ExportConfig
        from deepspark_ops.export.bundle import write_bundle  # TensorFlow

        self.folder, self.data, self.images = folder, folder / "data", folder / "images"
        test_images, _ = make_dataset(self.data)["test"]
        self.run = make_run(folder / "made", self.data, n_steps=8).root
        run_evaluate(EvaluateConfig(run_dir=self.run))
        config = ExportConfig(run_dir=self.run, formats="saved_model,caffe")
        self.bundle = write_bundle(config, on_step=lambda step: None).folder
        for number, image in enumerate(test_images):
            # "a-b" is before "a/" as text, and behind the folder "a" in a walk.
            path = self.images / ("a", "a-b", "b/deep")[number % 3] / f"{number:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(path), image.transpose(1, 2, 0))
        self.context: SparkContext

    def predicted(self, model: type[BundleInputConfig], **options: Any) -> pa.Table:
        """Compare the rows of the cluster with the rows of this process, which are returned."""
        local_table, remote_table = self.folder / "here.parquet", self.folder / "answers"
        write_answers(model(**options, output=local_table), on_step=lambda step: None)
        summary = answer_on(SparkSession(self.context), model(**options, output=remote_table, task_records=20))
        expected, rows = pq.read_table(local_table), pq.read_table(remote_table)
        errors = zip(rows["error"].to_pylist(), expected["error"].to_pylist(), strict=True)
        assert all(error == text or text.split("/")[-1] in error for error, text in errors), "a path may be an address"
        assert rows.drop("error").equals(expected.drop("error"))
        assert (summary.n_records, summary.n_errors) == (expected.num_rows, expected["error"].drop_null().length())
        assert {path.name[:9] for path in remote_table.iterdir()} >= {"_SUCCESS", "part-0000"}
        shutil.rmtree(remote_table)
        return expected


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiddenFiles]:
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "files").mkdir()
    with ExitStack() as stack:
        (host,) = stack.enter_context(rooms(1))
        files = HiddenFiles(folder / "files")
        settings = f"spark.authenticate true\nspark.authenticate.secret {secrets.token_hex(32)}\n"
        master = stack.enter_context(standalone_master(folder, HOST, settings))
        program = host.program(folder, [files.folder])
        start = worker_arguments(master, host.address, folder / "work", cores=2)
        log = folder / "worker.log"
        stack.enter_context(spark_class(*start, log=log, ready=REGISTERED, settings=folder / "conf", program=program))
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("SPARK_CONF_DIR", str(folder / "conf"))
        files.context = stack.enter_context(context_of(EvaluateConfig(run_dir=files.run, master=master)))
        yield files


def without_times(metrics: MetricsReport) -> MetricsReport:
    return metrics.model_copy(update={"created": "", "speed": None})


def test_the_figures_are_those_of_this_host(hidden: HiddenFiles) -> None:
    options: dict[str, Any] = {"run_dir": hidden.run, "batch_size": 10, "slices": "class,shard", "task_samples": 20}
    local_folder, remote_folder = hidden.folder / "here", hidden.folder / "there"
    run_evaluate(EvaluateConfig(**options, output=local_folder))
    config = EvaluateConfig(**options, output=remote_folder, master=hidden.context.master)
    run_evaluate(config, partial(score_on, hidden.context))
    assert without_times(read_metrics(remote_folder / "metrics.json")) == without_times(
        read_metrics(local_folder / "metrics.json")
    )
    rows = [pq.read_table(folder / "samples.parquet") for folder in (local_folder, remote_folder)]
    assert rows[0].num_rows == 53
    assert rows[0].equals(rows[1])
    assert [path.name for path in hidden.folder.iterdir() if path.name.startswith(".")] == []


def test_the_answers_are_those_of_this_host(hidden: HiddenFiles) -> None:
    names = hidden.predicted(PredictConfig, bundle=hidden.bundle, input=hidden.images)["id"].to_pylist()
    assert len(set(names)) == 53
    assert names != sorted(names)
    listed = hidden.folder / "list.txt"
    listed.write_text("".join(f"{name if number % 2 else hidden.images / name}\n" for number, name in enumerate(names)))
    hidden.predicted(PredictConfig, bundle=hidden.bundle, input=listed, root_folder=hidden.images)
    listed.with_name("gone.txt").write_text("gone.png\nimages/a/000.png\n")
    hidden.predicted(PredictConfig, bundle=hidden.bundle, input=listed.with_name("gone.txt"), scores=False)
    hidden.predicted(FeaturesConfig, bundle=hidden.bundle, input=hidden.data, blobs="ip")
    with tarfile.open(hidden.folder / "packed.tar", "w") as tar:
        tar.add(hidden.images, "images")
    archive = Path(f"{hidden.folder / 'packed.tar'}::images")
    hidden.predicted(PredictConfig, bundle=hidden.bundle, input=archive)


def test_rows_of_tables_are_answered(hidden: HiddenFiles) -> None:
    bundle = make_small_bundle(hidden.folder / "small", "regression")
    table = pa.table({f"x{column}": [float(row * column) for row in range(90)] for column in range(4)})
    (hidden.folder / "rows").mkdir()
    for part in range(3):
        pq.write_table(table.slice(30 * part, 30), hidden.folder / "rows" / f"part-{part}.parquet")
    assert hidden.predicted(PredictConfig, bundle=bundle, input=hidden.folder / "rows").num_rows == 90


def test_columns_of_a_session_are_answered_by_the_drivers_bundle(hidden: HiddenFiles) -> None:
    session = SparkSession(hidden.context)
    bundle = shutil.copytree(hidden.bundle, hidden.folder / "columns")
    expected = hidden.predicted(PredictConfig, bundle=bundle, input=hidden.images).to_pylist()
    rows = [(row["id"], (hidden.images / row["id"]).read_bytes()) for row in expected]
    frame = session.createDataFrame(rows, "id string, content binary")
    answers = frame.select("id", predict_udf(bundle)("content").alias("answer")).collect()
    assert [{"id": row.id, **row.answer.asDict()} for row in answers] == expected
    transformer = DeepSparkTransformer(bundle=str(bundle), inputCol="content", predictionCol="prediction")
    assert [row.prediction for row in transformer.transform(frame).collect()] == [row["predicted"] for row in expected]


def test_sources_that_no_ingestion_wrote_are_named_with_the_remedy(hidden: HiddenFiles) -> None:
    shard = hidden.data / "test" / read_manifest(hidden.data / "test").shards[0].file
    net = NET.replace('"none"', f'"{shard}"').replace('mean_file: "mean"', "")
    run = make_run(hidden.folder / "plain", None, net=net, n_steps=1).root
    config = EvaluateConfig(run_dir=run, output=hidden.folder / "refused", master=hidden.context.master)
    with pytest.raises(DataError, match=rf"{shard}.*; on host \S+: only an ingested dataset comes from the driver"):
        run_evaluate(config, partial(score_on, hidden.context))
    assert not (hidden.folder / "refused").exists()
