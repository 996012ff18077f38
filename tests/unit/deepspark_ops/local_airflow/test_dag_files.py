"""Files that ``deepspark dags install`` writes, replaces or keeps; the text is in tests/integration/airflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.local_airflow.dag_files import install_dags


def test_an_earlier_version_is_replaced_and_a_foreign_file_is_not(tmp_path: Path) -> None:
    first, second, *_ = install_dags(tmp_path / "new" / "dags")
    text = first.read_text()
    first.write_text(text + "# of an earlier version\n")
    install_dags(first.parent)
    assert first.read_text() == text

    second.write_text("dag = None\n")
    first.unlink()
    with pytest.raises(ConfigError, match=f"{second.name} is there and is not DeepSpark's"):
        install_dags(first.parent)
    assert (first.exists(), second.read_text()) == (False, "dag = None\n")


def test_a_file_is_no_folder_of_dags(tmp_path: Path) -> None:
    (tmp_path / "dags").touch()
    with pytest.raises(ConfigError, match="dags is a file; give Airflow's DAGs folder"):
        install_dags(tmp_path / "dags")
