"""Choices for a promotion by a person: versions, rejected candidates, and other runs with a bundle."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

from deepspark_ops.errors import ConfigError
from deepspark_ops.export.manifest import MANIFEST_NAME
from deepspark_ops.operators.pages.addresses import find_run
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.registry.model_folder import ModelFolder, version_number
from deepspark_ops.registry.overview import ModelOverview
from deepspark_ops.registry.versions import find_version
from deepspark_ops.run_paths import RunPaths

RUNS_OFFERED: Final = 30
Choice = dict[str, Any]


def choices(installation: Places, model: ModelOverview, dags: Collection[str]) -> dict[str, list[Choice]]:
    """Return what is offered in place of a model's production, newest first; ``key`` is what ``chosen_bundle`` takes.

    The person may promote runs of ``dags``.
    """
    current = model.production.version if model.production else None
    versions = [
        {"key": record.version, "text": f"{record.version}, of run {record.origin.run}"}
        for record in reversed(model.versions)
        if record.version in model.present and record.version != current
    ]
    run_names = {Path(record.run_dir).name for record in model.versions if record.run_dir}
    reasons = {entry.run: entry.reason for entry in model.history if entry.action == "kept" and entry.run}
    runs = [run for run in _runs_with_bundle(installation, dags) if run.name not in run_names]
    return {
        "versions": versions,
        "kept": [_choice(run, f"{run.name}: {reasons[run.name]}") for run in runs if run.name in reasons],
        "runs": [_choice(run, run.name) for run in runs if run.name not in reasons][:RUNS_OFFERED],
    }


def chosen_bundle(installation: Places, model: ModelOverview, choice: str, dags: Collection[str]) -> Path:
    """Return the bundle of a version, ``v6``, or the folder of a run with a bundle, ``<dag>/<run's folder>``.

    The person may promote runs of ``dags``.

    Raises:
        ConfigError: There is none, or it is not theirs to promote.
    """
    if version_number(choice):
        return ModelFolder(Path(model.folder)).bundle(find_version(model.versions, choice).folder)
    dag, _, run = choice.partition("/")
    run_dir = find_run(installation, dag, run) if dag in dags and run else None
    if run_dir is None or not _has_bundle(run_dir):
        msg = f'"{choice}": no version of this model, and no run with a bundle that you may promote; give v6 or DAG/RUN'
        raise ConfigError(msg)
    return run_dir


def _choice(run: Path, text: str) -> Choice:
    return {"key": f"{run.parent.name}/{run.name}", "text": f"{run.parent.name}, {text}"}


def _runs_with_bundle(installation: Places, dags: Collection[str]) -> list[Path]:
    run_dirs = [run for dag in dags for run in _folders(installation.home / "runs" / dag) if _has_bundle(run)]
    return sorted(run_dirs, key=lambda run: (RunPaths(run).bundle / MANIFEST_NAME).stat().st_mtime, reverse=True)


def _folders(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else iter(())


def _has_bundle(run: Path) -> bool:
    return (RunPaths(run).bundle / MANIFEST_NAME).is_file()
