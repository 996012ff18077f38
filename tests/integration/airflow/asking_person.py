"""The person who asks the application of the pages, in place of a login and of Airflow's auth manager."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any


def let_ask(
    app: Any,
    name: Callable[[], str] = lambda: "ada",
    *,
    readable: Callable[[], Collection[str]] | None = None,
    may_trigger: Callable[[Collection[str]], bool] = lambda dags: False,
    may_answer: Callable[[Collection[str]], bool] = lambda dags: False,
    audit: Callable[..., None] | None = None,
    reads_runs: bool = True,
    checks_forms: bool = False,
) -> None:
    """Let a person ask ``app``.

    Args:
        app: Of ``build_app``.
        name: The person's name.
        readable: DAGs that the person may read.
        may_trigger: The DAGs that the person may trigger.
        may_answer: The DAGs whose waiting tasks the person may answer.
        audit: Takes what the audit log would.
        reads_runs: Whether the person may read every run, and forms come from anywhere.
        checks_forms: Whether forms must come from a page of ours nevertheless.
    """
    from deepspark_ops.operators.pages.access.form_guard import require_own_form
    from deepspark_ops.operators.pages.access.person import answer_right, audit_log, readable_dags, trigger_right
    from deepspark_ops.operators.pages.app import get_user

    rights = {right.dependency for route in app.routes for right in getattr(route, "dependencies", ())}
    real_checks = {require_own_form} if checks_forms else set()
    app.dependency_overrides |= {right: lambda: None for right in rights - real_checks} if reads_runs else {}
    app.dependency_overrides |= {
        get_user: lambda: SimpleNamespace(get_name=name),
        trigger_right: lambda: may_trigger,
        answer_right: lambda: may_answer,
        **({} if readable is None else {readable_dags: readable}),
        **({} if audit is None else {audit_log: lambda: audit}),
    }
