"""The begin of a trial: its values, and the accuracies that it must reach, by the trials before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from caffe_import.extras import require
from caffe_import.solver.loaded_solver import LoadedSolver
from deepspark_ops.config.compare import TrialLists, Value
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.file_lock import held_lock
from deepspark_ops.run_paths import RunPaths, write_text_whole
from deepspark_ops.run_view.stage_status import read_statuses
from deepspark_ops.trials.course import Course
from deepspark_ops.trials.halving import stop_below
from deepspark_ops.trials.optuna_search import Observation, suggested
from deepspark_ops.trials.plan import Plan, Trial, name_of, read_plan, write_member
from deepspark_ops.trials.space import random_draws, space_of
from deepspark_ops.trials.standing import standing_of
from deepspark_ops.trials.table import read_courses

_LOCK_S: Final = 60.0


@dataclass(frozen=True)
class Turn:
    """A trial that begins.

    Attributes:
        trial: With its values.
        stop_below: Option of the training; empty without an early stop.
    """

    trial: Trial
    stop_below: str


def begin_trial(comparison: Path, number: int, max_iter_of: Callable[[Mapping[str, Value]], int]) -> Turn:
    """Choose the values of a trial, if they are not chosen yet, and note the values in the comparison's plan.

    Args:
        comparison: Folder of the comparison.
        number: Of the trial.
        max_iter_of: Returns the minibatches of a training with a trial's values.

    Raises:
        ConfigError: The folder has no plan.
        MissingExtra: Optuna is to choose, and is not installed.
        DataError: Another trial has been beginning for a minute.
    """
    lock = RunPaths(comparison).stages / "trials.lock"
    if not lock.parent.is_dir():
        raise ConfigError(_no_plan(comparison))
    with held_lock(lock, _LOCK_S, DataError(f"{lock}: another trial has held this lock for {_LOCK_S:g} s")):
        plan = read_plan(comparison)
        if plan is None:
            raise ConfigError(_no_plan(comparison))
        trial, options = plan.trials[number - 1], plan.options
        if options is None or (trial.is_chosen and options.early_stop == "none"):
            return Turn(trial, "")
        other_trials = [other for other in plan.trials if other.number != number]
        courses = read_courses(other_trials)
        if not trial.is_chosen:
            space = space_of(options)
            values = suggested(space, _observations(other_trials, courses), options.search_seed)
            trial = trial.model_copy(update={"values": values, "name": f"{number}: {name_of(space, values)}"})
            _replace(comparison, plan, trial)
    if options.early_stop == "none":
        return Turn(trial, "")
    tests = [course.tests for course in courses.values()]
    return Turn(trial, stop_below(tests, max_iter_of(trial.values), options.reduction_factor))


def representatives(plan: Plan) -> list[tuple[Trial, Mapping[str, Value]]]:
    """Return trials with values to validate before a trial begins: all trials, or a draw for values not yet chosen.

    Raises:
        MissingExtra: Optuna is to choose, and is not installed.
    """
    if plan.options is None or plan.options.search != "optuna":
        return [(trial, trial.values) for trial in plan.trials]
    require("optuna", part="search=optuna")
    draws = random_draws(space_of(plan.options), len(plan.trials), plan.options.search_seed)
    return list(zip(plan.trials, draws, strict=False))


def refuse_search_without_accuracy(options: TrialLists, solver: LoadedSolver) -> None:
    """Refuse a search by test accuracies for a solver without tests of an accuracy.

    Raises:
        ConfigError: Names the option and the remedy.
    """
    name = "search=optuna" if options.search == "optuna" else "early_stop=halving"
    if options.search != "optuna" and options.early_stop == "none":
        return
    has_accuracy = any(layer.type == "Accuracy" for net in solver.test_nets for layer in net.layer)
    if not has_accuracy or not solver.spec.test_interval:
        msg = (
            f"{name}: it compares test accuracies, and the solver has no test net with a layer Accuracy, or no"
            " test_interval: add them to net and solver, or take search=random and early_stop=none"
        )
        raise ConfigError(msg)


def _observations(trials: list[Trial], courses: Mapping[int, Course]) -> list[Observation]:
    observations = []
    for trial in trials:
        word = standing_of(read_statuses(Path(trial.run_dir)), is_over=False).word
        if trial.is_chosen and word in ("trained", "finished", "failed"):
            course = courses[trial.number]
            accuracy = None if word == "failed" else course.last_accuracy
            observations.append(Observation(trial.values, accuracy, course.stopped_at))
    return observations


def _replace(comparison: Path, plan: Plan, trial: Trial) -> None:
    trials = tuple(trial if other.number == trial.number else other for other in plan.trials)
    text = plan.model_copy(update={"trials": trials}).model_dump_json(indent=1)
    write_text_whole(RunPaths(comparison).trials, text + "\n")
    write_member(comparison, plan, trial)


def _no_plan(comparison: Path) -> str:
    return f"{comparison}: the run has no list of trials; clear its task check together with this one"
