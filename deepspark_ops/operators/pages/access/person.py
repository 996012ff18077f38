"""The person of a request, with rights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends

from deepspark_ops.operators.pages.access.audit import Audit, WriteAudit
from deepspark_ops.operators.pages.access.form_guard import form_token
from deepspark_ops.operators.pages.access.rights import MayTrigger, Readable, Triggers


@dataclass(frozen=True)
class Person:
    """The person of a request, with rights.

    Attributes:
        user: Airflow's user.
        readable: DAGs that the person may read.
        may_trigger: Whether the person may trigger some DAGs.
        token: Token for the forms of the page.
        audit: Writes the person's changes into Airflow's audit log.
    """

    user: BaseUser
    readable: set[str]
    may_trigger: MayTrigger
    token: str
    audit: WriteAudit


def person_who_asks(
    user: GetUserDep,
    readable: Readable,
    may_trigger: Triggers,
    token: Annotated[str, Depends(form_token)],
    audit: Audit,
) -> Person:
    """Return the person of the request."""
    return Person(user, readable, may_trigger, token, audit)


Asks = Annotated[Person, Depends(person_who_asks)]
