"""Which DAGs a person may read: a page about many runs shows those of these DAGs alone."""

from __future__ import annotations

from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends


def readable_dags(user: GetUserDep) -> set[str]:
    """Return the ids of all DAGs that the person who asks may read, as Airflow's auth manager says."""
    found: set[str] = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    return found


Readable = Annotated[set[str], Depends(readable_dags)]
