"""Tries of a task: a few for a failure of the stage, more for a task that Airflow lost in an outage."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from deepspark_ops.operators.provider.airflow_names import GROWING_DELAY, OwnTries

OWN_RETRIES = 2
"""Tries after the first of a task that fails by itself, but for a user's mistake, which has none."""
OWN_DELAY = timedelta(seconds=30)
_OUTAGE_RETRIES = 4


def own_retries(task: Any) -> int:
    """Return the number of retries after a stage's failure: the task's attribute ``own_retries``, or the default."""
    return int(getattr(task, "own_retries", OWN_RETRIES))


def stage_retries() -> dict[str, Any]:
    """Return entries of a DAG's ``default_args`` that let the tries outlast an outage of Airflow's API server.

    A task that cannot reach the API server at the start, or loses the heartbeats, is tried again after half a minute,
    then ever later. The tries take at least 7 minutes in all. With some settings of Airflow the task needs no tries
    (docs/evidence/reliability.md). A stage that fails by itself has fewer: ``own_retries``, from Airflow 3.3 on.

    Example:
        .. code-block:: python

            with DAG("ours", default_args={**stage_retries(), **failure_notices()}):
    """
    return {
        "retries": _OUTAGE_RETRIES,
        "retry_delay": OWN_DELAY,
        "retry_exponential_backoff": GROWING_DELAY,
        "max_retry_delay": timedelta(minutes=5),
        **({} if OwnTries is None else {"retry_policy": OwnTries(OWN_RETRIES, OWN_DELAY)}),
    }
