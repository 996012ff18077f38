"""DAG deepspark_train: a Caffe solver in; a trained, evaluated and exported model out. Started from the form."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset, AssetAlias

from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.exchange.strategies.base import strategy_names
from deepspark_ops.operators.check import CheckOperator
from deepspark_ops.operators.evaluate import EvaluateOperator
from deepspark_ops.operators.export import ExportOperator
from deepspark_ops.operators.form import form_params
from deepspark_ops.operators.ingest import IngestOperator
from deepspark_ops.operators.run_plan import Places
from deepspark_ops.operators.train import TrainOperator

PLACES = Places.of_installation(__file__)
DATASET = Asset("deepspark_dataset", uri="x-deepspark://dataset")

# The example: LeNet on handwritten digits. Everything else has its default in the config models.
DIGITS = {
    "solver": "examples/digits/lenet_solver.prototxt",
    "source": "examples/digits/digits8x8-images-idx3-ubyte.gz",
    "resize_height": 28,
    "resize_width": 28,
    "max_pixel": 16,
}

with DAG(
    dag_id="deepspark_train",
    description="Train a Caffe net: check, ingest, train, evaluate, export",
    doc_md="""
Trains the net of a Caffe solver on Spark workers that exchange parameters with a center, scores the result and
exports it.

* **solver** and **overrides** (section Train) say what is trained; paths are relative to the installation's folder.
* **source** (section Ingest) is the raw data. An unchanged source is not ingested twice. Left empty, training reads
  the sources that the net itself names.
* Everything of a run lies in `runs/deepspark_train/<run>/`: the report in `evaluation/`, the model in `bundle/`.
""",
    schedule=None,
    catchup=False,
    is_paused_upon_creation=False,  # it runs only when somebody asks for it
    params=form_params(
        [("Train", CheckConfig), ("Train", TrainConfig), ("Ingest", IngestConfig), ("Evaluate", EvaluateConfig)],
        DIGITS,
        optional=["source"],
        choices={"strategy": strategy_names()},
    ),
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30), "places": PLACES},
    tags=["deepspark"],
) as dag:
    check = CheckOperator(task_id="check", retries=0)
    ingest = IngestOperator(task_id="ingest", alias=AssetAlias("deepspark_ingested"), asset=DATASET)
    train = TrainOperator(task_id="train")
    evaluate = EvaluateOperator(task_id="evaluate")
    export = ExportOperator(task_id="export")
    check >> ingest >> train >> evaluate >> export
