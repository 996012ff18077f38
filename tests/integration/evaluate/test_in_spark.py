"""A run evaluated in tasks of Spark gives the figures, bit by bit, and the files of one process."""

import os
import re
import subprocess
import sys

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

from caffe_import.files.caffemodel import write_caffemodel
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.evaluate.metrics import read_metrics
from deepspark_ops.evaluate.stage import run_evaluate
from deepspark_ops.evaluate.trained_net import open_trained_net
from deepspark_ops.processes.spark_submit import job_variables
from tests.integration.small_run import make_dataset, make_run
from tests.paths import ROOT

pytestmark = [pytest.mark.tf, pytest.mark.spark]


def without_times(metrics):
    return metrics.model_copy(update={"created": "", "speed": None})


def test_tasks_of_spark_give_the_figures_of_one_process(tmp_path):
    make_dataset(tmp_path / "data")
    run = make_run(tmp_path / "made", tmp_path / "data", n_steps=8)
    with open_trained_net(run.root, weights=None, dataset=None, split="test", batch_size=10) as trained:
        write_caffemodel(tmp_path / "nan.caffemodel", trained.net, np.full_like(trained.params, np.nan))
    config = EvaluateConfig(run_dir=run.root, output=tmp_path / "here", batch_size=10, slices="class,shard")
    expected = run_evaluate(config).metrics

    script = ROOT / "tests" / "integration" / "evaluate" / "in_one_spark.py"
    environment = {**os.environ, **job_variables(os.environ), "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": ""}
    command = [sys.executable, str(script), run.root, tmp_path / "nan.caffemodel", tmp_path / "there"]
    completed = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400, check=False)
    assert completed.returncode == 0, completed.stderr[-4000:]
    assert without_times(read_metrics(tmp_path / "there" / "metrics.json")) == without_times(expected)
    assert 0.3 < expected.top1 < 1
    with (
        h5py.File(tmp_path / "here" / "samples.h5") as local,
        h5py.File(tmp_path / "there" / "samples.h5") as distributed,
    ):
        assert dict(local.attrs) == dict(distributed.attrs)
        assert set(local) == set(distributed)
        for name in local:
            np.testing.assert_array_equal(local[name][:], distributed[name][:])
    rows = [pq.read_table(tmp_path / folder / "samples.parquet") for folder in ("here", "there")]
    assert rows[0].equals(rows[1], check_metadata=True)
    assert len(expected.slices) == 5
    refused = (tmp_path / "there" / "refused.txt").read_text()
    assert re.fullmatch(
        r"sample \d+: the net's scores are not finite; the weights diverged, score an earlier snapshot", refused
    )
    assert not (tmp_path / "there" / "broken").exists()
