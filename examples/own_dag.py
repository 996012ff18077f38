"""A DAG of your own in Airflow: DeepSpark's operators around a function of yours. Copy it into Airflow's DAGs folder.

The DAG trains the digits every Sunday and exports the model only if the worst class is good enough. Where runs and
datasets are kept is said by DEEPSPARK_HOME, as for DeepSpark's own DAGs.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG, Param, get_current_context, task

from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.example_conf import example_conf
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.evaluate.metrics import classes_of, read_metrics
from deepspark_ops.operators import (
    DeepSparkCheckOperator,
    DeepSparkEvaluateOperator,
    DeepSparkExportOperator,
    DeepSparkIngestOperator,
    DeepSparkTrainOperator,
    form_params,
    form_templates,
)
from deepspark_ops.operators.tasks.installation import installed_places
from deepspark_ops.operators.tasks.retries import stage_retries


@task.short_circuit
def is_good_enough(evaluated: dict[str, str]) -> bool:
    """Return whether every class is recognised well enough; if not, what follows is skipped.

    Args:
        evaluated: Output of task evaluate: the run's paths, the path of metrics.json, and its digest.
    """
    metrics = classes_of(read_metrics(Path(evaluated["metrics"])))
    worst = min((row.accuracy or 0.0 for row in metrics.classes), default=0.0) if metrics else 0.0
    return bool(worst >= get_current_context()["params"]["worst_class"])


with DAG(
    dag_id="own_digits",
    schedule="0 6 * * 0",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    params={
        # The form of these stages, with the example's files; "solver" and "source" would be yours.
        **form_params(
            [("Train", CheckConfig), ("Train", TrainConfig), ("Ingest", IngestConfig), ("Evaluate", EvaluateConfig)],
            {**example_conf("own_digits", installed_places().root), "strategy": "easgd", "n_workers": 2},
        ),
        "worst_class": Param(0.8, type="number", minimum=0, maximum=1, description="Accuracy that each class needs"),
    },
    default_args=stage_retries(),
) as dag:
    # What the form says is a template of each task; any argument could be a value instead: n_workers=4.
    check = DeepSparkCheckOperator(
        task_id="check", **form_templates(CheckConfig, TrainConfig, IngestConfig, EvaluateConfig)
    )
    ingest = DeepSparkIngestOperator(task_id="ingest", run=check.output, **form_templates(IngestConfig))
    train = DeepSparkTrainOperator(task_id="train", run=ingest.output, **form_templates(TrainConfig))
    evaluate = DeepSparkEvaluateOperator(task_id="evaluate", run=train.output, **form_templates(EvaluateConfig))
    export = DeepSparkExportOperator(task_id="export", run=evaluate.output)
    is_good_enough(evaluate.output) >> export
