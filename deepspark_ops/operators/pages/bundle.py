"""The page "Bundle" of a run: what was exported, how it is called, and its files to fetch. No framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from deepspark_ops.errors import DataError
from deepspark_ops.export.manifest import MANIFEST_NAME, BundleManifest, parse_manifest
from deepspark_ops.operators.pages.addresses import URL_PREFIX, file_url, find_run, run_url
from deepspark_ops.operators.pages.templates import template
from deepspark_ops.operators.run_plan import Places
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.run_files import bundle_files

ANSWER_VERSION: Final = 1


class BundlePage:
    """The page of every run's bundle. It reads the run's folder, and nothing else."""

    def __init__(self, places: Places) -> None:
        """Look for runs in ``places``."""
        self._places = places

    def answer(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """Return a run's bundle: its manifest, None where that is missing or damaged, and its files, if there are."""
        run = find_run(self._places, dag_id, run_id)
        files = bundle_files(run) if run is not None else []
        manifest: BundleManifest | None = None
        error = None
        if run is not None and files:
            try:
                manifest = parse_manifest(RunPaths(run).bundle)
            except DataError as damage:
                error = str(damage)
        digests = dict(manifest.files) if manifest is not None else {}
        return {
            "format_version": ANSWER_VERSION,
            "dag": dag_id,
            "run": run_id,
            "folder": str(RunPaths(run).bundle) if run is not None else None,
            "error": error,
            "manifest": manifest.model_dump(mode="json") if manifest is not None else None,
            "files": [{**asdict(file), "digest": digests.get(file.kind)} for file in files],
        }

    def page(self, answer: Mapping[str, Any], *, nonce: str, site: str = "") -> str:
        """Return the page of an answer.

        Args:
            answer: Of ``answer``.
            nonce: Of the page's scripts and styles.
            site: Path that Airflow is served under, without a slash at its end.
        """
        dag, run = answer["dag"], answer["run"]
        return template("bundle.html.jinja").render(
            title="Bundle",
            bundle=answer,
            manifest=answer["manifest"],
            manifest_name=MANIFEST_NAME,
            file_url=lambda name: site + file_url(dag, run, name),
            pages={page: site + run_url(dag, run, page) for page in ("training", "report", "bundle")},
            nonce=nonce,
            site=f"{site}{URL_PREFIX}",
            here="runs",
        )
