"""A comparison whose trials are simulated: what its tasks decide, with the stages' own processes left out."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.commands.simulate import SimulateConfig
from deepspark_ops.operators import compare as compare_module
from deepspark_ops.operators.compare import (
    DeepSparkCheckTrialsOperator,
    DeepSparkCompareOperator,
    DeepSparkIngestOnceOperator,
)
from deepspark_ops.operators.dags import deepspark_compare
from deepspark_ops.operators.ingest import DeepSparkIngestOperator
from deepspark_ops.operators.provider.airflow_names import AirflowFailException, AirflowSkipException
from deepspark_ops.operators.simulate import DeepSparkSimulateTrialsOperator
from deepspark_ops.operators.tasks import process_stage
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.run_view.stage_status import read_statuses
from deepspark_ops.trials.plan import read_plan
from tests.unit.deepspark_ops.operators.operator_calls import execute, operator_of, rendered
from tests.unit.deepspark_ops.operators.test_compare import context

pytestmark = pytest.mark.airflow
SETTINGS = {
    "simulate": True, "workers": "1, 4", "network": "10gbit,200us", "stragglers": 0.25, "seeds": "1,2", "step_ms": 50,
    "overrides": "max_iter: 40", "rate_scale": "none",
}  # fmt: skip


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[CheckConfig]:
    configs: list[CheckConfig] = []

    def run_job(module: str, config: CheckConfig, *, config_path: Path, **_: Any) -> None:
        config_path.parent.mkdir(parents=True, exist_ok=True)
        configs.append(config)

    monkeypatch.setattr(compare_module, "run_job", run_job)
    return configs


def run_check(locations: Places, **conf: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the context of the tasks after check, and what check returned."""
    dag = deepspark_compare.make_dag()
    values = context(dag, locations, **conf)
    trials = execute(operator_of(DeepSparkCheckTrialsOperator, dag, locations), values)
    return values | {"ti": SimpleNamespace(xcom_pull=lambda task_ids: trials), "form": dag}, trials


def test_a_simulated_comparison_trains_nothing_and_ends_in_the_simulations_page(
    locations: Places, checked: list[CheckConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    values, trials = run_check(locations, **SETTINGS)
    run = locations.home / "runs" / "deepspark_compare" / "run"
    assert len(checked) == 1, "solver, nets and data are looked into as before a training"
    assert read_plan(run) is None
    assert {trial["run_dir"] for trial in trials} == {str(run)}
    assert [path.name for path in run.parent.iterdir()] == ["run"], "trials have no folders"
    monkeypatch.setattr(DeepSparkIngestOperator, "ingest", lambda self, context, until: None)
    assert execute(operator_of(DeepSparkIngestOnceOperator, values["form"], locations), values) == []
    with pytest.raises(AirflowSkipException, match="task simulate has the table"):
        execute(operator_of(DeepSparkCompareOperator, values["form"], locations), values)

    simulated: list[SimulateConfig] = []

    def run_job(module: str, config: SimulateConfig, **_: Any) -> None:
        simulated.append(config)
        assert module == "deepspark_ops.simulation.stage"
        config.out.mkdir(parents=True)
        (config.out / "simulation.json").write_text("{}")
        (config.out / "simulation.html").write_text("<p>curves</p>")

    monkeypatch.setattr(process_stage, "run_job", run_job)
    result = execute(operator_of(DeepSparkSimulateTrialsOperator, values["form"], locations), values)
    (config,) = simulated
    assert (config.strategy_names, config.worker_counts, config.seed_list) == (("easgd", "sync"), (1, 4), (1, 2))
    assert (config.network, config.stragglers, config.step_ms) == ("10gbit,200us", 0.25, 50.0)
    assert (config.solver, config.overrides) == (locations.root / "small_solver.prototxt", "max_iter: 40")
    assert (config.comm_period, config.rate_scale, config.dataset) == ("auto", "none", Path(trials[0]["dataset"]))
    assert config.out == run / "simulation"
    assert json.loads(Path(result["table"]).read_text()) == {}
    assert Path(result["report"]) == run / "evaluation" / "report.html"
    assert Path(result["report"]).read_text() == "<p>curves</p>"
    assert read_statuses(run)["simulate"].status == "finished"


def test_lists_of_one_value_take_the_place_of_the_forms(locations: Places, checked: list[CheckConfig]) -> None:
    values, _ = run_check(locations, simulate=True, comm_periods="1", base_lrs="0.25", comm_period=7, n_workers=2)
    simulate = operator_of(DeepSparkSimulateTrialsOperator, values["form"], locations)
    simulate = rendered(simulate, values)
    config = simulate.stage_config(values, simulate.stage_run(values))
    assert (config.comm_period, config.overrides, config.worker_counts) == (1, "base_lr: 0.25", (2,))


def test_a_comparison_that_trains_simulates_nothing(locations: Places, checked: list[CheckConfig]) -> None:
    values, _ = run_check(locations)
    with pytest.raises(AirflowSkipException, match="simulate is off: the trials are trained"):
        execute(operator_of(DeepSparkSimulateTrialsOperator, values["form"], locations), values)


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"comm_periods": "1, 10"}, "comm_periods has 2 values: a simulation compares strategies and workers"),
        ({"base_lrs": "0.1, 0.2"}, "base_lrs has 2 values"),
        ({"network": "fast"}, "is no bandwidth and latency; allowed: 10gbit,200us"),
        ({"strategy_options": "push_scale: 1"}, "push_scale"),
        ({"workers": "1, 5000"}, "each must be 1 to 1000"),
    ],
)
def test_what_cannot_be_simulated_is_refused_by_check(
    locations: Places, checked: list[CheckConfig], conf: dict[str, Any], message: str
) -> None:
    with pytest.raises(AirflowFailException) as refused:
        run_check(locations, simulate=True, **conf)
    assert message in str(refused.value)
    assert checked == []
