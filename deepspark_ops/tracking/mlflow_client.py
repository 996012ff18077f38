"""MLflow's client: no other file imports MLflow, and only a separate process imports this file."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag, ViewType
from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_TIMEOUT
from mlflow.exceptions import MlflowException

from deepspark_ops.tracking.configured import DEFAULT_EXPERIMENT, TRACKING_URI
from deepspark_ops.tracking.model_plan import ALIAS, DIGEST_TAG, REGISTERED_TAG, ModelVersion, Registered
from deepspark_ops.tracking.points import MetricPoint
from deepspark_ops.tracking.run_plan import ID_TAG, RunHead
from deepspark_ops.tracking.send import OpenRun, TrackingFailed
from deepspark_ops.tracking.transfer import TransferState

_MISSING: Final = "RESOURCE_DOES_NOT_EXIST"
_EXISTS: Final = "RESOURCE_ALREADY_EXISTS"
_MAX_SETTINGS: Final = 100
"""MLflow's limit of parameters, and of tags, per request."""

logging.getLogger("mlflow").setLevel(logging.WARNING)
logging.getLogger("urllib3").setLevel(logging.ERROR)


@contextmanager
def _own_errors() -> Iterator[None]:
    try:
        yield
    except MlflowException as error:
        raise TrackingFailed(_reason(error)) from error


def _reason(error: BaseException) -> str:
    """Return the reason of a failed request: the network's error, else MLflow's message."""
    server = os.environ.get(TRACKING_URI, "")
    cause: BaseException | None = error
    while cause is not None:
        if "Timeout" in type(cause).__name__:
            return f"{server} gave no answer in {MLFLOW_HTTP_REQUEST_TIMEOUT.get()} s"
        if isinstance(cause, OSError) and cause.strerror:
            return f"{server}: {cause.strerror}"
        cause = cause.__cause__ or cause.__context__
    return str(error)


class MlflowServer:
    """Requests to the server of MLflow's variables; any may raise ``TrackingFailed``. Used by a single thread."""

    def __init__(self) -> None:
        """Create the client without a connection.

        Raises:
            TrackingFailed: This MLflow client does not support the server in the variables.
        """
        with _own_errors():
            self._client = MlflowClient()

    @_own_errors()
    def open_run(self, head: RunHead, transfer: TransferState) -> OpenRun:
        """Return the run with the id ``transfer.id``; create the run if MLflow lacks it."""
        run = self._existing_run(transfer.id, transfer.run_id)
        if run is None:
            experiment = self._experiment()
            query = f"tags.`{ID_TAG}` = '{transfer.id}'"
            matching_runs = self._client.search_runs(
                [experiment], query, run_view_type=ViewType.ACTIVE_ONLY, max_results=1
            )
            run = matching_runs[0] if matching_runs else self._new_run(experiment, head)
        return OpenRun(str(run.info.run_id), dict(run.data.params), dict(run.data.tags))

    def _existing_run(self, deepspark_id: str, run_id: str | None) -> Run | None:
        """Return the run of an id; None if the run does not exist, was deleted, or belongs to another server."""
        if run_id is None:
            return None
        try:
            run = self._client.get_run(run_id)
        except MlflowException as error:
            if error.error_code == _MISSING:
                return None
            raise
        is_ours = run.data.tags.get(ID_TAG) == deepspark_id and run.info.lifecycle_stage == "active"
        return run if is_ours else None

    def _experiment(self) -> str:
        if number := os.environ.get("MLFLOW_EXPERIMENT_ID"):
            return number
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or DEFAULT_EXPERIMENT
        if (experiment := self._client.get_experiment_by_name(name)) is not None:
            return str(experiment.experiment_id)
        try:
            return str(self._client.create_experiment(name))
        except MlflowException as error:
            if error.error_code != _EXISTS or (experiment := self._client.get_experiment_by_name(name)) is None:
                raise
            return str(experiment.experiment_id)  # another process was faster

    def _new_run(self, experiment: str, head: RunHead) -> Run:
        return self._client.create_run(
            experiment, start_time=head.start_ms, tags={ID_TAG: head.tags[ID_TAG]}, run_name=head.name
        )

    @_own_errors()
    def log_settings(self, run_id: str, params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Add parameters and set tags."""
        for batch in _pieces(params):
            self._client.log_batch(run_id, params=[Param(name, text) for name, text in batch.items()])
        for batch in _pieces(tags):
            self._client.log_batch(run_id, tags=[RunTag(name, text) for name, text in batch.items()])

    @_own_errors()
    def log_points(self, run_id: str, points: Sequence[MetricPoint]) -> None:
        """Add at most ``send.MAX_BATCH`` numbers."""
        metrics = [Metric(point.key, point.value, point.time_ms, point.step) for point in points]
        self._client.log_batch(run_id, metrics=metrics)

    @_own_errors()
    def log_file(self, run_id: str, path: Path, folder: str) -> None:
        """Store a file in a folder of the run's artefacts, replacing an older file."""
        self._client.log_artifact(run_id, str(path), folder or None)

    @_own_errors()
    def set_status(self, run_id: str, head: RunHead) -> None:
        """Say how the run stands."""
        if head.end_ms is None:
            self._client.update_run(run_id, head.status)
        else:
            self._client.set_terminated(run_id, head.status, head.end_ms)

    @_own_errors()
    def read_model(self, name: str) -> Registered:
        """Return MLflow's state of a model; create the model if MLflow lacks it."""
        try:
            model = self._client.get_registered_model(name)
        except MlflowException as error:
            if error.error_code != _MISSING:
                raise
            model = self._client.create_registered_model(name, {REGISTERED_TAG: "0"})
        highest, alias = model.tags.get(REGISTERED_TAG, ""), model.aliases.get(ALIAS)
        digests = {int(version.version): version.tags.get(DIGEST_TAG, "") for version in self._versions(name)}
        return Registered(int(highest) if highest.isdecimal() else None, digests, None if alias is None else int(alias))

    def _versions(self, name: str) -> Iterator[Any]:
        quoted, token = name.replace("'", "''"), None
        while True:
            page = self._client.search_model_versions(f"name='{quoted}'", max_results=1000, page_token=token)
            yield from page
            if not (token := page.token):
                return

    @_own_errors()
    def register(self, model: str, version: ModelVersion) -> int:
        """Register the next version, store the number at the model, and return the number."""
        run = None if version.run is None else self._existing_run(*version.run)
        # MLflow requires a source for a version; without a run in MLflow the source names our version.
        source = f"deepspark:/{model}/v{version.number}" if run is None else f"{run.info.artifact_uri}/bundle"
        registered = self._client.create_model_version(
            model,
            source,
            run_id=None if run is None else run.info.run_id,
            tags=dict(version.tags),
            description=version.description,
            await_creation_for=0,
        )
        self._client.set_registered_model_tag(model, REGISTERED_TAG, str(registered.version))
        return int(registered.version)

    @_own_errors()
    def set_production(self, model: str, number: int | None) -> None:
        """Move the alias of the version in production; None removes the alias."""
        if number is None:
            self._client.delete_registered_model_alias(model, ALIAS)
        else:
            self._client.set_registered_model_alias(model, ALIAS, str(number))


def _pieces(settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
    remaining = iter(settings.items())
    while piece := dict(islice(remaining, _MAX_SETTINGS)):
        yield piece
