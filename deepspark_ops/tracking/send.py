"""Sends missing data of a run or a model to a tracking server, and notes progress in the run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deepspark_ops.errors import DeepSparkError
from deepspark_ops.file_lock import held_lock
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.run_view.reading import RunReading
from deepspark_ops.tracking.model_plan import ModelPlan, ModelVersion, missing_versions, plan_model
from deepspark_ops.tracking.run_plan import RunHead, plan_artefacts, plan_head, plan_points, read_run
from deepspark_ops.tracking.transfer import TransferState, read_transfer, write_transfer

if TYPE_CHECKING:
    from deepspark_ops.tracking.mlflow_client import MlflowServer

MAX_BATCH: Final = 1_000
"""MLflow's limit of numbers per request."""
_LOCK_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True)
class OpenRun:
    """MLflow's state of a run.

    Attributes:
        run_id: MLflow's id.
        params: Parameters of the run, which never change.
        tags: Tags of the run.
    """

    run_id: str
    params: Mapping[str, str]
    tags: Mapping[str, str]


class TrackingFailed(DeepSparkError):
    """MLflow refused a request; the message is MLflow's."""


def send_run(server: MlflowServer, run_dir: Path, *, over: bool) -> str:
    """Send a run's data missing at a server; return a summary in a line.

    Progress is noted in the run's folder piece by piece, so the next call continues an interrupted transfer.

    Raises:
        ConfigError: The folder is no run.
        TrackingFailed: The server refused, or did not answer.
    """
    reading = read_run(run_dir)
    transfer = read_transfer(run_dir)
    write_transfer(run_dir, transfer)  # stored before MLflow's run exists: a crash in between creates no second run
    head = plan_head(run_dir, reading, transfer, over=over)
    run = server.open_run(head, transfer)
    transfer = transfer.of_run(run.run_id)
    write_transfer(run_dir, transfer)
    server.log_settings(run.run_id, *_settings(head, run))
    transfer, n_points = _send_points(server, run_dir, reading, transfer)
    files = plan_artefacts(run_dir, transfer)
    for file in files:
        server.log_file(run.run_id, run_dir / file.name, file.folder)
        transfer = transfer.model_copy(update={"files": {**transfer.files, file.name: file.digest}})
        write_transfer(run_dir, transfer)
    server.set_status(run.run_id, head)
    return f"run {run.run_id} is {head.status}: {n_points:,} numbers and {len(files)} files sent"


def _send_points(
    server: MlflowServer, run_dir: Path, reading: RunReading, transfer: TransferState
) -> tuple[TransferState, int]:
    """Send new numbers, batch by batch; return the updated notes, and the number of sent points."""
    assert transfer.run_id is not None
    points = plan_points(run_dir, reading, transfer)
    start = transfer.n_sent(reading.token)
    for at in range(start, len(points), MAX_BATCH):
        batch = points[at : at + MAX_BATCH]
        server.log_points(transfer.run_id, batch)
        transfer = transfer.model_copy(update={"sending": reading.token, "sent": at + len(batch)})
        write_transfer(run_dir, transfer)
    transfer = transfer.model_copy(update={"events": reading.token, "sending": "", "sent": 0})
    write_transfer(run_dir, transfer)
    return transfer, max(0, len(points) - start)


def _settings(head: RunHead, run: OpenRun) -> tuple[dict[str, str], dict[str, str]]:
    """Return the new parameters, and the tags; an empty tag replaces the text of an earlier transfer.

    MLflow never changes a parameter. A parameter changed by a later start, such as a larger max_iter, becomes a tag.
    """
    new = {name: text for name, text in head.params.items() if name not in run.params}
    changed = {f"now.{name}": text for name, text in head.params.items() if run.params.get(name, text) != text}
    return new, {name: text for name, text in {**head.tags, **changed}.items() if text or run.tags.get(name)}


def send_model(server: MlflowServer, folder: ModelFolder, *, lock_timeout_s: float = _LOCK_TIMEOUT_S) -> str:
    """Register a model's versions missing at a server, and move the alias; return a summary in a line.

    Raises:
        DataError: The model's folder is damaged.
        NumbersDiffer: Versions would get other numbers in MLflow; nothing was registered.
        TrackingFailed: The server refused, or did not answer.
    """
    with _one_at_a_time(folder, lock_timeout_s):
        plan = plan_model(folder)
        registered = server.read_model(plan.name)
        missing = missing_versions(plan, registered)
        for version in missing:
            _register(server, plan, version)
        if plan.production != registered.production:
            server.set_production(plan.name, plan.production)
    where = "nothing" if plan.production is None else f"version {plan.production}"
    return f'model "{plan.name}": {len(missing)} of {len(plan.versions)} versions registered; production is {where}'


def _register(server: MlflowServer, plan: ModelPlan, version: ModelVersion) -> None:
    number = server.register(plan.name, version)
    if number != version.number:
        msg = (
            f'model "{plan.name}": v{version.number} became version {number} in MLflow, where somebody else has'
            " registered or deleted a version: delete that model in MLflow, and all are registered anew"
        )
        raise TrackingFailed(msg)


def _one_at_a_time(folder: ModelFolder, timeout_s: float) -> AbstractContextManager[None]:
    """Let a single process register at a time, without blocking promotions."""
    path = folder.root / ".mlflow.lock"
    busy = TrackingFailed(f"{path}: another process has been registering versions for {timeout_s:g} s")
    return held_lock(path, timeout_s, busy)
