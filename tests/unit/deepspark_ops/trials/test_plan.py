"""The trials of a comparison: combinations, names, bounds, and the way of values to the stages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.compare import CompareConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.trials.plan import (
    Plan,
    comparison_of,
    form_values,
    make_plan,
    read_member,
    read_plan,
    refuse_double_fields,
    trial_run_id,
    write_plan,
)


def trial_plan(folder: Path = Path("/r"), **values: Any) -> Plan:
    return make_plan(parse_config(CompareConfig, values), "deepspark_compare", "run", lambda run: folder / run)


def test_trials_are_all_combinations_named_by_what_differs() -> None:
    plan = trial_plan(strategies=["easgd", "sync"], workers="1, 2", comm_periods="1", base_lrs=[0.1])
    assert [(trial.name, trial.values) for trial in plan.trials] == [
        ("easgd, 1 worker", {"strategy": "easgd", "n_workers": 1, "comm_period": "1", "base_lr": 0.1}),
        ("easgd, 2 workers", {"strategy": "easgd", "n_workers": 2, "comm_period": "1", "base_lr": 0.1}),
        ("sync, 1 worker", {"strategy": "sync", "n_workers": 1, "comm_period": "1", "base_lr": 0.1}),
        ("sync, 2 workers", {"strategy": "sync", "n_workers": 2, "comm_period": "1", "base_lr": 0.1}),
    ]
    assert [(trial.number, trial.run) for trial in plan.trials][2:] == [(3, "run__trial_03"), (4, "run__trial_04")]
    assert plan.trials[0].run_dir == "/r/run__trial_01"
    assert len({trial.run_dir for trial in plan.trials}) == 4


def test_combinations_that_are_the_same_training_are_one_trial() -> None:
    config = CompareConfig(strategies=("easgd", "sync", "lbfgs"), workers=(1, 2))
    plan = make_plan(
        config, "deepspark_compare", "run", lambda run: Path("/r", run),
        lambda values: "one worker" if values["n_workers"] == 1 and values["strategy"] != "lbfgs" else values,
    )  # fmt: skip
    assert [(trial.number, trial.name, trial.same_runs) for trial in plan.trials] == [
        (1, "easgd, 1 worker", ("sync, 1 worker",)),
        (2, "easgd, 2 workers", ()),
        (3, "sync, 2 workers", ()),
        (4, "lbfgs, 1 worker", ()),
        (5, "lbfgs, 2 workers", ()),
    ]
    assert plan.trials[2].run == "run__trial_03"  # numbers have no gaps: Airflow's mapped tasks count on
    with pytest.raises(ConfigError, match=r"^easgd, sync: these trials are one and the same training"):
        make_plan(CompareConfig(strategies=("easgd", "sync")), "d", "run", lambda run: Path("/r", run), lambda _: 0)


def test_a_plan_of_the_version_before_is_read(tmp_path: Path) -> None:
    plan = trial_plan(tmp_path, workers="1, 2")
    write_plan(tmp_path / "run", plan)
    path = tmp_path / "run" / "stages" / "trials.json"
    written = json.loads(path.read_text())
    for trial in written["trials"]:
        del trial["same_runs"]
    path.write_text(json.dumps(written | {"format_version": 1}))
    old_plan = read_plan(tmp_path / "run")
    assert old_plan is not None
    assert old_plan.trials == plan.trials


def test_lists_are_texts_or_lists_and_a_value_counts_once() -> None:
    names = [trial.name for trial in trial_plan(comm_periods="1, auto , 1@0 10@2000, 1", base_lrs="0.1, 0.10").trials]
    assert names == ["tau 1", "tau auto", "tau 1@0 10@2000"]
    lines = trial_plan(workers=["1, 2", "4"], strategies="easgd\nsync")  # as Airflow's form sends a text of lines
    assert [trial.values["n_workers"] for trial in lines.trials] == [1, 2, 4] * 2
    assert [trial.name for trial in trial_plan(comm_periods=[1, 10], base_lrs="1e-5, 0.5").trials] == [
        "tau 1, base_lr 1e-05",
        "tau 1, base_lr 0.5",
        "tau 10, base_lr 1e-05",
        "tau 10, base_lr 0.5",
    ]


def test_solver_files_are_named_by_the_shortest_distinct_path() -> None:
    assert [t.name for t in trial_plan(solvers="nets/adam.prototxt, nets/sgd.prototxt").trials] == ["adam", "sgd"]
    plan = trial_plan(solvers=["/a/x/s.prototxt", "/a/y/s.prototxt"])
    assert [trial.name for trial in plan.trials] == ["x/s", "y/s"]
    assert plan.trials[1].values == {"solver": "/a/y/s.prototxt"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "there is one trial, and nothing to compare it with: give two or more values in one of solvers, strat"),
        ({"workers": "2, 2"}, "there is one trial"),
        (
            {"workers": list(range(1, 14)), "base_lrs": [0.1, 0.2, 0.3, 0.4, 0.5]},
            "13 workers x 5 base_lrs are 65 trials; at most 64 are compared: shorten a list",
        ),
        (
            {"workers": "two"},
            "workers='two': must be whole numbers from 1 to 10000, commas between them, e.g. '1, 2, 4'",
        ),
        ({"workers": "0, 1"}, "workers='0': must be whole numbers"),
        ({"base_lrs": [-0.1]}, "base_lrs=-0.1: must be numbers above 0, commas between them, e.g. '0.1, 0.01'"),
        ({"base_lrs": "nan"}, "base_lrs='nan': must be numbers above 0"),
        ({"strategies": [{"a": 1}]}, "strategies={'a': 1}: Input should be a valid string"),
        ({"base_lrs": "0.1..0.01"}, "base_lrs"),
        ({"base_lrs": "0.1..0.2, 0.3"}, "base_lrs"),
        ({"base_lrs": "0.1..0.2"}, "base_lrs: a range needs search=random or search=optuna"),
        ({"solver_fields": "momentum"}, "solver_fields"),
        ({"solver_fields": "momentum: 0.8\nmomentum: 0.9"}, "solver_fields"),
        ({"target_accuracy": 95}, "target_accuracy=95: Input should be less than or equal to 1"),
    ],
)
def test_lists_that_cannot_be_are_refused_in_words(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        trial_plan(**values)
    assert message in str(refused.value)


def test_as_many_trials_as_allowed_are_planned() -> None:
    assert len(trial_plan(workers=list(range(1, 9)), comm_periods=list(range(1, 9))).trials) == 64


def test_random_trials_lie_in_the_ranges_and_are_repeatable() -> None:
    options: dict[str, Any] = {
        "strategies": "easgd, sync",
        "base_lrs": "0.0001..0.1",
        "solver_fields": "momentum: 0.8..0.95\nstepsize: 100..200",
        "search": "random",
        "n_trials": 20,
    }
    plan = trial_plan(**options)
    assert plan == trial_plan(**options)
    assert plan.trials != trial_plan(**options, search_seed=1).trials
    values = [trial.values for trial in plan.trials]
    assert len({trial.name for trial in plan.trials}) == len(values) == 20
    rates = [float(value["base_lr"]) for value in values]
    assert all(0.0001 <= rate <= 0.1 for rate in rates)
    assert sum(rate < 0.00316 for rate in rates) >= 5  # half of a logarithmic range; 3 % of a linear range
    assert {value["strategy"] for value in values} == {"easgd", "sync"}
    assert all(isinstance(value["stepsize"], int) and 100 <= value["stepsize"] <= 200 for value in values)
    assert all(0.8 <= float(value["momentum"]) <= 0.95 for value in values)
    first = values[0]
    words = [str(first["strategy"]), *(f"{name} {first[name]}" for name in ("base_lr", "momentum", "stepsize"))]
    assert plan.trials[0].name == ", ".join(words)
    assert form_values(first, {})["overrides"].splitlines() == [
        f"{name}: {first[name]}" for name in ("base_lr", "momentum", "stepsize")
    ]


def test_a_random_search_of_few_combinations_takes_each_once() -> None:
    plan = trial_plan(workers="1, 2", solver_fields="momentum: 0.8, 0.9", search="random", n_trials=16)
    assert sorted(trial.name for trial in plan.trials) == [
        f"{workers}, momentum {momentum}" for workers in ("1 worker", "2 workers") for momentum in (0.8, 0.9)
    ]


def test_optuna_leaves_the_values_of_each_trial_open(tmp_path: Path) -> None:
    plan = trial_plan(tmp_path, base_lrs="0.001..0.1", search="optuna", n_trials=3)
    assert [(trial.name, trial.values, trial.is_chosen) for trial in plan.trials] == [
        (f"trial {number}", {}, False) for number in (1, 2, 3)
    ]
    write_plan(tmp_path / "run", plan)
    assert read_plan(tmp_path / "run") == plan


@pytest.mark.parametrize(
    ("overrides", "options", "message"),
    [
        ("base_lr: 1", {"base_lrs": "0.1, 0.2"}, "base_lrs is given and overrides has base_lr, too"),
        ("momentum: 0", {"solver_fields": "momentum: 0.8, 0.9"}, "solver_fields (momentum) is given and overrides has"),
        ("", {"solver_fields": "n_workers: 1, 2"}, "solver_fields has n_workers: give workers"),
    ],
)
def test_a_field_with_two_sources_is_refused(overrides: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        refuse_double_fields(parse_config(CompareConfig, options), overrides)
    assert message in str(refused.value)


def test_values_of_a_trial_take_the_place_of_the_forms() -> None:
    params = {"n_workers": 2, "strategy": "easgd", "overrides": None, "gray": True}
    assert form_values({"strategy": "sync", "comm_period": "4"}, params) == {
        "n_workers": 2,
        "strategy": "sync",
        "comm_period": "4",
        "overrides": None,
        "gray": True,
    }
    assert form_values({"base_lr": 1e-05}, params)["overrides"] == "base_lr: 1e-05"
    assert params["strategy"] == "easgd"


def test_comparison_and_trials_name_each_other_in_their_folders(tmp_path: Path) -> None:
    plan = trial_plan(tmp_path, workers="1, 2", target_accuracy=0.9)
    write_plan(tmp_path / "run", plan)
    assert read_plan(tmp_path / "run") == plan
    member = read_member(tmp_path / "run__trial_02")
    assert member is not None
    assert (member.comparison, member.run, member.name) == (str(tmp_path / "run"), "run", "2 workers")
    assert read_plan(tmp_path / "run__trial_02") is None
    assert read_member(tmp_path / "run") is None


def test_a_trials_run_id_says_of_which_comparison_it_is() -> None:
    assert comparison_of(trial_run_id("manual__2026-01-31T04:05:06+00:00", 64)) == (
        "manual__2026-01-31T04:05:06+00:00",
        64,
    )
    assert comparison_of("a__trial_1") is None
    assert comparison_of("__trial_01") is None
