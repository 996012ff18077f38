"""The parts of the job that need no Spark."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError, TrainingFailed
from deepspark_ops.train.driver import spark_job
from deepspark_ops.train.driver.spark_job import SparkWorkers, master_for


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", "local[3, 1000000]"),
        ("local[*]", "local[3, 1000000]"),
        ("local[1]", "local[3, 1000000]"),
        ("local[2,9]", "local[3, 1000000]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
        ("yarn", "yarn"),
    ],
)
def test_local_masters_get_a_slot_per_worker_and_their_tries(master: str, expected: str) -> None:
    assert master_for(master, n_workers=3) == expected


@pytest.mark.parametrize(("engine", "absent"), [("spark", ["tensorflow"]), ("process", ["tensorflow", "pyspark"])])
@pytest.mark.slow  # starts processes
def test_driver_starts_without_tensorflow(engine: str, absent: list[str]) -> None:
    code = f"import sys, deepspark_ops.train.driver.{engine}_job; print([name in sys.modules for name in {absent}])"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == str([False] * len(absent))


def test_a_job_that_hangs_in_a_stopped_application_ends_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_job, "_STOPPED_S", 0.01)
    never = threading.Event()
    workers = object.__new__(SparkWorkers)
    spark = SimpleNamespace(isStopped=lambda: False)
    workers._context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: spark))  # type: ignore[assignment]
    workers._run = SimpleNamespace(config=SimpleNamespace(master="spark://host:7077"))  # type: ignore[assignment]
    workers._error = None
    workers._job = workers._in_background(lambda: never.wait(60.0) and None)
    assert workers.is_busy(0.01)
    spark.isStopped = lambda: True
    assert not workers.is_busy(0.01)
    with pytest.raises(TrainingFailed, match=r"^Spark gave the training job up: the application was ended from"):
        workers.outcomes()
    never.set()


def test_a_spark_application_refuses_to_train_by_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_job, "RunSignals", lambda: None)  # no handlers in this process
    config = TrainConfig(solver=tmp_path / "s.prototxt", run_dir=tmp_path / "run", engine="process")
    (tmp_path / "config.json").write_text(config.model_dump_json())
    with pytest.raises(ConfigError, match=r"^engine=process: this is the Spark application of a training"):
        spark_job.main(tmp_path / "config.json")
    assert not (tmp_path / "run").exists()
