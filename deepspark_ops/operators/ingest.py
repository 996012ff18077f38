"""Stage ingest: raw files to shards, as a Spark application."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from airflow.sdk import Asset

from caffe_import.files.regular_file import regular_text
from deepspark_ops.config.base import StageConfig
from deepspark_ops.config.ingest import IngestConfig, is_known
from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.sources.registry import require_source
from deepspark_ops.ingest.versions.base import previous_dataset
from deepspark_ops.operators.deprecated_names import old_name_of
from deepspark_ops.operators.form import config_from_params, is_left_out
from deepspark_ops.operators.promote import promote_config, skip_judged_data
from deepspark_ops.operators.tasks.run_plan import Places, is_ingested
from deepspark_ops.operators.tasks.spark_stage import SparkStageOperator
from deepspark_ops.operators.tasks.stage_run import StageRun, airflow_errors, ends_plainly
from deepspark_ops.run_paths import DatasetPaths, write_text_whole
from deepspark_ops.shards.manifest import present_splits, split_digests
from deepspark_ops.shards.reader import verify

ANNOUNCED_NAME: Final = "announced.json"
"""File in a dataset's folder: digests of the manifests with which a training has begun."""
ANNOUNCED_VERSION: Final = 1


class DeepSparkIngestOperator(SparkStageOperator):
    """Ingest raw data into a dataset: into ``output``, else into the run's, else into one that source and options name.

    A dataset that is there already is the same source under the same config: it is used as it is. Airflow takes the
    Asset's event from a task that succeeds, so one that dies after its commit has announced nothing. Therefore the
    event is sent for every dataset that no training has begun with: a training begins after an ingestion succeeded
    (``note_announced``). Two runs that ingest one source at the same time may both send it; none is lost.

    Its output has the run's paths, in it ``dataset``, the folder, and the digests of the dataset's manifests.

    Example:
        .. code-block:: python

            ingest = DeepSparkIngestOperator(task_id="ingest", source="/data/train_list.txt", conn_id="our_spark")
            DeepSparkTrainOperator(task_id="train", run=ingest.output, solver="nets/solver.prototxt")
    """

    config_models: ClassVar[tuple[type[StageConfig], ...]] = (IngestConfig, PromoteConfig)
    not_arguments = frozenset(PromoteConfig.model_fields) - {"model", "models"}
    stage = "ingest"
    module = "deepspark_ops.ingest.spark_job"

    def __init__(self, *, asset: Asset | None = None, skips_judged_data: bool = False, **kwargs: Any) -> None:
        """Say what follows an ingestion.

        Args:
            asset: Its events announce new datasets.
            skips_judged_data: Whether a run that data have started goes on only with data that no candidate of the
                model ``model``, in the folder ``models``, was judged on.
            kwargs: Fields of ``IngestConfig``, the Spark provider's arguments, Airflow's.
        """
        if asset is not None:
            kwargs["outlets"] = [*(kwargs.get("outlets") or ()), asset]
        super().__init__(**kwargs)
        self._skips_judged_data = skips_judged_data
        self._asset = asset

    def stage_run(self, context: Any) -> StageRun:
        """Return the paths of the run, with the dataset that is written."""
        run = super().stage_run(context)
        dataset = self.path("output") or run.dataset
        return StageRun(run.run_dir, dataset or chosen_dataset(self.values(), self.places), run.production)

    def stage_config(self, context: Any, run: StageRun, master: str) -> IngestConfig:
        """Return the ingest config of a run."""
        config = self.config(IngestConfig, output=run.dataset, master=master, listed_files=self.places.listed_files())
        return config.model_copy(update={"previous": previous_dataset(config)})

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str | None]:
        """Ingest, unless there is nothing to do."""
        with airflow_errors():
            run = self.stage_run(context)
        if run.dataset is None:
            self.log.info("no source given: training reads the sources that the net names")
            return run.to_xcom()
        with airflow_errors(), _one_at_a_time(run.dataset):
            config = self.stage_config(context, run, "local")
            if is_known(config) and self._is_whole(run.dataset):
                self.log.info("source and config are unchanged: dataset %s is used as it is", run.dataset)
                made = {**run.to_xcom(), **self.result(run, config)}
            else:
                made = super().execute(context)
        if self._skips_judged_data:
            # Files that are newer may hold what they held.
            skip_judged_data(context, run, promote_config(self), str(self.values()["source"]))
        if self._asset is not None:
            self._announce(context, run.dataset)
        return made

    def _announce(self, context: Any, dataset: Path) -> None:
        """Have Airflow send the event of a dataset, if no training has begun with it.

        Airflow sends an event of each outlet that the task has at its end. An AssetAlias would make events optional,
        too. But the first two tasks that end together both insert its association with the Asset. Airflow (3.3) then
        fails one task for good: "UNIQUE constraint failed: asset_alias_asset".
        """
        if is_announced(dataset):
            self.outlets: list[Any] = [outlet for outlet in self.outlets if outlet != self._asset]
        else:
            extra = {"dataset": str(dataset), **_manifest_digests(dataset), "source": str(self.values()["source"])}
            context["outlet_events"][self._asset].extra = extra

    def _is_whole(self, dataset: Path) -> bool:
        """Whether the dataset is there and its files are what the manifests list; a damaged one is made again."""
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


def chosen_dataset(values: Mapping[str, Any], places: Places) -> Path | None:
    """Return the folder of the dataset that a source is ingested into; None without a source.

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
        path: Path | None = getattr(config, name)
        if path is not None:
            require_source(path, option=name)


def _require_test_split(config: IngestConfig) -> None:
    if config.test_source is None and config.test_fraction == 0:
        msg = "test_fraction=0 and no test_source: the evaluation needs a test set; give one of them"
        raise ConfigError(msg)


def is_announced(dataset: Path) -> bool:
    """Whether a training has begun with the dataset as it is now; only a manifest's content counts, not its time."""
    try:
        noted = json.loads(regular_text(dataset / ANNOUNCED_NAME))
    except (OSError, ValueError):
        return False
    return bool(noted == {"format_version": ANNOUNCED_VERSION, **_manifest_digests(dataset)})


def note_announced(dataset: Path) -> None:
    """Note that the ingestion of the dataset succeeded, so that its event was sent; for the task that comes next."""
    if is_announced(dataset):
        return
    with suppress(OSError):  # a folder that cannot be written may have its event sent again; training need not fail
        noted = {"format_version": ANNOUNCED_VERSION, **_manifest_digests(dataset)}
        write_text_whole(dataset / ANNOUNCED_NAME, json.dumps(noted, indent=1) + "\n")


def _manifest_digests(dataset: Path) -> dict[str, str]:
    return {f"{split}_digest": digest for split, digest in split_digests(dataset).items()}


@contextmanager
def _one_at_a_time(dataset: Path) -> Iterator[None]:
    """Let one task write a dataset; another that wants the same one waits and then finds it. A dead task lets go."""
    dataset.parent.mkdir(parents=True, exist_ok=True)
    with dataset.with_name(f".{dataset.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


__getattr__ = old_name_of(__name__, globals())
