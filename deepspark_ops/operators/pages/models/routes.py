"""The routes of the pages "Models". Reading needs the right to read the DAGs, a change the right to trigger."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, FastAPI, Form, Request
from fastapi.responses import Response

from deepspark_ops.operators.pages.access.form_guard import require_own_form
from deepspark_ops.operators.pages.access.person import Asks, Readable
from deepspark_ops.operators.pages.answers import shown
from deepspark_ops.operators.pages.lists.runs import RunsPage
from deepspark_ops.operators.pages.models.handling import VERIFY_EVENT, ModelHandling
from deepspark_ops.operators.pages.models.page import ModelsPage
from deepspark_ops.operators.tasks.run_plan import Places

Text = Annotated[str, Form()]
Tick = Annotated[bool, Form()]


def add_model_routes(app: FastAPI, installation: Places, runs: RunsPage) -> None:
    """Add the routes. The application itself asks for a login."""
    models = ModelsPage(installation, runs.our_dags)
    handling = ModelHandling(installation, runs, models)
    own_form = [Depends(require_own_form)]

    @app.get("/models")
    def show_models(request: Request, readable: Readable) -> Response:
        return shown(request, models.page, models.answer(readable))

    @app.get("/models/{name}")
    def show_model(request: Request, person: Asks, name: str, version: str = "", done: int = 0) -> Response:
        return handling.show(request, person, name, version=version, done=done)

    @app.get("/models/{name}/versions/{version}/{path:path}")
    def send_file(request: Request, person: Asks, name: str, version: str, path: str) -> Response:
        return handling.send_file(request, person, name, version, path)

    @app.post("/models/{name}/rollback", dependencies=own_form)
    def roll_back(
        request: Request, person: Asks, name: str, to: Text = "", was: Text = "", reason: Text = ""
    ) -> Response:
        entered = {"to": to, "was": was, "reason": reason}
        return handling.change(
            request, person, name, "deepspark.rollback", lambda changes: changes.roll_back(to, was, reason), entered
        )

    @app.post("/models/{name}/promote", dependencies=own_form)
    def promote(
        request: Request, person: Asks, name: str, what: Text = "", reason: Text = "", force: Tick = False
    ) -> Response:
        dags = handling.promotable_dags(person)
        entered = {"what": what, "reason": reason, "force": force}
        return handling.change(
            request, person, name, "deepspark.promote",
            lambda changes: changes.promote(what, reason, dags, force=force), entered,
        )  # fmt: skip

    @app.post("/models/{name}/verify", dependencies=own_form)
    def verify(request: Request, person: Asks, name: str) -> Response:
        return handling.change(request, person, name, VERIFY_EVENT, lambda changes: changes.verify(), {})
