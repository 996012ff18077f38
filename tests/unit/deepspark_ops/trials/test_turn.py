"""The begin of a trial: values by Optuna, least accuracies by the trials before, and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.compare import CompareConfig, Value
from deepspark_ops.errors import ConfigError
from deepspark_ops.events import append_event, make_event
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.stage_status import StatusFile
from deepspark_ops.trials.plan import Trial, make_plan, read_member, read_plan, write_plan
from deepspark_ops.trials.turn import begin_trial, refuse_search_without_accuracy, representatives


def comparison(folder: Path, **options: Any) -> Path:
    config = parse_config(CompareConfig, {"base_lrs": "0.001..0.1", "search": "optuna", "n_trials": 3, **options})
    write_plan(folder / "run", make_plan(config, "", "run", lambda run: folder / run))
    return folder / "run"


def max_iter_of(values: Mapping[str, Value]) -> int:
    return 900


def end(trial: Trial, accuracies: Mapping[int, float]) -> None:
    run_dir = Path(trial.run_dir)
    append_event(RunPaths(run_dir).events, make_event("stage", clock=0, stage="train", status="started", max_iter=900))
    for clock, accuracy in accuracies.items():
        test = make_event("evaluation", clock=clock, worker=0, test_net=0, accuracy=accuracy, seconds=0.0)
        append_event(RunPaths(run_dir).events, test)
    StatusFile(run_dir, "train").end("finished")


def test_values_are_chosen_when_a_trial_begins_and_stay(tmp_path: Path) -> None:
    folder = comparison(tmp_path)
    turn = begin_trial(folder, 1, max_iter_of)
    assert turn.stop_below == ""
    assert 0.001 <= float(turn.trial.values["base_lr"]) <= 0.1
    assert turn.trial.name == f"1: base_lr {turn.trial.values['base_lr']:g}"
    assert begin_trial(folder, 1, max_iter_of) == turn
    plan, member = read_plan(folder), read_member(Path(turn.trial.run_dir))
    assert plan is not None
    assert member is not None
    assert (plan.trials[0], member.name) == (turn.trial, turn.trial.name)
    assert [trial.is_chosen for trial in plan.trials] == [True, False, False]
    end(turn.trial, {900: 0.9})
    assert begin_trial(folder, 2, max_iter_of).trial.values != turn.trial.values


def test_a_trial_must_reach_what_the_trials_before_have_reached(tmp_path: Path) -> None:
    folder = comparison(tmp_path, early_stop="halving", base_lrs="0.1, 0.2, 0.3", search="grid")
    first = begin_trial(folder, 1, max_iter_of)
    assert first.stop_below == ""
    end(first.trial, {100: 0.25, 300: 0.5, 900: 0.75})
    assert begin_trial(folder, 2, max_iter_of).stop_below == "0.25@100 0.5@300"
    assert begin_trial(folder, 2, lambda values: 2_700).stop_below == "0.5@300 0.75@900"


def test_a_folder_without_trials_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no list of trials"):
        begin_trial(tmp_path / "none", 1, max_iter_of)


def test_values_are_drawn_for_the_check_of_a_search_that_chooses_later(tmp_path: Path) -> None:
    plan = read_plan(comparison(tmp_path))
    assert plan is not None
    pairs = representatives(plan)
    assert [trial.number for trial, _ in pairs] == [1, 2, 3]
    assert all(0.001 <= float(values["base_lr"]) <= 0.1 for _, values in pairs)


@pytest.mark.parametrize(("layers", "interval"), [(["SoftmaxWithLoss"], 10), (["Accuracy"], 0)])
def test_a_search_by_accuracy_needs_tests_of_an_accuracy(layers: list[str], interval: int) -> None:
    net = SimpleNamespace(layer=[SimpleNamespace(type=layer) for layer in layers])
    solver: Any = SimpleNamespace(test_nets=[net], spec=SimpleNamespace(test_interval=interval))
    for options in ({"search": "optuna"}, {"early_stop": "halving"}):
        with pytest.raises(ConfigError, match="no test net with a layer Accuracy"):
            refuse_search_without_accuracy(parse_config(CompareConfig, options), solver)
    refuse_search_without_accuracy(parse_config(CompareConfig, {}), solver)
