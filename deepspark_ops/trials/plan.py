"""Trials of a comparison: all combinations of the lists, and the file of the trials."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from caffe_import.file_access.regular_file import regular_bytes
from deepspark_ops.config.compare import CompareConfig, Range, Value
from deepspark_ops.errors import ConfigError
from deepspark_ops.frozen_model import FrozenModel
from deepspark_ops.run_paths import RunPaths, write_text_whole
from deepspark_ops.trials.space import LISTS, MAX_TRIALS, Axis, Space, Values, grid, random_draws, space_of

MEMBER_NAME: Final = "trial.json"
"""In ``stages/`` of a trial's folder; the file names the comparison, so that retention keeps both or none."""
PLAN_VERSION: Final = 3
_MEMBER_VERSION: Final = 1
_TRIAL = re.compile(r"(.+)__trial_(\d{2,})")


class Trial(FrozenModel):
    """A training of a comparison.

    Attributes:
        number: From 1.
        name: Varied values, e.g. ``easgd, 2 workers, tau 10``; ``trial 7`` until its values are chosen.
        values: Values of the options with a list or a range, solver fields included; empty until Optuna has chosen the
            values, when the trial begins.
        run: Run id of the trial, derived from the comparison's run id.
        run_dir: Folder of the trial.
        same_runs: Names of the other combinations that are the same training.
    """

    number: int
    name: str
    values: dict[str, Value]
    run: str
    run_dir: str
    same_runs: tuple[str, ...] = ()

    @property
    def is_chosen(self) -> bool:
        """Whether the trial has its values."""
        return bool(self.values)


class Plan(FrozenModel):
    """The trials of a DAG run.

    Attributes:
        format_version: Version of the file; 1 lacks ``same_runs``, 2 lacks ``options``.
        dag: Id of the DAG.
        run: Id of the run.
        target_accuracy: Requested target; None for the lowest last accuracy.
        trials: By number.
        options: Options of the comparison; None in older files.
    """

    format_version: Literal[1, 2, 3] = PLAN_VERSION
    dag: str
    run: str
    target_accuracy: float | None
    trials: tuple[Trial, ...]
    options: CompareConfig | None = None


def make_plan(
    config: CompareConfig,
    dag: str,
    run: str,
    folder_of: Callable[[str], Path],
    training_of: Callable[[Mapping[str, Value]], object] | None = None,
) -> Plan:
    """Return the trials of the search, a trial per training.

    Args:
        config: Lists, ranges and search.
        dag: Id of the DAG.
        run: Id of the run.
        folder_of: Returns the folder of a run id.
        training_of: Returns an object that identifies the training of a combination. Combinations with equal objects
            are one trial. None: every combination is a separate training.

    Raises:
        ConfigError: There are too many combinations or only one, or a range where all combinations are made.
    """
    space = space_of(config)
    combined = _combinations(config, space)
    names = [name_of(space, values) or f"trial {at}" for at, values in enumerate(combined, start=1)]
    groups = _equal_trainings(combined, training_of if config.search == "grid" else None)
    if len(groups) < 2:
        msg = f"{', '.join(names)}: these trials are one and the same training, and there is nothing to compare"
        raise ConfigError(msg)
    trials = []
    for number, (first, *same_trainings) in enumerate(groups, start=1):
        trial_run = trial_run_id(run, number)
        trial = Trial(
            number=number,
            name=names[first],
            values=combined[first],
            run=trial_run,
            run_dir=str(folder_of(trial_run)),
            same_runs=tuple(names[at] for at in same_trainings),
        )
        trials.append(trial)
    return Plan(dag=dag, run=run, target_accuracy=config.target_accuracy, trials=tuple(trials), options=config)


def _combinations(config: CompareConfig, space: Space) -> list[Values]:
    """Return the values of each trial; empty values for Optuna, which chooses them when a trial begins."""
    ranges = [LISTS.get(name, name) for name, axis in space.items() if isinstance(axis, Range)]
    if config.search == "grid":
        if ranges:
            msg = (
                f"{', '.join(ranges)}: a range needs search=random or search=optuna; search=grid takes lists of values"
            )
            raise ConfigError(msg)
        combined = grid(space)
        sizes = [f"{len(axis)} {LISTS.get(name, name)}" for name, axis in space.items() if isinstance(axis, tuple)]
        if len(combined) > MAX_TRIALS:
            msg = (
                f"{' x '.join(sizes)} are {len(combined)} trials; at most {MAX_TRIALS} are compared: shorten a list,"
                " or take search=random"
            )
            raise ConfigError(msg)
    else:
        combined = random_draws(space, config.n_trials, config.search_seed)
    if len(combined) < 2:
        list_names = ", ".join(LISTS.values())
        msg = (
            "there is one trial, and nothing to compare it with: give two or more values in one of"
            f" {list_names}, solver_fields"
        )
        raise ConfigError(msg)
    return [{} for _ in range(config.n_trials)] if config.search == "optuna" else combined


def is_continuation(earlier: Plan, plan: Plan) -> bool:
    """Return whether a plan has the trials of an earlier plan; values that Optuna has chosen meanwhile may differ."""
    ignored = {"early_stop", "reduction_factor", "target_accuracy"}
    if plan.options is not None and plan.options.search == "optuna":
        options, earlier_options = (
            each.options and each.options.model_dump(exclude=ignored) for each in (plan, earlier)
        )
        return options == earlier_options
    return earlier.trials == plan.trials


