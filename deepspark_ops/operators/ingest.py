"""Stage ingest: raw files to shards, as a Spark application."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn

from airflow.sdk import Asset

from deepspark_ops.config.base import StageConfig
from deepspark_ops.config.ingest import IngestConfig, is_known
from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.config.shared_options.source_formats import TABLE_FORMATS
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.sources.registry import detect_format, require_source
from deepspark_ops.ingest.versions.base import previous_dataset
from deepspark_ops.operators.form import config_from_params, is_left_out
from deepspark_ops.operators.promote import promote_config, skip_judged_data
from deepspark_ops.operators.provider.airflow_names import TaskDeferred
from deepspark_ops.operators.tasks.run_plan import Places, is_ingested
from deepspark_ops.operators.tasks.run_start import stored_events
from deepspark_ops.operators.tasks.spark_stage import SparkStageOperator
from deepspark_ops.operators.tasks.stage_run import StageRun, ends_plainly, noted_stage
from deepspark_ops.operators.tasks.turn import TurnTrigger, holder_of, turn_at
from deepspark_ops.run_paths import DatasetPaths, write_text_whole
from deepspark_ops.run_view.stage_status import StatusFile, read_statuses
from deepspark_ops.shards.manifest import present_splits, split_digests
from deepspark_ops.shards.verification import verify
from deepspark_ops.stores.store_path import DataPath

EVENTS_LOOKED_AT: Final = 1_000
"""Newest events of the Asset among which an ingestion looks for the dataset's own."""
TURN_LIMIT: Final = timedelta(hours=24)
_LATE: Final = timedelta(minutes=10)
"""Airflow ends a wait that the triggerer has not ended this long after its limit."""


