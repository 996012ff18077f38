"""The page "Bundle" of a run, and the card of a bundle: inputs, outputs, files, code to load it. No framework."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from caffe_import.errors import CaffeImportError
from deepspark_ops.errors import DataError
from deepspark_ops.export.manifest import MANIFEST_NAME, BundleManifest, parse_manifest
from deepspark_ops.export.snippets import snippets
from deepspark_ops.operators.pages.addresses import URL_PREFIX, file_url, find_run, run_url
from deepspark_ops.operators.pages.templates import template
from deepspark_ops.operators.tasks.airflow_words import airflow_words
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.registry.versions import VersionRecord
from deepspark_ops.run_index.run_text import run_name
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
        return {"format_version": ANSWER_VERSION, "dag": dag_id, "run": run_id, **card, "run_name": run_name(run)}

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


def bundle_card(model: ModelFolder, record: VersionRecord) -> dict[str, Any]:
    """Return the card of a version's bundle.

    ``error`` names a damaged or missing file. The files' digests are not checked here.
    """
    gone = f"the bundle of {record.version} was removed (option keep)"
    return {"version": record.version, **card_of_folder(model.bundle(record.folder), gone=gone)}


def card_of_folder(folder: Path, *, gone: str) -> dict[str, Any]:
    """Return the card of the bundle in a folder; for a missing bundle ``error`` is ``gone``."""
    card: dict[str, Any] = {"folder": str(folder), "error": None, "files": []}
    if not folder.is_dir():
        return {**card, "error": gone}
    try:
        manifest = parse_manifest(folder)
    except (DataError, OSError) as error:
        return {**card, "error": airflow_words(str(error))}
    fields = manifest.model_dump(
        mode="json", include={"net", "inputs", "output", "outputs", "check", "created", "origin"}
    )
    return {**card, **fields, "files": _files(folder, manifest), "snippets": _snippets(folder, manifest)}


def find_bundle_file(folder: Path, name: str) -> Path | None:
    """Return a file of a bundle: the manifest, or a file from the manifest's list; None for any other path."""
    try:
        file_names = {MANIFEST_NAME, *parse_manifest(folder).files}
    except (DataError, OSError):
        return None
    if name not in file_names:
        return None
    path = (folder / name).resolve()
    return path if path.is_file() and path.is_relative_to(folder.resolve()) else None


def _files(folder: Path, manifest: BundleManifest) -> list[dict[str, Any]]:
    return [
        {"name": name, "n_bytes": path.stat().st_size if (path := folder / name).is_file() else None, "digest": digest}
        for name, digest in manifest.files.items()
    ]


def _snippets(folder: Path, manifest: BundleManifest) -> list[dict[str, str]]:
    """Return code for each way to load a bundle; empty for a deploy net that cannot be read."""
    if not manifest.inputs:
        return []
    try:
        return [{"name": name, "code": code} for name, code in snippets(folder, manifest).items()]
    except (CaffeImportError, OSError, IndexError, ValueError):
        return []
