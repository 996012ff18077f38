"""The changes behind the forms of a model's page: the same as the commands, bounded for a shared server."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.promote import HandPromoteConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.operators.pages.models.choices import chosen_bundle
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.registry.candidate import promote_by_hand
from deepspark_ops.registry.changes import Author, roll_back
from deepspark_ops.registry.integrity import bytes_to_verify, verify_model
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.registry.overview import read_model
from deepspark_ops.registry.production import Production
from deepspark_ops.tracking.configured import is_configured
from deepspark_ops.tracking.tell import tell_model

_LOG = logging.getLogger(__name__)
VERIFY_BYTES: Final = 4 * 2**30
"""About ten seconds of reading; more is for the command."""
REASON_LENGTH: Final = 500
_VERIFYING: Final = threading.Lock()
ChangeFields = dict[str, Any]


@dataclass(frozen=True)
class ModelChanges:
    """Changes of the model ``name`` by a person."""

    installation: Places
    name: str
    person: str

    def roll_back(self, to: str, was: str, reason: str) -> ChangeFields:
        """Put an earlier version back; without a name the version before.

        ``was`` was in production when the person decided; empty: any version.

        Raises:
            DeepSparkError: What ``roll_back`` of the registry raises; or no reason.
        """
        author = Author(self.person, _needed(reason))
        return self._announced(roll_back(self._folder(), author, to=to or None, was=was or None))

    def promote(self, choice: str, reason: str, dags: Collection[str], *, force: bool) -> ChangeFields:
        """Put a version or a run's bundle into production, if the gate agrees or is not asked (``force``).

        ``choice`` is as of ``chosen_bundle``; the person may promote runs of ``dags``.

        Raises:
            DeepSparkError: It stays out, there is nothing to compare it by, or something is damaged; or no reason.
        """
        models = self.installation.models
        bundle = chosen_bundle(self.installation, read_model(models, self.name), choice, dags)
        values = {"models": models, "model": self.name, "bundle": bundle, "reason": _needed(reason)}
        ended = promote_by_hand(parse_config(HandPromoteConfig, values), self.person, self._score, force=force)
        if ended.production is None:
            msg = f'{ended.decision.reason}. Tick "do not ask the gate" to promote it all the same'
            raise ConfigError(msg)
        return self._announced(ended.production)

    def verify(self) -> list[dict[str, Any]]:
        """Compare every file with the recorded digest; return a row per version.

        Raises:
            DeepSparkError: The first damage; or there is too much to read, or another is being verified.
        """
        folder = self._folder()
        command = f"in a shell: deepspark models verify {self.name}"
        if (n_bytes := bytes_to_verify(folder)) > VERIFY_BYTES:
            msg = f"its bundles are {n_bytes:,} bytes, and this page reads {VERIFY_BYTES:,} at most; {command}"
            raise ConfigError(msg)
        if not _VERIFYING.acquire(blocking=False):
            msg = f"another model is being verified; try again in a moment, or {command}"
            raise ConfigError(msg)
        try:
            rows = verify_model(folder)
        finally:
            _VERIFYING.release()
        return [{"version": row.version, "n_files": row.n_files, "n_bytes": row.n_bytes} for row in rows]

    def _folder(self) -> ModelFolder:
        return ModelFolder(self.installation.models / self.name)

    def _announced(self, production: Production) -> ChangeFields:
        """Tell a configured MLflow in the background, and return the change."""
        if is_configured(os.environ):
            model = self._folder().root
            threading.Thread(target=tell_model, args=(model, _log_line), name=f"MLflow {model.name}").start()
        return production.model_dump(mode="json", include={"model", "version", "previous", "who", "reason", "change"})

    def _score(self, run_dir: Path, bundle: Path, output: Path) -> None:
        """Refuse: a process with TensorFlow, for minutes, is nothing for Airflow's API server."""
        msg = (
            "production has not been scored on this run's samples yet, which no page does; in a shell: "
            f"deepspark models promote {self.name} {run_dir} --reason TEXT"
        )
        raise ConfigError(msg)


def _log_line(level: int, text: str) -> None:
    _LOG.log(level, "%s", text)


def _needed(reason: str) -> str:
    text = " ".join(reason.split())
    if not text or len(text) > REASON_LENGTH:
        length = f"{len(text)} characters" if text else "nothing"
        msg = f"reason: {length}; say why in at most {REASON_LENGTH} characters, it is kept in the model's history"
        raise ConfigError(msg)
    return text
