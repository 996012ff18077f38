"""Decisions and XComs of each operator, without the stage's process."""

from __future__ import annotations

import errno
import html
import json
import logging
import re
import sys
import threading
import time
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, BaseOperator, ObjectStoragePath, Param, TaskGroup
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.sdk.execution_time.task_runner import set_current_context
from airflow.sdk.module_loading import import_string

from deepspark_ops import operators
from deepspark_ops.config.base import WHERE_IT_RUNS, StageConfig
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.config.run_label import RunLabelConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError, ExchangeUnavailable
from deepspark_ops.operators import check as check_module
from deepspark_ops.operators import compare as compare_module
from deepspark_ops.operators import ingest as ingest_module
from deepspark_ops.operators import promote as promote_module
from deepspark_ops.operators import train as train_module
from deepspark_ops.operators.approve import DeepSparkApproveOperator
from deepspark_ops.operators.check import DeepSparkCheckOperator, chosen_dataset
from deepspark_ops.operators.clean import DeepSparkCleanOperator
from deepspark_ops.operators.evaluate import DeepSparkEvaluateOperator, DeepSparkEvaluateProductionOperator
from deepspark_ops.operators.export import DeepSparkExportOperator
from deepspark_ops.operators.form import form_params
from deepspark_ops.operators.ingest import DeepSparkIngestOperator
from deepspark_ops.operators.predict import DeepSparkPredictOperator
from deepspark_ops.operators.promote import DeepSparkDecideOperator, DeepSparkPromoteOperator, write_decision
from deepspark_ops.operators.provider.airflow_names import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferred,
)
from deepspark_ops.operators.tasks import process_stage, spark_stage, stage_run
from deepspark_ops.operators.tasks.retries import OWN_DELAY, stage_retries
from deepspark_ops.operators.tasks.run_plan import Places, read_decided
from deepspark_ops.operators.tasks.spark_stage import SparkStageOperator, StageSubmitHook
from deepspark_ops.operators.tasks.stage_arguments import argument_fields
from deepspark_ops.operators.tasks.stage_run import StageRun, TaskEnd, airflow_errors, ends_plainly, noted_stage
from deepspark_ops.operators.tasks.turn import TurnTrigger, turn_at
from deepspark_ops.operators.train import DeepSparkTrainOperator
from deepspark_ops.preflight.inspect_solver import inspect_solver
from deepspark_ops.processes.job_log import LineHandler, StageFailed
from deepspark_ops.registry.changes import Author, note_rejected, promote, roll_back
from deepspark_ops.registry.gate import decide
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.registry.overview import model_names, read_model
from deepspark_ops.run_label.label import RunLabel, read_label
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.stage_status import StatusFile, read_statuses
from deepspark_ops.shards.manifest import split_digests
from tests.paths import ROOT
from tests.reference.bundles import make_bundle
from tests.reference.dataset_files import put_manifest_text
from tests.reference.evaluations import evaluation, write_evaluation
from tests.unit.deepspark_ops.operators.operator_calls import (
    DATASET,
    SLOT,
    EventsByAsset,
    Retraining,
    context,
    execute,
    operator_of,
    rendered,
)

pytestmark = pytest.mark.airflow


@pytest.fixture
def locations(tmp_path: Path) -> Places:
    (tmp_path / "list.txt").write_text("a.png 0\n")
    (tmp_path / "s.prototxt").touch()
    return Places(tmp_path, tmp_path / "home")


@pytest.fixture(scope="module")
def form() -> dict[str, Param]:
    sections = [
        ("Train", CheckConfig),
        ("Train", TrainConfig),
        ("Train", RunLabelConfig),
        ("Ingest", IngestConfig),
        ("Evaluate", EvaluateConfig),
        ("Promote", PromoteConfig),
    ]
    return form_params(sections, {"solver": "s.prototxt", "source": "list.txt"}, optional=["source"])


@pytest.fixture
def dag(form: dict[str, Param]) -> DAG:
    with DAG("d", params=deepcopy(form), schedule=None) as dag_of_test:
        return dag_of_test


def events_of(asset: Asset, *sources: str) -> Any:
    """Return the triggering events of a run in Airflow's form."""
    return EventsByAsset(asset, [SimpleNamespace(extra={"source": source}) for source in sources])


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[StageConfig]:
    configs: list[StageConfig] = []
    monkeypatch.setattr(check_module, "run_job", lambda module, config, **_: configs.append(config))
    return configs


def test_check_passes_on_paths_alone(locations: Places, dag: DAG, checked: list[StageConfig]) -> None:
    result = execute(operator_of(DeepSparkCheckOperator, dag, locations), context(dag, conf={"gray": True}))
    assert result["run_dir"] == str(locations.home / "runs" / "d" / "r")
    assert Path(result["dataset"]).parent == locations.home / "datasets"
    assert result["production"] is None
    assert json.loads(json.dumps(result)) == result
    (config,) = checked
    assert isinstance(config, CheckConfig)
    assert config.ingest is not None
    assert (config.ingest.source, config.ingest.gray, config.dataset) == (locations.root / "list.txt", True, None)
    assert CheckConfig.model_validate_json(config.model_dump_json()) == config
    assert (config.parity, config.run_dir) == (True, Path(result["run_dir"]))
    assert config.solver == locations.root / "s.prototxt"


def test_check_keeps_the_runs_name_and_tags_and_the_log_of_each_task_says_the_name(
    locations: Places,
    dag: DAG,
    checked: list[StageConfig],
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    check = operator_of(DeepSparkCheckOperator, dag, locations)
    execute(check, context(dag, conf={"name": "the paper's", "tags": "baseline, v2"}))
    assert "run: the paper's" in capsys.readouterr().out  # where Airflow logs outside a task
    (config,) = checked
    assert not {"name", "tags"} & set(config.model_dump())  # no part of the training
    run_dir = locations.run_folder("d", "r")
    assert read_label(run_dir) == RunLabel(name="the paper's", tags=("baseline", "v2"))
    with caplog.at_level(logging.INFO), noted_stage(run_dir, "train", logging.getLogger("test")):
        pass
    assert "run: the paper's" in caplog.messages


def test_how_a_task_ends_is_noted_in_the_runs_folder(
    locations: Places, dag: DAG, checked: list[StageConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    check = operator_of(DeepSparkCheckOperator, dag, locations)
    run_dir = locations.run_folder("d", "r")
    execute(check, context(dag))
    assert read_statuses(run_dir)["check"].status == "finished"
    with pytest.raises(AirflowFailException) as refused:
        execute(check, context(dag, conf={"test_fraction": 0}))
    status = read_statuses(run_dir)["check"]
    assert (status.status, status.message) == ("failed", str(refused.value))

    def run(module: str, config: StageConfig, *, on_line: LineHandler, **_: Any) -> None:
        on_line(logging.WARNING, "slow disk")
        assert read_statuses(run_dir)["check"].status == "running"

    monkeypatch.setattr(check_module, "run_job", run)
    execute(check, context(dag))
    assert [text for _, text in read_statuses(run_dir)["check"].warnings] == ["slow disk"]
    other = operator_of(DeepSparkCheckOperator, dag, locations, dataset_asset=DATASET)
    with pytest.raises(AirflowSkipException):
        execute(other, context(dag, events=events_of(DATASET, "another")))
    assert read_statuses(run_dir)["check"].status == "skipped"


def test_a_task_that_takes_too_long_names_its_limit(tmp_path: Path) -> None:
    task = SimpleNamespace(execution_timeout=timedelta(minutes=10))
    message = (
        "the task took longer than its execution_timeout, 0:10:00; give it more time, and clear the task: the training"
        " goes on from its last snapshot"
    )
    log = logging.getLogger("test")
    with (
        set_current_context({"ti": SimpleNamespace(task=task, task_id="fit")}),
        pytest.raises(AirflowTaskTimeout, match=message),
        noted_stage(tmp_path, "train", log),
    ):
        raise AirflowTaskTimeout("Timeout, PID: 1142")
    assert read_statuses(tmp_path)["train"].message == message


@pytest.mark.parametrize(
    ("error", "status"),
    [(None, "finished"), (ConfigError("no such file"), "failed"), (AirflowSkipException("kept production"), "skipped")],
)
def test_mlflow_is_told_of_a_run_once_it_has_trained_when_its_status_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None, status: str
) -> None:
    notified: list[tuple[Path, str]] = []
    monkeypatch.setattr(
        stage_run, "tell_run", lambda run_dir, _: notified.append((run_dir, read_statuses(run_dir)["train"].status))
    )

    def run() -> None:
        with (
            pytest.raises(AirflowException) if error else nullcontext(),
            noted_stage(tmp_path, "train", logging.getLogger()),
        ):
            if error:
                raise error

    run()
    assert notified == []
    (tmp_path / "events.jsonl").touch()
    run()
    assert notified == [(tmp_path, status)]


def test_a_stage_does_not_wait_until_airflow_reads_its_log(tmp_path: Path) -> None:
    is_read, written = threading.Event(), []

    class Unread(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            assert is_read.wait(30.0)
            written.append(record.getMessage())

    log = logging.Logger("task")
    log.addHandler(Unread())
    with noted_stage(tmp_path, "train", log) as on_line:
        for number in range(3):
            on_line(logging.INFO, f"line {number}")
        assert written == []
        is_read.set()
    assert written == ["line 0", "line 1", "line 2"]


def test_check_looks_at_a_dataset_that_is_there(locations: Places, dag: DAG, checked: list[StageConfig]) -> None:
    operator = operator_of(DeepSparkCheckOperator, dag, locations)
    dataset = Path(execute(operator, context(dag))["dataset"])
    for split in ("train", "test"):
        (dataset / split).mkdir(parents=True)
        put_manifest_text(dataset, split, "")
    execute(operator, context(dag))
    config = checked[-1]
    assert isinstance(config, CheckConfig)
    assert (config.dataset, config.ingest) == (dataset, None)


def test_without_a_source_nothing_is_ingested(locations: Places, dag: DAG, checked: list[StageConfig]) -> None:
    result = execute(operator_of(DeepSparkCheckOperator, dag, locations), context(dag, conf={"source": None}))
    assert result["dataset"] is None
    ingest = operator_of(DeepSparkIngestOperator, dag, locations)
    assert execute(ingest, context(dag, xcom=result, conf={"source": None})) == result


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"n_worker": 1}, 'unknown parameter "n_worker"; did you mean "n_workers"'),
        ({"source": "none.txt"}, "source=.*none.txt: no such file or folder"),
        ({"test_source": "none.txt"}, "test_source=.*none.txt: no such file or folder"),
        ({"test_fraction": 0}, "test_fraction=0 and no test_source: the evaluation needs a test set"),
        ({"strategy": "eagsd"}, 'strategy "eagsd" is unknown.*did you mean "easgd"'),
        ({"resize_height": 3}, "give both or neither"),
        ({"weights": "a.caffemodel", "resume": "b.solverstate"}, "give one"),
        ({"comm_period": "1.5"}, "comm_period='1.5': "),
        ({"solver": ""}, r"^solver: no value; name a Caffe solver prototxt .*Example: .*/run\.json, "),
        ({"solver": None, "source": None}, r"conf \{.*lenet_solver\.prototxt.*\}"),
    ],
)
def test_check_refuses_a_mistake_at_once(
    locations: Places, dag: DAG, checked: list[StageConfig], conf: dict[str, Any], message: str
) -> None:
    with pytest.raises(AirflowFailException, match=message):
        execute(operator_of(DeepSparkCheckOperator, dag, locations), context(dag, conf=conf))
    assert checked == []


