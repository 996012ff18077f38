"""The routes of the pages "Models": who may read sees them, who may trigger the model's DAGs changes it by forms."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, FastAPI, Form, Request
from fastapi.responses import Response

from deepspark_ops.operators.pages.access.form_guard import Forbidden, require_own_form
from deepspark_ops.operators.pages.access.rights import Readable
from deepspark_ops.operators.pages.answers import shown, told
from deepspark_ops.operators.pages.lists.runs import RunsPage
from deepspark_ops.operators.pages.models.handling import (
    VERIFY_EVENT,
    ModelHandling,
    NoSuchModel,
    Person,
    person_who_asks,
)
from deepspark_ops.operators.pages.models.page import ModelsPage
from deepspark_ops.operators.tasks.run_plan import Places

Asks = Annotated[Person, Depends(person_who_asks)]
Text = Annotated[str, Form()]
Tick = Annotated[bool, Form()]


def add_model_routes(app: FastAPI, places: Places, runs: RunsPage) -> None:
    """Add the routes to an application that asks for a login by itself."""
    models = ModelsPage(places, runs.our_dags)
    one = ModelHandling(places, runs, models)
    own_form = [Depends(require_own_form)]

    @app.get("/models")
    def show_models(request: Request, readable: Readable) -> Response:
        return shown(request, models, models.answer(readable))

    @app.get("/models/{name}")
    def show_model(request: Request, person: Asks, name: str, version: str = "", done: int = 0) -> Response:
        return one.show(request, person, name, version=version, done=done)

    @app.get("/models/{name}/versions/{version}/{path:path}")
    def send_file(request: Request, person: Asks, name: str, version: str, path: str) -> Response:
        return one.send_file(request, person, name, version, path)

    @app.post("/models/{name}/rollback", dependencies=own_form)
    def roll_back(
        request: Request, person: Asks, name: str, to: Text = "", was: Text = "", reason: Text = ""
    ) -> Response:
        entered = {"to": to, "was": was, "reason": reason}
        return one.change(
            request, person, name, "deepspark.rollback", lambda made: made.roll_back(to, was, reason), entered
        )

    @app.post("/models/{name}/promote", dependencies=own_form)
    def promote(
        request: Request, person: Asks, name: str, what: Text = "", reason: Text = "", force: Tick = False
    ) -> Response:
        dags = one.promotable_dags(person)
        entered = {"what": what, "reason": reason, "force": force}
        return one.change(
            request, person, name, "deepspark.promote",
            lambda made: made.promote(what, reason, dags, force=force), entered,
        )  # fmt: skip

    @app.post("/models/{name}/verify", dependencies=own_form)
    def verify(request: Request, person: Asks, name: str) -> Response:
        return one.change(request, person, name, VERIFY_EVENT, lambda made: made.verify(), {})

    @app.exception_handler(NoSuchModel)
    def no_model(request: Request, error: NoSuchModel) -> Response:
        text = f'there is no model "{error}", or it is of a DAG that you may not read'
        return told(request, text, 404, "models")

    @app.exception_handler(Forbidden)
    def forbidden(request: Request, error: Forbidden) -> Response:
        return told(request, str(error), 403, "models")
