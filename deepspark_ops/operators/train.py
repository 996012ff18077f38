"""Stage train: N workers around a center, as a Spark application."""

from __future__ import annotations

from typing import Any

from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import TrainingFailed
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.operators.form import config_from_params
from deepspark_ops.operators.ingest import note_announced
from deepspark_ops.operators.tasks.spark_stage import SparkStageOperator
from deepspark_ops.operators.tasks.stage_run import StageRun, ends_plainly
from deepspark_ops.run_paths import RunPaths


class TrainOperator(SparkStageOperator):
    """Train into the run's folder; a retry goes on from the last snapshot there.

    Its result has ``run_dir``, ``snapshot`` (the last .caffemodel) and the snapshot's ``digest``.

    Example:
        .. code-block:: python

            check >> ingest >> TrainOperator(task_id="train", places=installed_places(), conn_id="our_spark")
    """

    module = "deepspark_ops.train.driver.spark_job"
    first_group = "preflight"

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str]:
        """Train. Airflow runs this task only after the run's ingestion has succeeded."""
        run = self.stage_run(context)
        if run.dataset is not None:
            note_announced(run.dataset)
        trained: dict[str, str] = super().execute(context)
        return trained

    def stage_config(self, context: Any, run: StageRun, master: str) -> TrainConfig:
        """Return the train config of a run; weights in production warm-start it unless the run names others."""
        params = context["params"]
        fixed: dict[str, Any] = {"run_dir": run.run_dir, "dataset": run.dataset, "master": master}
        fixed["named_files"] = self.places.named_files()
        if run.production is not None and not params.get("weights") and not params.get("resume"):
            fixed["weights"] = run.production
        return config_from_params(TrainConfig, params, self.places.root, **fixed)

    def result(self, context: Any, run: StageRun) -> dict[str, str]:
        """Return the last snapshot and its digest.

        Raises:
            TrainingFailed: The job ended well but left no snapshot.
        """
        paths = RunPaths(run.run_dir)
        done = paths.snapshot_iterations()
        found = sorted(paths.snapshots.glob(f"*_iter_{done[-1]}.caffemodel*")) if done else []
        if not found:
            msg = f"stage train left no snapshot in {paths.snapshots}"
            raise TrainingFailed(msg)
        return {"run_dir": str(run.run_dir), "snapshot": str(found[0]), "digest": file_digest(found[0])}
