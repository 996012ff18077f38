"""The routes of the pages "Models". Reading needs the right to read the DAGs, a change the right to trigger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Form, Request
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response

from deepspark_ops.errors import ConfigError, DeepSparkError
from deepspark_ops.operators.pages.access.form_guard import require_own_form
from deepspark_ops.operators.pages.access.person import Asks, Person, Readable
from deepspark_ops.operators.pages.addresses import model_url
from deepspark_ops.operators.pages.answers import FILE_HEADERS, PLAIN_HEADERS, shown, site_of, wants_json
from deepspark_ops.operators.pages.bundle import find_bundle_file
from deepspark_ops.operators.pages.lists.runs import RunsPage
from deepspark_ops.operators.pages.models.changes import ModelChanges
from deepspark_ops.operators.pages.models.choices import choices
from deepspark_ops.operators.pages.models.page import ModelsPage, model_page, with_bundle
from deepspark_ops.operators.pages.refused import Refused
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.registry.overview import read_model

VERIFY_EVENT = "deepspark.verify"
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


class ModelHandling:
    """Answers about a model. Thread-safe."""

    def __init__(self, installation: Places, runs: RunsPage, models: ModelsPage) -> None:
        """Look for models in ``models``, and for what may be promoted among ``runs`` in ``installation``."""
        self._installation = installation
        self._runs = runs
        self._models = models

    def show(
        self, request: Request, person: Person, name: str, *, version: str = "", status: int = 200, **state: Any
    ) -> Response:
        """Show a model; with ``state`` of what the person has just done.

        Raises:
            Refused: The person may not see the model, or the model has no such version.
        """
        try:
            answer = with_bundle(self._models, self._models.model(person.readable, name), version)
        except ConfigError as error:
            raise Refused(str(error), 404) from None
        answer["may_change"] = _may_change(person, answer)
        if answer["may_change"]:
            offers = choices(self._installation, read_model(self._models.folder, name), self.promotable_dags(person))
            state |= {"choices": offers, "token": person.token}
        return shown(request, model_page, answer, status, **({} if wants_json(request) else state))

    def send_file(self, request: Request, person: Person, name: str, version: str, path: str) -> Response:
        """Send a file of a version's bundle, to be saved.

        Raises:
            Refused: The person may not see the model, or the bundle has no such file.
        """
        model = self._models.model(person.readable, name)
        try:
            record = None if model["error"] else self._models.record(model, version)
        except ConfigError:
            record = None
        file = (
            None
            if record is None
            else find_bundle_file(ModelFolder(self._models.folder / name).bundle(record.folder), path)
        )
        if file is None:
            msg = f'"{path}" is no file of {version} of model "{name}"'
            raise Refused(msg, 404)
        return FileResponse(file, media_type="application/octet-stream", filename=file.name, headers=FILE_HEADERS)

    def change(
        self,
        request: Request,
        person: Person,
        name: str,
        event: str,
        act: Callable[[ModelChanges], Any],
        entered: Mapping[str, Any],
    ) -> Response:
        """Change a model, write the change into the audit log, and show the result.

        ``entered`` is what the form says, for the audit log, and for the page if the change is refused.

        Raises:
            Refused: The person may not see or not change the model.
        """
        model = self._models.model(person.readable, name)
        if not _may_change(person, model):
            raise Refused(_needed(model), 403)
        user_name, dag, note = person.user.get_name(), model["made_by"][0], {"model": name, **entered}
        try:
            result = act(ModelChanges(self._installation, name, user_name))
        except (DeepSparkError, OSError) as error:
            person.audit(event, dag, user_name, {**note, "refused": str(error)})
            if wants_json(request):
                return JSONResponse({"error": str(error)}, status_code=409, headers=PLAIN_HEADERS)
            return self.show(request, person, name, status=409, refused=str(error), entered=entered)
        person.audit(event, dag, user_name, {**note, "result": result})
        return self._changed(request, person, name, event, result)

    def promotable_dags(self, person: Person) -> list[str]:
        """Return the DAGs with promotable runs: our DAGs that the person may read and trigger."""
        return [dag for dag in sorted(self._runs.our_dags() & person.readable) if person.may_trigger([dag])]

    def _changed(self, request: Request, person: Person, name: str, event: str, result: Any) -> Response:
        if wants_json(request):
            return JSONResponse({"model": name, "result": result}, headers=PLAIN_HEADERS)
        if event == VERIFY_EVENT:
            return self.show(request, person, name, verified=result)
        url = site_of(request) + model_url(name)
        return RedirectResponse(f"{url}?done={result['change']}", 303, headers=PLAIN_HEADERS)


def _may_change(person: Person, model: Mapping[str, Any]) -> bool:
    """Return whether the person may change a model: the right to trigger every DAG behind the model's versions."""
    return not model["error"] and person.may_trigger(model["made_by"])


def _needed(model: Mapping[str, Any]) -> str:
    if model["error"]:
        return f"a damaged model is changed from a shell: deepspark models rollback {model['name']} --to VERSION"
    dags = " and ".join(model["made_by"])
    return f'to change model "{model["name"]}" one needs the right to trigger {dags}; ask who gives rights in Airflow'