def _equal_trainings(
    combined: Sequence[Mapping[str, Value]], training_of: Callable[[Mapping[str, Value]], object] | None
) -> list[list[int]]:
    """Return the indices of equal combinations, a list per training."""
    groups: list[tuple[object, list[int]]] = []
    for at, values in enumerate(combined):
        training = at if training_of is None else training_of(values)
        equal = next((members for other, members in groups if other == training), None)
        if equal is None:
            groups.append((training, [at]))
        else:
            equal.append(at)
    return [members for _, members in groups]


def name_of(space: Space, values: Mapping[str, Value]) -> str:
    """Return the name of a trial: the values that differ between trials."""
    varied = [name for name, axis in space.items() if name in values and (isinstance(axis, Range) or len(axis) > 1)]
    return ", ".join(_word(name, values[name], space[name]) for name in varied)


def _word(name: str, value: Value, axis: Axis) -> str:
    if name == "solver" and isinstance(axis, tuple):
        return _short_names([Path(str(path)) for path in axis])[axis.index(value)]
    words = {
        "strategy": str(value),
        "n_workers": "1 worker" if value == 1 else f"{value} workers",
        "comm_period": f"tau {value}",
    }
    return words.get(name, f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}")


def _short_names(paths: Sequence[Path]) -> list[str]:
    """Return the files' names without suffix, with enough folders to distinguish the names."""
    for n_parts in range(1, max(len(path.parts) for path in paths) + 1):
        names = [str(Path(*path.with_suffix("").parts[-n_parts:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def form_values(values: Mapping[str, Value], params: Mapping[str, Any]) -> dict[str, Any]:
    r"""Return a form's values, updated with the values of a trial.

    Example:
        >>> form_values({"n_workers": 4, "base_lr": 0.1}, {"n_workers": 2, "overrides": "max_iter: 9", "gray": True})
        {'n_workers': 4, 'overrides': 'max_iter: 9\nbase_lr: 0.1', 'gray': True}
    """
    updated = {**params, **{name: value for name, value in values.items() if not is_solver_field(name)}}
    fields = [f"{name}: {value}" for name, value in values.items() if is_solver_field(name)]
    if fields:
        updated["overrides"] = "\n".join([str(params.get("overrides") or ""), *fields]).lstrip()
    return updated


def is_solver_field(name: str) -> bool:
    """Return whether a varied value is a field of the solver, and no option of the training."""
    return name == "base_lr" or name not in LISTS


def refuse_double_fields(config: CompareConfig, overrides: str) -> None:
    """Refuse a solver field that has values to compare and a value in ``overrides``.

    Raises:
        ConfigError: Names the field.
    """
    for name in filter(is_solver_field, space_of(config)):
        if re.search(rf"\b{name}\b", overrides):
            varied_option = LISTS.get(name, f"solver_fields ({name})")
            msg = f"{varied_option} is given and overrides has {name}, too: give one of them; overrides={overrides!r}"
            raise ConfigError(msg)
    doubled = sorted(set(LISTS) & {name for name, _ in config.solver_fields})
    if doubled:
        msg = f"solver_fields has {doubled[0]}: give {LISTS[doubled[0]]}"
        raise ConfigError(msg)


def trial_run_id(run: str, number: int) -> str:
    """Return the run id of a trial, for the names of the trial's pages and folder.

    Example:
        >>> trial_run_id("manual__2026-01-31T04:05:06+00:00", 3)
        'manual__2026-01-31T04:05:06+00:00__trial_03'
    """
    return f"{run}__trial_{number:02d}"


def comparison_of(run: str) -> tuple[str, int] | None:
    """Return the comparison's run id and the trial's number of a trial's run id; None for any other run id.

    Example:
        >>> comparison_of("manual__2026__trial_03"), comparison_of("manual__2026")
        (('manual__2026', 3), None)
    """
    match = _TRIAL.fullmatch(run)
    return (match[1], int(match[2])) if match else None


def write_plan(run_dir: Path, plan: Plan) -> None:
    """Write the plan into the comparison's folder, and the comparison's folder into each trial's folder."""
    paths = RunPaths(run_dir)
    paths.stages.mkdir(parents=True, exist_ok=True)
    write_text_whole(paths.trials, plan.model_dump_json(indent=1) + "\n")
    for trial in plan.trials:
        write_member(run_dir, plan, trial)


def write_member(run_dir: Path, plan: Plan, trial: Trial) -> None:
    """Write the comparison's folder into a trial's folder."""
    member = Member(comparison=str(run_dir), run=plan.run, name=trial.name)
    stages = RunPaths(Path(trial.run_dir)).stages
    stages.mkdir(parents=True, exist_ok=True)
    write_text_whole(stages / MEMBER_NAME, member.model_dump_json(indent=1) + "\n")


class Member(FrozenModel):
    """A trial's file about the comparison.

    Attributes:
        format_version: Version of this form.
        comparison: Folder of the comparison.
        run: The comparison's run id.
        name: Name of the trial.
    """

    format_version: Literal[1] = _MEMBER_VERSION
    comparison: str
    run: str
    name: str


def read_plan(run_dir: Path) -> Plan | None:
    """Return the plan of a comparison; None for other runs."""
    try:
        return Plan.model_validate_json(regular_bytes(RunPaths(run_dir).trials))
    except (OSError, ValidationError):
        return None


def read_member(run_dir: Path) -> Member | None:
    """Return a trial's file about the comparison; None for other runs."""
    try:
        return Member.model_validate_json(regular_bytes(RunPaths(run_dir).stages / MEMBER_NAME))
    except (OSError, ValidationError):
        return None
