"""The routes of the pages about many runs. A page shows runs of readable DAGs alone."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response

from deepspark_ops.operators.pages.access.headers import REPORT_HEADERS
from deepspark_ops.operators.pages.access.rights import Readable
from deepspark_ops.operators.pages.answers import show_message, shown
from deepspark_ops.operators.pages.lists.compare import ComparePage, NoComparison
from deepspark_ops.operators.pages.lists.datasets import DatasetsPage
from deepspark_ops.operators.pages.lists.runs import RunsPage, query_of
from deepspark_ops.operators.tasks.run_plan import Places


def add_list_routes(app: FastAPI, installation: Places, runs: RunsPage) -> None:
    """Add the routes. The application itself asks for a login."""
    compared = ComparePage(installation, runs)
    datasets = DatasetsPage(installation, runs)

    @app.get("/runs")
    def show_runs(request: Request, readable: Readable) -> Response:
        return shown(request, runs, runs.answer(readable, query_of(request.query_params)))

    @app.get("/runs/compare")
    def show_comparison(request: Request, readable: Readable, all: str = "") -> Response:
        try:
            answer = compared.answer(readable, request.query_params.getlist("run"))
        except NoComparison as error:
            return show_message(request, str(error), error.status)
        return shown(request, compared, answer, shows_all=bool(all))

    @app.get("/datasets")
    def show_datasets(request: Request, readable: Readable) -> Response:
        return shown(request, datasets, datasets.answer(readable))

    @app.get("/datasets/{name}/report")
    def show_dataset_report(request: Request, readable: Readable, name: str) -> Response:
        report = datasets.report(readable, name)
        if report is None:
            message = f'there is no report of a dataset "{name}", or no run that used it is of a DAG that you may read'
            return show_message(request, message, 404, "datasets")
        return HTMLResponse(report, headers=REPORT_HEADERS)

    @app.get("/datasets/{name}")
    def show_dataset(request: Request, readable: Readable, name: str) -> Response:
        answer = datasets.dataset(readable, name)
        if answer is None:
            message = f'there is no dataset "{name}", or no run that used it is of a DAG that you may read'
            return show_message(request, message, 404, "datasets")
        return shown(request, datasets, answer)
