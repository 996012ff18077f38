"""The parts of the job that need no Spark: masters, messages, one owner per folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.train.driver.spark_job import _sole_owner, master_for, unchanged_text
from deepspark_ops.train.snapshots.snapshot import UNCHANGED


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", "local[3, 5]"),
        ("local[*]", "local[3, 5]"),
        ("local[1]", "local[3, 5]"),
        ("local[2,9]", "local[3, 5]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
        ("yarn", "yarn"),
    ],
)
def test_local_masters_get_a_slot_per_worker_and_their_tries(master: str, expected: str) -> None:
    assert master_for(master, n_workers=3, tries=4) == expected


def test_weights_that_a_search_did_not_change_have_a_remedy_of_its_own(tmp_path: Path) -> None:
    config = TrainConfig(solver=tmp_path / "s", run_dir=tmp_path / "r")
    assert unchanged_text(config, max_iter=40) == UNCHANGED
    told = unchanged_text(config.model_copy(update={"strategy": "lbfgs"}), max_iter=40)
    assert "the first line search of lbfgs did not end within max_iter=40" in told
    assert "raise max_iter" in told


def test_one_driver_per_folder(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with _sole_owner(run_dir):
        (run_dir / "file").write_text("")
        with pytest.raises(ConfigError, match="another process is training there"), _sole_owner(run_dir):
            pass
    with _sole_owner(run_dir):
        pass


def test_folder_that_stays_empty_is_not_left(tmp_path: Path) -> None:
    with _sole_owner(tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"run_dir=.*file/run"), _sole_owner(tmp_path / "file" / "run"):
        pass


def test_driver_starts_without_tensorflow() -> None:
    code = "import sys, deepspark_ops.train.driver.spark_job; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
