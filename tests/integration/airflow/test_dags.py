"""The DAG files load, and their graphs, schedules and forms are what is written here."""

from __future__ import annotations

import json
import runpy
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, Asset
from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.utils.file import might_contain_dag_via_default_heuristic

from caffe_import.solver.loaded_solver import load_solver
from deepspark_ops.config.base import StageConfig
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.clean import CleanConfig
from deepspark_ops.config.commands.simulate import SimulateConfig
from deepspark_ops.config.compare import CompareConfig
from deepspark_ops.config.convert import ConvertConfig
from deepspark_ops.config.evaluate import EvaluateConfig, ScoreBundleConfig
from deepspark_ops.config.example_conf import example_conf
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.promote import ApprovalConfig, PromoteConfig
from deepspark_ops.config.run_label import RunLabelConfig
from deepspark_ops.config.task_settings import SparkTaskConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.local_airflow.dag_files import install_dags
from deepspark_ops.operators.form import config_from_params, form_schemas
from deepspark_ops.operators.provider.airflow_names import AssetOrTimeSchedule
from deepspark_ops.operators.tasks.retries import own_retries
from tests.paths import ROOT

try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:  # 3.1
    from airflow.models.dagbag import DagBag

pytestmark = pytest.mark.airflow

GRAPHS: dict[str, dict[str, set[str]]] = {
    "deepspark_train": {
        "check": {"ingest"},
        "ingest": {"train"},
        "train": {"evaluate"},
        "evaluate": {"export"},
        "export": set(),
    },
    "deepspark_retrain": {
        "check": {"ingest"},
        "ingest": {"train"},
        "train": {"evaluate", "evaluate_production"},
        "evaluate": {"decide"},
        "evaluate_production": {"evaluate"},
        "decide": {"export"},
        "export": {"approve", "promote"},
        "approve": {"promote"},
        "promote": set(),
    },
    "deepspark_convert": {"convert": set()},
    "deepspark_compare": {
        "check": {"ingest", "simulate"},
        "ingest": {"train", "evaluate", "compare", "simulate"},
        "train": {"evaluate"},
        "evaluate": {"compare"},
        "compare": set(),
        "simulate": set(),
    },
    "deepspark_clean": {"clean": set()},
}
TRAINED: tuple[type[StageConfig], ...] = (CheckConfig, TrainConfig, RunLabelConfig, IngestConfig, EvaluateConfig)
FORM_MODELS: dict[str, tuple[type[StageConfig], ...]] = {
    "deepspark_train": (*TRAINED, ExportConfig, SparkTaskConfig),
    "deepspark_retrain": (*TRAINED, ScoreBundleConfig, PromoteConfig, ApprovalConfig, SparkTaskConfig),
    "deepspark_compare": (CompareConfig, *TRAINED, SimulateConfig, SparkTaskConfig),
    "deepspark_convert": (ConvertConfig,),
    "deepspark_clean": (CleanConfig,),
}
TRAINS = ("deepspark_train", "deepspark_retrain", "deepspark_compare")


def load(dag_id: str) -> DAG:
    dag: DAG = runpy.run_path(str(ROOT / "dags" / f"{dag_id}.py"))["dag"]
    return dag


def test_the_dag_files_are_what_dags_install_writes(tmp_path: Path) -> None:
    written = {path.name: path.read_text() for path in install_dags(tmp_path / "dags")}
    assert {path.name: path.read_text() for path in (ROOT / "dags").glob("*.py")} == written
    assert {Path(name).stem for name in written} == set(GRAPHS)
    assert all(might_contain_dag_via_default_heuristic(str(tmp_path / "dags" / name)) for name in written)


@pytest.mark.parametrize("dag_id", GRAPHS)
def test_graph_is_as_written(dag_id: str) -> None:
    dag = load(dag_id)
    assert dag.dag_id == dag_id
    assert {task_id: set(task.downstream_task_ids) for task_id, task in dag.task_dict.items()} == GRAPHS[dag_id]
    assert dag.catchup is False


def test_tasks_announce_by_assets_and_by_no_alias() -> None:
    """If the first two tasks with an alias end together, both insert its association, and Airflow fails the second."""
    outlets = {(dag_id, task.task_id): task.outlets for dag_id in GRAPHS for task in load(dag_id).tasks if task.outlets}
    dataset = Asset("deepspark_dataset", uri="x-deepspark://dataset")
    assert outlets == {
        ("deepspark_train", "ingest"): [dataset],
        ("deepspark_retrain", "ingest"): [dataset],
        ("deepspark_retrain", "promote"): [Asset("deepspark_model", uri="x-deepspark://model")],
    }


@pytest.mark.parametrize("dag_id", GRAPHS)
def test_every_param_has_a_default_that_is_valid_and_a_description(dag_id: str) -> None:
    dag = load(dag_id)
    dag.params.validate()
    for name in dag.params:
        assert dag.params.get_param(name).description, name


