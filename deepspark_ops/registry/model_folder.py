"""A model's folder: paths, and the writers' lock.

Files of the folder ``<models>/<name>``:

    production.json   the version in production
    journal.jsonl     history, a JSON object per line, only appended
    versions/v7/      a copy of a bundle; written once, never changed
    versions/v7.json  sources of the version; kept after the bundle is removed
    .lock             held by the writer
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deepspark_ops.errors import DeepSparkError
from deepspark_ops.file_lock import held_lock

LOCK_TIMEOUT_S = 60.0
_NUMBERED = re.compile(r"v([1-9]\d*)")


class RegistryBusy(DeepSparkError):
    """Another process has written to the model's folder for too long."""


@dataclass(frozen=True)
class ModelFolder:
    """Paths of a model."""

    root: Path

    @property
    def name(self) -> str:
        """The model's name."""
        return self.root.name

    @property
    def production(self) -> Path:
        """The pointer."""
        return self.root / "production.json"

    @property
    def journal(self) -> Path:
        """The history."""
        return self.root / "journal.jsonl"

    @property
    def versions(self) -> Path:
        """Folder of the bundles and records."""
        return self.root / "versions"

    def bundle(self, folder: str) -> Path:
        """The bundle of a version, in ``folder``."""
        return self.versions / folder

    def record(self, version: str) -> Path:
        """Where a version comes from."""
        return self.versions / f"{version}.json"

    @contextmanager
    def locked(self, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
        """Hold the model's lock: a single writer at a time, across processes and machines with the same folder.

        Raises:
            RegistryBusy: The lock was not free within ``timeout_s``.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        path = self.root / ".lock"
        busy = RegistryBusy(
            f'{path}: another promotion or rollback of model "{self.name}" has held it for {timeout_s:g} s; try again'
            " when it has ended"
        )
        with held_lock(path, timeout_s, busy):
            yield


def version_number(version: str) -> int | None:
    """Return 7 for ``v7``, None for what is no numbered version."""
    match = _NUMBERED.fullmatch(version)
    return int(match[1]) if match else None
