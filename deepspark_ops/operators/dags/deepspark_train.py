"""DAG deepspark_train: a Caffe solver in; a trained, evaluated and exported model out. Started from the form."""

from __future__ import annotations

from airflow.sdk import DAG, Asset

from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.run_label import RunLabelConfig
from deepspark_ops.config.task_settings import SparkTaskConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.exchange.strategies.choice import strategy_choices
from deepspark_ops.operators import (
    DeepSparkCheckOperator,
    DeepSparkEvaluateOperator,
    DeepSparkExportOperator,
    DeepSparkIngestOperator,
    DeepSparkTrainOperator,
    form_params,
    form_templates,
)
from deepspark_ops.operators.dags.documentation import with_example
from deepspark_ops.operators.notices.send import failure_notices
from deepspark_ops.operators.tasks.installation import installed_places
from deepspark_ops.operators.tasks.retries import stage_retries
from deepspark_ops.operators.tasks.task_settings import DagSettings

DATASET = Asset("deepspark_dataset", uri="x-deepspark://dataset")

_DESCRIPTION = """
Trains the net of a Caffe solver on Spark workers that exchange parameters with a center, scores the result and
exports it.

* **Solver** and **Changes to the solver** (section Run Parameters) say what is trained; relative paths start from
  `DEEPSPARK_ROOT`, by default the folder above the DAGs folder.
* **Training data** (section Ingest) is the raw data. An unchanged source is not ingested twice. Left empty, training
  reads the sources that the net itself names.
* Everything of a run is in `runs/deepspark_train/<run>/`: the report in `evaluation/`, the model in `bundle/`.
"""


def make_dag() -> DAG:
    """Return the DAG for this Airflow's places."""
    places, settings = installed_places(), DagSettings.read()
    spark = form_templates(SparkTaskConfig)
    with DAG(
        dag_id="deepspark_train",
        description="Train a Caffe net: check, ingest, train, evaluate, export",
        doc_md=with_example(_DESCRIPTION, "deepspark_train", places.root),
        schedule=None,
        catchup=False,
        is_paused_upon_creation=False,  # it runs only when it is triggered
        params=form_params(
            [
                ("Train", CheckConfig),
                ("Train", TrainConfig),
                ("Train", RunLabelConfig),
                ("Ingest", IngestConfig),
                ("Evaluate", EvaluateConfig),
                ("Export", ExportConfig),
                ("Spark", SparkTaskConfig),
            ],
            settings.form_defaults,
            optional=["source"],
            choices={"strategy": strategy_choices(), "conn_id": settings.connections},
        ),
        default_args={**stage_retries(), **failure_notices(), **settings.default_args},
        tags=["deepspark"],
    ) as dag:
        check = DeepSparkCheckOperator(
            task_id="check",
            refuse_unknown_conf=True,
            **form_templates(CheckConfig, TrainConfig, RunLabelConfig, IngestConfig, EvaluateConfig, ExportConfig),
        )
        ingest = DeepSparkIngestOperator(
            task_id="ingest", run=check.output, asset=DATASET, **form_templates(IngestConfig), **spark
        )
        train = DeepSparkTrainOperator(task_id="train", run=ingest.output, **form_templates(TrainConfig), **spark)
        evaluate = DeepSparkEvaluateOperator(
            task_id="evaluate", run=train.output, **form_templates(EvaluateConfig), **spark
        )
        DeepSparkExportOperator(task_id="export", run=evaluate.output, **form_templates(ExportConfig))
    return dag
