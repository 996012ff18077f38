from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import find_strategy, strategy_names
from deepspark_ops.exchange.strategies.choice import AUTO, Choice
from deepspark_ops.train.setup import strategy_plan
from deepspark_ops.train.setup.strategy_plan import StrategyPlan, plan_strategy, training_identity, with_strategy
from tests.unit.deepspark_ops.exchange.strategies.measured_table import measured_table


def make_config(**fields: Any) -> TrainConfig:
    values = {"solver": Path("s.prototxt"), "run_dir": Path("run"), "n_workers": 4}
    return parse_config(TrainConfig, values | fields)


def plan_of_fields(**fields: Any) -> StrategyPlan:
    return plan_strategy(make_config(**fields))


def test_options_reach_the_strategy_as_text_and_as_a_mapping() -> None:
    for options in ("push_scale: 0.5 count_own: true", {"push_scale": 0.5, "count_own": True}):
        plan = plan_of_fields(strategy="staleness", strategy_options=options)
        assert plan.options == {"push_scale": 0.5, "count_own": True}
        assert plan.running.progress_per_step(4) == 0.125  # 0.5 / (1 + 3 pushes of others)


def test_deepsparks_file_decides_period_and_rate() -> None:
    text = "period: 50 moving_rate: 0.1 decay_rate: 0.5 decay_step: 1000"
    plan = plan_of_fields(strategy="deepspark", strategy_options=text)
    assert (plan.comm_period, plan.moving_rate) == (50, 0.1)
    assert plan.options == {"decay_rate": 0.5, "decay_step": 20}
    same = plan_of_fields(strategy="deepspark", strategy_options=text, comm_period=50, moving_rate=0.1)
    assert same == plan


def test_only_elastic_strategies_compute_while_they_exchange() -> None:
    assert plan_of_fields(strategy="easgd", overlap=True).running.name == "easgd"
    with pytest.raises(ConfigError, match=r"overlap=true with strategy=downpour: .*; allowed with: .*easgd"):
        plan_of_fields(strategy="downpour", overlap=True)


def test_schedules_are_taken_apart() -> None:
    plan = plan_of_fields(comm_period="1@0 10@2000", moving_rate="0.2@0 0.1@500")
    assert plan.comm_period == ((0, 1.0), (2000, 10.0))
    assert (plan.moving_rate, plan.moving_rates) == (0.2, ((0, 0.2), (500, 0.1)))
    (warning,) = plan_of_fields(moving_rate="0.2@0 0.6@500").warnings
    assert "moving_rate=0.6 is above 0.5" in warning


def test_loss_budget_keeps_the_first_period() -> None:
    plan = plan_of_fields(strategy="deepspark", strategy_options="period: 50 moving_rate: 0.1 loss_budget: true")
    assert (plan.comm_period, plan.running.loss_budget) == (50, True)


def test_one_worker_runs_alone_with_the_period_that_was_given() -> None:
    plan = plan_of_fields(strategy="sync", n_workers=1, comm_period=7)
    assert (plan.running.name, plan.comm_period) == ("single_worker", 7)
    assert plan_of_fields(strategy="sync").comm_period == 1


def test_workers_that_wait_for_each_other_agree_on_a_period():
    assert plan_of_fields(strategy="local_sgd").running.agrees_on_period
    assert plan_of_fields(strategy="local_sgd", comm_period=7).comm_period == 7
    for other in ({"strategy": "local_sgd", "n_workers": 1}, {"strategy": "lbfgs"}, {"strategy": "easgd"}):
        assert plan_of_fields(**other).comm_period == "auto"
        assert not plan_of_fields(**other).running.agrees_on_period


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"strategy": "deepspark", "strategy_options": "period: 50 moving_rate: 0.1", "comm_period": 10},
            "comm_period=10 and period: 50 in strategy_options: they mean the same; give one",
        ),
        (
            {"strategy": "deepspark", "strategy_options": "period: 50 moving_rate: 0.1", "moving_rate": 0.2},
            "moving_rate=0.2 and moving_rate: 0.1 in strategy_options: they mean the same; give one",
        ),
        (
            {"strategy": "deepspark", "strategy_options": "period: 50 moving_rate: 1.5"},
            "moving_rate=1.5: must be in (0, 1]; above 0.5 the exchange overshoots",
        ),
        ({"strategy_options": "tau: 3"}, 'strategy_options:1: option "tau" of strategy easgd is unknown'),
        ({"strategy": "sync", "comm_period": 5}, "comm_period=5: strategy sync exchanges after every minibatch"),
        (
            {"strategy": "deepspark", "strategy_options": "loss_budget: true"},
            "comm_period=auto: loss_budget counts from a first period of fixed length; give a number",
        ),
        (
            {"strategy": "lbfgs", "comm_period": "1@0 2@9"},
            "strategy lbfgs keeps its minibatches; give a number or auto",
        ),
        (
            {"strategy": "lbfgs", "n_workers": "2..4"},
            "n_workers=2..4 with strategy=lbfgs: each worker keeps its share of the training set for the whole run;"
            " give a number, or another strategy",
        ),
        (
            {
                "strategy": "deepspark",
                "strategy_options": "period: 5 moving_rate: 0.1 factor_decay_step: 50",
                "n_workers": "auto",
            },
            "n_workers=auto with strategy=deepspark: factor_decay_step of the parameter file counts minibatches of",
        ),
        ({"comm_period": "soon"}, "comm_period='soon': must be auto, a whole number, or a schedule like"),
        ({"comm_period": "5@3"}, "the clocks 3 do not begin at 0 and ascend; a schedule is VALUE@CLOCK"),
        ({"comm_period": "1.5@0"}, "1.5 is not a whole number from 1 to 1000000"),
        ({"moving_rate": "0.5@0 1.5@10"}, "1.5 is not in (0, 1]"),
        ({"lock": "some"}, "lock='some': Input should be 'none', 'striped' or 'full'"),
    ],
)
def test_contradictions_are_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_of_fields(**fields)
    assert message in str(caught.value)


