"""Addresses of the pages about a run, for the tasks and for the pages themselves. No framework."""

from __future__ import annotations

import urllib.parse
from typing import Final

URL_PREFIX: Final = "/deepspark"


def run_url(dag_id: str, run_id: str, page: str) -> str:
    """Return the path of a page of a run; ``:`` and ``+`` of the run id are escaped.

    Example:
        >>> run_url("deepspark_train", "manual__2026-01-31T04:05+00:00", "training")
        '/deepspark/runs/deepspark_train/manual__2026-01-31T04%3A05%2B00%3A00/training'
    """
    return f"{URL_PREFIX}/runs/{_quoted(dag_id)}/{_quoted(run_id)}/{page}"


def run_api_url(dag_id: str, run_id: str) -> str:
    """Return the path of a run in Airflow's public API.

    Example:
        >>> run_api_url("d", "a/b")
        '/api/v2/dags/d/dagRuns/a%2Fb'
    """
    return f"/api/v2/dags/{_quoted(dag_id)}/dagRuns/{_quoted(run_id)}"


def dag_run_url(dag_id: str, run_id: str) -> str:
    """Return the path of Airflow's own page of a DAG run.

    Example:
        >>> dag_run_url("mine", "a+b")
        '/dags/mine/runs/a%2Bb'
    """
    return f"/dags/{_quoted(dag_id)}/runs/{_quoted(run_id)}"


def answer_url(dag_id: str, run_id: str, task_id: str) -> str:
    """Return the path of Airflow's page for a person's answer to a task.

    Example:
        >>> answer_url("deepspark_retrain", "r", "approve")
        '/dags/deepspark_retrain/runs/r/tasks/approve/required_actions'
    """
    return f"{dag_run_url(dag_id, run_id)}/tasks/{_quoted(task_id)}/required_actions"


def _quoted(part: str) -> str:
    """Return an id as a part of a path: ``/`` is escaped, too."""
    return urllib.parse.quote(part, safe="")
