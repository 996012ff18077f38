"""The person of a request: rights by Airflow's auth manager, and entries of the person's changes in the audit log."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models import Log
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from fastapi import Depends

from deepspark_ops.operators.pages.access.form_guard import form_token

DagRight = Callable[[Collection[str]], bool]
"""Says whether the person who asks has a right on all of some DAGs."""
WriteAudit = Callable[[str, str, str, Mapping[str, Any]], None]
"""Takes event, DAG, user and what there is to say."""


def readable_dags(user: GetUserDep) -> set[str]:
    """Return the ids of all DAGs that the person may read, by Airflow's auth manager."""
    dag_ids: set[str] = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    return dag_ids


def trigger_right(user: GetUserDep) -> DagRight:
    """Return a check of the person's right to trigger DAGs, the same right as for Airflow's own button."""
    return _dag_right(user, "POST", DagAccessEntity.RUN)


def answer_right(user: GetUserDep) -> DagRight:
    """Return a check of the person's right to answer tasks that wait for a person, as on the page Required Actions."""
    return _dag_right(user, "PUT", DagAccessEntity.HITL_DETAIL)


def _dag_right(user: BaseUser, method: Literal["POST", "PUT"], entity: DagAccessEntity) -> DagRight:
    def has_right(dags: Collection[str]) -> bool:
        return all(
            get_auth_manager().is_authorized_dag(
                method=method,
                access_entity=entity,
                details=DagDetails(id=dag, team_name=DagModel.get_team_name(dag)),
                user=user,
            )
            for dag in dags
        )

    return has_right


def write_audit(event: str, dag_id: str, user_name: str, extra: Mapping[str, Any]) -> None:
    """Write an entry for the page "Audit Log" of Airflow and of the DAG."""
    with create_session() as session:
        entry = Log(
            event=event, owner=user_name, owner_display_name=user_name, dag_id=dag_id, extra=json.dumps(dict(extra))
        )
        session.add(entry)


def audit_log() -> WriteAudit:
    """Return the log of this Airflow."""
    return write_audit


Readable = Annotated[set[str], Depends(readable_dags)]
Triggers = Annotated[DagRight, Depends(trigger_right)]
Answers = Annotated[DagRight, Depends(answer_right)]


@dataclass(frozen=True)
class Person:
    """The person of a request, with rights.

    Attributes:
        user: Airflow's user.
        readable: DAGs that the person may read.
        may_trigger: Whether the person may trigger some DAGs.
        may_answer: Whether the person may answer the waiting tasks of some DAGs.
        token: Token for the forms of the page.
        audit: Writes the person's changes into Airflow's audit log.
    """

    user: BaseUser
    readable: set[str]
    may_trigger: DagRight
    may_answer: DagRight
    token: str
    audit: WriteAudit


def person_who_asks(
    user: GetUserDep,
    readable: Readable,
    may_trigger: Triggers,
    may_answer: Answers,
    token: Annotated[str, Depends(form_token)],
    audit: Annotated[WriteAudit, Depends(audit_log)],
) -> Person:
    """Return the person of the request."""
    return Person(user, readable, may_trigger, may_answer, token, audit)


Asks = Annotated[Person, Depends(person_who_asks)]
