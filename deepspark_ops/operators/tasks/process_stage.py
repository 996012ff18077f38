"""Stages that run as a child process of the task, so that TensorFlow is never loaded into Airflow's own process."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator

from deepspark_ops.config.base import StageConfig
from deepspark_ops.operators.tasks.stage_arguments import StageArguments
from deepspark_ops.operators.tasks.stage_run import StageRun, airflow_errors, ends_plainly, noted_stage
from deepspark_ops.processes.spark_submit import run_job


class ProcessStageOperator(StageArguments, BaseOperator):
    """A stage run by ``python -m MODULE CONFIG.json``.

    Attributes:
        module: The stage's entry module.
    """

    module: str

    def stage_config(self, context: Any, run: StageRun) -> StageConfig:
        """Return the config of this stage for a run."""
        raise NotImplementedError

    def result(self, run: StageRun, config: StageConfig) -> dict[str, str]:
        """Return what the finished stage passes on beside the run's paths: paths and digests."""
        raise NotImplementedError

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str | None]:
        """Run the stage to its end and return the run's paths, and the paths and digests of what it left."""
        run = self.stage_run(context)
        with noted_stage(run.run_dir, self.stage, self.log) as on_line, airflow_errors():
            self.refuse_unknown_conf(context)
            config = self.stage_config(context, run)
            run_job(self.module, config, on_line=on_line, config_path=run.config_path(self.stage))
            return {**run.to_xcom(), **self.result(run, config)}
