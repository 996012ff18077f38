"""References to runs and datasets: from versions of models, and from remaining runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.versions.kept_versions import kept_versions
from deepspark_ops.registry.overview import model_names, read_model
from deepspark_ops.retention.inventory import Stored
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.shards.manifest import split_digests


def model_references(models: Path, runs: Sequence[Stored], datasets: Sequence[Stored]) -> dict[Path, str]:
    """Return folder -> version with the folder as source, for every version with an existing bundle.

    Raises:
        DataError: A model's file is damaged, so its references are unknown.
    """
    known_runs = {stored.path for stored in runs}
    by_digest: dict[str, list[Path]] = {}
    for stored in datasets:
        for version in (stored.path, *kept_versions(stored.path)):
            for digest in split_digests(version).values():
                by_digest.setdefault(digest, []).append(stored.path)
    reasons: dict[Path, str] = {}
    for name in model_names(models):
        model = read_model(models, name)
        for record in model.versions:
            current = model.production is not None and model.production.version == record.version
            if not current and record.version not in model.present:
                continue
            reason = f"{record.version} of model {name} came from it" + (", which is in production" if current else "")
            run = Path(record.run_dir).resolve() if record.run_dir else None
            sources = [path for digest in record.origin.datasets.values() for path in by_digest.get(digest, [])]
            for path in [*([run] if run in known_runs and run is not None else []), *sources]:
                if current or path not in reasons:
                    reasons[path] = reason
    return reasons


def run_references(run: Path, stored_by_path: Mapping[Path, Stored]) -> set[Path]:
    """Return the runs and datasets named in a run's config or in the configs of the stages.

    Args:
        run: Folder of the run.
        stored_by_path: All runs and datasets by folder.

    Raises:
        DataError: A config is damaged, so the references are unknown.
    """
    paths = RunPaths(run)
    owners = set()
    for file in [paths.config, *sorted(paths.stages.glob("*.json"))]:
        for text in _texts(_read(file)):
            for part in text.split(","):
                if part.startswith("/") and (owner := _owner(Path(part), stored_by_path)) is not None:
                    owners.add(owner)
    return owners - {run}


def _read(file: Path) -> Any:
    try:
        return json.loads(regular_text(file))
    except FileNotFoundError:
        return None
    except ValueError as error:
        msg = f"{file}: no JSON, so what the run refers to is not known; remove the run's folder yourself, or repair it"
        raise DataError(msg) from error


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            if key != "previous":  # the previous dataset, whose files the run's dataset has, too
                yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _owner(path: Path, stored_by_path: Mapping[Path, Stored]) -> Path | None:
    try:
        path = path.resolve()
    except (OSError, ValueError):  # a text that is no path
        return None
    return next((folder for folder in (path, *path.parents) if folder in stored_by_path), None)