EXAMPLES = {"deepspark_train": "run.json", "deepspark_retrain": "retrain.json", "deepspark_compare": "compare.json"}


@pytest.mark.parametrize("dag_id", GRAPHS)
def test_the_defaults_of_form_and_rest_are_those_of_the_config_models(dag_id: str) -> None:
    declared: dict[str, Any] = {}
    for model in FORM_MODELS[dag_id]:
        for name, schema in form_schemas(model).items():
            declared.setdefault(name, schema.get("default"))
    defaults = {name: value or None for name, value in load(dag_id).params.dump().items()}
    assert defaults == {name: value or None for name, value in declared.items()}


def test_a_run_that_names_only_solver_and_source_keeps_the_pictures_as_they_are() -> None:
    for dag_id in TRAINS:
        params: dict[str, Any] = load(dag_id).params.dump() | {"solver": "s.prototxt", "source": "pictures"}
        ingest = config_from_params(IngestConfig, params, ROOT, output=Path("o"))
        assert ingest == IngestConfig(source=ROOT / "pictures", output=ROOT / "o")


@pytest.mark.parametrize(("dag_id", "file"), EXAMPLES.items())
def test_the_example_of_each_dag_is_a_conf_whose_files_exist(dag_id: str, file: str, tmp_path: Path) -> None:
    # A checkout has the example's files; elsewhere the package has the files.
    for root in (ROOT, tmp_path):
        conf = example_conf(dag_id, root)
        assert set(conf) == set(json.loads((ROOT / "examples" / "digits" / file).read_text()))
        params: dict[str, Any] = load(dag_id).params.dump()
        assert set(conf) <= set(params)
        params |= conf
        train = config_from_params(TrainConfig, params, root, run_dir=Path("r"))
        ingest = config_from_params(IngestConfig, params, root, output=Path("o"))
        assert load_solver(train.solver, train.overrides).train_net.layer
        assert ingest.source.is_file()
        assert Path(params["solver"]).is_absolute() is (root == tmp_path)
        assert (ingest.resize_height, ingest.resize_width, ingest.max_pixel) == (28, 28, 16)


def test_retraining_by_schedule_takes_its_values_from_the_file_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPSPARK_ROOT", str(ROOT))
    monkeypatch.setenv("DEEPSPARK_RETRAIN_DEFAULTS", "examples/digits/retrain.json")  # from the root, as other paths
    monkeypatch.chdir(tmp_path)
    params: dict[str, Any] = load("deepspark_retrain").params.dump()
    conf = example_conf("deepspark_retrain", ROOT)
    assert {name: params[name] for name in conf} == conf
    assert params["model"] == "digits"


def test_the_forms_formats_are_what_is_exported() -> None:
    params: dict[str, Any] = load("deepspark_train").params.dump()
    assert config_from_params(ExportConfig, params, ROOT, run_dir=Path("r")).formats is None
    chosen = config_from_params(ExportConfig, params | {"formats": "tflite, caffe"}, ROOT, run_dir=Path("r"))
    assert chosen.formats == ("caffe", "tflite")


def test_retraining_is_scheduled_by_time_or_by_the_dataset_one_run_at_a_time() -> None:
    dag = load("deepspark_retrain")
    assert isinstance(dag.schedule, AssetOrTimeSchedule)
    dataset = load("deepspark_train").task_dict["ingest"]
    assert isinstance(dataset._asset, Asset)
    assert [asset.uri for asset in dag.schedule.asset_condition.objects] == [dataset._asset.uri]
    assert dag.max_active_runs == 1
    words = "03:00 UTC every day, or when deepspark_dataset is updated"
    assert words in (dag.description or "")
    assert words in (dag.doc_md or "")
    outlets = {task_id: task.outlets for task_id, task in dag.task_dict.items() if task.outlets}
    assert list(outlets) == ["ingest", "promote"]


def test_another_timetable_is_told_in_words_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSPARK_RETRAIN_CRON", "30 6 * * 1")
    description = load("deepspark_retrain").description or ""
    assert description.endswith(": at 06:30, only on Monday (UTC), or when deepspark_dataset is updated")


