"""Stages that run as a child process of the task, so that TensorFlow is never loaded into Airflow's own process."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator

from deepspark_ops.config.base import StageConfig
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.operators.tasks.stage_run import StageRun, airflow_errors, ends_plainly, noted_stage
from deepspark_ops.processes.spark_submit import run_job


class ProcessStageOperator(BaseOperator):
    """A stage run by ``python -m MODULE CONFIG.json``.

    Attributes:
        module: The stage's entry module.
    """

    module: str

    def __init__(self, *, places: Places, **kwargs: Any) -> None:
        """Keep where runs live; everything else is decided when the task runs."""
        super().__init__(**kwargs)
        self.places = places

    def stage_run(self, context: Any) -> StageRun:
        """Return the paths of the run, by default those that its check stage decided."""
        return StageRun.of(context)

    def stage_config(self, context: Any, run: StageRun) -> StageConfig:
        """Return the config of this stage for a run."""
        raise NotImplementedError

    def result(self, run: StageRun, config: StageConfig) -> dict[str, str]:
        """Return what the finished stage passes on: paths and digests."""
        raise NotImplementedError

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str]:
        """Run the stage to its end and return paths and digests."""
        run = self.stage_run(context)
        with noted_stage(run.run_dir, str(self.task_id), self.log) as on_line, airflow_errors():
            config = self.stage_config(context, run)
            run_job(self.module, config, on_line=on_line, config_path=run.config_path(str(self.task_id)))
            return self.result(run, config)
