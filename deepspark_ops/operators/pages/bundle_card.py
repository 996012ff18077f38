"""The card of a bundle for the pages of a model and of a run: inputs, outputs, files, code to load the bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from caffe_import.errors import CaffeImportError
from deepspark_ops.errors import DataError
from deepspark_ops.export.manifest import MANIFEST_NAME, BundleManifest, parse_manifest
from deepspark_ops.export.snippets import snippets
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.registry.versions import VersionRecord


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
        return {**card, "error": str(error)}
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
