"""DAG deepspark_retrain: train the model in production further, on a timetable or new data; keep the better model."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, TriggerRule

from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.evaluate import EvaluateConfig, ScoreBundleConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.promote import ApprovalConfig, PromoteConfig
from deepspark_ops.config.run_label import RunLabelConfig
from deepspark_ops.config.task_settings import SparkTaskConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.exchange.strategies.choice import strategy_choices
from deepspark_ops.operators import (
    DeepSparkApproveOperator,
    DeepSparkCheckOperator,
    DeepSparkDecideOperator,
    DeepSparkEvaluateOperator,
    DeepSparkEvaluateProductionOperator,
    DeepSparkExportOperator,
    DeepSparkIngestOperator,
    DeepSparkPromoteOperator,
    DeepSparkTrainOperator,
    form_params,
    form_templates,
)
from deepspark_ops.operators.dags.deepspark_train import DATASET
from deepspark_ops.operators.dags.documentation import with_example
from deepspark_ops.operators.notices.send import failure_notices
from deepspark_ops.operators.provider.airflow_names import (
    AssetOrTimeSchedule,
    CronTriggerTimetable,
    DescribedCronTimetable,
)
from deepspark_ops.operators.tasks.installation import installed_places
from deepspark_ops.operators.tasks.retries import stage_retries
from deepspark_ops.operators.tasks.task_settings import DagSettings
from deepspark_ops.run_index.schedule import schedule_text

_ZONE = "UTC"
MODEL = Asset("deepspark_model", uri="x-deepspark://model")

_DESCRIPTION = """
Runs {schedule}: on a timetable (`DEEPSPARK_RETRAIN_CRON`), and when `deepspark_train` has ingested a changed source
that is this DAG's own. Data that a candidate was judged on already start no training, nor does a time that passed while
the DAG was paused. Training starts from the weights in production; both models are scored on the same samples; only
one that is better beyond chance is exported and promoted to `models/<model>/`. The first model goes in unopposed. With
**Ask before promoting** it waits until a person approves it (Required Actions). The decision is in the run's note when
the run has ended, and in its report. `deepspark models rollback` goes back.

Scheduled runs train the solver and the source of the JSON file that `DEEPSPARK_RETRAIN_DEFAULTS` names. Its keys are
the form's. Without this file a scheduled run is refused.
"""


def make_dag() -> DAG:
    """Return the DAG for this Airflow's places, with timetable and defaults from the environment."""
    places, settings = installed_places(), DagSettings.read()
    spark = form_templates(SparkTaskConfig)
    cron = os.environ.get("DEEPSPARK_RETRAIN_CRON", "0 3 * * *")
    schedule = _schedule_words(cron)
    with DAG(
        dag_id="deepspark_retrain",
        description=f"Retrain the model in production and replace it by a better one: {schedule}",
        doc_md=with_example(_DESCRIPTION.format(schedule=schedule), "deepspark_retrain", places.root),
        schedule=AssetOrTimeSchedule(timetable=CronTriggerTimetable(cron, timezone=_ZONE), assets=[DATASET]),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,  # two trainings would start from the same model, and the later one overwrite the better one
        params=form_params(
            [
                ("Train", CheckConfig),
                ("Train", TrainConfig),
                ("Train", RunLabelConfig),
                ("Ingest", IngestConfig),
                ("Evaluate", EvaluateConfig),
                ("Evaluate", ScoreBundleConfig),
                ("Promote", PromoteConfig),
                ("Promote", ApprovalConfig),
                ("Spark", SparkTaskConfig),
            ],
            {**settings.form_defaults, **_defaults(places.root)},
            optional=["source"],
            choices={"strategy": strategy_choices(), "conn_id": settings.connections},
        ),
        default_args={**stage_retries(), **failure_notices(), **settings.default_args},
        tags=["deepspark"],
    ) as dag:
        judged = form_templates(PromoteConfig)
        # Who may trigger this DAG may name another model, but none that other DAGs made.
        dag_model = {name: str(dag.params[name]) for name in ("models", "model")}
        check = DeepSparkCheckOperator(
            task_id="check",
            warm_start=True,
            dataset_asset=DATASET,
            dag_model=dag_model,
            refuse_unknown_conf=True,
            **form_templates(
                CheckConfig, TrainConfig, RunLabelConfig, IngestConfig, EvaluateConfig, PromoteConfig, ApprovalConfig
            ),
        )
        ingest = DeepSparkIngestOperator(
            task_id="ingest",
            run=check.output,
            asset=DATASET,
            skips_judged_data=True,
            model=judged["model"],
            models=judged["models"],
            **form_templates(IngestConfig),
            **spark,
        )
        train = DeepSparkTrainOperator(task_id="train", run=ingest.output, **form_templates(TrainConfig), **spark)
        evaluate_production = DeepSparkEvaluateProductionOperator(
            task_id="evaluate_production", run=train.output, **form_templates(ScoreBundleConfig)
        )
        # One after the other, so that both are timed on a machine that does nothing else of this run. It runs though
        # production's evaluation was skipped (there is none yet), but not if the whole run was.
        evaluate = DeepSparkEvaluateOperator(
            task_id="evaluate",
            run=train.output,
            trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
            **form_templates(EvaluateConfig),
            **spark,
        )
        decide = DeepSparkDecideOperator(task_id="decide", run=evaluate.output, dag_model=dag_model, **judged)
        export = DeepSparkExportOperator(task_id="export", run=decide.output)
        approve = DeepSparkApproveOperator(
            task_id="approve", run=export.output, dag_model=dag_model, **form_templates(PromoteConfig, ApprovalConfig)
        )
        # It runs where nobody is asked, which skips approve; where somebody refuses, approve skips it.
        promote = DeepSparkPromoteOperator(
            task_id="promote",
            run=export.output,
            model_asset=MODEL,
            dag_model=dag_model,
            trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
            **form_templates(PromoteConfig, ApprovalConfig),
        )
        evaluate_production >> evaluate
        approve >> promote
    return dag


def _schedule_words(cron: str) -> str:
    """Return the schedule in the words of the page of runs; a cron expression without words is shown itself."""
    description = DescribedCronTimetable(cron, timezone=_ZONE).description or f"Cron {cron}"
    return schedule_text(description, timezone=_ZONE, assets={"asset": {"name": DATASET.name}})


def _defaults(root: Path) -> dict[str, Any]:
    """Return the values of scheduled runs, the form's first values: the JSON file named by the environment.

    A relative path of the file starts from ``root``, as the paths in the file do.

    Example of a file: ``{"solver": "nets/solver.prototxt", "source": "/data/train_list.txt", "model": "parts"}``.
    """
    if file := os.environ.get("DEEPSPARK_RETRAIN_DEFAULTS"):
        return dict(json.loads(regular_text(root / file)))
    return {}