def test_all_other_strategies_take_a_range() -> None:
    taking = [name for name in strategy_names() if name != "lbfgs"]
    assert [plan_of_fields(strategy=name, n_workers="2..4").running.name for name in taking] == [
        find_strategy(name).name for name in taking
    ]


def test_large_rates_are_warned_about() -> None:
    (warning,) = plan_of_fields(moving_rate=0.6).warnings
    assert "moving_rate=0.6 is above 0.5" in warning


def test_auto_is_the_strategy_that_was_measured_as_the_fastest(tmp_path: Path) -> None:
    rows = [("a", name, 4, share, 0.5, speed) for name, share, speed in
            (("easgd", 0.0, 2.0), ("sync", 0.0, 3.0), ("easgd", 0.125, 2.0), ("sync", 0.125, 1.2))]  # fmt: skip
    with measured_table(tmp_path, rows):
        for master, name in (("local[*]", "sync"), ("spark://host:7077", "easgd")):
            config = make_config(strategy="auto", master=master)
            chosen, reason = with_strategy(config)
            assert (chosen.strategy, plan_strategy(config).running.name) == (name, name)
            assert reason.startswith(f"strategy {name}: 4 workers that ")
            assert with_strategy(chosen) == (chosen, "")


def test_auto_takes_a_strategy_with_the_requested_options() -> None:
    assert plan_of_fields(strategy="auto", overlap=True).running.name == "easgd"
    assert plan_of_fields(strategy="auto", comm_period=5).comm_period == 5
    with pytest.raises(ConfigError, match=r"strategy=auto and strategy_options='block_momentum: 0\.5': they are a"):
        plan_of_fields(strategy="auto", strategy_options="block_momentum: 0.5")


def test_with_one_worker_every_strategy_but_lbfgs_is_the_same_training() -> None:
    by_identity: dict[str, list[str]] = {}
    for name in (AUTO, *strategy_names()):
        identity = training_identity(make_config(strategy=name, n_workers=1, run_dir=Path(name)))
        by_identity.setdefault(repr(identity), []).append(name)
    assert sorted(by_identity.values(), key=len) == [
        ["lbfgs"], [AUTO, *(name for name in strategy_names() if name != "lbfgs")]
    ]  # fmt: skip
    own_config = make_config(strategy="easgd", n_workers=1, moving_rate=0.3)
    options = make_config(strategy="staleness", n_workers=1, strategy_options="push_scale: 0.5")
    assert training_identity(own_config) == training_identity(options)


@pytest.mark.parametrize(
    "changed",
    [
        {"n_workers": 2}, {"n_workers": 1, "comm_period": 7}, {"n_workers": 1, "overrides": "base_lr: 0.1"},
        {"n_workers": 1, "solver": Path("other.prototxt")}, {"n_workers": 1, "precision": "float16"},
        {"n_workers": 1, "rate_scale": 0.5},
    ],
)  # fmt: skip
def test_whatever_else_differs_is_another_training(changed: dict[str, Any]) -> None:
    assert training_identity(make_config(**changed)) != training_identity(make_config(n_workers=1))


def test_with_several_workers_only_names_of_one_strategy_are_the_same_training() -> None:
    identities = {name: training_identity(make_config(strategy=name)) for name in strategy_names()}
    equal = {(a, b) for a in identities for b in identities if a < b and identities[a] == identities[b]}
    assert equal == {(a, b) for a in identities for b in identities if a < b and find_strategy(a) is find_strategy(b)}
    assert training_identity(make_config(moving_rate=0.2)) != training_identity(make_config(moving_rate=0.3))
    assert training_identity(make_config(strategy="staleness")) != training_identity(
        make_config(strategy="staleness", strategy_options="push_scale: 0.5")
    )


@pytest.mark.parametrize(("on_cluster", "is_equal"), [("easgd", True), ("sync", False)])
def test_auto_has_the_identity_of_its_strategy_if_a_cluster_agrees(
    monkeypatch: pytest.MonkeyPatch, on_cluster: str, is_equal: bool
) -> None:
    monkeypatch.setattr(
        strategy_plan, "choose_strategy", lambda n, *, uneven: Choice(on_cluster if uneven else "easgd", "")
    )
    named = training_identity(make_config(strategy="easgd"))
    assert (training_identity(make_config(strategy=AUTO)) == named) is is_equal
