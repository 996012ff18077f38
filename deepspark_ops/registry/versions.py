"""Versions of a model: numbered bundles, each with a record of the sources."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from pydantic import ValidationError

from caffe_import.file_access.regular_file import regular_bytes
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.evaluate.metrics import METRICS_NAME, classes_of, read_metrics
from deepspark_ops.evaluate.tasks.classification import accuracy_figure
from deepspark_ops.evaluate.tasks.metrics_head import MainFigure, MetricsReport
from deepspark_ops.export.manifest import (
    MANIFEST_NAME,
    WEIGHTS_NAME,
    BundleManifest,
    Origin,
    file_digest,
    parse_manifest,
)
from deepspark_ops.frozen_model import FrozenModel, first_problem
from deepspark_ops.registry.model_folder import ModelFolder, version_number
from deepspark_ops.run_paths import write_text_whole

RECORD_VERSION: Final = 2


class Figures(FrozenModel):
    """Scores of a version at its registration; fields as in ``metrics.json``.

    For tasks other than classification ``top1``, ``top1_interval`` and ``top5`` are None. ``main`` is None in a record
    of version 1, whose tasks are classifications.
    """

    top1: float | None
    top1_interval: tuple[float, float] | None
    top5: float | None
    loss: float
    n_samples: int
    dataset: str
    dataset_digest: str
    main: MainFigure | None = None

    @classmethod
    def of(cls, metrics: MetricsReport) -> Figures:
        """Return the figures of an evaluation."""
        classes = classes_of(metrics)
        return cls(
            top1=classes.top1 if classes else None,
            top1_interval=classes.top1_interval if classes else None,
            top5=classes.top5 if classes else None,
            loss=metrics.loss,
            n_samples=metrics.n_samples,
            dataset=metrics.scored.dataset,
            dataset_digest=metrics.scored.dataset_digest,
            main=metrics.main,
        )

    def judged_by(self) -> MainFigure | None:
        """Return the main figure of the version."""
        if self.main is None and self.top1 is not None and self.top1_interval is not None:
            return accuracy_figure(self.top1, self.top1_interval)
        return self.main


class VersionRecord(FrozenModel):
    """Sources of a version.

    Attributes:
        format_version: Version of the file.
        version: ``v7``.
        folder: Folder of the bundle below ``versions``; a run's name for a bundle of release 0.2.0.
        created: Time of registration (release 0.2.0: of the export); UTC, ISO 8601, whole seconds.
        manifest_digest: SHA-256 of the bundle's manifest, ``sha256:<hex>``.
        weights_digest: SHA-256 of the bundle's weights.caffemodel.
        run_dir: The run's folder; None if unknown.
        origin: Run, net, solver, config, datasets and code of the bundle, by digest.
        started_from: Version whose weights the run started from; None for another start.
        figures: Scores; None if the bundle has no metrics.
    """

    format_version: Literal[1, 2]
    version: str
    folder: str
    created: str
    manifest_digest: str
    weights_digest: str
    run_dir: str | None
    origin: Origin
    started_from: str | None
    figures: Figures | None


def read_versions(model: ModelFolder) -> tuple[VersionRecord, ...]:
    """Return all versions, oldest first, including versions with a removed bundle.

    Bundles without a record (release 0.2.0) get the next numbers in the order of their exports; the first write stores
    the numbers.

    Raises:
        DataError: A record or a bundle's manifest is damaged.
    """
    if not model.versions.is_dir():
        return ()
    records = sorted(
        (_read_record(path) for path in model.versions.glob("v*.json")),
        key=lambda record: version_number(record.version) or 0,
    )
    folders = {record.folder for record in records}
    unrecorded = [
        (parse_manifest(path), path)
        for path in model.versions.iterdir()
        if path.is_dir() and not path.name.startswith(".") and path.name not in folders
    ]
    for manifest, path in sorted(unrecorded, key=lambda item: (item[0].created, item[1].name)):
        adopted = make_record(next_version(records), path, manifest, records, run_dir=None)
        records.append(adopted.model_copy(update={"created": manifest.created}))
    return tuple(records)


def make_record(
    version: str,
    bundle: Path,
    manifest: BundleManifest,
    earlier: Sequence[VersionRecord],
    *,
    run_dir: Path | None,
) -> VersionRecord:
    """Return the record of a bundle in a version folder."""
    metrics = bundle / METRICS_NAME
    start = manifest.origin.started_from_digest
    parents = [record.version for record in earlier if start is not None and record.weights_digest == start]
    return VersionRecord(
        format_version=RECORD_VERSION,
        version=version,
        folder=bundle.name,
        created=now_text(),
        manifest_digest=file_digest(bundle / MANIFEST_NAME),
        weights_digest=manifest.files.get(WEIGHTS_NAME, ""),
        run_dir=None if run_dir is None else str(run_dir),
        origin=manifest.origin,
        started_from=parents[-1] if parents else None,
        figures=Figures.of(read_metrics(metrics)) if metrics.is_file() else None,
    )


def write_record(model: ModelFolder, record: VersionRecord) -> None:
    """Write a record whole."""
    write_text_whole(model.record(record.version), record.model_dump_json(indent=1) + "\n")


def next_version(records: Sequence[VersionRecord]) -> str:
    """Return the name after the highest existing number; a number is never used twice."""
    return f"v{max((version_number(record.version) or 0 for record in records), default=0) + 1}"


def find_version(records: Sequence[VersionRecord], version: str) -> VersionRecord:
    """Return a version by ``v7``, ``7`` or the name of the run.

    Raises:
        ConfigError: The version does not exist.
    """
    version_name = version if version_number(version) else f"v{version}"
    for record in records:
        if record.version == version_name or version in (record.folder, record.origin.run):
            return record
    existing_names = ", ".join(record.version for record in records) or "none"
    msg = f"version={version!r}: no such version; known: {existing_names}"
    raise ConfigError(msg)


def now_text() -> str:
    """Return the time in the format of the registry's files: UTC, ISO 8601, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _read_record(path: Path) -> VersionRecord:
    try:
        return VersionRecord.model_validate_json(regular_bytes(path))
    except ValidationError as error:
        msg = f"{path}: {first_problem(error)}; restore it, or remove it to have it made again from the bundle"
        raise DataError(msg) from error
