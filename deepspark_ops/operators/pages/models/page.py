"""The pages "Models": every model's versions, what is in production and why, and where each version comes from."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.operators.pages.addresses import URL_PREFIX, model_url, run_url
from deepspark_ops.operators.pages.bundle import bundle_card
from deepspark_ops.operators.pages.models.chart import accuracy_chart, alike, column_name
from deepspark_ops.operators.pages.refused import Refused
from deepspark_ops.operators.pages.templates import figure, template
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.registry.overview import ModelOverview, dag_of_run, model_names, read_model
from deepspark_ops.registry.versions import VersionRecord, find_version

ANSWER_VERSION: Final = 1


class ModelsPage:
    """The list of models, and the fields of a model, from the installation's folder of models alone."""

    def __init__(self, installation: Places, our_dags: Callable[[], set[str]]) -> None:
        """Look for models in ``installation``; ``our_dags()`` are the DAGs behind the models."""
        self._our_dags = our_dags
        self.folder = installation.models

    def answer(self, readable: Collection[str]) -> dict[str, Any]:
        """Return all visible models. A person needs the right to read every DAG behind a model's versions.

        A model without a run, from an export by hand, needs the right to read any of our DAGs.
        """
        models = [self._model(name, readable) for name in model_names(self.folder)]
        return {"format_version": ANSWER_VERSION, "models": [model for model in models if model is not None]}

    def model(self, readable: Collection[str], name: str) -> dict[str, Any]:
        """Return a model.

        Raises:
            Refused: The model does not exist, or the person may not see it: the two look the same.
        """
        model = self._model(name, readable) if name in model_names(self.folder) else None
        if model is None:
            msg = f'there is no model "{name}", or it is of a DAG that you may not read'
            raise Refused(msg, 404)
        return model

    def record(self, model: Mapping[str, Any], version: str = "") -> VersionRecord | None:
        """Return a version of an undamaged model; by default the version in production, else the newest.

        Raises:
            ConfigError: There is no such version.
        """
        overview = read_model(self.folder, model["name"])
        if version:
            return find_version(overview.versions, version)
        return overview.of_production() or (overview.versions[-1] if overview.versions else None)

    def page(self, answer: Mapping[str, Any], *, nonce: str, site: str = "") -> str:
        """Return the list as a page, see ``answers.shown``."""
        models = [linked(model, site) for model in answer["models"]]
        return template("models.html.jinja").render(
            title="Models",
            models=models,
            judged_by=column_name([model["current"]["judged"] for model in models if model["current"]]),
            nonce=nonce,
            site=f"{site}{URL_PREFIX}",
            here="models",
        )

    def _model(self, name: str, readable: Collection[str]) -> dict[str, Any] | None:
        try:
            overview = read_model(self.folder, name)
        except (ConfigError, DataError, OSError) as error:
            damaged: dict[str, Any] = {
                "name": name,
                "error": str(error),
                "versions": [],
                "history": [],
                "production": None,
                "made_by": [],
            }
            # Whose it is, it does not say: only a person who may read all of our DAGs is told.
            return damaged if self._our_dags() and self._our_dags() <= set(readable) else None
        dags = {dag for record in overview.versions if (dag := dag_of_run(record.run_dir))}
        may_read = dags <= set(readable) if dags else bool(self._our_dags() & set(readable))
        return _fields(overview) if may_read else None


def model_page(answer: Mapping[str, Any], *, nonce: str, site: str, **shown: Any) -> str:
    """Return a model of ``with_bundle`` as a page, see ``answers.shown``.

    ``shown`` has what the person may do and has done: ``token``, ``choices``, ``refused``, ``entered``, ``done``,
    ``verified``.
    """
    model = linked(answer, site)
    card = answer["bundle"]
    version = next((row for row in model["versions"] if card and row["version"] == card["version"]), None)
    state = {"token": "", "choices": None, "refused": None, "done": None, "verified": None} | shown
    state["entered"] = {"to": "", "was": None, "what": None, "reason": "", "force": False} | shown.get("entered", {})
    return template("model.html.jinja").render(
        title=answer["name"],
        model=model,
        version=version,
        chart=accuracy_chart(answer["versions"]),
        judged_by=column_name([row["judged"] for row in answer["versions"]]),
        previous=_previous_version(answer),
        nonce=nonce,
        site=f"{site}{URL_PREFIX}",
        here="models",
        **state,
    )


def with_bundle(models: ModelsPage, model: dict[str, Any], version: str = "") -> dict[str, Any]:
    """Return a model with the card of a version's bundle.

    Raises:
        ConfigError: There is no such version.
    """
    record = None if model["error"] else models.record(model, version)
    card = None if record is None else bundle_card(ModelFolder(models.folder / model["name"]), record)
    return {**model, "bundle": card}


def linked(model: Mapping[str, Any], site: str) -> dict[str, Any]:
    """Return a model with the newest version first, and with addresses of the pages."""
    url = site + model_url(model["name"])
    versions = []
    for version in reversed(model["versions"]):
        pages = {}
        if version["dag"]:
            run = Path(version["run_dir"]).name
            pages = {page: site + run_url(version["dag"], run, page) for page in ("training", "report")}
        files = f"{url}/versions/{urllib.parse.quote(version['version'], safe='')}/"
        has_dataset = version["figures"] and version["origin"]["datasets"]  # else the name is of a net's own source
        dataset = Path(version["figures"]["dataset"]).name if has_dataset else None
        versions.append({**version, "pages": pages, "files": files, "dataset": dataset})
    current = next((row for row in versions if row["is_production"]), None)
    judged = alike([row["judged"] for row in model["versions"]])
    curve = [(at, row["value"]) for at, row in enumerate(judged)]
    ends = f"{figure(judged[0])} to {figure(judged[-1], wants_name=False)}" if judged else ""
    return {
        **model,
        "versions": versions,
        "history": model["history"][::-1],
        "url": url,
        "current": current,
        "curve": curve,
        "curve_label": ends.replace("Top-1 accuracy", "accuracy from"),
    }


def _previous_version(model: Mapping[str, Any]) -> str | None:
    """Return the version before the present production, if the bundle exists."""
    previous = model["production"]["previous"] if model["production"] else None
    present = {version["version"] for version in model["versions"] if version["is_present"]}
    return previous if previous in present else None


def _fields(model: ModelOverview) -> dict[str, Any]:
    fields = model.model_dump(mode="json", exclude={"format_version"})
    for record, version in zip(model.versions, fields["versions"], strict=True):
        judged = record.figures.judged_by() if record.figures else None
        version |= {
            "judged": judged.model_dump(mode="json") if judged else None,
            "dag": dag_of_run(record.run_dir),
            "is_present": record.version in model.present,
            "is_production": model.production is not None and model.production.version == record.version,
        }
    return {"format_version": ANSWER_VERSION, "error": None, "made_by": model.made_by(), **fields}
