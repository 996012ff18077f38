"""The routes of the pages about many runs. Each shows what is of DAGs that the reader may read, and nothing else."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Protocol

from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from deepspark_ops.operators.pages.addresses import URL_PREFIX
from deepspark_ops.operators.pages.compare import ComparePage, NoComparison
from deepspark_ops.operators.pages.datasets import DatasetsPage
from deepspark_ops.operators.pages.headers import PLAIN_HEADERS, page_headers
from deepspark_ops.operators.pages.models import ModelsPage
from deepspark_ops.operators.pages.rights import readable_dags
from deepspark_ops.operators.pages.runs import RunsPage, query_of
from deepspark_ops.operators.pages.templates import template
from deepspark_ops.operators.run_plan import Places

Readable = Annotated[set[str], Depends(readable_dags)]


class _Page(Protocol):
    @property
    def page(self) -> Callable[..., str]: ...


def add_list_routes(app: FastAPI, places: Places, runs: RunsPage) -> None:
    """Add the routes to an application that asks for a login by itself."""
    compared = ComparePage(places, runs)
    models = ModelsPage(places, runs.our_dags)
    datasets = DatasetsPage(places, runs)

    @app.get("/runs")
    def show_runs(request: Request, readable: Readable) -> Response:
        return _shown(request, runs, runs.answer(readable, query_of(request.query_params)))

    @app.get("/runs/compare")
    def show_comparison(request: Request, readable: Readable, all: str = "") -> Response:
        try:
            answer = compared.answer(readable, request.query_params.getlist("run"))
        except NoComparison as error:
            return _told(request, str(error), error.status)
        return _shown(request, compared, answer, shows_all=bool(all))

    @app.get("/models")
    def show_models(request: Request, readable: Readable) -> Response:
        return _shown(request, models, models.answer(readable))

    @app.get("/models/{name}")
    def show_model(request: Request, readable: Readable, name: str) -> Response:
        found = models.model(readable, name)
        if found is None:
            return _told(request, f'there is no model "{name}", or it is of a DAG that you may not read', 404, "models")
        return _shown(request, models, found)

    @app.get("/datasets")
    def show_datasets(request: Request, readable: Readable) -> Response:
        return _shown(request, datasets, datasets.answer(readable))


def _told(request: Request, message: str, status: int, here: str = "runs") -> Response:
    """Answer with one sentence, as page or JSON."""
    return _shown(request, _Told(), {"error": message}, status, here=here)


class _Told:
    def page(self, answer: Mapping[str, Any], *, nonce: str, site: str = "", here: str) -> str:
        return template("told.html.jinja").render(
            title=here.capitalize(), message=answer["error"], nonce=nonce, site=f"{site}{URL_PREFIX}", here=here
        )


def _shown(request: Request, page: _Page, answer: Mapping[str, Any], status: int = 200, **shown: Any) -> Response:
    if request.query_params.get("format") == "json":
        return JSONResponse(answer, status_code=status, headers=PLAIN_HEADERS)
    nonce = secrets.token_urlsafe(16)
    site = str(request.scope.get("root_path", "")).removesuffix(URL_PREFIX)
    headers = page_headers(nonce, has_form=True)
    return HTMLResponse(page.page(answer, nonce=nonce, site=site, **shown), status_code=status, headers=headers)
