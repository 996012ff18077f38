"""Decisions and XComs of a comparison's tasks, without the stages' processes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.execution_time.task_runner import set_current_context

from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.compare import CompareConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.events import DRIVER, Event, append_event
from deepspark_ops.exchange.strategies.base import strategy_names
from deepspark_ops.operators import compare as compare_module
from deepspark_ops.operators.compare import (
    DeepSparkCheckTrialsOperator,
    DeepSparkCompareOperator,
    DeepSparkEvaluateTrialOperator,
    DeepSparkIngestOnceOperator,
    DeepSparkTrainTrialOperator,
)
from deepspark_ops.operators.dags import deepspark_compare
from deepspark_ops.operators.form import config_from_params, form_params
from deepspark_ops.operators.provider.airflow_names import AirflowException, AirflowFailException
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.operators.tasks.stage_run import TaskEnd
from deepspark_ops.run_label.label import read_label
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.stage_status import StatusFile, read_statuses
from deepspark_ops.trials.plan import read_plan
from tests.e2e.small_example import SmallExample
from tests.reference.evaluations import answers_with, evaluation, write_evaluation
from tests.unit.deepspark_ops.operators.operator_calls import default_values, execute, operator_of, rendered

pytestmark = pytest.mark.airflow


@pytest.fixture
def dag() -> DAG:
    return deepspark_compare.make_dag()


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[CheckConfig]:
    configs: list[CheckConfig] = []
    monkeypatch.setattr(compare_module, "run_job", lambda module, config, **_: configs.append(config))
    return configs


def context(dag: DAG, locations: Places, *, xcom: Any = None, **conf: Any) -> dict[str, Any]:
    conf = SmallExample(locations.root).conf(strategies=["easgd", "sync"], **conf)
    return {
        "dag": SimpleNamespace(params=dag.params, tasks=[]),
        "params": default_values(dag) | conf,
        "dag_run": SimpleNamespace(dag_id="deepspark_compare", run_id="run", conf=conf),
        "ti": SimpleNamespace(xcom_pull=lambda task_ids: xcom),
    }


def test_check_passes_on_a_trial_each_and_reads_each_solver_once(
    locations: Places, dag: DAG, checked: list[CheckConfig]
) -> None:
    check = operator_of(DeepSparkCheckTrialsOperator, dag, locations)
    passed_on = execute(check, context(dag, locations, workers="1, 3", base_lrs="0.5", comm_period=1))
    assert json.loads(json.dumps(passed_on)) == passed_on
    names = ["easgd, 1 worker", "easgd, 3 workers", "sync, 3 workers"]  # with 1 worker both are one training
    assert [trial["name"] for trial in passed_on] == names
    assert len({trial["dataset"] for trial in passed_on}) == 1
    runs = locations.home / "runs" / "deepspark_compare"
    assert [Path(trial["run_dir"]).relative_to(runs).as_posix() for trial in passed_on][-1] == "run__trial_03"
    plan = read_plan(runs / "run")
    assert plan is not None
    assert [(trial.name, trial.same_runs) for trial in plan.trials] == [
        (names[0], ("sync, 1 worker",)), (names[1], ()), (names[2], ()),
    ]  # fmt: skip
    (config,) = checked  # of the trial with the most workers
    assert (config.n_workers, config.overrides, config.parity) == (3, "base_lr: 0.5", True)


def test_a_comparison_without_a_solver_is_refused_unless_a_list_has_solvers(
    locations: Places, dag: DAG, checked: list[CheckConfig]
) -> None:
    check = operator_of(DeepSparkCheckTrialsOperator, dag, locations)
    with pytest.raises(AirflowFailException, match=r"^solver: no value; .* Example: .*/compare\.json, "):
        execute(check, context(dag, locations, solver=None))
    solver = context(dag, locations)["params"]["solver"]
    assert len(execute(check, context(dag, locations, solver=None, solvers=solver))) == 2


def test_a_trial_trains_by_its_own_values_and_the_forms(
    locations: Places, dag: DAG, checked: list[CheckConfig]
) -> None:
    values = context(dag, locations, comm_periods="1, 1@0 4@9", overrides="max_iter: 9", comm_period=7)
    values["params"]["strategies"] = ["easgd", "downpour"]
    trials = execute(operator_of(DeepSparkCheckTrialsOperator, dag, locations), values)
    configs = []
    for trial in trials:
        train = operator_of(DeepSparkTrainTrialOperator, dag, locations, trial=trial)
        train = rendered(train, values)
        configs.append(train.stage_config(values, train.stage_run(values), "local[2]"))
    assert [(config.strategy, config.comm_period) for config in configs] == [
        ("easgd", 1),
        ("easgd", "1@0 4@9"),
        ("downpour", 1),
        ("downpour", "1@0 4@9"),
    ]
    assert {(config.overrides, config.n_workers, config.master) for config in configs} == {
        ("max_iter: 9", 2, "local[2]")
    }
    assert len({config.run_dir for config in configs}) == 4
    assert configs[0].dataset == Path(trials[0]["dataset"])
    ingest = operator_of(DeepSparkIngestOnceOperator, dag, locations)
    values |= {"ti": SimpleNamespace(xcom_pull=lambda task_ids: trials)}
    run = rendered(ingest, values).stage_run(values)
    assert (run.run_dir.name, run.dataset) == ("run", configs[0].dataset)


def test_all_wrong_trials_are_told_with_their_values_before_any_trains(
    locations: Places, dag: DAG, checked: list[CheckConfig]
) -> None:
    with pytest.raises(AirflowFailException) as refused:
        execute(
            operator_of(DeepSparkCheckTrialsOperator, dag, locations), context(dag, locations, comm_periods="2, often")
        )
    lines = str(refused.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        'trial 2, "easgd, tau often"',
        'trial 3, "sync, tau 2"',
        'trial 4, "sync, tau often"',
    ]
    assert "must be auto, a whole number, or a schedule" in lines[0]
    assert "strategy sync exchanges after every minibatch; allowed: 1" in lines[1]
    assert checked == []
    assert not (locations.home / "runs" / "deepspark_compare" / "run__trial_01").exists()


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"workerz": "1, 2"}, 'unknown parameter "workerz"; did you mean "workers"'),
        ({"base_lrs": "0.1, 0.2", "overrides": "base_lr: 1"}, "base_lrs is given and overrides has base_lr, too"),
        ({"solvers": "none.prototxt, small_solver.prototxt"}, 'trial 1, "none, easgd": /'),
        ({"workers": ", ".join(map(str, range(1, 34)))}, "2 strategies x 33 workers are 66 trials; at most 64"),
        ({"overrides": "max_itr: 3"}, 'unknown field "max_itr"'),
        ({"source": "none.txt"}, "none.txt: no such file or folder"),
    ],
)
def test_mistakes_are_refused_by_name(
    locations: Places, dag: DAG, checked: list[CheckConfig], conf: dict[str, Any], message: str
) -> None:
    with pytest.raises(AirflowFailException) as refused:
        execute(operator_of(DeepSparkCheckTrialsOperator, dag, locations), context(dag, locations, **conf))
    assert message in str(refused.value)
    assert checked == []


@pytest.fixture
def trials(locations: Places, dag: DAG, checked: list[CheckConfig]) -> list[dict[str, Any]]:
    passed_on: list[dict[str, Any]] = execute(
        operator_of(DeepSparkCheckTrialsOperator, dag, locations), context(dag, locations)
    )
    return passed_on


def finish(trial: dict[str, Any]) -> None:
    run = RunPaths(Path(trial["run_dir"]))
    events = [
        Event("stage", 0, DRIVER, {"status": "started"}, 1.0),
        Event("worker_joined", 0, 0, {}, 2.0),
        Event("evaluation", 100, 0, {"accuracy": 0.75, "seconds": 0.0}, 4.0),
        Event("stage", 100, DRIVER, {"status": "finished", "exchanges": 5, "moved_bytes": 800}, 5.0),
    ]
    run.events.write_text("".join(event.to_json() + "\n" for event in events))
    labels = [0, 1] * 4
    write_evaluation(run.evaluation, evaluation(answers_with(labels, [1]), labels))
    for stage in ("train", "evaluate"):
        StatusFile(run.root, stage).end("finished")


def test_a_trial_that_was_not_trained_is_not_scored(locations: Places, dag: DAG, trials: list[dict[str, Any]]) -> None:
    finish(trials[0])
    StatusFile(Path(trials[1]["run_dir"]), "train").end("failed", "no weight changed")
    good, bad = (
        operator_of(DeepSparkEvaluateTrialOperator, dag, locations, trial=trial) for at, trial in enumerate(trials)
    )
    values = context(dag, locations)
    assert rendered(good, values).stage_config(values, good.stage_run(values)).run_dir == Path(trials[0]["run_dir"])
    with pytest.raises(AirflowFailException, match='trial "sync" has not been trained'):
        bad.stage_run(values)


def test_one_trial_that_failed_is_a_row_and_no_end_of_the_comparison(
    locations: Places, dag: DAG, trials: list[dict[str, Any]]
) -> None:
    finish(trials[0])
    StatusFile(Path(trials[1]["run_dir"]), "train").end("failed", "no weight changed")
    result = execute(operator_of(DeepSparkCompareOperator, dag, locations), context(dag, locations))
    rows = json.loads(Path(result["table"]).read_text())["rows"]
    assert [(row["status"], row["reason"], row["accuracy"], row["moved_bytes"]) for row in rows] == [
        ("finished", "", 0.875, 800),
        ("failed", "no weight changed", None, None),
    ]
    page = Path(result["report"]).read_text()
    assert "no weight changed" in page
    assert "small_solver.prototxt" in page  # what all trials have in common
    assert (
        Path(result["report"]) == locations.home / "runs" / "deepspark_compare" / "run" / "evaluation" / "report.html"
    )


def test_without_any_result_the_comparison_fails_and_still_leaves_its_page(
    locations: Places, dag: DAG, trials: list[dict[str, Any]]
) -> None:
    for trial in trials:
        StatusFile(Path(trial["run_dir"]), "train").end("failed", "no Java")
    with pytest.raises(AirflowException, match='every trial failed; the first one, "easgd": no Java'):
        execute(operator_of(DeepSparkCompareOperator, dag, locations), context(dag, locations))
    assert (locations.home / "runs" / "deepspark_compare" / "run" / "evaluation" / "report.html").is_file()


def test_lists_are_texts_in_the_form_and_strategies_are_ticked() -> None:
    params = form_params(
        [("Compare", CompareConfig), ("Train", TrainConfig)],
        {"solver": "s.prototxt"},
        choices={"strategies": strategy_names()},
    )
    schemas = {name: params[name].schema if name in params else None for name in CompareConfig.model_fields}
    assert schemas["strategies"]["type"] == ["array", "string", "null"]
    assert schemas["strategies"]["examples"] == list(strategy_names())
    assert "enum" not in schemas["strategies"]
    for name in ("workers", "comm_periods", "base_lrs", "solvers"):
        assert schemas[name]["type"] == ["string", "array", "null"]
    values = {name: param.value for name, param in params.items()}
    assert config_from_params(CompareConfig, values, Path("/r")) == CompareConfig()
    form = values | {"workers": "1, 2", "base_lrs": [0.1], "solvers": "a.prototxt", "strategies": "easgd"}
    config = config_from_params(CompareConfig, form, Path("/r"))
    assert (config.workers, config.base_lrs, config.solvers) == ((1, 2), (0.1,), (Path("/r/a.prototxt"),))


def test_how_many_trials_train_at_once_is_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = {}
    for limit in (None, "3"):
        if limit is not None:
            monkeypatch.setenv("DEEPSPARK_COMPARE_AT_ONCE", limit)
        tasks = deepspark_compare.make_dag().task_dict
        at_once[limit] = {tasks[name].max_active_tis_per_dagrun for name in ("train", "evaluate")}
    assert at_once == {None: {1}, "3": {3}}
    monkeypatch.setenv("DEEPSPARK_COMPARE_AT_ONCE", "many")
    with pytest.raises(ValueError, match="DEEPSPARK_COMPARE_AT_ONCE=many: must be the number of trials"):
        deepspark_compare.make_dag()


def test_a_search_gives_a_trial_its_values_and_least_accuracies_when_it_begins(
    locations: Places, dag: DAG, checked: list[CheckConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"search": "optuna", "n_trials": 2, "early_stop": "halving", "base_lrs": "0.001..0.1", "name": "searched"}
    values = context(dag, locations, overrides="max_iter: 90 test_interval: 10", **options)
    values["params"]["strategies"] = []
    trials = execute(operator_of(DeepSparkCheckTrialsOperator, dag, locations), values)
    assert [(trial["name"], trial["values"]) for trial in trials] == [("trial 1", {}), ("trial 2", {})]
    configs = []

    def train(operator: DeepSparkTrainTrialOperator, context: Any) -> dict[str, Any]:
        configs.append(operator.stage_config(context, operator.stage_run(context), "local[2]"))
        return {}

    monkeypatch.setattr(compare_module.DeepSparkTrainOperator, "execute", train)
    for trial in trials:
        operator = operator_of(DeepSparkTrainTrialOperator, dag, locations, trial=trial)
        execute(operator, values)
        run_dir = Path(trial["run_dir"])
        test = Event("evaluation", 10, 0, {"test_net": 0, "accuracy": 0.5, "seconds": 0.0}, 2.0)
        started = Event("stage", 0, DRIVER, {"stage": "train", "status": "started", "max_iter": 90}, 1.0)
        for event in (started, test):
            append_event(RunPaths(run_dir).events, event)
        StatusFile(run_dir, "train").end("finished")
    rates = [float(config.overrides.rpartition("base_lr: ")[2]) for config in configs]
    assert rates[0] != rates[1]
    assert all(0.001 <= rate <= 0.1 for rate in rates)
    assert [config.stop_below for config in configs] == ["", "0.5@10"]
    assert read_label(Path(trials[1]["run_dir"])).name == f"searched: 2: base_lr {rates[1]:g}"


@pytest.mark.parametrize("kind", [DeepSparkTrainTrialOperator, DeepSparkEvaluateTrialOperator])
def test_a_trial_that_fails_before_its_stage_notes_the_failure_in_its_own_folder(
    locations: Places, dag: DAG, kind: Any
) -> None:
    """A failure of the evaluation made the folder of a run that was none, ``run__evaluate_0``."""
    folder = locations.run_folder("deepspark_compare", "run__trial_01")
    folder.mkdir(parents=True)
    trial = {"name": "easgd", "run_dir": str(folder), "dataset": None, "values": {}}
    task = operator_of(kind, dag, locations, trial=trial)
    values = context(dag, locations)
    values["ti"] = SimpleNamespace(task=task, task_id=task.task_id, map_index=0)
    with set_current_context(values), pytest.raises((TaskEnd, AirflowException)):
        execute(task, values)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert read_statuses(folder)[task.stage].status == "failed"
