"""Stage predict: a bundle's classes and scores for images, tables or a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from deepspark_ops.api import stages
from deepspark_ops.config.commands.predict import PredictConfig
from deepspark_ops.operators.tasks.process_stage import SparkOnDemandOperator
from deepspark_ops.operators.tasks.stage_run import StageRun

PREDICTIONS_NAME: Final = "predictions.parquet"


class DeepSparkPredictOperator(SparkOnDemandOperator):
    """Write a bundle's answers, a row per input.

    A child process answers, or a Spark application on the connection ``conn_id``: with ``in_spark``, and where input or
    output is a table of Spark's catalog. The output has the run's paths and ``predictions``, the written file, by
    default ``predictions.parquet`` in the run's folder.

    Example:
        .. code-block:: python

            DeepSparkPredictOperator(task_id="predict", bundle=export.output, input="/data/new")
    """

    config_models = (PredictConfig,)
    required = ("bundle", "input")
    stage = "predict"
    module = "deepspark_ops.predict.spark_job"
    in_python = staticmethod(stages.answer_inputs)
    more_templates = ("in_spark",)

    def __init__(self, *, in_spark: Any = False, **kwargs: Any) -> None:
        """Keep the arguments.

        Args:
            in_spark: Whether tasks of Spark answer.
            kwargs: Fields of ``PredictConfig``, the Spark provider's arguments, Airflow's.
        """
        super().__init__(**kwargs)
        self.in_spark = in_spark

    def needs_spark(self, run: StageRun) -> bool:
        """Return whether tasks of Spark answer."""
        return self.stage_config({}, run, "local[*]" if _is_true(self.in_spark) else None).needs_spark

    def stage_config(self, context: Any, run: StageRun, master: str | None = None) -> PredictConfig:
        """Return the predict config of a run; ``master`` where Spark answers."""
        output: Path | None = None if "output" in self.values() else run.run_dir / PREDICTIONS_NAME
        return self.config(PredictConfig, output=output, master=master, listed_files=self.places.listed_files())

    def result(self, run: StageRun, config: PredictConfig) -> dict[str, str]:
        """Return the written file."""
        return {"predictions": str(config.output)}


def _is_true(value: Any) -> bool:
    """Return whether a switch is on, whose template may have rendered to a word."""
    return value is True or str(value).strip().lower() in ("true", "1", "yes", "on")
