"""The person who asks the application of the pages, in place of a login and of Airflow's auth manager."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.run_index.listing import KnownRun
from deepspark_ops.run_view.state import AirflowRun

SITE: Final = "http://testserver"


@contextmanager
def asking_client(
    home: Path,
    *,
    dags: Collection[str] = (),
    listed: Collection[KnownRun] = (),
    airflow: Callable[[str, str], AirflowRun | None] = lambda dag, run: None,
    clock: Callable[[], float] = lambda: 500.0,
    follow_redirects: bool = True,
    **rights: Any,
) -> Iterator[Any]:
    """Yield a client of the pages, with ``home``, ``app`` and ``training``.

    Args:
        home: Folder of runs, datasets and models.
        dags: Our DAGs.
        listed: Airflow's runs in the list.
        airflow: Returns Airflow's run for the page Training.
        clock: Of the list, seconds since the epoch.
        follow_redirects: Whether the client follows a redirect.
        rights: As of ``let_ask``.
    """
    from fastapi.testclient import TestClient

    from deepspark_ops.operators.pages.app import build_app
    from deepspark_ops.operators.pages.lists.runs import RunsPage
    from deepspark_ops.operators.pages.run.training import TrainingPage

    locations = Places(home, home)
    training = TrainingPage(locations, airflow, clock=lambda: 1050.0)
    runs = RunsPage(locations, lambda asked: list(listed), lambda: set(dags), clock=clock)
    app = build_app(locations, training, runs=runs)
    let_ask(app, **rights)
    with TestClient(app, follow_redirects=follow_redirects) as client:
        client.home, client.app, client.training = home, app, training
        yield client


def text_of(page: str) -> str:
    """Return the words of a page."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def send_form(client: Any, page: str, address: str, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    """Send a form as a browser does from ``page``, which has the token."""
    token = token_of(client, page)
    return client.post(address, data={"token": token, **fields}, headers={"Origin": SITE, **(headers or {})})


def token_of(client: Any, page: str) -> str:
    """Return the token of the forms of a page."""
    match = re.search(r'name="token" value="([^"]+)"', client.get(page).text)
    assert match is not None
    return match[1]


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
