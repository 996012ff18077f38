"""Stage evaluate: score a model on the run's dataset."""

from __future__ import annotations

from typing import Any

from deepspark_ops.api import stages
from deepspark_ops.config.evaluate import EvaluateConfig, ScoreBundleConfig
from deepspark_ops.evaluate.metrics import METRICS_NAME
from deepspark_ops.evaluate.sample_scores import SAMPLES_NAME
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.operators.provider.airflow_names import AirflowSkipException
from deepspark_ops.operators.tasks.process_stage import ProcessStageOperator, SparkOnDemandOperator
from deepspark_ops.operators.tasks.stage_run import StageRun
from deepspark_ops.registry.candidate import PRODUCTION_EVALUATION
from deepspark_ops.run_paths import RunPaths


class DeepSparkEvaluateOperator(SparkOnDemandOperator):
    """Score the run's last snapshot, and compare the snapshot in the report with a scored production.

    A child process scores, or with ``engine="spark"`` a Spark application on the connection ``conn_id``; the figures
    are the same. The output has the run's paths, ``metrics``, the path of metrics.json, and the file's ``digest``.

    Example:
        .. code-block:: python

            evaluate = DeepSparkEvaluateOperator(task_id="evaluate", run=train.output, split="test")
            mail_figures(evaluate.output)  # a @task of yours
    """

    config_models = (EvaluateConfig,)
    stage = "evaluate"
    needs_training = True
    module = "deepspark_ops.evaluate.spark_job"
    in_python = staticmethod(stages.evaluate)

    def needs_spark(self, run: StageRun) -> bool:
        """Return whether the samples are scored in Spark."""
        return self.config(EvaluateConfig, run_dir=run.run_dir).is_in_spark

    def stage_config(self, context: Any, run: StageRun, master: str | None = None) -> EvaluateConfig:
        """Return the evaluate config of a run; ``master`` where Spark scores."""
        samples = None if run.production is None else run.production.parent / SAMPLES_NAME
        values = self.values()
        return self.config(
            EvaluateConfig,
            run_dir=run.run_dir,
            dataset=None if "dataset" in values else run.dataset,
            output=None if "output" in values else RunPaths(run.run_dir).evaluation,
            production=None if run.production is None else run.run_dir / PRODUCTION_EVALUATION,
            production_samples=samples if samples is not None and samples.is_file() else None,
            master=master,
        )

    def result(self, run: StageRun, config: EvaluateConfig) -> dict[str, str]:
        """Return the metrics file and the file's digest."""
        metrics = (config.output or RunPaths(run.run_dir).evaluation) / METRICS_NAME
        return {"metrics": str(metrics), "digest": file_digest(metrics)}


class DeepSparkEvaluateProductionOperator(ProcessStageOperator):
    """Score the delivered bundle in production on the samples of the run's net.

    Skipped while nothing is in production. The output has the run's paths, ``metrics``, the path of metrics.json, and
    that file's ``digest``. The run's DeepSparkCheckOperator names the model in production by ``warm_start=True``.

    Example:
        .. code-block:: python

            production = DeepSparkEvaluateProductionOperator(task_id="evaluate_production", run=train.output)
            rule = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
            evaluate = DeepSparkEvaluateOperator(task_id="evaluate", run=train.output, trigger_rule=rule)
            production >> evaluate  # one after the other, so that both are timed alone
    """

    config_models = (ScoreBundleConfig,)
    not_arguments = frozenset({"bundle", "output"})
    stage = "evaluate_production"
    needs_training = True
    module = "deepspark_ops.export.scores"

    def stage_config(self, context: Any, run: StageRun) -> ScoreBundleConfig:
        """Return what is scored on the data of a run.

        Raises:
            AirflowSkipException: Nothing is in production.
        """
        if run.production is None:
            msg = "no model in production yet: there is nothing to compare with"
            raise AirflowSkipException(msg)
        return self.config(
            ScoreBundleConfig,
            run_dir=run.run_dir,
            bundle=run.production.parent,
            output=run.run_dir / PRODUCTION_EVALUATION,
            dataset=None if "dataset" in self.values() else run.dataset,
        )

    def result(self, run: StageRun, config: ScoreBundleConfig) -> dict[str, str]:
        """Return the metrics file and the file's digest."""
        metrics = run.run_dir / PRODUCTION_EVALUATION / METRICS_NAME
        return {"metrics": str(metrics), "digest": file_digest(metrics)}