def test_a_scheduled_run_without_a_solver_is_told_of_the_file_that_gives_one(
    locations: Places, dag: DAG, checked: list[StageConfig]
) -> None:
    check = operator_of(DeepSparkCheckOperator, dag, locations, warm_start=True)
    values = context(dag, conf={"solver": ""})
    values["dag_run"].dag_id = "deepspark_retrain"
    with pytest.raises(AirflowFailException, match=r"DEEPSPARK_RETRAIN_DEFAULTS\. Example: .*/retrain\.json, "):
        execute(check, values)
    assert checked == []


def test_an_updated_dataset_of_another_source_skips_the_run(
    locations: Places, dag: DAG, checked: list[StageConfig]
) -> None:
    operator = operator_of(DeepSparkCheckOperator, dag, locations, dataset_asset=DATASET)
    other = events_of(DATASET, "other.txt")
    with pytest.raises(AirflowSkipException, match=r"other\.txt"):
        execute(operator, context(dag, events=other))
    (locations.root / "link").symlink_to(locations.root)
    for same in (
        "list.txt",
        "./x/../list.txt",
        str(locations.root / "list.txt"),
        str(locations.root / "link" / "list.txt"),
    ):
        events = events_of(DATASET, "other.txt", same)
        assert execute(operator, context(dag, events=events))["dataset"]
    with pytest.raises(AirflowSkipException):
        execute(operator, context(dag, events=events_of(DATASET, "list.txt::list.txt")))


@pytest.mark.parametrize("is_old_airflow", [False, True], ids=["3.2 and later", "3.1"])
def test_an_event_that_came_while_the_run_waited_in_the_queue_counts(
    locations: Places, dag: DAG, checked: list[StageConfig], is_old_airflow: bool
) -> None:
    operator = operator_of(DeepSparkCheckOperator, dag, locations, dataset_asset=DATASET)
    assert rendered(operator, context(dag)).inlets == [DATASET], "else Airflow gives none of its events"
    first, other, lost = (
        SimpleNamespace(extra={"source": source}, timestamp=SLOT + timedelta(seconds=seconds))
        for source, seconds in (("list.txt", -60), ("other.txt", -1), ("list.txt", 5))
    )

    def check(*stored: Any) -> Any:
        values = context(dag, events=events_of(DATASET, "other.txt"), stored=stored)
        if is_old_airflow:
            values["inlet_events"] = EventsByAsset(DATASET, list(stored))
        return execute(operator, values)

    with pytest.raises(AirflowSkipException, match=r"other\.txt"):
        check(first, other)
    assert check(first, other, lost)["dataset"]
    assert read_decided(locations.run_folder("d", "r")).started == "started by data: list.txt; other.txt"


def test_a_run_by_the_timetable_whose_time_has_passed_is_skipped_and_says_so(
    locations: Places, dag: DAG, checked: list[StageConfig]
) -> None:
    operator = operator_of(DeepSparkCheckOperator, dag, locations, dataset_asset=DATASET)
    values = context(dag, late_min=480)
    with pytest.raises(AirflowSkipException, match="a run by the timetable is not made up"):
        execute(operator, values)
    assert values["pushed"]["deepspark_decision"].startswith(
        "nothing was trained: it began 480 minutes after its time, 2026-11-25 03:00 UTC; "
    )
    assert read_decided(locations.run_folder("d", "r")).started == "started by the timetable, for 2026-11-25 03:00 UTC"
    assert execute(operator, context(dag, late_min=1))["run_dir"]
    assert execute(operator_of(DeepSparkCheckOperator, dag, locations), values)["run_dir"], "it retrains nothing"


class JudgedData:
    """A model, its DAG's data, and the events of an ingestion of these data."""

    def __init__(self, locations: Places, dag: DAG) -> None:
        self._locations = locations
        self._dag = dag
        self._check = operator_of(DeepSparkCheckOperator, dag, locations, dataset_asset=DATASET)
        self._ingest = operator_of(DeepSparkIngestOperator, dag, locations, skips_judged_data=True)
        self.config = PromoteConfig(models=locations.home / "models", model="model")

    def ingested(self, content: str) -> str:
        """Write the dataset of the run's source; return the digest of the training set."""
        dataset = chosen_dataset(context(self._dag)["params"], self._locations)
        assert dataset is not None
        for split in ("train", "test"):
            (dataset / split).mkdir(parents=True, exist_ok=True)
            put_manifest_text(dataset, split, f"{split} {content}")
        return split_digests(dataset)["train"]

    def promoted(self, train_digest: str) -> None:
        bundle = make_bundle(self._locations.home / "b" / "bundle", run="first", datasets={"train": train_digest})
        promote(bundle, decide(evaluation([0], [0]), None, PromoteConfig()), self.config, Author("anna"))

    def keep_out(self, train_digest: str) -> None:
        run_dir = self._locations.run_folder("d", "refused")
        run_dir.mkdir(parents=True)
        noted = {"format_version": 2, "dataset": "x", "train_digest": train_digest, "shards": {}}
        RunPaths(run_dir).dataset.write_text(json.dumps(noted))
        decision = decide(evaluation([0], [0]), None, PromoteConfig())
        note_rejected(self.config, decision.model_copy(update={"promotes": False}), Author("anna"), run_dir)

    def check(self, events: Any) -> Any:
        return execute(self._check, context(self._dag, events=events))

    def ingest(self, events: Any) -> Any:
        dataset = chosen_dataset(context(self._dag)["params"], self._locations)
        xcom = StageRun(self._locations.run_folder("d", "r"), dataset, None).to_xcom()
        return execute(self._ingest, context(self._dag, xcom=xcom, events=events))


@pytest.fixture
def judged_data(locations: Places, dag: DAG, monkeypatch: pytest.MonkeyPatch) -> JudgedData:
    monkeypatch.setattr(ingest_module, "verify", lambda folder, digests: None)
    return JudgedData(locations, dag)


def test_data_of_production_or_of_a_candidate_that_stayed_out_start_no_training_again(
    judged_data: JudgedData, checked: list[StageConfig]
) -> None:
    events = events_of(DATASET, "cats", "list.txt")  # the second is older: Airflow gives all since the last run by data
    assert judged_data.check(events)["dataset"], "no candidate was judged yet"
    judged_data.promoted(judged_data.ingested("first"))
    with pytest.raises(AirflowSkipException, match=r"data of list\.txt are those of v1, of run first; they have not"):
        judged_data.check(events)
    assert judged_data.check(None)["dataset"], "the timetable trains further on the same data"
    judged_data.keep_out(judged_data.ingested("second"))
    with pytest.raises(AirflowSkipException, match="those of the candidate of run refused, which stayed out"):
        judged_data.check(events)
    judged_data.ingested("third")
    assert judged_data.check(events)["dataset"]


def test_files_that_are_newer_and_hold_the_same_start_no_training_either(judged_data: JudgedData) -> None:
    events = events_of(DATASET, "list.txt")
    judged_data.promoted(judged_data.ingested("first"))
    with pytest.raises(AirflowSkipException, match="they have not changed"):
        judged_data.ingest(events)
    assert judged_data.ingest(None)["dataset"]
    judged_data.ingested("second")
    assert judged_data.ingest(events)["dataset"]


