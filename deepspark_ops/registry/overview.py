"""All facts of a model in a single value, for the command and for ``--json``."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from deepspark_ops.errors import ConfigError
from deepspark_ops.frozen_model import FrozenModel
from deepspark_ops.registry.journal import HistoryEntry, read_history
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.registry.production import Production, read_pointer
from deepspark_ops.registry.versions import VersionRecord, read_versions

OVERVIEW_VERSION: Final = 1
OWNER_OF_THE_REST: Final = "deepspark_retrain"
"""DAG whose trigger permission allows changes of a model without versions from DAG runs."""


def dag_of_run(run_dir: str | None) -> str | None:
    """Return the DAG of a version's run; None for a run outside Airflow."""
    path = Path(run_dir) if run_dir else None
    return path.parent.name if path is not None and path.parent.parent.name == "runs" else None


class ModelOverview(FrozenModel):
    """A model.

    Attributes:
        format_version: Version of this form.
        name: The model's name.
        folder: The model's folder.
        production: Version in production; None before the first promotion.
        versions: All versions, oldest first.
        present: Versions with an existing bundle.
        history: History, oldest first.
    """

    format_version: Literal[1]
    name: str
    folder: str
    production: Production | None
    versions: tuple[VersionRecord, ...]
    present: tuple[str, ...]
    history: tuple[HistoryEntry, ...]

    def of_production(self) -> VersionRecord | None:
        """Return the record of the version in production."""
        current = self.production
        return next((record for record in self.versions if current and record.version == current.version), None)

    def made_by(self) -> list[str]:
        """Return the ids of the DAGs whose runs created versions.

        A user with the right to trigger all these DAGs may change the model.
        """
        dags = {dag for record in self.versions if (dag := dag_of_run(record.run_dir))}
        return sorted(dags) or [OWNER_OF_THE_REST]

    def judged_data(self) -> dict[str, str]:
        """Return digest of a training set -> the judged candidate of the training set, in words."""
        rejected = {
            entry.train_digest: f"the candidate of run {entry.run}, which stayed out"
            for entry in self.history
            if entry.action == "kept" and entry.train_digest
        }
        promoted = {
            record.origin.datasets["train"]: f"{record.version}, of run {record.origin.run}"
            for record in self.versions
            if "train" in record.origin.datasets
        }
        return rejected | promoted


def read_model(models: Path, name: str) -> ModelOverview:
    """Return all facts of a model.

    Raises:
        ConfigError: The model does not exist; the message lists the existing models.
        DataError: A file of the model is damaged.
    """
    model = ModelFolder(models / name)
    if not model.root.is_dir() or "/" in name or name.startswith("."):
        existing_names = ", ".join(model_names(models)) or "none"
        msg = f'no model "{name}" in {models}; there are: {existing_names}'
        raise ConfigError(msg)
    production = read_pointer(model)
    versions = read_versions(model)
    return ModelOverview(
        format_version=OVERVIEW_VERSION,
        name=name,
        folder=str(model.root),
        production=production,
        versions=versions,
        present=tuple(record.version for record in versions if model.bundle(record.folder).is_dir()),
        history=read_history(model, production.change if production else 0),
    )


def model_names(models: Path) -> tuple[str, ...]:
    """Return the sorted names of all models in a folder; empty if the folder does not exist."""
    if not models.is_dir():
        return ()
    model_folders = (
        path for path in models.iterdir() if (path / "versions").is_dir() or (path / "production.json").is_file()
    )
    return tuple(sorted(path.name for path in model_folders if not path.name.startswith(".")))
