"""Stage train: N workers around a center, as a Spark application or as processes of the task's host."""

from __future__ import annotations

from typing import Any

from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.api.stages import Runner
from deepspark_ops.config.base import StageConfig
from deepspark_ops.config.run_label import RunLabelConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError, TrainingFailed
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.operators.tasks.process_stage import SparkOnDemandOperator
from deepspark_ops.operators.tasks.run_link import link_run
from deepspark_ops.operators.tasks.stage_run import StageRun, ends_plainly
from deepspark_ops.run_label.label import label_run
from deepspark_ops.run_paths import RunPaths, write_text_whole


class DeepSparkTrainOperator(SparkOnDemandOperator):
    """Train into the run's folder; a retry continues from the folder's last snapshot.

    The workers are a Spark application on the connection ``conn_id``, or with ``engine="process"`` processes of the
    task's host, without Java. The numbers are the same.

    The output has the run's paths (``run_dir``, ``dataset``, ``production``), ``snapshot`` (the last .caffemodel) and
    the snapshot's ``digest``. ``name`` and ``tags`` are those of the run, if no earlier task has given any; ``name`` is
    the name of the Spark application, too.

    Example:
        .. code-block:: python

            DeepSparkTrainOperator(task_id="train", run=check.output, solver="nets/solver.prototxt", n_workers=4)
    """

    config_models = (TrainConfig, RunLabelConfig)
    required = ("solver",)
    trains = True
    makes_run = True
    stage = "train"
    module = "deepspark_ops.train.driver.spark_job"
    process_module = "deepspark_ops.train.driver.process_job"
    first_group = "preflight"
    answers_signals = True

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str | None]:
        """Train, if no other task has trained in the run's folder."""
        run = self.stage_run(context)
        self._claim(run, context)
        label_run(run.run_dir, self.config(RunLabelConfig))
        trained: dict[str, str | None] = super().execute(context)
        return trained

    def stage_run(self, context: Any) -> StageRun:
        """Return the paths of the run; argument ``dataset`` takes the place of the run's."""
        run = super().stage_run(context)
        return StageRun(run.run_dir, self.path("dataset") or run.dataset, run.production)

    def needs_spark(self, run: StageRun) -> bool:
        """Return whether Spark runs the workers."""
        return self.values().get("engine") != "process"

    def has_python_tasks(self, config: Any) -> bool:
        """Return True: TensorFlow's processes compute."""
        return True

    def run_stage(self, config: TrainConfig, runner: Runner) -> None:
        """Train and wait for the end."""
        runner(self.process_module if config.engine == "process" else self.module, config)

    def _claim(self, run: StageRun, context: Any) -> None:
        """Note the training task in the run's folder, and let the pages show the folder.

        Raises:
            ConfigError: Another task does. Each would go on from the other's snapshots.
        """
        map_index, dag_run = getattr(context["ti"], "map_index", -1), context["dag_run"]
        task = f"{dag_run.dag_id}.{self.task_id}" + (f"[{map_index}]" if map_index >= 0 else "")
        owner = RunPaths(run.run_dir).stages / "train.task"
        if owner.is_file() and (other := regular_text(owner).strip()) != task:
            msg = (
                f"{run.run_dir}: task {other} has trained in this run's folder, so task {task} cannot; give each"
                " training a run of its own: leave out run=, or give it another DeepSparkCheckOperator"
            )
            raise ConfigError(msg)
        write_text_whole(owner, task + "\n")
        first_task = f"{self.task_id}_{map_index}" if map_index >= 0 else self.task_id
        if reason := link_run(self.places, dag_run.dag_id, dag_run.run_id, first_task, run.run_dir):
            self.log.warning("%s", reason)

    def stage_config(self, context: Any, run: StageRun, master: str | None = None) -> TrainConfig:
        """Return the train config of a run, with the weights in production unless the task names weights."""
        values = self.values()
        spark_master: dict[str, Any] = {} if master is None else {"master": master}
        starts_from_production = run.production is not None and "weights" not in values and "resume" not in values
        return self.config(
            TrainConfig,
            run_dir=run.run_dir,
            dataset=run.dataset,
            named_files=self.places.named_files(),
            weights=run.production if starts_from_production else None,
            **spark_master,
        )

    def result(self, run: StageRun, config: StageConfig) -> dict[str, str]:
        """Return the last snapshot and the snapshot's digest.

        Raises:
            TrainingFailed: The job ended well but left no snapshot.
        """
        paths = RunPaths(run.run_dir)
        snapshot = paths.last_weights()
        if snapshot is None:
            msg = f"stage train left no snapshot in {paths.snapshots}"
            raise TrainingFailed(msg)
        return {"snapshot": str(snapshot), "digest": file_digest(snapshot)}
