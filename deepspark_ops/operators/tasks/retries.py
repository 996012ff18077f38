"""How often a task is tried: what fails by itself a few times, what Airflow loses for as long as an outage takes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from deepspark_ops.operators.provider.airflow_names import GROWING_DELAY

OWN_RETRIES = 2
"""Tries after the first of a task that fails by itself, but for a user's mistake, which has none."""
OWN_DELAY = timedelta(seconds=30)
_OUTAGE_RETRIES = 4


def own_retries(task: Any) -> int:
    """Return how often a task that failed by itself is tried again: its attribute ``own_retries``, if it has one."""
    return int(getattr(task, "own_retries", OWN_RETRIES))


def stage_retries() -> dict[str, Any]:
    """Return what a DAG's ``default_args`` need, so that an outage of Airflow's API server does not use up the tries.

    A task that cannot reach the API server at its start, or is ended since its heartbeats do not arrive, is tried
    again after half a minute, then ever later: 7 minutes at least in all. Airflow's settings can spare it the tries
    altogether (docs/evidence/reliability.md).

    Example:
        .. code-block:: python

            with DAG("ours", default_args={**stage_retries(), **failure_notices()}):
    """
    return {
        "retries": _OUTAGE_RETRIES,
        "retry_delay": OWN_DELAY,
        "retry_exponential_backoff": GROWING_DELAY,
        "max_retry_delay": timedelta(minutes=5),
    }
