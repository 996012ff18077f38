"""Stage predict: classes and scores that a bundle gives for images, tables or a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from deepspark_ops.config.base import StageConfig
from deepspark_ops.config.commands.predict import PredictConfig
from deepspark_ops.operators.tasks.spark_stage import SparkStageOperator
from deepspark_ops.operators.tasks.stage_run import StageRun, airflow_errors, ends_plainly, noted_stage
from deepspark_ops.processes.spark_submit import run_job

PREDICTIONS_NAME: Final = "predictions.parquet"


class DeepSparkPredictOperator(SparkStageOperator):
    """Write what a bundle answers for each input, a row each.

    A child process answers, or a Spark application on the connection ``conn_id``: with ``in_spark``, and where input or
    output is a table of Spark's catalog. Its output has the run's paths and ``predictions``: what was written, by
    default ``predictions.parquet`` in the run's folder.

    Example:
        .. code-block:: python

            DeepSparkPredictOperator(task_id="predict", bundle=export.output, input="/data/new")
    """

    config_models = (PredictConfig,)
    required = ("bundle", "input")
    stage = "predict"
    module = "deepspark_ops.predict.spark_job"
    process_module = "deepspark_ops.predict"
    more_templates = ("in_spark",)

    def __init__(self, *, in_spark: Any = False, **kwargs: Any) -> None:
        """Keep the arguments.

        Args:
            in_spark: Whether tasks of Spark answer.
            kwargs: Fields of ``PredictConfig``, the Spark provider's arguments, Airflow's.
        """
        super().__init__(**kwargs)
        self.in_spark = in_spark

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str | None]:
        """Answer every input, and return where the answers are."""
        run = self.stage_run(context)
        with airflow_errors():
            needs_spark = self._config(run, "local[*]" if _is_true(self.in_spark) else None).needs_spark
        if needs_spark:
            in_spark: dict[str, str | None] = super().execute(context)
            return in_spark
        with noted_stage(run.run_dir, self.stage, self.log) as on_line, airflow_errors():
            config = self._config(run, None)
            run_job(self.process_module, config, on_line=on_line, config_path=run.config_path(self.stage))
            return {**run.to_xcom(), **self.result(run, config)}

    def on_kill(self) -> None:
        """End the Spark application, if there is one; a child process ends with this one."""
        if self._hook is not None:
            super().on_kill()

    def stage_config(self, context: Any, run: StageRun, master: str) -> PredictConfig:
        """Return the predict config of a run, for Spark."""
        return self._config(run, master)

    def _config(self, run: StageRun, master: str | None) -> PredictConfig:
        output: Path | None = None if "output" in self.values() else run.run_dir / PREDICTIONS_NAME
        return self.config(PredictConfig, output=output, master=master)

    def result(self, run: StageRun, config: StageConfig) -> dict[str, str]:
        """Return what was written."""
        assert isinstance(config, PredictConfig), "of stage_config"
        return {"predictions": str(config.output)}


def _is_true(value: Any) -> bool:
    """Return whether a switch is on, whose template may have rendered to a word."""
    return value is True or str(value).strip().lower() in ("true", "1", "yes", "on")
