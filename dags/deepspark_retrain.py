"""DAG deepspark_retrain: train the model in production further, on a timetable or on new data; keep the better one."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, CronTriggerTimetable, TriggerRule

from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.exchange.strategies.base import strategy_names
from deepspark_ops.operators.check import CheckOperator
from deepspark_ops.operators.evaluate import EvaluateOperator, EvaluateProductionOperator
from deepspark_ops.operators.export import ExportOperator
from deepspark_ops.operators.form import form_params
from deepspark_ops.operators.ingest import IngestOperator
from deepspark_ops.operators.promote import DecideOperator, PromoteOperator
from deepspark_ops.operators.run_plan import Places
from deepspark_ops.operators.train import TrainOperator

PLACES = Places.of_installation(__file__)
DATASET = Asset("deepspark_dataset", uri="x-deepspark://dataset")
MODEL = Asset("deepspark_model", uri="x-deepspark://model")
TIMETABLE = os.environ.get("DEEPSPARK_RETRAIN_CRON", "0 3 * * *")

# What the scheduled runs train, unless the JSON file named by DEEPSPARK_RETRAIN_DEFAULTS says otherwise, e.g.
# {"solver": "nets/solver.prototxt", "source": "/data/train_list.txt", "model": "parts"}. A run by hand may change it.
DEFAULTS_FILE = os.environ.get("DEEPSPARK_RETRAIN_DEFAULTS")
DIGITS = {
    "solver": "examples/digits/lenet_solver.prototxt",
    "overrides": "max_iter: 500 base_lr: 0.002",
    "source": "examples/digits/digits8x8-images-idx3-ubyte.gz",
    "resize_height": 28,
    "resize_width": 28,
    "max_pixel": 16,
    "model": "digits",
}

DEFAULTS = json.loads(Path(DEFAULTS_FILE).read_text(encoding="utf-8")) if DEFAULTS_FILE else DIGITS

with DAG(
    dag_id="deepspark_retrain",
    description="Retrain the model in production and replace it by a better one",
    doc_md="""
Runs on a timetable (UTC; `DEEPSPARK_RETRAIN_CRON`) or when `deepspark_train` has ingested a changed source that is
this DAG's own. Training starts from the weights in production; both models are scored on the same data; only a better
one is exported and promoted to `models/<model>/`. The first model goes into production unopposed.

Scheduled runs train what the JSON file named by `DEEPSPARK_RETRAIN_DEFAULTS` says (keys as in the form), the digits
example without it.
""",
    schedule=AssetOrTimeSchedule(timetable=CronTriggerTimetable(TIMETABLE, timezone="UTC"), assets=[DATASET]),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,  # two trainings would start from the same model, and the later one overwrite the better one
    params=form_params(
        [
            ("Train", CheckConfig),
            ("Train", TrainConfig),
            ("Ingest", IngestConfig),
            ("Evaluate", EvaluateConfig),
            ("Promote", PromoteConfig),
        ],
        DEFAULTS,
        optional=["source"],
        choices={"strategy": strategy_names()},
    ),
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30), "places": PLACES},
    tags=["deepspark"],
) as dag:
    check = CheckOperator(task_id="check", retries=0, warm_start=True, dataset_asset=DATASET)
    ingest = IngestOperator(task_id="ingest")
    train = TrainOperator(task_id="train")
    evaluate = EvaluateOperator(task_id="evaluate")
    evaluate_production = EvaluateProductionOperator(task_id="evaluate_production")
    # Runs though production's evaluation was skipped (there is none yet), but not if the whole run was.
    decide = DecideOperator(task_id="decide", trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)
    export = ExportOperator(task_id="export")
    promote = PromoteOperator(task_id="promote", model_asset=MODEL)
    check >> ingest >> train >> [evaluate, evaluate_production] >> decide >> export >> promote
