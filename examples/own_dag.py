"""A DAG of your own in Airflow: DeepSpark's operators around a function of yours. Copy it into Airflow's DAGs folder.

It trains the digits every Sunday and exports the model only if its worst class is good enough. Where runs and datasets
are kept is said by DEEPSPARK_HOME, as for DeepSpark's own DAGs.
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
from deepspark_ops.operators.check import CheckOperator
from deepspark_ops.operators.evaluate import EvaluateOperator
from deepspark_ops.operators.export import ExportOperator
from deepspark_ops.operators.form import form_params
from deepspark_ops.operators.ingest import IngestOperator
from deepspark_ops.operators.tasks.installation import installed_places
from deepspark_ops.operators.tasks.retries import stage_retries
from deepspark_ops.operators.train import TrainOperator

places = installed_places()


@task.short_circuit
def is_good_enough(evaluated: dict[str, str]) -> bool:
    """Return whether every class is recognised well enough; if not, what follows is skipped.

    Args:
        evaluated: What task evaluate returned: the path of metrics.json, and its digest.
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
            {**example_conf("own_digits", places.root), "strategy": "easgd", "n_workers": 2},
        ),
        "worst_class": Param(0.8, type="number", minimum=0, maximum=1, description="Accuracy that each class needs"),
    },
    default_args=stage_retries(),
) as dag:
    # The first task must be called "check": it decides the run's folder, where the other operators look it up.
    check = CheckOperator(task_id="check", places=places)
    ingest = IngestOperator(task_id="ingest", places=places)
    train = TrainOperator(task_id="train", places=places)
    evaluate = EvaluateOperator(task_id="evaluate", places=places)
    export = ExportOperator(task_id="export", places=places)
    check >> ingest >> train >> evaluate >> is_good_enough(evaluate.output) >> export
