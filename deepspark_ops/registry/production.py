"""Pointer to the version in production; a rename replaces the pointer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ValidationError

from caffe_import.file_access.regular_file import regular_bytes
from deepspark_ops.errors import DataError
from deepspark_ops.export.manifest import WEIGHTS_NAME
from deepspark_ops.frozen_model import FrozenModel, first_problem
from deepspark_ops.registry.gate import Decision
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.registry.versions import read_versions
from deepspark_ops.run_paths import write_text_whole

PRODUCTION_VERSION: Final = 2


class Production(FrozenModel):
    """The pointer file.

    Attributes:
        format_version: Version of the file; 1 named versions by their run and lacks ``folder``, ``who``, ``change``.
        model: The model's name.
        version: ``v7``.
        folder: Folder of the version's bundle below ``versions``.
        promoted: Time of the promotion; UTC, ISO 8601, whole seconds.
        who: Author of the promotion.
        manifest_digest: SHA-256 of the version's manifest, ``sha256:<hex>``.
        previous: Version in production before the promotion; None for the first version.
        change: Number of this change of production: 1, 2, ...; 0 in a pointer of version 1.
        decision: Decision of the promotion; None after a rollback.
        reason: Reason in one sentence.
    """

    format_version: Literal[2]
    model: str
    version: str
    folder: str
    promoted: str
    who: str
    manifest_digest: str
    previous: str | None
    change: int
    decision: Decision | None
    reason: str


class _ProductionOfVersion1(FrozenModel):
    format_version: Literal[1]
    model: str
    version: str
    promoted: str
    manifest_digest: str
    previous: str | None
    decision: Decision


def version_folder(models: Path, production: Production) -> Path:
    """Return the bundle in production."""
    return ModelFolder(models / production.model).bundle(production.folder)


def read_production(models: Path, model: str) -> Production | None:
    """Return the version in production, or None before the first promotion.

    Raises:
        DataError: The pointer is damaged or names a missing version.
    """
    folder = ModelFolder(models / model)
    try:
        content = regular_bytes(folder.production)
    except FileNotFoundError:
        return None
    production = _parse(folder, content)
    weights = folder.bundle(production.folder) / WEIGHTS_NAME
    if not weights.is_file():
        msg = (
            f'{folder.production} names version "{production.version}", but {weights} is missing; restore it, or roll '
            f"back: deepspark models rollback {model} --to VERSION"
        )
        raise DataError(msg)
    return production


def production_weights(models: Path, model: str) -> Path | None:
    """Return the .caffemodel in production, to start a retraining from; None if nothing is in production."""
    production = read_production(models, model)
    return version_folder(models, production) / WEIGHTS_NAME if production else None


def read_pointer(folder: ModelFolder) -> Production | None:
    """Return the pointer even if the version is missing, for a repair.

    Raises:
        DataError: The pointer is damaged.
    """
    try:
        return _parse(folder, regular_bytes(folder.production))
    except FileNotFoundError:
        return None


def write_pointer(folder: ModelFolder, production: Production) -> None:
    """Replace the pointer by a rename. The caller holds the model's lock."""
    write_text_whole(folder.production, production.model_dump_json(indent=1) + "\n")


def _parse(folder: ModelFolder, content: bytes) -> Production:
    try:
        form = _Form.model_validate_json(content)
        if form.format_version == 1:
            return _of_version_1(folder, _ProductionOfVersion1.model_validate_json(content))
        return Production.model_validate_json(content)
    except ValidationError as error:
        msg = (
            f"{folder.production}: {first_problem(error)}; roll back (deepspark models rollback {folder.name} --to"
            " VERSION), or remove the file to start without a model in production"
        )
        raise DataError(msg) from error


class _Form(BaseModel):
    format_version: Any = None


def _of_version_1(folder: ModelFolder, old: _ProductionOfVersion1) -> Production:
    numbers = {record.folder: record.version for record in read_versions(folder)}
    return Production(
        format_version=PRODUCTION_VERSION,
        model=old.model,
        version=numbers.get(old.version, old.version),
        folder=old.version,
        promoted=old.promoted,
        who="",
        manifest_digest=old.manifest_digest,
        previous=None if old.previous is None else numbers.get(old.previous, old.previous),
        change=0,
        decision=old.decision,
        reason=old.decision.reason,
    )
