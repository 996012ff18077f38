"""Compares every byte of every version in a model's folder with the recorded digest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.export.manifest import MANIFEST_NAME, file_digest, find_damage, parse_manifest, unlisted_files
from deepspark_ops.registry.journal import read_history
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.registry.production import Production, read_pointer
from deepspark_ops.registry.versions import VersionRecord, read_versions

_SHOWN: Final = 5


@dataclass(frozen=True)
class VerifiedVersion:
    """An undamaged version.

    Attributes:
        version: ``v7``.
        n_files: Number of compared files of the bundle; 0 if retention (``keep``) removed the bundle.
        n_bytes: Size of the files.
    """

    version: str
    n_files: int
    n_bytes: int


def verify_model(model: ModelFolder) -> tuple[VerifiedVersion, ...]:
    """Compare pointer, history, records and all bundles of a model; oldest version first.

    Raises:
        ConfigError: The model does not exist.
        DataError: The first damage.
    """
    if not model.root.is_dir():
        msg = f"{model.root}: no such model"
        raise ConfigError(msg)
    production = read_pointer(model)
    history = read_history(model, production.change if production else 0)
    removed = {entry.version for entry in history if entry.action == "removed"}
    records = read_versions(model)
    _verify_pointer(model, production, records)
    return tuple(_verified(model, record, may_be_gone=record.version in removed) for record in records)


def bytes_to_verify(model: ModelFolder) -> int:
    """Return the bytes read by ``verify_model``; damaged files count with the present size."""
    files = (path for path in model.versions.rglob("*") if path.is_file()) if model.versions.is_dir() else ()
    return sum(path.stat().st_size for path in files)


def _verify_pointer(model: ModelFolder, production: Production | None, records: tuple[VersionRecord, ...]) -> None:
    if production is None:
        return
    named = [record for record in records if record.version == production.version]
    if not named or not model.bundle(production.folder).is_dir():
        problem = f"{production.version} is in production, but its bundle is missing"
        msg = f"{model.production}: {problem}; restore the bundle or roll back"
        raise DataError(msg)
    if named[0].manifest_digest != production.manifest_digest:
        msg = (
            f"{model.production}: the manifest of {production.version} had {production.manifest_digest} when it was "
            f"promoted, its record says {named[0].manifest_digest}"
        )
        raise DataError(msg)


def _verified(model: ModelFolder, record: VersionRecord, *, may_be_gone: bool) -> VerifiedVersion:
    bundle = model.bundle(record.folder)
    if not bundle.is_dir():
        if may_be_gone:
            return VerifiedVersion(record.version, 0, 0)
        msg = f"{bundle}: the bundle of {record.version} is missing, and the history does not say that it was removed"
        raise DataError(msg)
    if not (bundle / MANIFEST_NAME).is_file():
        msg = f"{bundle}: {MANIFEST_NAME} of {record.version} is missing"
        raise DataError(msg)
    if (actual_digest := file_digest(bundle / MANIFEST_NAME)) != record.manifest_digest:
        msg = (
            f"{bundle / MANIFEST_NAME} of {record.version} has changed: {actual_digest}, recorded "
            f"{record.manifest_digest}"
        )
        raise DataError(msg)
    manifest = parse_manifest(bundle)
    if (damage := find_damage(bundle, manifest)) is not None:
        msg = f"{bundle}: {damage}; restore it, or roll back if {record.version} is in production"
        raise DataError(msg)
    if names := unlisted_files(bundle, manifest):
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
        msg = f"{bundle}: {MANIFEST_NAME} of {record.version} does not list {shown}; move what is not of the model away"
        raise DataError(msg)
    n_bytes = sum((bundle / name).stat().st_size for name in manifest.files)
    return VerifiedVersion(record.version, len(manifest.files), n_bytes)
