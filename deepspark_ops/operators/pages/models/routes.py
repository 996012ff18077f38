"""The routes of the pages "Models"."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import Response

from deepspark_ops.operators.pages.answers import shown, told
from deepspark_ops.operators.pages.models.page import ModelsPage
from deepspark_ops.operators.pages.rights import Readable
from deepspark_ops.operators.pages.runs import RunsPage
from deepspark_ops.operators.run_plan import Places


def add_model_routes(app: FastAPI, places: Places, runs: RunsPage) -> None:
    """Add the routes to an application that asks for a login by itself."""
    models = ModelsPage(places, runs.our_dags)

    @app.get("/models")
    def show_models(request: Request, readable: Readable) -> Response:
        return shown(request, models, models.answer(readable))

    @app.get("/models/{name}")
    def show_model(request: Request, readable: Readable, name: str) -> Response:
        found = models.model(readable, name)
        if found is None:
            return told(request, f'there is no model "{name}", or it is of a DAG that you may not read', 404, "models")
        return shown(request, models, found)