class DeepSparkIngestOperator(SparkStageOperator):
    """Ingest raw data into a dataset: ``output``, else the run's dataset, else the dataset of source and options.

    A dataset of the same source and config is used unchanged. Tasks with the same dataset write one after the other.
    Each of the others waits without a worker's slot, at most ``turn_limit``, and finds the dataset afterwards.

    Airflow takes the Asset's event from a successful task, so a task that dies after the commit has announced nothing.
    Therefore the task sends the event of every dataset without an event of the Asset. Two simultaneous ingestions of a
    source may both send the event; no event is lost.

    The output has the run's paths, with the folder as ``dataset``, and the digests of the dataset's manifests.

    Example:
        .. code-block:: python

            ingest = DeepSparkIngestOperator(task_id="ingest", source="/data/train_list.txt", conn_id="our_spark")
            DeepSparkTrainOperator(task_id="train", run=ingest.output, solver="nets/solver.prototxt")
    """

    config_models: ClassVar[tuple[type[StageConfig], ...]] = (IngestConfig, PromoteConfig)
    not_arguments = frozenset(PromoteConfig.model_fields) - {"model", "models"}
    stage = "ingest"
    makes_run = True
    module = "deepspark_ops.ingest.spark_job"

    def __init__(
        self,
        *,
        asset: Asset | None = None,
        skips_judged_data: bool = False,
        turn_limit: timedelta = TURN_LIMIT,
        **kwargs: Any,
    ) -> None:
        """Say what follows an ingestion.

        Args:
            asset: Its events announce new datasets.
            skips_judged_data: Whether a run that data have started goes on only with data that no candidate of the
                model ``model``, in the folder ``models``, was judged on.
            turn_limit: How long the task waits at most while another task writes the same dataset; then it fails.
            kwargs: Fields of ``IngestConfig``, the Spark provider's arguments, Airflow's.
        """
        if asset is not None:
            kwargs["outlets"] = [*(kwargs.get("outlets") or ()), asset]
            kwargs["inlets"] = [*(kwargs.get("inlets") or ()), asset]  # whose events the task reads
        super().__init__(**kwargs)
        self._skips_judged_data = skips_judged_data
        self._asset = asset
        self._turn_limit = turn_limit

    def stage_run(self, context: Any) -> StageRun:
        """Return the paths of the run, with the output dataset."""
        run = super().stage_run(context)
        dataset = self.path("output") or run.dataset
        return StageRun(run.run_dir, dataset or chosen_dataset(self.values(), self.places), run.production)

    def stage_config(self, context: Any, run: StageRun, master: str) -> IngestConfig:
        """Return the ingest config of a run."""
        config = self.config(IngestConfig, output=run.dataset, master=master, listed_files=self.places.listed_files())
        return config.model_copy(update={"previous": previous_dataset(config)})

    @ends_plainly
    def execute(self, context: Any) -> Any:
        """Ingest a new or changed source.

        Raises:
            TaskDeferred: Another task writes the same dataset.
        """
        return self.ingest(context, until=time.time() + self._turn_limit.total_seconds())

    @ends_plainly
    def execute_in_turn(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Continue with a free turn, or after the end of the waiting time."""
        return self.ingest(context, float(event["until"]))

    def ingest(self, context: Any, until: float) -> Any:
        """Ingest a new or changed source, and return the task's output.

        Args:
            context: Airflow's.
            until: Until when the task waits for its turn, seconds since the epoch.

        Raises:
            TaskDeferred: Another task writes the same dataset.
            ConfigError: It still does, and the time is over.
        """
        self.refuse_unknown_conf(context)
        run = self.stage_run(context)
        if run.dataset is None:
            self.log.info("no source given: training reads the sources that the net names")
            return run.to_xcom()
        with turn_at(run.dataset, _task_text(context)) as is_free:
            if is_free:
                output = self._write(context, run, run.dataset)
            else:
                self._wait(run, run.dataset, until)
        if self._skips_judged_data:
            # Files that are newer may hold what they held.
            skip_judged_data(context, run, promote_config(self), named_source(self.values()))
        if self._asset is not None:
            self._announce(context, self._asset, run.dataset)
        return output

    def _write(self, context: Any, run: StageRun, dataset: DataPath) -> dict[str, str | None]:
        config = self.stage_config(context, run, "local")
        if is_known(config) and self._is_whole(dataset):
            self.log.info("source and config are unchanged: dataset %s is used as it is", dataset)
            if self.stage in read_statuses(run.run_dir):  # this task has waited for its turn, or ran before
                with noted_stage(run.run_dir, self.stage, self.log):
                    write_text_whole(run.config_path(self.stage), config.model_dump_json(indent=2))
            return {**run.to_xcom(), **self.result(run, config)}
        output: dict[str, str | None] = super().execute(context)
        return output

    def _wait(self, run: StageRun, dataset: DataPath, until: float) -> NoReturn:
        """Give the worker's slot back until the turn is free.

        Raises:
            TaskDeferred: In every case but the next.
            ConfigError: The time is over.
        """
        remaining, holder = timedelta(seconds=round(until - time.time())), holder_of(dataset) or "another task"
        if remaining <= timedelta():
            msg = (
                f"{dataset}: {holder} still writes this dataset, and this task has waited {self._turn_limit} for its"
                " turn (turn_limit); see what the other task does, end it if it stands still, and clear this one"
            )
            raise ConfigError(msg)
        text = f"{holder} writes dataset {dataset}; this task waits for its end without a worker's slot"
        self.log.info("%s, %s at most (turn_limit)", text, remaining)
        StatusFile(run.run_dir, self.stage).end("waiting", text)
        raise TaskDeferred(
            trigger=TurnTrigger(str(dataset), until),
            method_name="execute_in_turn",
            timeout=remaining + _LATE,
        )

    def _announce(self, context: Any, asset: Asset, dataset: DataPath) -> None:
        """Have Airflow send the event of a dataset, unless the Asset has the event.

        Airflow sends an event of each outlet at the task's end. An AssetAlias would make events optional, too. But the
        first two tasks with the same end both insert the alias's association with the Asset. Airflow (3.3) then fails a
        task for good: "UNIQUE constraint failed: asset_alias_asset".
        """
        extra = {"dataset": str(dataset), **_manifest_digests(dataset), "source": named_source(self.values())}
        sent = stored_events(context, asset, newest=EVENTS_LOOKED_AT)
        if any(is_announced_by(event, dataset) for event in sent):
            self.log.info("the event of this dataset was sent before")
            self.outlets: list[Any] = [outlet for outlet in self.outlets if outlet != asset]
        else:
            context["outlet_events"][asset].extra = extra

    def has_python_tasks(self, config: IngestConfig) -> bool:
        """Return whether the source is no table, which Spark's JVM would read. The stage reports a faulty source."""
        with suppress(ConfigError, DataError):
            name = detect_format(config.source) if config.source_format == "auto" else config.source_format
            return config.query is None and name not in TABLE_FORMATS
        return False

    def _is_whole(self, dataset: DataPath) -> bool:
        """Return whether the dataset's files agree with the manifests; a damaged dataset is made again."""
        if not is_ingested(dataset):
            return False
        try:
            for split in present_splits(dataset):
                verify(DatasetPaths(dataset).split(split), digests=None)
        except DataError as error:
            self.log.warning("the dataset is damaged and made again: %s", error)
            return False
        return True

    def result(self, run: StageRun, config: StageConfig) -> dict[str, str]:
        """Return the digests of the dataset's manifests."""
        assert run.dataset is not None, "else nothing is ingested"
        return _manifest_digests(run.dataset)


def named_source(values: Mapping[str, Any]) -> str:
    """Return what an event of the Asset names as its raw data: the source, or a query that names its tables itself."""
    return str(values.get("source") or values.get("query") or "")


def chosen_dataset(values: Mapping[str, Any], places: Places) -> Path | None:
    """Return the folder of a source's dataset; None without a source.

    Args:
        values: Of the fields of ``IngestConfig``.
        places: Where datasets live.

    Raises:
        ConfigError: A value is wrong, a file is missing, or there would be no test set.
    """
    if all(is_left_out(values.get(name)) for name in ("source", "query")):
        return None
    ingest = config_from_params(IngestConfig, values, places.root, output=Path("undecided"))
    _require_files(ingest)
    _require_test_split(ingest)
    return places.dataset_folder(ingest)


def _require_files(config: IngestConfig) -> None:
    for name in ("source", "test_source", "labels", "class_names"):
        path: DataPath | None = getattr(config, name)
        if path is not None:
            require_source(path, option=name)


def _require_test_split(config: IngestConfig) -> None:
    if config.test_source is None and config.test_fraction == 0:
        msg = "test_fraction=0 and no test_source: the evaluation needs a test set; give one of them"
        raise ConfigError(msg)


def is_announced_by(event: Any, dataset: DataPath) -> bool:
    """Return whether an event of the Asset announced the present content of a dataset, by the manifests' digests."""
    extra = event.extra or {}
    present = {"dataset": str(dataset), **_manifest_digests(dataset)}
    return all(extra.get(name) == value for name, value in present.items())


def _manifest_digests(dataset: DataPath) -> dict[str, str]:
    return {f"{split}_digest": digest for split, digest in split_digests(dataset).items()}


def _task_text(context: Any) -> str:
    ti = context["ti"]
    return f"task {ti.task_id} of {ti.dag_id}, run {ti.run_id}"
