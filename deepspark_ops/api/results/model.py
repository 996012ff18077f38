"""A model of the registry as an object: versions, and the version in production."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from deepspark_ops.api.mistakes import mistakes_as_config_errors
from deepspark_ops.api.results.bundle import Bundle
from deepspark_ops.api.results.card import Card, CardTable
from deepspark_ops.api.results.result_folder import LocalFolder
from deepspark_ops.errors import ConfigError
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.registry.overview import ModelOverview, read_model


class Model(LocalFolder):
    """A model's folder, ``models/<name>``: numbered versions, a bundle each, and the version in production."""

    kind: ClassVar[str] = "model (versions, production.json)"
    written_by: ClassVar[str] = "a promotion"
    _marks: ClassVar[tuple[str, ...]] = (ModelFolder(Path()).production.name, ModelFolder(Path()).versions.name)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.folder.name

    @property
    def overview(self) -> ModelOverview:
        """Versions, history and production, the output of ``deepspark models show --json``.

        Raises:
            ConfigError: A file of it is damaged.
        """
        with mistakes_as_config_errors():
            return read_model(self.folder.parent, self.name)

    @property
    def production(self) -> Bundle | None:
        """The bundle in production; None if nothing is."""
        record = self.overview.of_production()
        return None if record is None else Bundle(ModelFolder(self.folder).bundle(record.folder))

    def version(self, version: str | int) -> Bundle:
        """Return the bundle of a version, ``"v3"`` or 3.

        Raises:
            ConfigError: There is no such version, or its bundle was removed.
        """
        overview = self.overview
        name = f"v{version}" if isinstance(version, int) else version
        record = next((candidate for candidate in overview.versions if candidate.version == name), None)
        if record is None or name not in overview.present:
            msg = f"version={version!r}: {self.folder} keeps the bundles of {', '.join(overview.present) or 'none'}"
            raise ConfigError(msg)
        return Bundle(ModelFolder(self.folder).bundle(record.folder))

    def _card(self) -> Card:
        overview = self.overview
        current = overview.production.version if overview.production else None
        states = dict.fromkeys(overview.present, "") | ({current: "in production"} if current else {})
        rows = [
            [record.version, record.origin.run, states.get(record.version, "removed")]
            for record in reversed(overview.versions)
        ]
        note = f"{current} in production" if current else "nothing in production"
        table = CardTable(["version", "run", "state"], rows)
        return Card(f"Model: {self.name}", str(self.folder), note=note, table=table)
