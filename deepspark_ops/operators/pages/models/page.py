"""The pages "Models": every model's versions, what is in production and why, and where each version comes from."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.operators.pages.addresses import MODELS_URL, URL_PREFIX, run_url
from deepspark_ops.operators.pages.templates import template
from deepspark_ops.operators.run_plan import Places
from deepspark_ops.registry.overview import ModelOverview, model_names, read_model

ANSWER_VERSION: Final = 1


class ModelsPage:
    """The list of models, and the page of one. It reads the folder ``models`` of the installation, and nothing else."""

    def __init__(self, places: Places, our_dags: Callable[[], set[str]]) -> None:
        """Look for models in ``places``; ``our_dags()`` are the DAGs that make them."""
        self._places = places
        self._our_dags = our_dags
        self._models = places.home / "models"

    def answer(self, readable: Collection[str]) -> dict[str, Any]:
        """Return all models that a person may see: who may read every DAG that a version of it comes from.

        A model without a run, as one that a person exported, is for whoever may read one of our DAGs.
        """
        found = [self._model(name, readable) for name in model_names(self._models)]
        return {"format_version": ANSWER_VERSION, "models": [one for one in found if one is not None]}

    def model(self, readable: Collection[str], name: str) -> dict[str, Any] | None:
        """Return one model; None if there is none, or none that the person may see."""
        if name not in model_names(self._models):
            return None
        return self._model(name, readable)

    def page(self, answer: Mapping[str, Any], *, nonce: str, site: str = "") -> str:
        """Return the list, or one model, as a page.

        Args:
            answer: Of ``answer`` or of ``model``.
            nonce: Of the page's scripts and styles.
            site: Path that Airflow is served under, without a slash at its end.
        """
        models = answer.get("models", [answer])
        shown = {"nonce": nonce, "site": f"{site}{URL_PREFIX}", "here": "models"}
        if "models" in answer:
            return template("models.html.jinja").render(
                title="Models", models=[_linked(one, site) for one in models], **shown
            )
        model = _linked(answer, site)
        return template("model.html.jinja").render(title=answer["name"], model=model, **shown)

    def _model(self, name: str, readable: Collection[str]) -> dict[str, Any] | None:
        try:
            found = read_model(self._models, name)
        except (ConfigError, DataError, OSError) as error:
            damaged: dict[str, Any] = {
                "name": name,
                "error": str(error),
                "versions": [],
                "history": [],
                "production": None,
            }
            # Whose it is, it does not say: only a person who may read all of our DAGs is told.
            return damaged if self._our_dags() and self._our_dags() <= set(readable) else None
        dags = {dag for record in found.versions if (dag := self._dag_of(record.run_dir))}
        may_read = dags <= set(readable) if dags else bool(self._our_dags() & set(readable))
        return self._fields(found) if may_read else None

    def _dag_of(self, run_dir: str | None) -> str | None:
        """Return the DAG of a version's run; None where it is no run of a DAG."""
        path = Path(run_dir) if run_dir else None
        return path.parent.name if path is not None and path.parent.parent.name == "runs" else None

    def _fields(self, model: ModelOverview) -> dict[str, Any]:
        fields = model.model_dump(mode="json", exclude={"format_version"})
        for record, version in zip(model.versions, fields["versions"], strict=True):
            version |= {
                "dag": self._dag_of(record.run_dir),
                "is_present": record.version in model.present,
                "is_production": model.production is not None and model.production.version == record.version,
            }
        return {"format_version": ANSWER_VERSION, "error": None, **fields}


def _linked(model: Mapping[str, Any], site: str) -> dict[str, Any]:
    """Return a model with its newest version first, and the addresses of its page and its versions' runs."""
    versions = []
    for version in reversed(model["versions"]):
        pages = {}
        if version["dag"]:
            run = Path(version["run_dir"]).name
            pages = {page: site + run_url(version["dag"], run, page) for page in ("training", "report")}
        versions.append({**version, "pages": pages})
    url = f"{site}{MODELS_URL}/{urllib.parse.quote(model['name'], safe='')}"
    current = next((one for one in versions if one["is_production"]), None)
    return {**model, "versions": versions, "history": model["history"][::-1], "url": url, "current": current}
