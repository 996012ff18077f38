"""DAG deepspark_convert: a net and weights from another training in; a checked bundle out. No training."""

from __future__ import annotations

from airflow.sdk import DAG

from deepspark_ops.config.convert import ConvertConfig
from deepspark_ops.operators import DeepSparkConvertOperator, form_params, form_templates
from deepspark_ops.operators.notices.send import failure_notices
from deepspark_ops.operators.tasks.retries import stage_retries
from deepspark_ops.operators.tasks.task_settings import DagSettings

_DESCRIPTION = """
Makes a bundle of a Caffe net and its weights: a SavedModel, `deploy.prototxt`, `weights.caffemodel` and a manifest with
a digest of every file. Both forms of the model are run and must agree with the net.

* **net** is a deploy net, or a training net whose data are there; **weights** is its `.caffemodel`.
* A deploy net does not say how pixels become its input: give **mean** or **mean_values**, and **scale**.
* The bundle is in `runs/deepspark_convert/<run>/bundle/`.
"""


def make_dag() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id="deepspark_convert",
        description="Make a checked bundle of a Caffe model that was trained elsewhere",
        doc_md=_DESCRIPTION,
        schedule=None,
        catchup=False,
        is_paused_upon_creation=False,  # it runs only when it is triggered
        params=form_params([("Convert", ConvertConfig)]),
        default_args={**stage_retries(), **failure_notices(), **DagSettings.read().default_args},
        tags=["deepspark"],
    ) as dag:
        DeepSparkConvertOperator(task_id="convert", refuse_unknown_conf=True, **form_templates(ConvertConfig))
    return dag
