"""Runs whose models were promoted, by the versions of all models."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from deepspark_ops.errors import DataError
from deepspark_ops.file_stamp import Stamp, file_stamp
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.registry.overview import dag_of_run, model_names, read_model

_LOG = logging.getLogger(__name__)
RunKey = tuple[str, str]
"""DAG, and name of the run's folder."""


class PromotedRuns:
    """Reads a model's files again only after a change. Thread-safe: a lost update costs a further read."""

    def __init__(self) -> None:
        """Start with no models."""
        self._models: dict[Path, tuple[tuple[Stamp, Stamp], frozenset[RunKey]]] = {}

    def keys(self, models: Path) -> set[RunKey]:
        """Return the runs with a version of a model that was in production at some time.

        A damaged model is logged and has no runs here; the model's page shows the damage.

        Args:
            models: Folder of all models.
        """
        return {key for name in model_names(models) for key in self._of_model(models, name)}

    def _of_model(self, models: Path, name: str) -> frozenset[RunKey]:
        folder = ModelFolder(models / name)
        stamps = file_stamp(folder.journal), file_stamp(folder.production)  # the pointer is written after the history
        cached_stamps, runs = self._models.get(folder.root, (None, frozenset()))
        if stamps != cached_stamps:
            try:
                runs = frozenset(_promoted(models, name))
            except (DataError, OSError) as error:
                _LOG.warning("%s", error)
                runs = frozenset()
            self._models[folder.root] = stamps, runs
        return runs


def _promoted(models: Path, name: str) -> Iterator[RunKey]:
    model = read_model(models, name)
    versions = {entry.version for entry in model.history if entry.action == "promoted"}
    for record in model.versions:
        if record.version in versions and record.run_dir and (dag := dag_of_run(record.run_dir)):
            yield dag, Path(record.run_dir).name
