"""Plan of a run in MLflow, from the run's folder, without MLflow."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from caffe_import.file_access.regular_file import regular_bytes
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.evaluate.metrics import METRICS_NAME, REPORT_NAME, read_metrics
from deepspark_ops.export.manifest import DEPLOY_NAME, LABELS_NAME, MANIFEST_NAME, MEAN_NAME, file_digest
from deepspark_ops.registry.candidate import PRODUCTION_EVALUATION
from deepspark_ops.run_index.settings import settings_of
from deepspark_ops.run_index.summary import summarize
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.reading import RunReading
from deepspark_ops.run_view.stage_status import StageStatus, read_statuses
from deepspark_ops.run_view.state import RunState, state_of
from deepspark_ops.tracking.points import MetricPoint, curve_points, evaluation_points
from deepspark_ops.tracking.transfer import TransferState

_LOG = logging.getLogger(__name__)
RunStatus = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
"""MLflow's names of states."""
ID_TAG: Final = "deepspark.id"
MAX_FILE_BYTES: Final = 10 * 2**20
"""Larger files are not sent."""
_MAX_PARAM: Final = 6_000
_MAX_TAG: Final = 5_000
_EVALUATIONS: Final = {"evaluation": "evaluation", PRODUCTION_EVALUATION: "production"}
"""Folder of the run -> group of its figures."""
_FILES: Final = {
    "": ("config.json", "net.prototxt", "solver.prototxt", "placement.txt", "parity.json", "decision.json"),
    "evaluation": (METRICS_NAME, REPORT_NAME),
    PRODUCTION_EVALUATION: (METRICS_NAME,),
    "bundle": (MANIFEST_NAME, DEPLOY_NAME, LABELS_NAME, MEAN_NAME, METRICS_NAME),
}
"""Folder, equal in the run and in MLflow -> files. Weights are not sent: the manifest has their digests."""


@dataclass(frozen=True)
class RunHead:
    """Name, state and settings of a run.

    Attributes:
        name: Name of the run.
        status: State of the run.
        start_ms: Start of the run, milliseconds since the epoch.
        end_ms: End of the run; None while the run goes on.
        params: Settings of the run, name -> text.
        tags: Folder and outcome of the run.
    """

    name: str
    status: RunStatus
    start_ms: int
    end_ms: int | None
    params: Mapping[str, str]
    tags: Mapping[str, str]


@dataclass(frozen=True)
class Artefact:
    """A file to send.

    Attributes:
        name: Path in the run's folder, with slashes.
        digest: Digest of the content.
    """

    name: str
    digest: str

    @property
    def folder(self) -> str:
        """Folder of the file in MLflow, empty for the top folder."""
        return self.name.rpartition("/")[0]


def read_run(run_dir: Path) -> RunReading:
    """Read a run's events.

    Raises:
        ConfigError: The run has no events.
    """
    if not RunPaths(run_dir).events.is_file():
        msg = f"{run_dir}: no run that has trained, nor a model; give a folder with events.jsonl or versions/"
        raise ConfigError(msg)
    reading = RunReading(run_dir)
    reading.refresh()
    return reading


def plan_head(run_dir: Path, reading: RunReading, transfer: TransferState, *, over: bool) -> RunHead:
    """Return name, state and settings of a run.

    Args:
        run_dir: The run's folder.
        reading: Events of the run.
        transfer: Notes with the run's id.
        over: Whether the training is over, even if its events lack the end.
    """
    statuses = read_statuses(run_dir)
    state = state_of(reading.progress, statuses, None, exists=True)
    status = run_status(state, over=over)
    summary = summarize(reading, run_dir)
    ended = max([reading.progress.last_time, *(stage.time for stage in statuses.values())])
    return RunHead(
        name=summary.shown_name(),
        status=status,
        start_ms=int((reading.progress.first_time or 0.0) * 1000),
        end_ms=None if status == "RUNNING" else int(ended * 1000),
        params=run_params(settings_of(run_dir, summary)),
        tags=_tags(run_dir, transfer, state, statuses),
    )


def run_status(state: RunState, *, over: bool) -> RunStatus:
    """Return MLflow's state of a run; a run with a failed later stage is failed."""
    if state.error is not None or state.name == "failed":
        return "FAILED"
    if state.name == "stopped":
        return "KILLED"
    if state.name == "finished":
        return "FINISHED"
    return "FAILED" if over else "RUNNING"


def run_params(settings: Mapping[str, str]) -> dict[str, str]:
    """Return a run's settings in MLflow's form, without empty values.

    Example:
        >>> run_params({"net digest": "sha256:1", "solver: base_lr": "0.01", "weights": ""})
        {'net_digest': 'sha256:1', 'solver.base_lr': '0.01'}
    """
    named = {name.replace(": ", ".").replace(" ", "_"): text for name, text in settings.items()}
    return {name: text[:_MAX_PARAM] for name, text in named.items() if text}


def plan_points(run_dir: Path, reading: RunReading, transfer: TransferState) -> list[MetricPoint]:
    """Return the numbers missing in MLflow."""
    points = curve_points(reading.series, after_offset=transfer.offset(reading.token))
    for folder, group in _EVALUATIONS.items():
        path = run_dir / folder / METRICS_NAME
        if not path.is_file() or transfer.files.get(f"{folder}/{METRICS_NAME}") == file_digest(path):
            continue
        try:
            metrics = read_metrics(path)
        except DataError as error:
            _LOG.warning("%s", error)
            continue
        created_ms = int(datetime.fromisoformat(metrics.created).timestamp() * 1000)
        points += evaluation_points(metrics, group, reading.progress.clock, created_ms)
    return points


def plan_artefacts(run_dir: Path, transfer: TransferState) -> list[Artefact]:
    """Return the files missing in MLflow or present in an older version."""
    return [file for file in _files(run_dir) if transfer.files.get(file.name) != file.digest]


def _files(run_dir: Path) -> Iterator[Artefact]:
    for folder, names in _FILES.items():
        for name in names:
            path = run_dir / folder / name
            if not path.is_file():
                continue
            if path.stat().st_size > MAX_FILE_BYTES:
                _LOG.info("%s: larger than %d MiB, stays where it is", path, MAX_FILE_BYTES >> 20)
                continue
            yield Artefact(f"{folder}/{name}".lstrip("/"), file_digest(path))


def _tags(
    run_dir: Path, transfer: TransferState, state: RunState, statuses: Mapping[str, StageStatus]
) -> dict[str, str]:
    manifest = RunPaths(run_dir).bundle / MANIFEST_NAME
    decision = _read_json(run_dir / "decision.json")
    tags = {
        ID_TAG: transfer.id,
        "deepspark.run": f"{run_dir.parent.name}/{run_dir.name}",
        "deepspark.folder": str(run_dir),
        "deepspark.stages": " ".join(f"{name}={stage.status}" for name, stage in statuses.items()),
        "deepspark.error": f"{state.error.stage}: {state.error.text}" if state.error else "",
        "deepspark.bundle_digest": file_digest(manifest) if manifest.is_file() else "",
        "deepspark.decision": str(decision.get("reason", "")),
        "mlflow.source.name": "deepspark",
        "mlflow.source.type": "JOB",
    }
    return {name: text[:_MAX_TAG] for name, text in tags.items()}


def _read_json(path: Path) -> Mapping[str, Any]:
    with suppress(OSError, ValueError):
        content = json.loads(regular_bytes(path))
        if isinstance(content, dict):
            return content
    return {}
