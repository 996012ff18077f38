"""Stage ingest: raw files to shards, as a Spark application."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from airflow.sdk import Asset

from caffe_import.files.regular_file import regular_text
from deepspark_ops.config.ingest import IngestConfig, is_known
from deepspark_ops.errors import DataError
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.ingest.versions.base import previous_dataset
from deepspark_ops.operators.form import config_from_params
from deepspark_ops.operators.promote import skip_judged_data
from deepspark_ops.operators.tasks.run_plan import is_ingested
from deepspark_ops.operators.tasks.spark_stage import SparkStageOperator
from deepspark_ops.operators.tasks.stage_run import StageRun, airflow_errors, ends_plainly
from deepspark_ops.run_paths import DatasetPaths, write_text_whole
from deepspark_ops.shards.manifest import present_splits
from deepspark_ops.shards.reader import verify

ANNOUNCED_NAME: Final = "announced.json"
"""File in a dataset's folder: digests of the manifests with which a training has begun."""
ANNOUNCED_VERSION: Final = 1


class IngestOperator(SparkStageOperator):
    """Ingest a run's source into the dataset folder that the check stage chose.

    A dataset that is there already is the same source under the same config: it is used as it is. Airflow takes the
    Asset's event from a task that succeeds, so one that dies after its commit has announced nothing. Therefore the
    event is sent for every dataset that no training has begun with: a training begins after an ingestion succeeded
    (``note_announced``). Two runs that ingest one source at the same time may both send it; none is lost.

    Its result has ``dataset``, the folder, and the digests of the manifests.

    Example:
        .. code-block:: python

            check >> IngestOperator(task_id="ingest", places=installed_places(), conn_id="our_spark") >> train
    """

    module = "deepspark_ops.ingest.spark_job"

    def __init__(
        self,
        *,
        asset: Asset | None = None,
        skips_judged_data: bool = False,
        **kwargs: Any,
    ) -> None:
        """Say what follows an ingestion.

        Args:
            asset: Its events announce new datasets.
            skips_judged_data: Whether a run that data have started goes on only with data that no candidate of the
                run's model was judged on. The DAG's form needs the fields of ``PromoteConfig``.
            kwargs: Airflow's.
        """
        super().__init__(outlets=[asset] if asset else None, **kwargs)
        self._skips_judged_data = skips_judged_data
        self._asset = asset

    def stage_config(self, context: Any, run: StageRun, master: str) -> IngestConfig:
        """Return the ingest config of a run."""
        params = context["params"]
        config = config_from_params(
            IngestConfig,
            params,
            self.places.root,
            output=run.dataset,
            master=master,
            listed_files=self.places.listed_files(),
        )
        return config.model_copy(update={"previous": previous_dataset(config)})

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str]:
        """Ingest, unless there is nothing to do."""
        run = self.stage_run(context)
        if run.dataset is None:
            self.log.info("no source given: training reads the sources that the net names")
            return {}
        with airflow_errors(), _one_at_a_time(run.dataset):
            if is_known(self.stage_config(context, run, "local")) and self._is_whole(run.dataset):
                self.log.info("source and config are unchanged: dataset %s is used as it is", run.dataset)
                made = self.result(context, run)
            else:
                made = super().execute(context)
        if self._skips_judged_data:
            skip_judged_data(context, run, self.places)  # files that are newer may hold what they held
        if self._asset is not None:
            self._announce(context, run.dataset, made)
        return made

    def _announce(self, context: Any, dataset: Path, made: dict[str, str]) -> None:
        """Have Airflow send the event of a dataset, if no training has begun with it.

        Airflow sends an event of each outlet that the task has at its end. An AssetAlias would make events optional,
        too. But the first two tasks that end together both insert its association with the Asset. Airflow (3.3) then
        fails one task for good: "UNIQUE constraint failed: asset_alias_asset".
        """
        if is_announced(dataset):
            self.outlets: list[Asset] = []
        else:
            context["outlet_events"][self._asset].extra = {**made, "source": str(context["params"]["source"])}

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

    def result(self, context: Any, run: StageRun) -> dict[str, str]:
        """Return the dataset's folder and the digests of its manifests."""
        if run.dataset is None:
            return {}
        return {"dataset": str(run.dataset), **_manifest_digests(run.dataset)}


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
    paths = DatasetPaths(dataset)
    return {f"{split}_digest": file_digest(paths.manifest(split)) for split in present_splits(dataset)}


@contextmanager
def _one_at_a_time(dataset: Path) -> Iterator[None]:
    """Let one task write a dataset; another that wants the same one waits and then finds it. A dead task lets go."""
    dataset.parent.mkdir(parents=True, exist_ok=True)
    with dataset.with_name(f".{dataset.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