@pytest.mark.parametrize("dag_id", GRAPHS)
def test_a_failed_task_of_every_dag_is_told_where_somebody_is_to_be_told(
    dag_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {len(task.on_failure_callback) for task in load(dag_id).task_dict.values()} == {0}
    (tmp_path / "notifiers.json").write_text("[]")
    monkeypatch.setenv("DEEPSPARK_NOTIFIERS", str(tmp_path / "notifiers.json"))
    callbacks = {callback for task in load(dag_id).task_dict.values() for callback in task.on_failure_callback}
    assert [callback.__name__ for callback in callbacks] == ["notify_failed"]
    assert {len(task.on_failure_callback) for task in load(dag_id).task_dict.values()} == {1}


OWN_TRIES: dict[str, dict[str, int]] = {
    "deepspark_train": {"check": 0, "ingest": 2, "train": 2, "evaluate": 2, "export": 2},
    "deepspark_convert": {"convert": 2},
    "deepspark_compare": {"check": 0, "ingest": 2, "train": 2, "evaluate": 2, "compare": 2, "simulate": 2},
    "deepspark_clean": {"clean": 0},
}


@pytest.mark.parametrize("dag_id", OWN_TRIES)
def test_only_stages_that_another_try_can_help_are_tried_again(dag_id: str) -> None:
    assert {task_id: own_retries(task) for task_id, task in load(dag_id).task_dict.items()} == OWN_TRIES[dag_id]


@pytest.mark.parametrize("dag_id", GRAPHS)
def test_a_task_that_airflow_loses_is_tried_again_for_longer_than_an_outage(dag_id: str) -> None:
    tasks = dict(load(dag_id).task_dict)
    if dag_id == "deepspark_compare":
        # A trial with a second try would have another time than a trial without.
        assert tasks.pop("train").retries == 0
    for task in tasks.values():
        delays = [task.retry_delay * task.retry_exponential_backoff**number for number in range(task.retries)]
        assert sum((min(delay, task.max_retry_delay) for delay in delays), timedelta()) >= timedelta(minutes=7)


@pytest.mark.parametrize("dag_id", GRAPHS)
def test_every_template_of_a_task_is_in_a_field_that_airflow_renders(dag_id: str) -> None:
    for task in load(dag_id).tasks:
        arguments = task.partial_kwargs if isinstance(task, MappedOperator) else vars(task)
        names = {"output": "output_path"}
        templates = {names.get(name, name) for name, value in arguments.items() if "{{ params." in str(value)}
        unrendered = {name for name in templates if not name.startswith("_") and name not in task.template_fields}
        assert unrendered <= {"params"}, task.task_id
        assert "{{" not in str(task.template_fields)


def test_a_variable_of_airflow_says_how_the_tasks_of_every_dag_run(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = {
        "conn_id": "our_spark", "connections": "night_spark", "executor_memory": "8g", "pool": "gpu", "queue": "big",
        "execution_timeout": "2 h", "conf": {"spark.executor.instances": 3},
    }  # fmt: skip
    monkeypatch.setenv("AIRFLOW_VAR_DEEPSPARK_DEFAULTS", json.dumps(defaults))
    for dag_id in GRAPHS:
        dag = load(dag_id)
        for task in dag.tasks:
            longest = None if task.task_id == "approve" else timedelta(hours=2)  # it has approval_timeout
            assert (task.pool, task.queue, task.execution_timeout) == ("gpu", "big", longest), task.task_id
        if dag_id not in TRAINS:
            continue
        values: dict[str, Any] = dag.params.dump()
        assert (values["conn_id"], values["executor_memory"], values["driver_memory"]) == ("our_spark", "8g", None)
        assert dag.params.get_param("conn_id").schema["enum"] == ["our_spark", "night_spark"]
        ingest = dag.task_dict["ingest"]
        assert ingest.conf == {"spark.executor.instances": 3}
        assert (ingest.conn_id, ingest.executor_memory) == ("{{ params.conn_id }}", "{{ params.executor_memory }}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "^Airflow Variable deepspark_defaults: no JSON: "),
        ("[]", "^Airflow Variable deepspark_defaults: must be a JSON object"),
        ('{"pol": "x"}', "^Airflow Variable deepspark_defaults: pol='x': .*known: conn_id, "),
        ('{"executor_memory": "much"}', "executor_memory='much': must be a size as Spark takes it, like 800m or 4g"),
        ('{"execution_timeout": "soon"}', "execution_timeout='soon': must be a length of time"),
    ],
)
def test_a_wrong_variable_is_the_import_error_of_the_dags(
    text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_DEEPSPARK_DEFAULTS", text)
    with pytest.raises(ConfigError, match=message):
        load("deepspark_convert")


def test_the_example_of_an_own_dag_loads_as_airflow_loads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSPARK_ROOT", str(tmp_path))  # outside a checkout
    shutil.copy(ROOT / "examples" / "own_dag.py", tmp_path / "own_dag.py")
    bag = DagBag(tmp_path / "own_dag.py")
    assert bag.import_errors == {}
    dag = bag.dags["own_digits"]
    assert {task_id: set(task.downstream_task_ids) for task_id, task in dag.task_dict.items()} == {
        "check": {"ingest"},
        "ingest": {"train"},
        "train": {"evaluate"},
        "evaluate": {"is_good_enough", "export"},
        "is_good_enough": {"export"},
        "export": set(),
    }
    # An operator's result is one XCom, a dict: entries have no XCom of their own.
    (argument,) = dag.task_dict["is_good_enough"].op_args
    assert (argument.operator.task_id, argument.key) == ("evaluate", BaseXCom.XCOM_RETURN_KEY)
    dag.params.validate()
    config_from_params(TrainConfig, dag.params.dump(), tmp_path, run_dir=Path("r"))
