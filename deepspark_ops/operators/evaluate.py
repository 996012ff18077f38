"""Stage evaluate: score a model on the run's dataset."""

from __future__ import annotations

from typing import Any

from deepspark_ops.config.base import StageConfig
from deepspark_ops.config.evaluate import EvaluateConfig, ScoreBundleConfig
from deepspark_ops.evaluate.metrics import METRICS_NAME
from deepspark_ops.evaluate.sample_scores import SAMPLES_NAME
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.operators.airflow_names import AirflowSkipException
from deepspark_ops.operators.form import config_from_params
from deepspark_ops.operators.tasks.process_stage import ProcessStageOperator
from deepspark_ops.operators.tasks.spark_stage import SparkStageOperator
from deepspark_ops.operators.tasks.stage_run import StageRun, airflow_errors, ends_plainly, noted_stage
from deepspark_ops.processes.spark_submit import run_job
from deepspark_ops.registry.candidate import PRODUCTION_EVALUATION
from deepspark_ops.run_paths import RunPaths


class EvaluateOperator(SparkStageOperator):
    """Score the run's last snapshot, and compare it with production in the report where that was scored.

    A child process scores, or with the form's ``score_in_spark`` a Spark application on the connection ``conn_id``; the
    figures are the same. Its result has ``metrics``, the path of metrics.json, and that file's ``digest``.

    Example:
        .. code-block:: python

            evaluate = EvaluateOperator(task_id="evaluate", places=installed_places())
            check >> ingest >> train >> evaluate >> mail_figures(evaluate.output)  # a @task of yours
    """

    module = "deepspark_ops.evaluate.spark_job"
    process_module = "deepspark_ops.evaluate"

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str]:
        """Run the stage to its end and return the metrics file and its digest."""
        if context["params"].get("score_in_spark"):
            in_spark: dict[str, str] = super().execute(context)
            return in_spark
        run = self.stage_run(context)
        with noted_stage(run.run_dir, str(self.task_id), self.log) as on_line, airflow_errors():
            config = self.stage_config(context, run)
            run_job(self.process_module, config, on_line=on_line, config_path=run.config_path(str(self.task_id)))
            return self.result(context, run)

    def on_kill(self) -> None:
        """End the Spark application, if there is one; a child process ends with this one."""
        if self._hook is not None:
            super().on_kill()

    def stage_config(self, context: Any, run: StageRun, master: str | None = None) -> EvaluateConfig:
        """Return the evaluate config of a run; ``master`` where Spark scores."""
        known = None if run.production is None else run.production.parent / SAMPLES_NAME
        return config_from_params(
            EvaluateConfig,
            context["params"],
            self.places.root,
            run_dir=run.run_dir,
            dataset=run.dataset,
            output=RunPaths(run.run_dir).evaluation,
            production=None if run.production is None else run.run_dir / PRODUCTION_EVALUATION,
            production_samples=known if known is not None and known.is_file() else None,
            master=master,
        )

    def result(self, context: Any, run: StageRun) -> dict[str, str]:
        """Return the metrics file and its digest."""
        metrics = RunPaths(run.run_dir).evaluation / METRICS_NAME
        return {"metrics": str(metrics), "digest": file_digest(metrics)}


class EvaluateProductionOperator(ProcessStageOperator):
    """Score the bundle in production, as it is delivered, on the same samples as the run's own net.

    Skipped while nothing is in production. Its result has ``metrics``, the path of metrics.json, and that file's
    ``digest``.

    Example:
        .. code-block:: python

            production = EvaluateProductionOperator(task_id="evaluate_production", places=installed_places())
            rule = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
            evaluate = EvaluateOperator(task_id="evaluate", places=installed_places(), trigger_rule=rule)
            train >> [production, evaluate]
            production >> evaluate  # one after the other, so that both are timed alone
    """

    module = "deepspark_ops.export.scores"

    def execute(self, context: Any) -> dict[str, str]:
        """Score, or skip while nothing is in production."""
        if StageRun.of(context).production is None:
            msg = "no model in production yet: there is nothing to compare with"
            raise AirflowSkipException(msg)
        return super().execute(context)

    def stage_config(self, context: Any, run: StageRun) -> ScoreBundleConfig:
        """Return what is scored on the data of a run."""
        assert run.production is not None  # else the task is skipped
        return config_from_params(
            ScoreBundleConfig,
            context["params"],
            self.places.root,
            run_dir=run.run_dir,
            bundle=run.production.parent,
            output=run.run_dir / PRODUCTION_EVALUATION,
            dataset=run.dataset,
        )

    def result(self, run: StageRun, config: StageConfig) -> dict[str, str]:
        """Return the metrics file and its digest."""
        metrics = run.run_dir / PRODUCTION_EVALUATION / METRICS_NAME
        return {"metrics": str(metrics), "digest": file_digest(metrics)}
