"""The routes that change a run's label: name, tags, archive. A person needs the right to trigger the run's DAG."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import Depends, FastAPI, Form, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.config.base import parse_config
from deepspark_ops.config.run_label import RunLabelConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.evaluate.metrics import REPORT_NAME
from deepspark_ops.evaluate.task_pages.report_name import with_name
from deepspark_ops.operators.pages.access.form_guard import require_own_form
from deepspark_ops.operators.pages.access.person import Asks, Person
from deepspark_ops.operators.pages.addresses import RUNS_URL, find_run, run_url
from deepspark_ops.operators.pages.answers import PLAIN_HEADERS, site_of, wants_json
from deepspark_ops.operators.pages.refused import Refused, no_run
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.run_index.run_text import run_name
from deepspark_ops.run_label.label import RunLabel, read_label, write_label
from deepspark_ops.run_paths import RunPaths, write_text_whole

LABEL_EVENT = "deepspark.label"
ARCHIVE_EVENT = "deepspark.archive"
MOST_RUNS = 500
"""Runs that a single request archives."""
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


class LabelChanges:
    """Changes of the labels of an installation's runs."""

    def __init__(self, installation: Places, run_keys: Callable[[Collection[str]], set[str]]) -> None:
        """Change runs of ``installation``; ``run_keys(dags)`` are the keys ``<dag>/<run>`` of the DAGs' runs."""
        self._installation = installation
        self._run_keys = run_keys

    def rename(self, readable: Collection[str], key: str, name: str, tags: str) -> RunLabel:
        """Give a run a name and tags, also in the run's report; empty texts give the default name and no tags.

        Raises:
            Refused: There is no such run for the person.
            ConfigError: A text is too long.
        """
        (folder,) = self._folders(readable, [key])
        config = parse_config(RunLabelConfig, {"name": name, "tags": tags})
        label = read_label(folder).model_copy(update={"name": config.name, "tags": config.tag_words()})
        write_label(folder, label)
        _rename_report(folder, label)
        return label

    def archive(self, readable: Collection[str], keys: Sequence[str], *, archived: bool) -> None:
        """Put runs into the archive, or take the runs out.

        Raises:
            Refused: There is no such run for the person; no run is changed then.
        """
        for folder in self._folders(readable, keys):
            write_label(folder, read_label(folder).model_copy(update={"archived": archived}))

    def _folders(self, readable: Collection[str], keys: Sequence[str]) -> list[Path]:
        """Return the folders of runs that a person may read."""
        run_keys = self._run_keys(readable)
        folders = []
        for key in dict.fromkeys(keys):
            dag, _, run = key.partition("/")
            folder = find_run(self._installation, dag, run) if key in run_keys else None
            if folder is None:
                raise no_run(key)
            folders.append(folder)
        return folders


def _rename_report(run_dir: Path, label: RunLabel) -> None:
    path = RunPaths(run_dir).evaluation / REPORT_NAME
    if path.is_file():
        write_text_whole(path, with_name(regular_text(path), run_name(run_dir), label.tags))
