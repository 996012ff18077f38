"""Facts of Airflow for ``deepspark doctor``: the master of a connection by Airflow's own command."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from deepspark_ops.operators.provider import airflow_facts

pytestmark = pytest.mark.airflow


def test_the_master_of_a_connection_comes_without_the_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("AIRFLOW_CONN_OURS", "spark://me:secret@spark%3A%2F%2Fmaster:7077")
    assert airflow_facts._connection("ours") == {"master": "spark://master:7077"}


@pytest.mark.parametrize(
    ("stderr", "message"),
    [("a warning\nConnection not found.\n", None), ("Traceback\nOSError: no database\n", "ours: OSError: no database")],
)
def test_a_missing_connection_is_none_and_another_failure_is_an_error(
    stderr: str, message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    completed = SimpleNamespace(returncode=1, stdout="", stderr=stderr)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: completed)
    if message is None:
        assert airflow_facts._connection("ours") is None
        return
    with pytest.raises(RuntimeError, match=f"^airflow connections get {message}$"):
        airflow_facts._connection("ours")
