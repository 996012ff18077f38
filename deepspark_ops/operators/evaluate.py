"""Stage evaluate: score a model on the run's dataset."""

from __future__ import annotations

from typing import Any

from deepspark_ops.config.base import StageConfig
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.evaluate.sample_scores import SAMPLES_NAME
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.operators.airflow_names import AirflowSkipException
from deepspark_ops.operators.form import config_from_params
from deepspark_ops.operators.process_stage import ProcessStageOperator
from deepspark_ops.operators.stage_run import StageRun
from deepspark_ops.registry.candidate import PRODUCTION_EVALUATION
from deepspark_ops.run_paths import RunPaths


class EvaluateOperator(ProcessStageOperator):
    """Score the run's last snapshot."""

    module = "deepspark_ops.evaluate"

    def stage_config(self, context: Any, run: StageRun) -> EvaluateConfig:
        """Return the evaluate config of a run."""
        params = context["params"]
        return config_from_params(
            EvaluateConfig, params, self.places.root, run_dir=run.run_dir, dataset=run.dataset, **self.target(run)
        )

    def target(self, run: StageRun) -> dict[str, Any]:
        """Return what is scored, where the result goes, and what it is compared with: where it is not the default."""
        output = {"output": RunPaths(run.run_dir).evaluation}
        if run.production is None:
            return output
        known = run.production.parent / SAMPLES_NAME
        return {
            **output,
            "production": run.run_dir / PRODUCTION_EVALUATION,
            "production_samples": known if known.is_file() else None,
        }

    def result(self, run: StageRun, config: StageConfig) -> dict[str, str]:
        """Return the metrics file and its digest."""
        metrics = self.target(run)["output"] / "metrics.json"
        return {"metrics": str(metrics), "digest": file_digest(metrics)}


class EvaluateProductionOperator(EvaluateOperator):
    """Score the model in production with the same net on the same data as the run's own."""

    def execute(self, context: Any) -> dict[str, str]:
        """Score, or skip while nothing is in production."""
        if StageRun.of(context).production is None:
            msg = "no model in production yet: there is nothing to compare with"
            raise AirflowSkipException(msg)
        return super().execute(context)

    def target(self, run: StageRun) -> dict[str, Any]:
        """Return production's weights and a folder beside the run's own evaluation."""
        return {"weights": run.production, "output": run.run_dir / PRODUCTION_EVALUATION}
