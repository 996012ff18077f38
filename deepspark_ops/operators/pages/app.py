"""The web application of the pages. A page of a run needs the right to read the run's DAG."""

from __future__ import annotations

import gzip
import urllib.parse
from functools import cache
from pathlib import Path

from airflow.api_fastapi.core_api.security import GetUserDep, get_user, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response

from caffe_import.file_access.regular_file import regular_bytes, regular_text
from deepspark_ops.evaluate.metrics import METRICS_NAME
from deepspark_ops.evaluate.task_pages.report_name import with_note
from deepspark_ops.operators.pages.access.form_guard import form_token
from deepspark_ops.operators.pages.access.person import Answers, Readable, Triggers
from deepspark_ops.operators.pages.addresses import RUNS_URL, find_run
from deepspark_ops.operators.pages.answers import (
    ASSET_HEADERS,
    FILE_HEADERS,
    PLAIN_HEADERS,
    REPORT_HEADERS,
    show_refusal,
    shown,
    site_of,
)
from deepspark_ops.operators.pages.bundle import BundlePage, find_bundle_file
from deepspark_ops.operators.pages.lists.airflow_runs import AirflowRuns, RunRows, read_schedules, tagged_dags
from deepspark_ops.operators.pages.lists.list_routes import add_list_routes
from deepspark_ops.operators.pages.lists.runs import RunsPage
from deepspark_ops.operators.pages.models.routes import add_model_routes
from deepspark_ops.operators.pages.refused import Refused
from deepspark_ops.operators.pages.run.labels import add_label_routes
from deepspark_ops.operators.pages.run.run_parts import SeveralRuns, run_of_tab
from deepspark_ops.operators.pages.run.samples import SamplesPage
from deepspark_ops.operators.pages.run.training import TrainingPage
from deepspark_ops.operators.pages.static_files import chart_library, static_file
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.run_index.listing import ALL
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.run_files import find_snapshot_file
from deepspark_ops.simulation.simulate import REPORT_FILE
from deepspark_ops.trials.table import TABLE_NAME


def find_report(installation: Places, dag_id: str, run_id: str) -> Path | None:
    """Return the report of a run; None without a report, or for a path outside the folder of runs."""
    run = find_run(installation, dag_id, run_id)
    if run is None:
        return None
    report = (RunPaths(run).evaluation / "report.html").resolve()
    return report if report.is_file() and report.is_relative_to(run) else None


def find_figures(report: Path) -> Path | None:
    """Return the JSON file with the numbers of a report: of a comparison, a simulation or an evaluation.

    None without such a file, or for a path outside the run's folder.
    """
    names = (TABLE_NAME, f"../simulation/{REPORT_FILE}", METRICS_NAME)
    paths = [(report.parent / name).resolve() for name in names]
    return next((path for path in paths if path.is_file() and path.is_relative_to(report.parents[1])), None)


def build_app(installation: Places, training: TrainingPage | None = None, runs: RunsPage | None = None) -> FastAPI:
    """Return the application. Every route needs a login; a route of a run needs the right to read the run's DAG."""
    app = FastAPI(title="DeepSpark", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(get_user)])
    app.add_exception_handler(401, _to_login)
    app.add_exception_handler(SeveralRuns, _to_runs)
    app.add_exception_handler(Refused, show_refusal)
    page = training or TrainingPage(installation, AirflowRuns().of)
    _add_run_routes(app, installation, page)
    _add_weights_route(app, page)
    listed = runs or RunsPage(installation, RunRows().read, tagged_dags, schedules=read_schedules)
    _add_sample_routes(app, SamplesPage(installation))
    add_list_routes(app, installation, listed)
    add_label_routes(app, installation, listed.keys)
    add_model_routes(app, installation, listed)

    @app.get("/static/{name}")
    def static(name: str, request: Request) -> Response:
        if name == chart_library().name:
            return _chart_library(request)
        file = static_file(name)
        if file is None:
            raise HTTPException(404, f"no such file: {name}")
        return FileResponse(file, headers=PLAIN_HEADERS)

    return app


