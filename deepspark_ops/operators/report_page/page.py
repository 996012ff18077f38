"""The page that the plugin announces: serves a run's report.html to users who may read the run's DAG."""

from __future__ import annotations

import html
import re
from pathlib import Path

from airflow.api_fastapi.core_api.security import get_user, requires_access_dag
from fastapi import Depends, FastAPI
from fastapi.responses import FileResponse, HTMLResponse, Response

from deepspark_ops.operators.run_plan import Places
from deepspark_ops.run_paths import RunPaths

# The report holds class names and file names of the user's data. It needs no script, so none runs, and the sandbox
# gives it an origin of its own: nothing in it could act with the reader's login.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-cache",
}
_DAG_ID = re.compile(r"\w[\w.-]*")


def find_report(places: Places, dag_id: str, run_id: str) -> Path | None:
    """Return the report of a run; None if there is none, or if the path would leave the folder of runs."""
    if not _DAG_ID.fullmatch(dag_id):
        return None
    runs = (places.home / "runs").resolve()
    report = (RunPaths(places.run_folder(dag_id, run_id)).evaluation / "report.html").resolve()
    return report if report.is_file() and report.is_relative_to(runs) else None


def build_app(places: Places) -> FastAPI:
    """Return the application; every route asks for a login and for the right to read the DAG."""
    app = FastAPI(title="DeepSpark", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(get_user)])

    @app.get("/runs/{dag_id}/{run_id}/report", dependencies=[Depends(requires_access_dag("GET"))])
    def report(dag_id: str, run_id: str) -> Response:
        found = find_report(places, dag_id, run_id)
        if found is None:
            text = f"Run {run_id} of {dag_id} has no report yet: its task evaluate has not finished."
            page = f"<!doctype html><title>No report</title><p>{html.escape(text)}</p>"
            return HTMLResponse(page, status_code=404, headers=HEADERS)
        return FileResponse(found, media_type="text/html", headers=HEADERS)

    return app
