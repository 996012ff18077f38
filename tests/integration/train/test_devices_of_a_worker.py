"""Workers with two devices: replicas and a net laid out train, snapshot and resume like a plain run of the same passes.

The devices are logical devices of the CPU. TensorFlow makes logical devices only before its first operation: hence the
processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.config.train import TrainConfig
from tests.integration.train.in_process import run_in_process
from tests.integration.train.runs_on_two_devices import PLACEMENT, SOLVER, TWO_PASSES, distance
from tests.integration.train.test_spark_job import CAFFE, Job
from tests.processes import answer_of_module

pytestmark = pytest.mark.tf

ROUNDING = 1e-6
"""float32; the order in which gradients are added up is the plain run's, so that in fact nothing differs."""


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return answer_of_module("tests.integration.train.runs_on_two_devices")


@pytest.mark.parametrize("name", ["replicas", "placed", "pushed"])
def test_two_devices_train_stop_and_go_on_like_one(results: dict[str, Any], name: str) -> None:
    run = results[name]
    assert run["before"] == run["endings"] == [["finished", ""]]
    assert run["first"] == 10
    assert run["is_on_both"]
    assert not results["plain"]["is_on_both"]
    assert set(run["devices"]) == {"CPU as 2 logical devices, 1 thread"}
    assert run["losses"] == pytest.approx(results["plain"]["losses"], rel=ROUNDING)
    # Of two snapshots the weights and both histories of each of the blobs.
    assert results["n_numbers"] == 2 * 3 * 4
    assert run["distance"] <= ROUNDING


def two_devices(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "placement.txt").write_text(PLACEMENT)
    return {
        "solver": str(CAFFE / SOLVER),
        "n_workers": 1,
        "devices": "cpu",
        "gpus_per_worker": 2,
        "threads_per_worker": 1,
    }


OVERRIDES = "display: 1 snapshot: 10 random_seed: 5"


def assert_as_a_plain_run(jobs: Sequence[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CAFFE)
    plain = TrainConfig(solver=SOLVER, overrides=f"{OVERRIDES} {TWO_PASSES}", run_dir=tmp_path / "plain", n_workers=1)
    assert [outcome.ending for outcome in run_in_process(plain).outcomes] == ["finished"]
    assert distance(jobs[-1].paths.root, tmp_path / "plain") <= ROUNDING
    for job in jobs:
        assert "CPU as 2 logical devices, 1 thread" in "\n".join(job.lines)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_spark_trains_a_placed_net_like_a_plain_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = two_devices(tmp_path)
    job = Job(tmp_path, **config, placement=str(tmp_path / "placement.txt"), overrides=f"{OVERRIDES} {TWO_PASSES}")
    assert job.wait() == 0, "\n".join(job.lines)
    assert_as_a_plain_run([job], tmp_path, monkeypatch)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_spark_trains_replicas_and_the_run_goes_on_with_a_placed_net_like_a_plain_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = two_devices(tmp_path)
    replicas = Job(tmp_path, **config, overrides=f"{OVERRIDES} max_iter: 10")
    assert replicas.wait() == 0, "\n".join(replicas.lines)
    placed = Job(tmp_path, **config, placement=str(tmp_path / "placement.txt"), overrides=f"{OVERRIDES} {TWO_PASSES}")
    assert placed.wait() == 0, "\n".join(placed.lines)
    assert_as_a_plain_run([replicas, placed], tmp_path, monkeypatch)
