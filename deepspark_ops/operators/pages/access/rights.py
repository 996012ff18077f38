"""Rights of a person by Airflow's auth manager: the DAGs to read, and the DAGs to trigger."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dag import DagModel
from fastapi import Depends

MayTrigger = Callable[[Collection[str]], bool]
"""Says whether the person who asks may trigger all of some DAGs."""


def readable_dags(user: GetUserDep) -> set[str]:
    """Return the ids of all DAGs that the person may read, by Airflow's auth manager."""
    dag_ids: set[str] = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    return dag_ids


def trigger_right(user: GetUserDep) -> MayTrigger:
    """Return a check of the person's right to trigger DAGs, the same right as for Airflow's own button."""

    def may_trigger(dags: Collection[str]) -> bool:
        return all(
            get_auth_manager().is_authorized_dag(
                method="POST",
                access_entity=DagAccessEntity.RUN,
                details=DagDetails(id=dag, team_name=DagModel.get_team_name(dag)),
                user=user,
            )
            for dag in dags
        )

    return may_trigger


Readable = Annotated[set[str], Depends(readable_dags)]
Triggers = Annotated[MayTrigger, Depends(trigger_right)]
