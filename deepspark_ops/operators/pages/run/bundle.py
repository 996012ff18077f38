"""The page "Bundle" of a run: the exported model, code to load the bundle, and files for download. No framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from deepspark_ops.operators.pages.addresses import URL_PREFIX, file_url, find_run, run_url
from deepspark_ops.operators.pages.bundle_card import card_of_folder
from deepspark_ops.operators.pages.templates import template
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.run_label.label import read_label
from deepspark_ops.run_paths import RunPaths

ANSWER_VERSION: Final = 1
_GONE: Final = "this run has no bundle: its task export, or convert, has not written one, or it was removed"


class BundlePage:
    """The page of every run's bundle, from the run's folder alone."""

    def __init__(self, installation: Places) -> None:
        """Look for runs in ``installation``."""
        self._installation = installation

    def answer(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """Return a run's bundle; ``error`` explains a missing or damaged bundle."""
        run = find_run(self._installation, dag_id, run_id) or self._installation.home / "no such run"
        card = card_of_folder(RunPaths(run).bundle, gone=_GONE)
        name = read_label(run).name or run_id
        return {"format_version": ANSWER_VERSION, "dag": dag_id, "run": run_id, **card, "run_name": name}

    def page(self, answer: Mapping[str, Any], *, nonce: str, site: str = "") -> str:
        """Return the page of an answer, see ``answers.shown``."""
        dag, run = answer["dag"], answer["run"]
        return template("bundle.html.jinja").render(
            title=f"Bundle of {answer['run_name']}",
            bundle=answer,
            files=site + file_url(dag, run, "bundle/"),
            pages={page: site + run_url(dag, run, page) for page in ("training", "report", "bundle")},
            nonce=nonce,
            site=f"{site}{URL_PREFIX}",
            here="runs",
        )
