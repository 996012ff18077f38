"""DAG deepspark_clean: list, or remove, runs and datasets without a use."""

from __future__ import annotations

from airflow.sdk import DAG

from deepspark_ops.config.clean import CleanConfig
from deepspark_ops.operators import DeepSparkCleanOperator, form_params, form_templates
from deepspark_ops.operators.notices.send import failure_notices
from deepspark_ops.operators.tasks.retries import stage_retries
from deepspark_ops.operators.tasks.task_settings import DagSettings

_DESCRIPTION = """
Lists the runs and datasets that have not changed for **older_than** days and that nothing refers to, with their sizes:
in the log, and in `runs/deepspark_clean/<run>/clean.json`. With **remove** they are removed.

What stays, whatever its age: the newest **keep_runs** runs of each DAG, the newest **keep_datasets** datasets, the runs
and datasets that a version of a model came from, and what a run that stays uses. Models are not touched.
"""


def make_dag() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id="deepspark_clean",
        description="List or remove old runs and datasets",
        doc_md=_DESCRIPTION,
        schedule=None,
        catchup=False,
        is_paused_upon_creation=False,  # it runs only when it is triggered
        max_active_runs=1,
        params=form_params([("Clean", CleanConfig)]),
        default_args={**stage_retries(), **failure_notices(), **DagSettings.read().default_args},
        tags=["deepspark"],
    ) as dag:
        DeepSparkCleanOperator(task_id="clean", refuse_unknown_conf=True, **form_templates(CleanConfig))
    return dag