class Ingestion:
    """A dataset folder, the operators of runs that use the folder, and Airflow's events; no Spark job runs."""

    def __init__(self, locations: Places, dag: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dataset = locations.home / "datasets" / "x"
        self.content = "first"
        self.events: list[Any] = []
        self._dag = dag
        self._locations = locations
        self.xcom = StageRun(locations.home / "r", self.dataset, None).to_xcom()
        self._train = operator_of(DeepSparkTrainOperator, dag, locations)
        monkeypatch.setattr(SparkStageOperator, "execute", lambda operator, values: self._submit(operator, values))
        monkeypatch.setattr(ingest_module, "verify", lambda folder, digests: None)

    def _submit(self, operator: BaseOperator, values: Any) -> dict[str, str]:
        if isinstance(operator, DeepSparkTrainOperator):
            return {}
        for split in ("train", "test"):
            (self.dataset / split).mkdir(parents=True, exist_ok=True)
            put_manifest_text(self.dataset, split, f"{split} {self.content}")
        run = operator.stage_run(values)
        return {**run.to_xcom(), **operator.result(run, IngestConfig(source="x", output=self.dataset))}

    def try_once(self, *, dies: bool = False, asset: Asset | None = DATASET, **arguments: Any) -> list[dict[str, str]]:
        """Return the events of a try; Airflow sends the events if the try does not die before its end."""
        values = self.context()
        operator = rendered(self.operator(asset=asset, **arguments), values)
        output = type(operator).execute.__wrapped__(operator, values)
        events = [values["outlet_events"][outlet].extra for outlet in operator.outlets]
        announced = {name: output[name] for name in ("dataset", "train_digest", "test_digest")}
        assert events in ([], [{**announced, "source": arguments.get("query", "list.txt")}])
        if not dies:
            self.events += [SimpleNamespace(extra=extra, timestamp=SLOT) for extra in events]
        return events

    def operator(self, **arguments: Any) -> Any:
        return operator_of(DeepSparkIngestOperator, self._dag, self._locations, **arguments)

    def context(self) -> dict[str, Any]:
        return context(self._dag, xcom=self.xcom, stored=self.events)

    def train(self) -> None:
        execute(self._train, self.context())


@pytest.fixture
def ingestion(locations: Places, dag: DAG, monkeypatch: pytest.MonkeyPatch) -> Ingestion:
    return Ingestion(locations, dag, monkeypatch)


def test_the_retry_of_an_ingestion_that_died_after_its_commit_announces_the_dataset(ingestion: Ingestion) -> None:
    lost = ingestion.try_once(dies=True)
    assert lost
    assert ingestion.try_once() == lost


def test_a_dataset_is_announced_once(ingestion: Ingestion) -> None:
    assert ingestion.try_once()
    assert ingestion.try_once() == []
    ingestion.train()
    assert ingestion.try_once() == []


def test_the_event_of_a_query_without_a_source_names_the_query(ingestion: Ingestion) -> None:
    assert ingestion.try_once(source=None, query="SELECT * FROM parquet.`/data/rows`")


def test_a_retraining_on_a_query_hears_of_the_dataset_of_its_query_alone(
    locations: Places, dag: DAG, checked: list[StageConfig]
) -> None:
    rows = "SELECT * FROM parquet.`/data/rows`"
    operator = operator_of(DeepSparkCheckOperator, dag, locations, dataset_asset=DATASET, source=None, query=rows)
    assert execute(operator, context(dag, events=events_of(DATASET, rows)))["dataset"]
    with pytest.raises(AirflowSkipException, match=r"this DAG retrains on SELECT \* FROM parquet"):
        execute(operator, context(dag, events=events_of(DATASET, "list.txt")))


def test_the_reason_of_a_skip_is_a_line_of_the_log(
    locations: Places, dag: DAG, checked: list[StageConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    operator = operator_of(DeepSparkCheckOperator, dag, locations, dataset_asset=DATASET, source=None)
    with pytest.raises(AirflowSkipException) as skip:
        execute(operator, context(dag, events=events_of(DATASET, "list.txt")))
    assert "this DAG retrains on no source: DEEPSPARK_RETRAIN_DEFAULTS names none" in str(skip.value)
    assert str(skip.value) in capsys.readouterr().out.splitlines()[-1]


def test_the_reason_of_a_skipped_evaluation_of_production_is_a_line_of_the_log_and_noted(
    locations: Places, dag: DAG, capsys: pytest.CaptureFixture[str]
) -> None:
    run = StageRun(locations.home / "r", None, None)
    run.run_dir.mkdir(parents=True)
    operator = operator_of(DeepSparkEvaluateProductionOperator, dag, locations)
    values = context(dag, xcom=run.to_xcom())
    with set_current_context(values), pytest.raises(AirflowSkipException):
        execute(operator, values)
    assert "no model in production yet" in capsys.readouterr().out.splitlines()[-1]
    status = read_statuses(run.run_dir)["evaluate_production"]
    assert (status.status, status.message[:26]) == ("skipped", "no model in production yet")


def test_a_dataset_that_an_ingestion_without_the_asset_made_and_a_training_used_is_announced(
    ingestion: Ingestion,
) -> None:
    """No asset event exists for the dataset yet, although a training used the dataset."""
    assert ingestion.try_once(asset=None) == []
    ingestion.train()
    assert ingestion.try_once()


def test_a_dataset_that_was_made_anew_with_other_content_is_announced(ingestion: Ingestion) -> None:
    ingestion.try_once()
    (ingestion.dataset / "dataset.json").unlink()
    ingestion.content = "second"
    assert ingestion.try_once()


def test_an_ingestion_whose_dataset_another_task_writes_gives_its_slot_back_and_says_whom_it_waits_for(
    ingestion: Ingestion, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = rendered(ingestion.operator(asset=DATASET, turn_limit=timedelta(hours=2)), ingestion.context())
    values, began = ingestion.context(), time.time()
    with turn_at(ingestion.dataset, "task load of nightly, run 7"):
        with pytest.raises(TaskDeferred) as deferred:
            type(operator).execute.__wrapped__(operator, values)
        status = read_statuses(Path(ingestion.xcom["run_dir"]))["ingest"]
        assert status.status == "waiting"
        assert re.match(r"task load of nightly, run 7, since \d.* UTC writes dataset /.*/x; this", status.message)
        assert f"{status.message}, 2:00:00 at most (turn_limit)" in capsys.readouterr().out
        waits = deferred.value
        event = {"holder": None, "until": waits.trigger.serialize()[1]["until"]}
        assert event["until"] == pytest.approx(began + 7200, abs=60)
        assert timedelta(hours=2) <= waits.timeout <= timedelta(hours=2.2)
        restored = import_string(waits.trigger.serialize()[0])(**waits.trigger.serialize()[1])
        assert isinstance(restored, TurnTrigger)
        with pytest.raises(TaskDeferred) as second:  # a third task was faster
            operator.resume_execution(waits.method_name, {"event": event}, values)
        assert second.value.trigger.serialize() == waits.trigger.serialize()
    resumed = operator.resume_execution(waits.method_name, {"event": event}, values)
    assert resumed["dataset"] == str(ingestion.dataset)
    assert values["outlet_events"][DATASET].extra["dataset"] == str(ingestion.dataset)


def test_a_task_that_waited_for_the_dataset_of_another_task_has_the_dataset_on_its_page(
    ingestion: Ingestion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_module, "is_known", lambda config: True)
    run_dir = Path(ingestion.xcom["run_dir"])
    ingestion.try_once()
    assert "ingest" not in read_statuses(run_dir)
    StatusFile(run_dir, "ingest").end("waiting", "task x writes it")
    ingestion.try_once()
    assert read_statuses(run_dir)["ingest"].status == "finished"
    assert json.loads((run_dir / "stages/ingest.json").read_text())["output"] == str(ingestion.dataset)


def test_an_ingestion_that_waits_too_long_fails_with_the_holders_name(
    ingestion: Ingestion,
) -> None:
    operator = rendered(ingestion.operator(turn_limit=timedelta(minutes=5)), ingestion.context())
    with turn_at(ingestion.dataset, "task load of nightly, run 7"):
        with pytest.raises(AirflowFailException, match=r"task load of nightly, run 7, since .* has waited 0:05:00"):
            operator.resume_execution("execute_in_turn", {"event": {"until": time.time()}}, ingestion.context())


def test_a_damaged_dataset_is_ingested_again(locations: Places, dag: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = locations.home / "datasets" / "x"
    for split in ("train", "test"):
        (dataset / split).mkdir(parents=True)
        put_manifest_text(dataset, split, split)  # no manifest
    monkeypatch.setattr(ingest_module.SparkStageOperator, "execute", lambda *_: {"dataset": "made again"})
    operator = operator_of(DeepSparkIngestOperator, dag, locations)
    result = execute(operator, context(dag, xcom=StageRun(locations.home / "r", dataset, None).to_xcom()))
    assert result == {"dataset": "made again"}


@pytest.mark.parametrize("operator_class", [DeepSparkIngestOperator, DeepSparkTrainOperator, DeepSparkEvaluateOperator])
def test_the_application_of_a_spark_stage_is_a_file_of_the_package(
    locations: Places, dag: DAG, operator_class: type[SparkStageOperator]
) -> None:
    operator = operator_of(operator_class, dag, locations)
    assert 'if __name__ == "__main__":' in Path(operator.application).read_text()


def test_training_starts_from_production_unless_told_otherwise(locations: Places, dag: DAG) -> None:
    operator = operator_of(DeepSparkTrainOperator, dag, locations)
    run = StageRun(locations.home / "r", None, locations.home / "production.caffemodel")
    config = rendered(operator, context(dag)).stage_config({}, run, "local[2]")
    assert (config.weights, config.master, config.run_dir) == ((run.production,), "local[2]", run.run_dir)
    named = rendered(operator, context(dag, conf={"weights": "own.caffemodel"})).stage_config({}, run, "local[2]")
    assert named.weights == (locations.root / "own.caffemodel",)
    resumed = rendered(operator, context(dag, conf={"resume": "a.solverstate"})).stage_config({}, run, "local[2]")
    assert (resumed.weights, resumed.resume) == (None, locations.root / "a.solverstate")


@pytest.mark.parametrize("operator", [DeepSparkTrainOperator, DeepSparkIngestOperator, DeepSparkEvaluateOperator])
def test_a_spark_stage_knows_its_master_and_where_to_listen(
    locations: Places, dag: DAG, operator: type[SparkStageOperator]
) -> None:
    run = StageRun(locations.home / "r", locations.home / "dataset", None)
    operator_ = operator_of(operator, dag, locations)
    chosen = rendered(operator_, context(dag)).stage_config({}, run, "spark://h:7077")
    assert chosen.model_dump(include=WHERE_IT_RUNS - {"engine"}) == {
        "master": "spark://h:7077",
        "listen_address": "auto",
        "insecure_network": False,
    }
    network_options = {"listen_address": "192.0.2.2", "insecure_network": True}
    assert (
        rendered(operator_, context(dag, conf=network_options))
        .stage_config({}, run, "yarn")
        .model_dump(include=set(network_options))
        == network_options
    )


def test_a_stage_without_its_check_says_what_to_clear(locations: Places, dag: DAG) -> None:
    with pytest.raises(AirflowFailException, match=r"^run=None: .* left no result; clear it together with"):
        execute(operator_of(DeepSparkEvaluateProductionOperator, dag, locations), context(dag))


def test_a_net_in_airflow_names_files_and_modules_of_the_installation_alone(
    locations: Places, dag: DAG, checked: list[StageConfig]
) -> None:
    locations = replace(locations, allowed_roots=(locations.root / "shared",), python_layers=("ours",))
    execute(operator_of(DeepSparkCheckOperator, dag, locations), context(dag))
    train = operator_of(DeepSparkTrainOperator, dag, locations)
    trained = rendered(train, context(dag)).stage_config({}, StageRun(locations.home / "r", None, None), "local[2]")
    (config,) = checked
    assert isinstance(config, CheckConfig)
    assert config.named_files == trained.named_files
    assert trained.named_files.model_dump() == {
        "allowed_root": (
            locations.root / "data",
            locations.home / "data",
            locations.home / "datasets",
            locations.root / "shared",
        ),
        "confined": True,
        "allow_python_layers": False,
        "python_layers": ("ours",),
    }
    predict = operator_of(DeepSparkPredictOperator, dag, locations, bundle="b", input="list.txt")
    predicted = rendered(predict, context(dag)).stage_config({}, StageRun(locations.home / "r", None, None))
    assert (predicted.listed_files.confined, predicted.listed_files.allowed_root) == (
        True,
        trained.named_files.allowed_root,
    )


def test_a_file_outside_of_the_roots_fails_the_check_and_none_of_it_is_shown(
    locations: Places, dag: DAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = locations.root / "secret" / "shadow"
    secret.parent.mkdir()
    secret.write_text("root:$6$saltandhash:19000:0:99999:7:::\n")
    nets = locations.root / "nets"
    nets.mkdir()
    solver = nets / "s.prototxt"
    monkeypatch.setattr(check_module, "run_job", lambda module, config, **_: inspect_solver(config))
    check = operator_of(DeepSparkCheckOperator, dag, locations)
    (nets / "link").symlink_to(secret)
    for written in (str(secret), "../secret/shadow", "link"):
        solver.write_text(f'net: "{written}" base_lr: 0.1 lr_policy: "fixed" max_iter: 1')
        with pytest.raises(AirflowFailException) as refused:
            execute(check, context(dag, conf={"solver": str(solver), "source": None}))
        assert f"{solver}: net names " in str(refused.value)
        assert "outside of the allowed folders" in str(refused.value)
        assert "root:" not in str(refused.value)
        assert "$6$" not in str(refused.value)
    # A solver that is none is not shown either, wherever it lies.
    with pytest.raises(AirflowFailException, match=r"shadow:1:\d+: is no solver's prototxt from here on") as refused:
        execute(check, context(dag, conf={"solver": str(secret), "source": None}))
    assert "$6$" not in str(refused.value)


@pytest.fixture
def retraining(locations: Places, dag: DAG) -> Retraining:
    return Retraining(locations, dag)


def documented_entries(stage: str) -> set[str]:
    """Return the entries of a stage's output in the table of the page *Operators*."""
    page = (ROOT / "docs" / "guides" / "operators.md").read_text()
    rows = re.findall(r"^\| (`.+`) \| ([^|:]+)", page.partition("| entry | of |")[2].partition("\n\n")[0], re.M)
    stages = {row_stage: entries for entries, of in rows for row_stage in re.split(r", | but ", of.strip())}
    shared = "" if stage == "clean" else stages["all"]
    return set(re.findall(r"`(\w+)`", shared + stages[stage]))


def test_the_page_names_every_entry_of_an_output(retraining: Retraining, locations: Places, dag: DAG) -> None:
    retraining.scored(0)
    assert set(retraining.decide()) == documented_entries("decide")
    assert set(retraining.promote()[0]) == documented_entries("promote")
    assert set(
        execute(DeepSparkCleanOperator(task_id="c", places=locations, dag=dag), context(dag))
    ) == documented_entries("clean")
    assert documented_entries("train") == {"run_dir", "dataset", "production", "snapshot", "digest"}


@pytest.mark.parametrize("kind", [DeepSparkDecideOperator, DeepSparkApproveOperator, DeepSparkPromoteOperator])
def test_without_an_argument_the_model_is_that_of_the_runs_check(
    locations: Places, checked: list[StageConfig], kind: Any
) -> None:
    with DAG("d", schedule=None) as dag:
        check = operator_of(DeepSparkCheckOperator, dag, locations, solver="s.prototxt", model="asked")
    values = context(dag, xcom=execute(check, context(dag)))
    for arguments, model in (({}, "asked"), ({"model": "another"}, "another")):
        task = rendered(operator_of(kind, dag, locations, **arguments), values)
        assert task.promote_config(values).model == model


@pytest.mark.parametrize(("wrong", "promotes"), [(0, True), (8, False), (9, False)])
def test_only_a_better_model_goes_on(retraining: Retraining, wrong: int, promotes: bool) -> None:
    retraining.scored(wrong)
    report = retraining.run.run_dir / "evaluation" / "report.html"
    report.write_text("<p>before</p><!-- decision --><!-- end of decision --><p>after</p>")
    path = retraining.run.run_dir / "decision.json"
    if promotes:
        assert retraining.decide()["decision"] == str(path)
    else:
        with pytest.raises(AirflowSkipException, match=r"kept production: .* on 100 samples, p = "):
            retraining.decide()
        assert retraining.history()[-1] == ("kept", None, "scheduled")
    decision = json.loads(path.read_text())
    assert decision["promotes"] is promotes
    assert (decision["comparison"]["n_gained"], decision["against"]) == (9 - wrong, "v1")
    assert retraining.noted == decision["reason"]
    assert html.escape(decision["reason"][1:]) in report.read_text()


def test_production_is_scored_as_it_is_delivered_on_the_runs_samples(
    retraining: Retraining, locations: Places, dag: DAG
) -> None:
    run = StageRun(locations.home / "r", locations.home / "dataset", retraining.run.production)
    values = context(dag, conf={"split": "train"})
    production_config = rendered(operator_of(DeepSparkEvaluateProductionOperator, dag, locations), values).stage_config(
        values, run
    )
    assert (production_config.bundle, production_config.dataset, production_config.split) == (
        retraining.bundle(),
        run.dataset,
        "train",
    )
    mine = rendered(operator_of(DeepSparkEvaluateOperator, dag, locations), values).stage_config(values, run)
    assert (mine.production, mine.dataset, mine.split) == (production_config.output, run.dataset, "train")
    assert mine.production_samples is None  # this version's bundle has none
    write_evaluation(retraining.bundle(), evaluation([0], [0]))
    second_config = rendered(operator_of(DeepSparkEvaluateOperator, dag, locations), values).stage_config(values, run)
    assert second_config.production_samples == retraining.bundle() / "samples.h5"


def test_a_promotion_tells_the_event_what_it_is_and_why(
    retraining: Retraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    notified: list[Path] = []
    monkeypatch.setattr(promote_module, "tell_model", lambda folder, _: notified.append(folder))
    retraining.scored(0)
    retraining.decide()
    result, extra = retraining.promote()
    assert result["version"] == str(retraining.models / "model" / "versions" / "v2")
    assert json.loads(json.dumps(extra)) == extra
    assert extra == {name: result[name] for name in ("model", "version", "digest")} | {
        "number": "v2",
        "previous": "v1",
        "reason": "promoted: +9.0 points on 100 samples, p = 0.002",
        "metric": "top1",
        "candidate": 1.0,
        "production": 0.91,
        "gain": 0.09,
        "interval": extra["interval"],
        "p_value": 2**-9,
        "n_groups": None,
        "dataset_digest": "sha256:same",
    }
    assert retraining.history() == [("promoted", "v1", "anna"), ("promoted", "v2", "scheduled")]
    assert notified == [retraining.models / "model"]


def test_a_production_that_moved_meanwhile_is_not_replaced(retraining: Retraining) -> None:
    retraining.scored(0)
    retraining.decide()
    assert retraining.promoted("by-hand", retraining._decision().model_copy(update={"is_forced": True})) == "v2"
    with pytest.raises(AirflowFailException, match="the candidate was compared with v1, but v2 is in production now"):
        retraining.promote()


def test_the_next_retraining_starts_from_what_was_rolled_back_to(
    retraining: Retraining, locations: Places, dag: DAG, checked: list[StageConfig]
) -> None:
    retraining.scored(0)
    retraining.decide()
    retraining.promote()
    check = operator_of(DeepSparkCheckOperator, dag, locations, warm_start=True)
    assert Path(execute(check, context(dag))["production"]).read_bytes() == b"second"
    roll_back(ModelFolder(retraining.models / "model"), Author("anna", "worse in the field"))
    started = Path(execute(check, context(dag))["production"])
    assert started.read_bytes() == b"first"
    train = operator_of(DeepSparkTrainOperator, dag, locations)
    run = StageRun(locations.home / "r2", None, started)
    assert rendered(train, context(dag)).stage_config({}, run, "local[2]").weights == (started,)


@pytest.mark.parametrize(
    ("kind", "task"), [(DeepSparkDecideOperator, "evaluate"), (DeepSparkPromoteOperator, "export")]
)
def test_a_missing_result_names_the_task_to_clear(locations: Places, dag: DAG, kind: Any, task: str) -> None:
    xcom = StageRun(locations.home / "r", None, None).to_xcom()
    (locations.home / "r").mkdir(parents=True)
    with pytest.raises(AirflowFailException, match=f'is missing; clear task "{task}" of this run'):
        execute(operator_of(kind, dag, locations), context(dag, xcom=xcom))


@pytest.mark.parametrize(
    ("error", "fails_at_once"),
    [
        (ConfigError("why"), True),
        (StageFailed("why", 2), True),
        (StageFailed("why", 1), False),
        (ExchangeUnavailable("why"), False),
    ],
)
def test_only_the_users_mistakes_are_not_tried_again(error: Exception, fails_at_once: bool) -> None:
    with pytest.raises(AirflowException, match=r"^why$") as caught, airflow_errors():
        raise error
    assert isinstance(caught.value, AirflowFailException) is fails_at_once


def leave_snapshot(run_dir: Path) -> None:
    """Leave what a stage looks for before its process starts."""
    for name in ("config.json", "snapshots/s_iter_9.caffemodel", "snapshots/s_iter_9.state.h5"):
        (run_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (run_dir / name).touch()


@pytest.mark.parametrize("kind", [DeepSparkEvaluateOperator, DeepSparkExportOperator])
def test_a_run_without_a_training_or_a_snapshot_is_refused_before_a_process_starts(
    locations: Places, dag: DAG, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    started: list[str] = []
    monkeypatch.setattr(process_stage, "run_job", lambda module, *_, **__: started.append(module))
    run = StageRun(locations.home / "r", None, None)
    operator = operator_of(kind, dag, locations)
    with pytest.raises(AirflowFailException, match=r"^run=.*/r: no training is in this folder; if the folder was"):
        execute(operator, context(dag, xcom=run.to_xcom()))
    assert not run.run_dir.exists()
    leave_snapshot(run.run_dir)
    (run.run_dir / "snapshots" / "s_iter_9.state.h5").unlink()
    with pytest.raises(AirflowFailException, match=r"^run_dir=.*/r: no snapshot in snapshots/; training has not"):
        execute(operator, context(dag, xcom=run.to_xcom()))
    assert started == []


@pytest.mark.parametrize("is_in_spark", [False, True])
def test_an_evaluation_is_a_process_unless_the_form_asks_for_spark(
    locations: Places, dag: DAG, is_in_spark: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = StageRun(locations.home / "r", None, None)
    started: list[tuple[str, str | None]] = []

    def leave_metrics() -> None:
        run.run_dir.joinpath("evaluation").mkdir(parents=True)
        run.run_dir.joinpath("evaluation", "metrics.json").write_text("{}")

    def run_job(module: str, config: Any, **options: Any) -> None:
        leave_metrics()
        started.append((module, config.master))

    def submit(hook: StageSubmitHook, application: str = "", **options: Any) -> None:
        leave_metrics()
        config = json.loads(Path(hook._application_args[0]).read_text())
        started.append((Path(application).relative_to(Path(application).parents[1]).as_posix(), config["master"]))

    monkeypatch.setattr(process_stage, "run_job", run_job)
    monkeypatch.setattr(StageSubmitHook, "submit", submit)
    leave_snapshot(run.run_dir)
    monkeypatch.setattr(spark_stage, "require_java", lambda: None)
    operator = operator_of(DeepSparkEvaluateOperator, dag, locations)
    conf = {"engine": "spark"} if is_in_spark else {}
    result = execute(operator, context(dag, xcom=run.to_xcom(), conf=conf))
    expected = ("evaluate/spark_job.py", "local[*]") if is_in_spark else ("deepspark_ops.evaluate", None)
    assert started == [expected]
    assert result["metrics"] == str(run.run_dir / "evaluation" / "metrics.json")


def test_the_end_of_an_evaluation_without_spark_starts_nothing(locations: Places, dag: DAG) -> None:
    operator_of(DeepSparkEvaluateOperator, dag, locations).on_kill()


def test_an_unusable_run_folder_is_one_message(locations: Places, dag: DAG) -> None:
    locations.home.write_text("a file where runs, datasets and models should be")
    with pytest.raises(
        AirflowFailException, match=r"home.*: Not a directory; give a path that can be read and written"
    ):
        execute(operator_of(DeepSparkCheckOperator, dag, locations), context(dag))
    xcom = StageRun(locations.home / "r", locations.home / "datasets" / "x", None).to_xcom()
    for operator, message in (
        (DeepSparkIngestOperator, "Not a directory; give a path"),
        (DeepSparkTrainOperator, "Not a directory; give a path"),
        (DeepSparkEvaluateOperator, "no training is in this folder; if"),
    ):
        with pytest.raises(AirflowFailException, match=rf"home.*: {message}"):
            execute(operator_of(operator, dag, locations), context(dag, xcom=xcom))


class _Failing(BaseOperator):
    """Fails as a stage does: log lines, then the message."""

    error: Exception = ConfigError("why")

    @ends_plainly
    def execute(self, context: Any) -> None:
        with airflow_errors():
            raise self.error


@pytest.mark.parametrize(
    ("error", "code", "retries"),
    [(ConfigError("why"), 2, 0), (StageFailed("why", 1), 1, 2)],
)
def test_a_running_task_ends_with_its_message_and_an_exit(
    dag: DAG, capsys: pytest.CaptureFixture[str], error: Exception, code: int, retries: int
) -> None:
    pytest.importorskip("airflow.sdk.definitions.retry_policy", reason="before Airflow 3.3 a mistake is an exception")
    operator = _Failing(task_id="failing", dag=dag, **stage_retries())
    operator.error = error
    task_context = {"ti": SimpleNamespace(task=operator)}
    with set_current_context(task_context), pytest.raises(TaskEnd, match=r"^why$") as caught:
        execute(operator, task_context)
    assert caught.value.code == code
    assert repr(caught.value) == "TaskEnd('why')"
    (line,) = capsys.readouterr().out.splitlines()
    assert re.search(r"error.*\bwhy\b", line)
    decided = [operator.retry_policy.evaluate(caught.value, number, 4) for number in (1, 2, 3, 4)]
    assert [step.action.value for step in decided] == ["retry"] * retries + ["fail"] * (4 - retries)
    assert {step.retry_delay for step in decided[:retries]} <= {OWN_DELAY}
    assert stage_retries()["retry_policy"].evaluate(AirflowException("lost"), 4, 4).action.value == "default"


def test_a_message_of_the_troubleshooting_list_ends_a_task_with_its_remedy(dag: DAG) -> None:
    operator = _Failing(task_id="failing", dag=dag)
    operator.error = ConfigError("crop_size=9 is larger than the image, 8 x 8 pixels")
    task_context = {"ti": SimpleNamespace(task=operator)}
    expected = "8 x 8 pixels\ncause: images are smaller than the crop\nremedy: Resize at ingestion"
    with set_current_context(task_context), pytest.raises((TaskEnd, AirflowFailException), match=expected):
        execute(operator, task_context)


def test_a_failed_stage_has_the_retries_of_its_task_and_a_mistake_has_none(dag: DAG) -> None:
    pytest.importorskip("airflow.sdk.definitions.retry_policy", reason="before Airflow 3.3 a mistake is an exception")
    from airflow.sdk import RetryDecision, RetryPolicy

    class Patient(RetryPolicy):
        def evaluate(self, *_: Any, **__: Any) -> RetryDecision:
            return RetryDecision.retry(timedelta(minutes=10))

    patient = Patient()
    for policy in (None, patient):
        operator = _Failing(task_id=f"failing_{policy is None}", dag=dag, retries=5, retry_policy=policy)
        task_context = {"ti": SimpleNamespace(task=operator)}
        operator.error = StageFailed("why", 1)
        with set_current_context(task_context), pytest.raises(TaskEnd):
            execute(operator, task_context)
        assert operator.retry_policy is policy
        operator.error = ConfigError("why")
        with set_current_context(task_context), pytest.raises(TaskEnd) as caught:
            execute(operator, task_context)
        assert operator.retry_policy.evaluate(caught.value, 1, 5).action.value == "fail"


def test_a_stage_may_say_that_it_is_not_tried_again(dag: DAG) -> None:
    pytest.importorskip("airflow.sdk.definitions.retry_policy", reason="before Airflow 3.3 a failure is an exception")
    operator = _Failing(task_id="failing", dag=dag, **stage_retries())
    operator.error, operator.own_retries = StageFailed("why", 1), 0
    task_context = {"ti": SimpleNamespace(task=operator)}
    with set_current_context(task_context), pytest.raises(TaskEnd) as caught:
        execute(operator, task_context)
    assert operator.retry_policy.evaluate(caught.value, 1, 4).action.value == "fail"


def test_a_full_disk_may_be_tried_again() -> None:
    with pytest.raises(AirflowException, match="run: No space left on device; make room") as caught, airflow_errors():
        raise OSError(errno.ENOSPC, "No space left on device", "run")
    assert not isinstance(caught.value, AirflowFailException)


def test_a_read_that_kills_a_spark_stage_is_told_with_the_runs_dataset(
    monkeypatch: pytest.MonkeyPatch, locations: Places, dag: DAG, tmp_path: Path
) -> None:
    driver = tmp_path / "spark-submit"
    driver.write_text("#!/bin/sh\nexit 135\n")  # as spark-submit ends after a driver that a SIGBUS ended
    driver.chmod(0o755)
    monkeypatch.setattr(StageSubmitHook, "_get_spark_binary_path", lambda self: [str(driver)])
    monkeypatch.setattr(spark_stage, "require_java", lambda: None)
    run = StageRun(locations.home / "r", tmp_path / "digits", None)
    leave_snapshot(run.run_dir)
    values = context(dag, xcom=run.to_xcom(), conf={"engine": "spark"})
    operator = rendered(operator_of(DeepSparkEvaluateOperator, dag, locations), values)
    message = rf"signal 7 \(a bus error: .*; it read dataset={tmp_path}/digits, run_dir={run.run_dir}\)"
    with pytest.raises(AirflowException, match=message):
        type(operator).execute.__wrapped__(operator, values)
    operator._hook._submit_sp.stdout.close()  # the provider leaves it open


def test_a_stage_whose_task_was_told_to_end_says_by_which_signal_and_guesses_no_cause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = tmp_path / "spark-submit"
    driver.write_text("#!/bin/sh\necho started\nexec sleep 600\n")
    driver.chmod(0o755)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    monkeypatch.setattr(StageSubmitHook, "_get_spark_binary_path", lambda self: [str(driver)])
    hook = StageSubmitHook(name="train")
    lines: list[str] = []

    def end(log: object) -> LineHandler:
        return lambda level, text: (lines.append(text), hook.on_kill())[0]

    monkeypatch.setattr(spark_stage, "line_logger", end)
    with pytest.raises(StageFailed, match=r"^stage train was ended: its task received SIGTERM$"):
        hook.submit("application.py")
    assert lines == ["started"]
    hook._submit_sp.stdout.close()  # the provider leaves it open


def test_a_training_task_names_its_run_and_the_spark_application(
    monkeypatch: pytest.MonkeyPatch, locations: Places, dag: DAG
) -> None:
    submitted: list[Any] = []
    monkeypatch.setattr(StageSubmitHook, "submit", lambda hook, application="": submitted.append(hook))
    monkeypatch.setattr(train_module.DeepSparkTrainOperator, "result", lambda *_: {})
    run = StageRun(locations.home / "r", None, None)
    train = operator_of(DeepSparkTrainOperator, dag, locations, name="{{ 'night' }}ly", tags="{{ 'paper, v2' }}")
    execute(train, context(dag, xcom=run.to_xcom()))
    assert read_label(run.run_dir) == RunLabel(name="nightly", tags=("paper", "v2"))
    assert submitted[0]._name == "nightly"


PROVIDERS = {
    "conf": {"spark.executor.memory": "3g", "spark.pyspark.python": "./e/bin/python"},
    "env_vars": {"TEAM": "vision", "PYTHONPATH": "/ours", "SPARK_SUBMIT_OPTS": "-Dours=1"},
    "yarn_queue": "night", "principal": "us@REALM", "keytab": "/k.keytab", "proxy_user": "anna", "jars": "a.jar",
    "packages": "org:b:1", "properties_file": "p.conf", "files": "f.txt", "archives": "e.tgz#e",
    "executor_memory": "2g", "num_executors": 7, "deploy_mode": "client", "repositories": "https://r.example",
}  # fmt: skip


def test_what_the_spark_providers_operator_takes_reaches_spark_submit(
    monkeypatch: pytest.MonkeyPatch, locations: Places, dag: DAG
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OUR_SPARK", '{"conn_type": "spark", "host": "spark://h", "port": 7077}')
    submitted: list[Any] = []
    monkeypatch.setattr(StageSubmitHook, "submit", lambda hook, application="": submitted.append(hook))
    monkeypatch.setattr(train_module.DeepSparkTrainOperator, "result", lambda *_: {})
    run = StageRun(locations.home / "r", None, None)
    templates = {"conn_id": "our_{{ 'spark' }}", "executor_cores": "{{ 2 + 1 }}"}
    train = operator_of(DeepSparkTrainOperator, dag, locations, **PROVIDERS, **templates)
    execute(train, context(dag, xcom=run.to_xcom()))
    (hook,) = submitted
    assert (hook._conn_id, hook.master, hook._executor_cores) == ("our_spark", "spark://h:7077", 3)
    provider_arguments = {
        name: getattr(hook, f"_{name}") for name in PROVIDERS if name not in ("conf", "env_vars", "deploy_mode")
    }
    assert provider_arguments == {name: PROVIDERS[name] for name in provider_arguments}
    assert hook._connection["deploy_mode"] == "client"
    assert hook._conf["spark.executor.memory"] == "3g"
    assert hook._conf["spark.speculation"] == "false"
    # Else spark-submit would start the driver, too, by the interpreter that exists beside the executors alone.
    assert hook._conf["spark.pyspark.python"] == "./e/bin/python"
    assert hook._conf["spark.pyspark.driver.python"] == sys.executable
    assert hook._env_vars["TEAM"] == "vision"
    assert hook._env_vars["PYTHONPATH"].split(":")[-1] == "/ours"
    assert "PYSPARK_PYTHON" in hook._env_vars
    assert hook._env_vars["SPARK_SUBMIT_OPTS"] == "-XX:TieredStopAtLevel=1 -Dours=1"
    command = hook._build_spark_submit_command("a.py")
    assert command[command.index("--name") + 1] == "train"
    assert {"night", "us@REALM", "anna", "a.jar", "org:b:1", "p.conf", "f.txt", "e.tgz#e"} <= set(command)


@pytest.mark.parametrize(
    ("conf", "has_python_tasks"),
    [
        ({}, True),
        ({"source_format": "image_list"}, True),
        ({"source_format": "csv"}, False),
        ({"source": "table.parquet"}, False),
        ({"source": "table:db.name"}, False),
        ({"query": "select 1", "source": None}, False),
    ],
)
def test_a_jvm_that_reads_tables_compiles_its_code_well(
    locations: Places, dag: DAG, conf: dict[str, Any], has_python_tasks: bool
) -> None:
    (locations.root / "table.parquet").write_bytes(b"PAR1")
    values = context(dag, conf=conf)
    ingest = rendered(operator_of(DeepSparkIngestOperator, dag, locations), values)
    config = ingest.stage_config(values, StageRun(locations.home / "r", locations.home / "d", None), "local")
    assert ingest.has_python_tasks(config) is has_python_tasks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"application": "ours.py"}, "does not take application: the stage's own application runs"),
        ({"java_class": "Main"}, "does not take java_class: the stage is a Python application"),
        ({"n_worker": 3}, r"has no argument n_worker; did you mean n_workers\?"),
        (
            {"max_iter": 3},
            'has no argument max_iter: max_iter is a field of the solver: give overrides="max_iter: VALUE"',
        ),
        ({"master": "yarn"}, "has no argument master: the Spark connection of conn_id says it"),
        ({"run_dir": "r"}, "has no argument run_dir: run=, "),
        ({"deferrable": True}, "has no argument deferrable: a stage computes below its task, .*; pool= limits"),
        ({"solver": None}, "needs argument solver: Caffe solver prototxt"),
        ({"zzzz": 3}, "has no argument zzzz; allowed: solver, overrides, "),
    ],
)
def test_what_is_no_argument_is_refused_when_the_dag_is_read(
    locations: Places, dag: DAG, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^DeepSparkTrainOperator {message}"):
        operator_of(DeepSparkTrainOperator, dag, locations, **arguments)
    if None in arguments.values():
        return
    with pytest.raises(ConfigError, match=rf"^DeepSparkTrainOperator {message}"):
        DeepSparkTrainOperator.partial(task_id="mapped", **arguments)
    mapped = DeepSparkTrainOperator.partial(task_id="mapped", solver="s.prototxt", dag=dag)
    with pytest.raises(ConfigError, match=rf"^DeepSparkTrainOperator {message}"):
        mapped.expand(**{name: [value] for name, value in arguments.items()})
    with pytest.raises(ConfigError, match=rf"^DeepSparkTrainOperator {message}"):
        mapped.expand_kwargs([{"n_workers": 2}, arguments])
    assert mapped.expand(n_workers=[1, 2]).task_id == "mapped"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_workers": -1}, "n_workers=-1: must be a whole number from 1 to 10000"),
        ({"n_workers": "many"}, "n_workers='many': must be a whole number from 1 to 10000"),
        ({"strategy": "eagsd"}, r'strategy "eagsd" is unknown; known: auto, .*; did you mean "easgd"\?'),
        ({"comm_period": "0:8,-1:4"}, "comm_period='0:8,-1:4': "),
        ({"wire_dtype": "float8"}, "wire_dtype='float8': Input should be 'float32', "),
        ({"weights": ","}, "weights=',': names no file; give one, or several"),
    ],
)
def test_a_wrong_value_without_a_template_is_refused_when_the_dag_is_read(
    arguments: dict[str, Any], message: str
) -> None:
    with DAG("d", schedule=None):
        with pytest.raises(ConfigError, match=rf"^DeepSparkTrainOperator, task a: {message}"):
            DeepSparkTrainOperator(task_id="a", solver="s.prototxt", **arguments)
        with pytest.raises(ConfigError, match=rf"^DeepSparkTrainOperator, task b: {message}"):
            DeepSparkTrainOperator.partial(task_id="b", **arguments)
    with DAG("d", schedule=None, default_args=arguments), pytest.raises(ConfigError, match=message):
        DeepSparkTrainOperator(task_id="c", solver="s.prototxt")


def test_every_wrong_value_has_a_line_and_values_of_templates_and_tasks_wait_for_the_task(
    locations: Places, dag: DAG
) -> None:
    with pytest.raises(ConfigError) as refusal, DAG("d", schedule=None):
        DeepSparkCheckOperator(task_id="a", solver="s.prototxt", n_workers=0, resize_height=-3, min_gain="much")
    names = [
        line.removeprefix("DeepSparkCheckOperator, task a: ").partition("=")[0]
        for line in str(refusal.value).split("\n")
    ]
    assert names == ["n_workers", "resize_height", "min_gain"]
    earlier = BaseOperator(task_id="earlier", dag=dag)
    run = StageRun(locations.home / "r", None, None)
    late = {"n_workers": "{{ -1 }}", "strategy": "{{ 'eagsd' }}", "strategy_options": {"alpha": "{{ 'x' }}"}}
    train = operator_of(
        DeepSparkTrainOperator, dag, locations, weights=earlier.output, min_workers=4, resume="a.solverstate", **late
    )  # min_workers beside the default of n_workers is a rule of two fields
    assert train.n_workers == "{{ -1 }}"
    with pytest.raises(AirflowFailException, match=r"n_workers=-1: must be a whole number"):
        execute(
            operator_of(DeepSparkTrainOperator, dag, locations, n_workers="{{ -1 }}"), context(dag, xcom=run.to_xcom())
        )


def test_a_mapped_operator_without_a_needed_argument_is_refused_when_the_dag_is_read() -> None:
    needs = r"^DeepSparkTrainOperator needs argument solver: "
    with DAG("d", schedule=None):
        with pytest.raises(ConfigError, match=needs):
            DeepSparkTrainOperator.partial(task_id="a").expand(n_workers=[1, 2])
        with pytest.raises(ConfigError, match=needs):
            DeepSparkTrainOperator.partial(task_id="b").expand_kwargs([{"solver": "s"}, {"n_workers": 2}])
        DeepSparkTrainOperator.partial(task_id="c").expand_kwargs(BaseOperator(task_id="earlier").output)
        DeepSparkTrainOperator.partial(task_id="d", default_args={"solver": "s"}).expand(n_workers=[1, 2])
        with TaskGroup("group", default_args={"solver": "s"}):
            DeepSparkTrainOperator.partial(task_id="e").expand(n_workers=[1, 2])
    with DAG("d", schedule=None, default_args={"solver": "s"}):
        DeepSparkTrainOperator.partial(task_id="f").expand(n_workers=[1, 2])


def test_a_path_is_a_template_as_a_run_and_in_a_list(locations: Places, dag: DAG) -> None:
    values = {**context(dag), "ds": "2026-11-27"}
    evaluate = operator_of(DeepSparkEvaluateOperator, dag, locations, run=Path("runs/{{ ds }}"))
    assert rendered(evaluate, values).run_dir(values) == locations.root / "runs/2026-11-27"
    weights = [Path("a.caffemodel"), Path("b-{{ ds }}.caffemodel")]
    train = rendered(operator_of(DeepSparkTrainOperator, dag, locations, weights=weights), values)
    assert train.weights == ["a.caffemodel", "b-2026-11-27.caffemodel"]


def test_a_mapped_value_is_checked_in_its_task(locations: Places, dag: DAG) -> None:
    mapped = DeepSparkTrainOperator.partial(task_id="mapped", solver="s.prototxt", dag=dag).expand(n_workers=[2, -1])
    values = context(dag)
    with set_current_context(values):  # as Airflow does before it makes a mapped task
        task = mapped.unmap({"n_workers": -1})
    with pytest.raises(AirflowFailException, match=r"n_workers=-1: must be a whole number"):
        execute(task, values)


def test_a_spark_property_that_the_stage_sets_is_refused(locations: Places, dag: DAG) -> None:
    run = StageRun(locations.home / "r", None, None)
    train = operator_of(DeepSparkTrainOperator, dag, locations, conf={"spark.speculation": "true"})
    with pytest.raises(AirflowFailException, match=r"^conf: spark\.speculation=true is not taken: two copies of one"):
        execute(train, context(dag, xcom=run.to_xcom()))


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (DeepSparkTrainOperator, {"overrides": "max_iter: {{ 1 // 0 }}"}, "template 'max_iter: .*ZeroDivisionError"),
        (DeepSparkTrainOperator, {"conf": {"a": "{{ params.nothing }}"}}, "template '{{ params.nothing }}'"),
        (DeepSparkIngestOperator, {"source": "{{ 'nothing' }}"}, "source=.*nothing: no such file"),
        (DeepSparkEvaluateOperator, {"split": "{{ 'tst' }}"}, "split='tst': "),
        (DeepSparkEvaluateOperator, {"store_conn_id": "our_lake"}, "store_conn_id=our_lake: there is no such"),
        (DeepSparkExportOperator, {}, "run=.*no training is in this folder; .* clear the task that trains, too"),
    ],
)
@pytest.mark.parametrize("starts_run", [False, True])
def test_a_failure_before_the_stage_begins_is_noted_for_the_runs_page(
    locations: Places, dag: DAG, kind: Any, arguments: dict[str, Any], message: str, starts_run: bool
) -> None:
    run = {"run": None} if starts_run else {}
    task = operator_of(kind, dag, locations, refuse_unknown_conf=False, **run, **arguments)
    of_dag = locations.run_folder("d", "r")
    folder = of_dag if starts_run or kind is DeepSparkExportOperator else of_dag.with_name("s")
    if kind is DeepSparkEvaluateOperator:
        folder.mkdir(parents=True)
    values = context(dag, xcom=StageRun(of_dag.with_name("s"), None, None).to_xcom())
    values["ti"].task = task
    with set_current_context(values), pytest.raises((TaskEnd, AirflowException), match=message):
        execute(task, values)
    assert folder == of_dag or of_dag.with_name("s").exists() == (kind is not DeepSparkExportOperator)
    status = read_statuses(folder)[kind.stage]
    assert (status.status, status.task) == ("failed", "t")
    assert re.match(message, status.message)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (DeepSparkDecideOperator, "there is no such folder; if it was removed, clear the first task of the run, too;"),
        (DeepSparkEvaluateProductionOperator, "no training is in this folder; if the folder was removed, clear the"),
        (DeepSparkPredictOperator, "there is no such folder; if it was removed, clear the first task of the run, too;"),
    ],
)
@pytest.mark.parametrize("folder", ["elsewhere/typo", "runs/d/typo"])
def test_a_stage_makes_no_folder_of_a_wrong_run(
    locations: Places, dag: DAG, kind: Any, message: str, folder: str
) -> None:
    wrong = locations.home / folder
    task = operator_of(kind, dag, locations, run=str(wrong), **dict.fromkeys(kind.required, "a"))
    values = context(dag)
    values["ti"].task = task
    with set_current_context(values), pytest.raises((TaskEnd, AirflowException), match=f"^run={wrong}: {message}"):
        execute(task, values)
    assert not wrong.exists()
    assert read_statuses(locations.run_folder("d", "r"))[kind.stage].status == "failed"


@pytest.mark.parametrize("expands", ["expand", "expand_kwargs"])
@pytest.mark.parametrize("has_run", [False, True])
def test_a_task_beside_mapped_trainings_has_a_folder_of_its_own(locations: Places, expands: str, has_run: bool) -> None:
    with DAG("d", schedule=None) as dag:
        run = {"run": "runs/mine"} if has_run else {}
        partial = DeepSparkTrainOperator.partial(task_id="fit", **({} if expands == "expand_kwargs" else run))
        if expands == "expand":
            partial.expand(solver=["a.prototxt", "b.prototxt"])
        else:
            partial.expand_kwargs([{"solver": "a.prototxt", **run}])
        predict = DeepSparkPredictOperator(task_id="predict", bundle="b", input="i", places=locations)
    values = context(dag) | {"dag": dag}
    assert predict.stage_run(values).run_dir.name == ("r" if has_run else "r__predict")


def test_the_message_of_a_wrong_template_stands_outside_of_airflows_folded_group(
    locations: Places, dag: DAG, capsys: pytest.CaptureFixture[str]
) -> None:
    train = operator_of(DeepSparkTrainOperator, dag, locations, tags="{{ params.nothing }}")
    values = context(dag)
    values["ti"].task = train
    with set_current_context(values), pytest.raises((TaskEnd, AirflowException)):
        rendered(train, values)
    lines = capsys.readouterr().out.splitlines()
    assert "::endgroup::" in lines[0]


def test_a_failure_makes_no_folder_for_a_wrong_path_and_leaves_the_note_of_another_task(
    locations: Places, dag: DAG
) -> None:
    other = StageRun(locations.home / "r", None, None)
    StatusFile(other.run_dir, "evaluate", task="another").end("finished")
    wrong = (locations.home / "wrong", "no training is in this folder")
    for run, message in (wrong, (other.run_dir, "split='tst'")):
        task = operator_of(DeepSparkEvaluateOperator, dag, locations, run=str(run), split="{{ 'tst' }}")
        values = context(dag)
        values["ti"].task = task
        with set_current_context(values), pytest.raises((TaskEnd, AirflowException), match=message):
            execute(task, values)
        assert run.is_dir() == (run == other.run_dir)
    assert read_statuses(other.run_dir)["evaluate"].status == "finished"


def test_two_trainings_do_not_share_the_folder_of_one_run(
    locations: Places, dag: DAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkStageOperator, "execute", lambda *_: {})
    values = context(dag, xcom=StageRun(locations.home / "r", None, None).to_xcom())
    first, second = (operator_of(DeepSparkTrainOperator, dag, locations, task_id=name) for name in ("first", "second"))
    for _ in range(2):
        execute(first, values)  # a task that is tried again goes on
    with pytest.raises(
        AirflowFailException, match=r"task d\.first has trained in this run's folder, so task d\.second"
    ):
        execute(second, values)


def test_a_training_in_another_folder_is_linked_for_the_pages_or_its_log_says_why_no_page_shows_it(
    locations: Places, dag: DAG, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SparkStageOperator, "execute", lambda *_: {})
    folder = locations.root / "elsewhere" / "lenet"
    link = locations.run_folder("d", "r__again")
    values = context(dag, xcom=StageRun(folder, None, None).to_xcom())
    execute(operator_of(DeepSparkTrainOperator, dag, locations, task_id="fit"), values)
    assert f"{folder}: no page of Airflow shows this run" in capsys.readouterr().out
    assert not link.is_symlink()
    allowed = replace(locations, allowed_roots=(Path("elsewhere"),))
    (folder / "stages" / "train.task").unlink()
    task = operator_of(DeepSparkTrainOperator, dag, allowed, task_id="again")
    for _ in range(2):  # a retry finds the link
        execute(task, values)
        assert link.readlink() == folder.resolve()
    # A task that fails before its stage begins notes the failure there.
    score = operator_of(DeepSparkEvaluateOperator, dag, allowed, task_id="score", split="{{ 'tst' }}")
    values["ti"].task, values["ti"].task_id = score, "score"
    with set_current_context(values), pytest.raises((TaskEnd, AirflowException)):
        execute(score, values)
    assert read_statuses(folder)["evaluate"].status == "failed"


@pytest.mark.parametrize(("is_own", "stage"), [(True, "train.second"), (False, "train")])
def test_the_page_of_a_dag_run_has_the_reason_of_a_training_that_another_runs_folder_refuses(
    locations: Places, dag: DAG, is_own: bool, stage: str
) -> None:
    of_dag_run = locations.run_folder("d", "r")
    run = StageRun(of_dag_run if is_own else locations.run_folder("other", "r"), None, None)
    StatusFile(run.run_dir, "train", task="first").end("finished")
    (run.run_dir / "stages" / "train.task").write_text("d.first\n")
    second = operator_of(DeepSparkTrainOperator, dag, locations, task_id="second")
    values = context(dag, xcom=run.to_xcom())
    values["ti"].task, values["ti"].task_id = second, "second"
    with set_current_context(values), pytest.raises((TaskEnd, AirflowException)):
        execute(second, values)
    status = read_statuses(of_dag_run)[stage]
    assert (status.status, status.task) == ("failed", "second")
    assert "task d.first has trained in this run's folder" in status.message
    assert read_statuses(run.run_dir)["train"].status == "finished"


def test_a_training_by_processes_starts_no_spark_and_gets_the_signals_of_its_task(
    locations: Places, dag: DAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkStageOperator, "execute", lambda *_: pytest.fail("Spark is started"))
    started: list[Any] = []

    def run_job(module: str, config: TrainConfig, **options: Any) -> None:
        started.append((module, config.engine, config.is_in_spark, options["cwd"], options["answers_signals"]))
        (config.run_dir / "snapshots").mkdir()
        for suffix in ("caffemodel", "state.h5"):
            (config.run_dir / "snapshots" / f"s_iter_9.{suffix}").write_text("of the stub")

    monkeypatch.setattr(process_stage, "run_job", run_job)
    train = operator_of(DeepSparkTrainOperator, dag, locations, engine="process")
    output = execute(train, context(dag, xcom=StageRun(locations.home / "r", None, None).to_xcom()))
    assert started == [("deepspark_ops.train.driver.process_job", "process", False, locations.root, True)]
    assert output["snapshot"] == str(locations.home / "r" / "snapshots" / "s_iter_9.caffemodel")

    def end(*_: Any, **__: Any) -> None:
        raise SystemExit(143)

    monkeypatch.setattr(process_stage, "run_job", end)
    with pytest.raises(AirflowException, match=r"^stage train was ended: its task received SIGTERM$"):
        execute(train, context(dag, xcom=StageRun(locations.home / "r", None, None).to_xcom()))


def test_an_argument_takes_a_value_a_template_or_the_output_of_a_task(locations: Places, dag: DAG) -> None:
    dataset, weights = locations.home / "datasets" / "x", "/w/s_iter_9.caffemodel"
    ingested = {"run_dir": "/r", "dataset": str(dataset)}
    train = operator_of(
        DeepSparkTrainOperator, dag, locations, run="runs/mine", solver="nets/{{ 'a' }}.prototxt", n_workers=3,
        overrides=None, comm_period="{{ 4 * 2 }}", dataset=ingested, weights={"run_dir": "/o", "snapshot": weights},
    )  # fmt: skip
    ready = rendered(train, context(dag))
    run = ready.stage_run({})
    assert (run.run_dir, run.dataset) == (locations.root / "runs" / "mine", dataset)
    config = ready.stage_config({}, run, "local[2]")
    assert (config.solver, config.n_workers, config.comm_period) == (locations.root / "nets" / "a.prototxt", 3, 8)
    assert (config.overrides, config.dataset, config.weights) == ("", dataset, (Path(weights),))


def test_a_run_that_another_dag_began_is_named_by_its_folder(
    locations: Places, dag: DAG, checked: list[StageConfig]
) -> None:
    began = execute(operator_of(DeepSparkCheckOperator, dag, locations), context(dag))
    export = operator_of(DeepSparkEvaluateOperator, dag, locations, run=began["run_dir"])
    assert rendered(export, context(dag)).stage_run({}).to_xcom() == began


def test_a_template_that_names_nothing_is_an_error(locations: Places, dag: DAG) -> None:
    train = operator_of(DeepSparkTrainOperator, dag, locations, n_workers="{{ params.n_worker }}")
    with pytest.raises(AirflowFailException, match=r"no attribute 'n_worker'; text between"):
        rendered(train, context(dag))
    pytest.importorskip("airflow.sdk.definitions.retry_policy", reason="before Airflow 3.3 a mistake is an exception")
    values = context(dag)
    values["ti"].task = train
    with set_current_context(values), pytest.raises(TaskEnd, match="no attribute 'n_worker'"):
        rendered(train, values)


@pytest.mark.parametrize("text", ["{{ ds }}", "night of {{ ds_nodash }}", "{{ logical_date.year }}"])
def test_a_template_of_a_date_in_a_run_without_a_date_says_what_the_run_has(
    locations: Places, dag: DAG, text: str
) -> None:
    train = operator_of(DeepSparkTrainOperator, dag, locations, tags=text)
    with pytest.raises(AirflowFailException, match=r"is undefined: the run has no logical date, .*run_after"):
        rendered(train, context(dag))


@pytest.mark.parametrize(("text", "value"), [("1,2", "1,2"), ("{{ 1 }},{{ 2 }}", "1,2"), ("7", "7"), ("{{ 7 }}", 7)])
def test_a_dag_with_native_objects_leaves_texts_alone(locations: Places, text: str, value: Any) -> None:
    with DAG("d", schedule=None, render_template_as_native_obj=True) as dag:
        train = DeepSparkTrainOperator(task_id="a", solver="s.prototxt", tags=text, places=locations)
    assert rendered(train, context(dag)).tags == value


class Raises:
    """An object of Airflow's context without the requested entry."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("var.value.steps", "Variable steps not found"),
        ("conn.nowhere.host", "AirflowNotFoundException: .*nowhere"),
        ("1 // 0", "ZeroDivisionError: "),
        ("'a' + 1", "TypeError: "),
    ],
)
@pytest.mark.parametrize("text", ["{{ %s }}", "max_iter: {{ %s }}"])
def test_an_error_of_a_template_is_a_message(
    locations: Places, dag: DAG, text: str, expression: str, reason: str
) -> None:
    missing = ErrorResponse(error=ErrorType.VARIABLE_NOT_FOUND, detail={"message": "Variable steps not found"})
    train = operator_of(DeepSparkTrainOperator, dag, locations, overrides=text % expression)
    values = context(dag) | {"var": {"value": Raises(AirflowRuntimeError(missing))}}
    values["conn"] = Raises(AirflowNotFoundException("The conn_id `nowhere` isn't defined"))
    with pytest.raises(AirflowException, match=rf"^template .*: {reason}") as raised:
        rendered(train, values)
    assert type(raised.value) is AirflowException  # the task's own retries count


@pytest.mark.parametrize("text", ["net_param {{ name: 'x' }}", "base_lr: {{ 0.1", "layer {# a comment of Caffe"])
def test_a_text_that_jinja_cannot_read_is_refused_when_the_dag_is_read(text: str) -> None:
    message = r"^DeepSparkTrainOperator, task a: overrides: template .*; text between {{ and }}, .* is Jinja's"
    with DAG("d", schedule=None), pytest.raises(ConfigError, match=message):
        DeepSparkTrainOperator(task_id="a", solver="s.prototxt", overrides=text)


def test_airflows_own_paths_and_assets_are_arguments(locations: Places, dag: DAG) -> None:
    names = iter("abcdef")

    def train(solver: Any = "s", **arguments: Any) -> DeepSparkTrainOperator:
        return DeepSparkTrainOperator(task_id=next(names), dag=dag, places=locations, solver=solver, **arguments)

    stored = ObjectStoragePath("s3://our_aws@bucket/digits")
    operator = train(ObjectStoragePath("file:///nets/s.prototxt"), dataset=stored)
    assert (operator.dataset, operator.solver) == ("s3://bucket/digits", "file:///nets/s.prototxt")
    assert operator.store_conn_id == "our_aws"
    assert operator.config(TrainConfig, run_dir=locations.home).solver == Path("/nets/s.prototxt")
    assert train(dataset=Asset(name="digits", uri="s3://bucket/digits")).dataset == "s3://bucket/digits"
    assert train(dataset=stored, store_conn_id="our_aws").store_conn_id == "our_aws"
    with pytest.raises(ConfigError, match=r"task .*: paths and store_conn_id name the connections other, our_aws; a"):
        DeepSparkIngestOperator(
            task_id="g", dag=dag, source=stored, test_source=ObjectStoragePath("s3://other@bucket/t")
        )
    with pytest.raises(ConfigError, match="source names the connections our_aws: give store_conn_id"):
        DeepSparkIngestOperator.partial(task_id="lost", dag=dag).expand(source=[stored])
    partial = DeepSparkIngestOperator.partial(task_id="mapped", dag=dag, store_conn_id="our_aws")
    mapped = partial.expand(source=[stored, Path("a")])
    assert mapped.expand_input.value == {"source": ["s3://bucket/digits", "a"]}


OF_COMPARISONS = [kind for name, kind in vars(compare_module).items() if name.startswith("DeepSpark")]
KINDS = [getattr(operators, name) for name in operators.__all__ if name.startswith("DeepSpark")]


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_alone_can_refuse_a_run_with_an_unknown_key(locations: Places, tmp_path: Path, kind: Any) -> None:
    """Spark stages and the stages about models took the argument and ignored it."""
    run = StageRun(tmp_path / "run", None, tmp_path / "v1" / "weights.caffemodel").to_xcom()
    (tmp_path / "run").mkdir()
    arguments = {**dict.fromkeys(kind.required, "a"), **({"run": run} if kind.takes_run else {})}
    with DAG("d", schedule=None) as dag:
        operator = kind(task_id="t", refuse_unknown_conf=True, places=locations, **arguments)
    with pytest.raises(AirflowFailException, match='conf has an unknown parameter "n_worker"'):
        execute(operator, context(dag, conf={"n_worker": 1}))


@pytest.mark.parametrize("kind", [*KINDS, *OF_COMPARISONS])
def test_no_argument_hides_what_airflow_knows_by_that_name(kind: Any) -> None:
    hidden = [field for field in argument_fields(kind) if hasattr(kind, field) and field != "output"]
    assert hidden == []
    assert set(argument_fields(kind)) - {"output"} <= set(kind.template_fields)


def of_dag(retraining: Retraining, dag_id: str, name: str) -> None:
    """Write a model with a version of a run of a DAG."""
    config = PromoteConfig(models=retraining.models, model=name)
    run = retraining.models.parent / "runs" / dag_id / "run-1"
    bundle = make_bundle(run / "bundle", name.encode(), evaluated=evaluation([0], [0]), run=run.name)
    promote(bundle, decide(evaluation([0], [0]), None, config), config, Author("anna"), run_dir=run)


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({}, None),
        ({"model": "new"}, None),
        ({"model": "of_d"}, None),
        ({"model": "of_other"}, r"^model=of_other: other made versions of it, so a run of d may not change it"),
        ({"models": "/elsewhere"}, r"^models=/elsewhere: a run of d changes models in .*/models alone"),
        ({"models": "../outside", "model": "of_d"}, r"^models=.*outside: a run of d changes models in"),
    ],
)
def test_a_run_changes_no_model_that_its_person_may_not_change_by_the_pages(
    retraining: Retraining,
    locations: Places,
    dag: DAG,
    checked: list[StageConfig],
    conf: dict[str, str],
    message: str | None,
) -> None:
    for owner in ("d", "other"):
        of_dag(retraining, owner, f"of_{owner}")
    old_histories = {name: read_model(retraining.models, name).history for name in model_names(retraining.models)}
    retraining.scored(0)
    write_decision(retraining.run, decide(evaluation([0], [0]), None, PromoteConfig()))
    make_bundle(retraining.run.run_dir / "bundle", b"second", run="second")
    own_model = {"model": "model", "models": "models"}
    values = context(dag, xcom=retraining.run.to_xcom(), conf=conf)
    check = operator_of(DeepSparkCheckOperator, dag, locations, warm_start=True, dag_model=own_model)
    if message is None:
        assert execute(check, values)["run_dir"]
        return
    writers = [
        operator_of(kind, dag, locations, dag_model=own_model)
        for kind in (DeepSparkDecideOperator, DeepSparkPromoteOperator)
    ]
    for operator in (check, *writers):
        with pytest.raises(AirflowFailException, match=message):
            execute(operator, values)
    assert {
        name: read_model(retraining.models, name).history for name in model_names(retraining.models)
    } == old_histories
