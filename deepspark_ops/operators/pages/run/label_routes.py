"""The routes that change a run's label. Reading needs the right to read the DAG, a change the right to trigger."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import Depends, FastAPI, Form, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

from deepspark_ops.errors import ConfigError
from deepspark_ops.operators.pages.access.form_guard import require_own_form
from deepspark_ops.operators.pages.access.headers import PLAIN_HEADERS
from deepspark_ops.operators.pages.access.person import Asks, Person
from deepspark_ops.operators.pages.addresses import RUNS_URL, run_url
from deepspark_ops.operators.pages.answers import site_of, wants_json
from deepspark_ops.operators.pages.refused import Refused, no_run
from deepspark_ops.operators.pages.run.label_changes import MOST_RUNS, LabelChanges
from deepspark_ops.operators.tasks.run_plan import Places

LABEL_EVENT = "deepspark.label"
ARCHIVE_EVENT = "deepspark.archive"
Text = Annotated[str, Form()]


def add_label_routes(app: FastAPI, installation: Places, run_keys: Callable[[Collection[str]], set[str]]) -> None:
    """Add the routes. The application itself asks for a login."""
    changes = LabelChanges(installation, run_keys)
    own_form = [Depends(require_own_form)]

    @app.post("/runs/archive", dependencies=own_form)
    def archive(
        request: Request,
        person: Asks,
        run: Annotated[list[str], Form(default_factory=list)],
        take_out: bool = False,
    ) -> Response:
        if not 1 <= len(run) <= MOST_RUNS:
            msg = f"{len(run)} runs are ticked; tick 1 to {MOST_RUNS} in the list"
            raise Refused(msg, 400)
        _require_right(person, run)
        changes.archive(person.readable, run, archived=not take_out)
        for key in run:
            _note(person, ARCHIVE_EVENT, key, archived=not take_out)
        query = "&".join(part for part in request.url.query.split("&") if not part.startswith("take_out="))
        return _changed(request, f"{RUNS_URL}?{query}", archived=not take_out, runs=run)

    @app.post("/runs/{dag_id}/{run_id}/label", dependencies=[Depends(requires_access_dag("GET")), *own_form])
    def label(request: Request, person: Asks, dag_id: str, run_id: str, name: Text = "", tags: Text = "") -> Response:
        key = f"{dag_id}/{run_id}"
        _require_right(person, [key])
        try:
            changed = changes.rename(person.readable, key, name, tags)
        except ConfigError as error:
            msg = f"the name was not changed: {error}"
            raise Refused(msg, 409) from None
        _note(person, LABEL_EVENT, key, name=changed.name, tags=list(changed.tags))
        return _changed(request, run_url(dag_id, run_id, "training"), **changed.model_dump(mode="json"))


def _require_right(person: Person, keys: Collection[str]) -> None:
    """Refuse a person without the right to trigger the runs' DAGs.

    Raises:
        Refused: The person may not read a DAG, or may only read a DAG.
    """
    for key in keys:
        dag = key.partition("/")[0]
        if dag not in person.readable:
            raise no_run(key)
        if not person.may_trigger([dag]):
            msg = f"to change a run of {dag} one needs the right to trigger {dag}; ask who gives rights in Airflow"
            raise Refused(msg, 403)


def _note(person: Person, event: str, key: str, **changed: Any) -> None:
    dag, _, run = key.partition("/")
    person.audit(event, dag, person.user.get_name(), {"run": run, **changed})


def _changed(request: Request, path: str, **result: Any) -> Response:
    if wants_json(request):
        return JSONResponse(result, headers=PLAIN_HEADERS)
    return RedirectResponse(site_of(request) + path, 303, headers=PLAIN_HEADERS)
