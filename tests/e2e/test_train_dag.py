"""The whole DAG, in one process, as ``airflow dags test`` runs it."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from tests.e2e.conftest import Sandbox

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.tf, pytest.mark.slow]


def test_solver_goes_in_and_a_checked_bundle_comes_out(sandbox: Sandbox) -> None:
    first = sandbox.airflow("dags", "test", "deepspark_train", "-c", json.dumps(sandbox.conf()))
    assert first.returncode == 0, first.stdout[-8000:]
    (run,) = (sandbox.home / "runs" / "deepspark_train").iterdir()
    certificate = json.loads((run / "parity.json").read_text())
    assert not certificate["failed"]
    assert {row["layer_type"]: row["n_passed"] > 0 for row in certificate["parity"]}["SoftmaxWithLoss"]
    metrics = json.loads((run / "evaluation" / "metrics.json").read_text())
    assert metrics["top1"] > 0.8
    assert "Trained on" in (run / "evaluation" / "report.html").read_text()
    assert {path.name for path in (run / "bundle").iterdir()} >= {"saved_model", "weights.caffemodel", "manifest.json"}
    # Lines of the Spark workers reach the log through the driver; one of them may find the work done when it starts.
    assert re.search(r"worker [01] loss clock=\d+/200 loss=\S+ lr=\S+ images/s=", first.stdout)
    (dataset,) = [path for path in (sandbox.home / "datasets").iterdir() if path.is_dir()]

    # Without a source nothing is ingested: training reads what the net itself names, here the shards made above.
    for split in ("train", "test"):
        (shard,) = (dataset / split).glob("*.lmdb")
        sandbox.replace_source(split, shard)
    conf = json.dumps(sandbox.conf(source=None, overrides="max_iter: 40", n_workers=1, devices="cpu"))
    second = sandbox.airflow("dags", "test", "deepspark_train", "-c", conf)
    assert second.returncode == 0, second.stdout[-8000:]
    assert "training reads the sources that the net names" in second.stdout
    assert re.search(r"worker 0: CPU, \d+ threads?\b", second.stdout)
    # The first run asked for a GPU, which is Caffe's default, and said once that there was none, if there was none.
    no_gpu = "but this host has no nvidia-smi on PATH"
    assert first.stdout.count(no_gpu) == (shutil.which("nvidia-smi") is None)
    assert no_gpu not in second.stdout


def test_a_mistake_ends_the_run_in_its_first_task_by_name(sandbox: Sandbox) -> None:
    conf = json.dumps(sandbox.conf(overrides="max_itr: 3"))  # others: tests/unit/deepspark_ops/operators
    done = sandbox.airflow("dags", "test", "deepspark_train", "-c", conf)
    assert done.returncode != 0
    # Last in the task's log, once, and no traceback after it: Airflow adds the exit code of the task.
    message = 'unknown field "max_itr" in the solver'
    assert done.stdout.count(message) == 1, done.stdout[-6000:]
    told = done.stdout.partition(message)[2].partition("::group::Post Execute")[0].splitlines()[:-1]
    assert 'did you mean "max_iter"?' in told[-2], told
    assert "Task exited" in told[-1], told
    assert "Traceback" not in "".join(told)
    assert not (sandbox.home / "datasets").exists()
