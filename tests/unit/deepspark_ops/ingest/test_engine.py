"""Choice of the engine: this process for small sources, Spark for large sources, or the option ``engine``."""

import logging
import re
from types import SimpleNamespace

import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest import spark_job
from deepspark_ops.ingest.image_plan import plan_images
from deepspark_ops.ingest.recipe import make_recipe
from deepspark_ops.shards.verification import verify
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images
from tests.reference.table_files import a_table, write_table


class SparkStartedError(Exception):
    """Spark would have been started."""


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    def start(*_, **__):
        raise SparkStartedError

    monkeypatch.setattr(spark_job, "start_context", start)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


def images(tmp_path, **options) -> IngestConfig:
    return IngestConfig(source=write_images(tmp_path / "raw", 30), output=tmp_path / "out", **options)


@pytest.mark.parametrize("engine", ["auto", "process"])
def test_a_small_dataset_is_made_without_spark_and_the_log_says_so(tmp_path, caplog, engine):
    caplog.set_level(logging.INFO)
    manifests = spark_job.run_ingest(images(tmp_path, engine=engine))
    expected = ingest(IngestConfig(source=tmp_path / "raw" / "list.txt", output=tmp_path / "here"), tmp_path / "work")
    assert [shard.sha256 for shard in manifests["train"].shards] == [shard.sha256 for shard in expected["train"].shards]
    message = "this process reads 30 records, Spark is not started (engine=" + engine
    assert any(message in line for line in caplog.messages)
    assert any("ingest train: shard 1/1 written" in line for line in caplog.messages)


def test_records_that_take_longer_than_a_start_of_spark_start_spark_unless_the_process_is_asked_for(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(spark_job, "_SPARK_START_S", 1e-6)
    config = images(tmp_path)
    with pytest.raises(SparkStartedError):
        spark_job.run_ingest(config)
    assert spark_job.run_ingest(config.model_copy(update={"engine": "process"}))["train"].n_samples > 0


def test_spark_is_started_where_it_is_asked_for_or_its_jvm_runs_already(tmp_path, monkeypatch):
    config = images(tmp_path)
    with pytest.raises(SparkStartedError):
        spark_job.run_ingest(config.model_copy(update={"engine": "spark"}))
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # spark-submit sets it
    with pytest.raises(SparkStartedError):
        spark_job.run_ingest(config)
    assert not config.output.exists()


def test_the_engine_is_no_property_of_the_samples(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    config = images(tmp_path)
    spark_job.run_ingest(config)
    spark_job.run_ingest(config.model_copy(update={"engine": "spark"}))
    assert any("is up to date" in line for line in caplog.messages)


def test_a_table_that_spark_alone_reads_is_refused_to_the_process(tmp_path):
    options = {"feature_columns": "f*", "label_column": "label", "output": tmp_path / "out", "engine": "process"}
    source = write_table(tmp_path / "t.parquet", a_table(60))
    spark_job.run_ingest(IngestConfig(source=source, **options))
    assert verify(tmp_path / "out" / "train").n_samples > 0
    source = write_table(tmp_path / "t.orc", a_table(60))
    with pytest.raises(ConfigError, match="engine=process: Spark is needed for this source"):
        spark_job.run_ingest(IngestConfig(source=source, **options))


class RepeatingSpark:
    """Runs every task twice, as after a lost answer; what a task adds to the accumulator arrives twice."""

    def context(self):
        return self

    def accumulator(self, value, parameter):
        held = SimpleNamespace(value=parameter.zero(value))
        held.add = lambda term: setattr(held, "value", parameter.addInPlace(held.value, term))
        return held

    def map(self, work, items, *, failed, on_wait):
        answers = []
        for item in items[::-1]:
            for _ in range(2):
                answer = work(item)
                on_wait()
            answers.append(answer)
        return answers[::-1]


def test_a_shard_of_a_repeated_task_is_logged_once(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    config = images(tmp_path, samples_per_shard=10)
    (tmp_path / "work").mkdir()
    plan = plan_images(config, make_recipe(config), tmp_path / "work")
    results = spark_job._run_tasks(RepeatingSpark(), plan)
    lines = [re.search(r"^ingest (\w+): shard (\d+)/(\d+) written, (\d+) samples", line) for line in caplog.messages]
    shown = [line.groups() for line in lines if line]
    n_train = len([task for task in plan.tasks if task.split == "train"])
    assert [line[:3] for line in shown if line[0] == "train"] == [
        ("train", str(number), str(n_train)) for number in range(1, n_train + 1)
    ]
    assert len(shown) == len(plan.tasks) == len(results)
    assert sum(int(line[3]) for line in shown if line[1] == line[2]) == 30
