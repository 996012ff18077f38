"""The routes of the pages about many runs. A page shows runs of readable DAGs alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response

from deepspark_ops.operators.pages.access.person import Asks, Readable
from deepspark_ops.operators.pages.answers import FILE_HEADERS, REPORT_HEADERS, shown, wants_json
from deepspark_ops.operators.pages.lists.compare import ComparePage
from deepspark_ops.operators.pages.lists.datasets import DatasetsPage
from deepspark_ops.operators.pages.lists.overview import OverviewPage
from deepspark_ops.operators.pages.lists.run_tables import csv_text, parquet_bytes
from deepspark_ops.operators.pages.lists.runs import TRIGGER_DAG, RunsPage, query_of
from deepspark_ops.operators.pages.refused import Refused
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.run_index.listing import with_curve

REFRESH_HEADER: Final = "x-deepspark-refresh"
"""Header of a request that an open page sends by itself (``list.js``)."""


def add_list_routes(app: FastAPI, installation: Places, runs: RunsPage) -> None:
    """Add the routes. The application itself asks for a login."""
    compared = ComparePage(installation, runs)
    overview = OverviewPage(installation, runs)

    @app.get("/runs")
    def show_runs(request: Request, person: Asks) -> Response:
        query = query_of(request.query_params)
        answer = runs.answer(person.readable, query, is_refresh=REFRESH_HEADER in request.headers)
        status = 400 if query.error and request.query_params.get("format") else 200
        if (kind := request.query_params.get("format")) in ("csv", "parquet") and not query.error:
            return _as_file(answer["runs"], kind)
        if wants_json(request):
            return shown(request, runs.page, {**answer, "runs": [with_curve(row) for row in answer["runs"]]}, status)
        may_change = any(person.may_trigger([dag]) for dag in runs.our_dags() & person.readable)
        options = {
            "user": person.user.get_name(),
            "token": person.token if may_change else "",
            "may_answer": person.may_answer,
            "may_trigger": TRIGGER_DAG in person.readable and person.may_trigger([TRIGGER_DAG]),
        }
        return shown(request, runs.page, answer, status, **options)

    @app.get("/runs/overview")
    def show_overview(request: Request, readable: Readable) -> Response:
        query = query_of(request.query_params)
        status = 400 if query.error and wants_json(request) else 200
        return shown(request, overview.page, overview.answer(readable, query), status)

    @app.get("/runs/compare")
    def show_comparison(request: Request, readable: Readable, all: str = "") -> Response:
        answer = compared.answer(readable, request.query_params.getlist("run"))
        return shown(request, compared.page, answer, shows_all=bool(all))

    _add_dataset_routes(app, DatasetsPage(installation, runs))


def _add_dataset_routes(app: FastAPI, datasets: DatasetsPage) -> None:
    @app.get("/datasets")
    def show_datasets(request: Request, readable: Readable) -> Response:
        return shown(request, datasets.page, datasets.answer(readable))

    @app.get("/datasets/{name}/report")
    def show_dataset_report(request: Request, readable: Readable, name: str) -> Response:
        return HTMLResponse(datasets.report(readable, name), headers=REPORT_HEADERS)

    @app.get("/datasets/{name}")
    def show_dataset(request: Request, readable: Readable, name: str) -> Response:
        return shown(request, datasets.page, datasets.dataset(readable, name))


def _as_file(rows: Sequence[Mapping[str, Any]], kind: str) -> Response:
    try:
        content = csv_text(rows) if kind == "csv" else parquet_bytes(rows)
    except ModuleNotFoundError as error:
        raise Refused(str(error), 409) from None
    media_type = "text/csv; charset=utf-8" if kind == "csv" else "application/vnd.apache.parquet"
    headers = {**FILE_HEADERS, "Content-Disposition": f'attachment; filename="runs.{kind}"'}
    return Response(content, media_type=media_type, headers=headers)
