"""What the pages of a model and of a run say of a bundle: what it takes and gives, its files, code that loads it."""

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
    """Return what there is to say of a version's bundle.

    What is damaged or gone is told as ``error``; the files are not compared with their digests here.
    """
    gone = f"the bundle of {record.version} was removed (option keep)"
    return {"version": record.version, **card_of_folder(model.bundle(record.folder), gone=gone)}


def card_of_folder(folder: Path, *, gone: str) -> dict[str, Any]:
    """Return what there is to say of the bundle in a folder; ``gone`` is its ``error`` where there is none."""
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
    """Return a file of a bundle: the manifest or one that it names; None for all else, wherever it would lead."""
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
    """Return code for each way to load a bundle; none where its deploy net cannot be read."""
    if not manifest.inputs:
        return []
    try:
        return [{"name": name, "code": code} for name, code in snippets(folder, manifest).items()]
    except (CaffeImportError, OSError, IndexError, ValueError):
        return []
