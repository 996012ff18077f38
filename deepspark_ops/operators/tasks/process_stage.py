"""Stages as child processes of the task: Airflow's process never loads TensorFlow."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.sdk import BaseOperator

from deepspark_ops.api.stages import Runner
from deepspark_ops.config.base import StageConfig
from deepspark_ops.operators.tasks.spark_stage import JobArguments, SparkStageOperator
from deepspark_ops.operators.tasks.stage_run import StageRun, ends_plainly, noted_stage
from deepspark_ops.processes.job_log import FAILED, LineHandler, stage_ended
from deepspark_ops.processes.spark_submit import run_job


class ProcessStageOperator(JobArguments, BaseOperator):
    """A stage as a child process.

    Attributes:
        answers_signals: As of ``SparkOnDemandOperator``.
    """

    answers_signals: ClassVar[bool] = False

    def stage_config(self, context: Any, run: StageRun) -> StageConfig:
        """Return the config of this stage for a run."""
        raise NotImplementedError

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str | None]:
        """Run the stage and return the run's paths, with the paths and digests of the results."""
        return _execute_in_child(self, context, self.stage_run(context))


class SparkOnDemandOperator(SparkStageOperator):
    """A stage as a child process, or as a Spark application if the config asks for Spark.

    Attributes:
        answers_signals: Whether a SIGTERM of the task is passed to the child process, which ends by itself.
    """

    answers_signals: ClassVar[bool] = False

    def needs_spark(self, run: StageRun) -> bool:
        """Return whether the arguments ask for Spark."""
        raise NotImplementedError

    def stage_config(self, context: Any, run: StageRun, master: str | None = None) -> StageConfig:
        """Return the config of this stage for a run; ``master`` where Spark runs the stage."""
        raise NotImplementedError

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str | None]:
        """Run the stage and return the run's paths, with the paths and digests of the results."""
        run = self.stage_run(context)
        if self.needs_spark(run):
            output: dict[str, str | None] = super().execute(context)
            return output
        return _execute_in_child(self, context, run)

    def on_kill(self) -> None:
        """End a Spark application; a child process ends with this process."""
        if self._hook is not None:
            super().on_kill()


def _execute_in_child(
    task: ProcessStageOperator | SparkOnDemandOperator, context: Any, run: StageRun
) -> dict[str, str | None]:
    """Run the stage of a task as a child process; return the run's paths, with the paths and digests of the results."""
    groups = getattr(task, "first_group", None)
    with noted_stage(run.run_dir, task.stage, task.log, first_group=groups) as on_line:
        task.refuse_unknown_conf(context)
        config = task.stage_config(context, run)
        task.run_stage(config, _child_process(task, run, on_line))
        return {**run.to_xcom(), **task.result(run, config)}


def _child_process(task: ProcessStageOperator | SparkOnDemandOperator, run: StageRun, on_line: LineHandler) -> Runner:
    """Return the runner of a task: a child process whose config stays in the run's folder."""

    def run_module(module: str, config: StageConfig) -> None:
        try:
            run_job(
                module,
                config,
                on_line=on_line,
                config_path=run.config_path(task.stage),
                cwd=task.places.root,
                answers_signals=task.answers_signals,
            )
        except SystemExit as ending:
            raise stage_ended(task.stage, ending.code if isinstance(ending.code, int) else FAILED) from None

    return run_module