def _add_run_routes(app: FastAPI, installation: Places, page: TrainingPage) -> None:
    may_read = [Depends(requires_access_dag("GET"))]
    bundles = BundlePage(installation)

    @app.get("/runs/{dag_id}/{run_id}/report", dependencies=may_read)
    def report(
        request: Request, dag_id: str, run_id: str, format: str = "html", task_id: str = "", map_index: str = ""
    ) -> Response:
        run_id = run_of_tab(installation, dag_id, run_id, task_id=task_id, map_index=map_index)
        report_file = find_report(installation, dag_id, run_id)
        if format == "json":
            return _report_figures(page, dag_id, run_id, report_file)
        if report_file is None:
            answer = page.answer(dag_id, run_id, has_lines=False)
            return shown(request, page.page, answer, _status(answer), has_form=False, is_report=True)
        text = with_note(regular_text(report_file), page.note(dag_id, run_id))
        return HTMLResponse(text, headers=REPORT_HEADERS)

    @app.get("/runs/{dag_id}/{run_id}/bundle", dependencies=may_read)
    def show_bundle(request: Request, dag_id: str, run_id: str) -> Response:
        answer = bundles.answer(dag_id, run_id)
        return shown(request, bundles.page, answer, 404 if answer["error"] else 200)

    @app.get("/runs/{dag_id}/{run_id}/files/{name:path}", dependencies=may_read)
    def fetch(dag_id: str, run_id: str, name: str) -> Response:
        run = find_run(installation, dag_id, run_id)
        file = _run_file(run, name) if run is not None else None
        if file is None:
            raise HTTPException(404, f"no file of this run that may be fetched: {name}")
        return FileResponse(file, media_type="application/octet-stream", filename=file.name, headers=FILE_HEADERS)

    @app.get("/runs/{dag_id}/{run_id}/training", dependencies=may_read)
    def show_training(
        request: Request, dag_id: str, run_id: str, format: str = "html", since: str = "", parts: bool = False,
        task_id: str = "", map_index: str = "", *, user: GetUserDep, may_trigger: Triggers, may_answer: Answers,
    ) -> Response:  # fmt: skip
        run_id = run_of_tab(installation, dag_id, run_id, task_id=task_id, map_index=map_index)
        if format != "json":
            answer = page.answer(dag_id, run_id, has_lines=False)  # the page's script asks for them
            token = form_token(user) if may_trigger([dag_id]) else ""
            return shown(
                request, page.page, answer, _status(answer), has_form=bool(token), token=token,
                may_answer=may_answer([dag_id]),
            )  # fmt: skip
        answer = page.answer(dag_id, run_id, since=since)
        if parts:
            answer["parts"] = page.fragments(answer, site=site_of(request), may_answer=may_answer([dag_id]))
        return JSONResponse(answer, status_code=_status(answer), headers=PLAIN_HEADERS)


def _to_runs(request: Request, error: Exception) -> Response:
    """Send a person who asks for a DAG run with several runs to the list of the runs."""
    dag_id, run_id = error.args
    query = {"dag": dag_id, "filter": f'run~"{run_id}"', "work": ALL}
    return RedirectResponse(f"{site_of(request)}{RUNS_URL}?{urllib.parse.urlencode(query)}", 303, headers=PLAIN_HEADERS)


def _add_weights_route(app: FastAPI, page: TrainingPage) -> None:
    @app.get("/runs/{dag_id}/{run_id}/weights", dependencies=[Depends(requires_access_dag("GET"))])
    def show_weights(dag_id: str, run_id: str, blob: str = "") -> Response:
        weights = page.weights(dag_id, run_id, blob)
        if weights is None:
            raise HTTPException(404, "the run has no weights of this name; option watch records them")
        return JSONResponse(weights, headers=PLAIN_HEADERS)


def _add_sample_routes(app: FastAPI, samples: SamplesPage) -> None:
    @app.get("/runs/{dag_id}/{run_id}/samples", dependencies=[Depends(requires_access_dag("GET"))])
    def show_samples(request: Request, dag_id: str, run_id: str, readable: Readable) -> Response:
        parameters = request.query_params
        if parameters.get("format") == "csv":
            rows = samples.csv(dag_id, run_id, parameters, readable)
            return Response(rows, media_type="text/csv; charset=utf-8", headers=FILE_HEADERS)
        return shown(request, samples.page, samples.answer(dag_id, run_id, parameters, readable))


def _run_file(run: Path, name: str) -> Path | None:
    """Return a file for download, of the run's bundle or of a snapshot."""
    bundle = RunPaths(run).bundle
    folder, _, inside = name.partition("/")
    if folder == bundle.name:
        file = find_bundle_file(bundle, inside)
        return file if file is not None and file.is_relative_to(run) else None
    return find_snapshot_file(run, inside) if folder == RunPaths(run).snapshots.name else None


def _report_figures(page: TrainingPage, dag_id: str, run_id: str, report: Path | None) -> Response:
    """Return the numbers of a report; without a report, of the page Training."""
    if report is None:
        answer = page.answer(dag_id, run_id, has_lines=False)
        return JSONResponse(answer, status_code=_status(answer), headers=PLAIN_HEADERS)
    figures = find_figures(report)
    if figures is None:
        raise HTTPException(404, f"{report.parent} has no file with the numbers of the report")
    return FileResponse(figures, media_type="application/json", headers=PLAIN_HEADERS)


def _status(answer: dict[str, object]) -> int:
    state = answer["state"]
    return 404 if isinstance(state, dict) and state["name"] == "unknown" else 200


def _chart_library(request: Request) -> Response:
    """Serve plotly.js, compressed once for all readers: 4.8 MB, compressed 1.4 MB."""
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return FileResponse(chart_library(), media_type="text/javascript", headers=ASSET_HEADERS)
    headers = {**ASSET_HEADERS, "Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(_compressed_library(), media_type="text/javascript", headers=headers)


@cache
def _compressed_library() -> bytes:
    return gzip.compress(regular_bytes(chart_library()), compresslevel=6)


async def _to_login(request: Request, error: Exception) -> Response:
    """Send a person without a login to the login page; programs get the plain answer."""
    detail = error.detail if isinstance(error, HTTPException) else "Not authenticated"
    wants_page = "text/html" in request.headers.get("accept", "") and request.query_params.get("format") != "json"
    if not wants_page:
        return JSONResponse({"detail": detail}, status_code=401)
    # A form is not sent again after the login: its page is shown, one step above the address that it posts to.
    url = str(request.url) if request.method == "GET" else str(request.url).rpartition("/")[0]
    login = f"{site_of(request)}/api/v2/auth/login?next={urllib.parse.quote(url, safe='')}"
    return RedirectResponse(login, 307 if request.method == "GET" else 303)
