"""One driver per run folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.train.driver.run_folder import sole_owner


def test_one_driver_per_folder(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with sole_owner(run_dir):
        (run_dir / "file").write_text("")
        with pytest.raises(ConfigError, match="another process is training there"), sole_owner(run_dir):
            pass
    with sole_owner(run_dir):
        pass


def test_folder_that_stays_empty_is_not_left(tmp_path: Path) -> None:
    with sole_owner(tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"run_dir=.*file/run"), sole_owner(tmp_path / "file" / "run"):
        pass
