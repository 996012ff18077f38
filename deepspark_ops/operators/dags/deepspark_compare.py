"""DAG deepspark_compare: a solver over strategies, workers, tau, learning rates or solver files; a table."""

from __future__ import annotations

import os

from airflow.sdk import DAG, TriggerRule

from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.commands.simulate import SimulateConfig
from deepspark_ops.config.compare import CompareConfig
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.run_label import RunLabelConfig
from deepspark_ops.config.task_settings import SparkTaskConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.choice import strategy_choices
from deepspark_ops.operators import form_params, form_templates
from deepspark_ops.operators.compare import (
    DeepSparkCheckTrialsOperator,
    DeepSparkCompareOperator,
    DeepSparkEvaluateTrialOperator,
    DeepSparkIngestOnceOperator,
    DeepSparkTrainTrialOperator,
)
from deepspark_ops.operators.dags.documentation import with_example
from deepspark_ops.operators.notices.send import failure_notices
from deepspark_ops.operators.simulate import DeepSparkSimulateTrialsOperator
from deepspark_ops.operators.tasks.installation import installed_places
from deepspark_ops.operators.tasks.retries import stage_retries
from deepspark_ops.operators.tasks.task_settings import DagSettings

AT_ONCE = "DEEPSPARK_COMPARE_AT_ONCE"

_DESCRIPTION = """
Trains one net in several ways, on the same data, and compares them in one table and one plot: accuracy, time to an
accuracy, bytes that the workers exchanged.

* What varies are the lists: strategies, numbers of workers, tau, learning rates, solver files. **All combinations** are
  trained, at most 64; an empty list takes the one value of the form. All are checked before the first one trains.
  Combinations that are the same training, such as every strategy but `lbfgs` with one worker, are trained once.
* One trial trains at a time, since trials on one machine slow each other down, and their times would say nothing. On a
  cluster that has room for several, `DEEPSPARK_COMPARE_AT_ONCE=4` in Airflow's environment lets 4 train at once.
* A trial that fails is a row of the table with its reason; the others go on. It is not tried again by itself, since its
  time would be another one's: clear its task, and what follows, to train it again.
* `simulate`: strategies and numbers of workers are not trained but simulated, on this host's cores, for a cluster that
  one does not have (section Simulate; `deepspark simulate`). Task *simulate* runs in the place of the trainings.
* The result is in the tab *Report* of the run, and in `runs/deepspark_compare/<run>/evaluation/`: `comparison.json`,
  `comparison.csv`. Each trial has a folder of its own beside the run's, `<run>__trial_01`, and its own pages.
"""


def make_dag() -> DAG:
    """Return the DAG for this Airflow's places."""
    places, settings = installed_places(), DagSettings.read()
    spark = form_templates(SparkTaskConfig)
    mapped = {"max_active_tis_per_dagrun": _at_once(), "map_index_template": "{{ task.trial['name'] }}"}
    with DAG(
        dag_id="deepspark_compare",
        description="Train one net in several ways and compare accuracy, time and bytes",
        doc_md=with_example(_DESCRIPTION, "deepspark_compare", places.root),
        schedule=None,
        catchup=False,
        is_paused_upon_creation=False,  # it runs only when it is triggered
        max_active_runs=1,  # trials of two comparisons would disturb each other's times
        params=form_params(
            [
                ("Compare", CompareConfig),
                ("Train", CheckConfig),
                ("Train", TrainConfig),
                ("Train", RunLabelConfig),
                ("Ingest", IngestConfig),
                ("Evaluate", EvaluateConfig),
                ("Simulate", SimulateConfig),
                ("Spark", SparkTaskConfig),
            ],
            settings.form_defaults,
            optional=["solver", "source"],  # a list of solvers takes the place of the solver
            choices={"strategy": strategy_choices(), "conn_id": settings.connections, "strategies": strategy_choices()},
        ),
        default_args={**stage_retries(), **failure_notices(), **settings.default_args},
        tags=["deepspark"],
    ) as dag:
        check = DeepSparkCheckTrialsOperator(
            task_id="check",
            refuse_unknown_conf=True,
            **form_templates(
                CompareConfig, CheckConfig, TrainConfig, RunLabelConfig, IngestConfig, EvaluateConfig, SimulateConfig
            ),
        )
        ingest = DeepSparkIngestOnceOperator(
            task_id="ingest",
            trials=check.output,
            simulate="{{ params.simulate }}",
            **form_templates(IngestConfig),
            **spark,
        )
        train = DeepSparkTrainTrialOperator.partial(
            task_id="train", retries=0, **mapped, **form_templates(TrainConfig), **spark
        ).expand(trial=ingest.output)
        # All trainings first: an evaluation beside a training would take time from it. What comes after runs though a
        # trial has failed, but not without data: ingest is the one success that is needed.
        evaluate = DeepSparkEvaluateTrialOperator.partial(
            task_id="evaluate",
            trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS,
            **mapped,
            **form_templates(EvaluateConfig),
            **spark,
        ).expand(trial=ingest.output)
        compare = DeepSparkCompareOperator(
            task_id="compare",
            trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS,
            **form_templates(CompareConfig, TrainConfig, IngestConfig),
        )
        train >> evaluate >> compare
        ingest >> compare
        # In the place of the four before it: with virtual workers ingest hands on no trials, which skips them.
        simulate = DeepSparkSimulateTrialsOperator(
            task_id="simulate",
            trials=check.output,
            **form_templates(CompareConfig, TrainConfig, SimulateConfig),
        )
        ingest >> simulate
    return dag


def _at_once() -> int:
    """Return how many trials may train at the same time.

    Raises:
        ConfigError: The environment does not say a number; Airflow shows the message as the file's import error.
    """
    text = os.environ.get(AT_ONCE, "").strip() or "1"
    if not text.isdecimal() or int(text) < 1:
        msg = f"{AT_ONCE}={text}: must be the number of trials that train at once, 1 or more"
        raise ConfigError(msg)
    return int(text)
