"""Entries of Airflow's audit log for the changes that a person makes on our pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from airflow.models import Log
from airflow.utils.session import create_session
from fastapi import Depends

WriteAudit = Callable[[str, str, str, Mapping[str, Any]], None]
"""Takes event, DAG, user and what there is to say."""


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


Audit = Annotated[WriteAudit, Depends(audit_log)]
