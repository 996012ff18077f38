"""Trials of a comparison: all combinations of the lists, and the file of the trials."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from caffe_import.files.regular_file import regular_bytes
from deepspark_ops.config.compare import CompareConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.run_paths import RunPaths, write_text_whole

MAX_TRIALS: Final = 64
MEMBER_NAME: Final = "trial.json"
"""In ``stages/`` of a trial's folder; the file names the comparison, so that retention keeps both or none."""
PLAN_VERSION: Final = 2
_MEMBER_VERSION: Final = 1
VARIED: Final = ("solver", "strategy", "n_workers", "comm_period", "base_lr")
"""Options that vary between trials, in the order of a trial's name; the last is a field of the solver."""
Value = str | int | float
_TRIAL = re.compile(r"(.+)__trial_(\d{2,})")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Trial(_Frozen):
    """A training of a comparison.

    Attributes:
        number: From 1.
        name: Varied values, e.g. ``easgd, 2 workers, tau 10``.
        values: Values of ``VARIED`` with a list.
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


class Plan(_Frozen):
    """The trials of a DAG run.

    Attributes:
        format_version: Version of the file; 1 lacks ``same_runs``.
        dag: Id of the DAG.
        run: Id of the run.
        target_accuracy: Requested target; None for the lowest last accuracy.
        trials: By number.
    """

    format_version: Literal[1, 2] = PLAN_VERSION
    dag: str
    run: str
    target_accuracy: float | None
    trials: tuple[Trial, ...]


def make_plan(
    config: CompareConfig,
    dag: str,
    run: str,
    folder_of: Callable[[str], Path],
    training_of: Callable[[Mapping[str, Value]], object] | None = None,
) -> Plan:
    """Return all combinations of the lists, a trial per training; the last list varies first.

    Args:
        config: The lists.
        dag: Id of the DAG.
        run: Id of the run.
        folder_of: Returns the folder of a run id.
        training_of: Returns an object that identifies the training of a combination. Combinations with equal objects
            are one trial. None: every combination is a separate training.

    Raises:
        ConfigError: The lists have too many combinations, or only one.
    """
    lists: dict[str, Sequence[Value]] = {
        "solver": tuple(map(str, config.solvers)),
        "strategy": config.strategies,
        "n_workers": config.workers,
        "comm_period": config.comm_periods,
        "base_lr": config.base_lrs,
    }
    varied = {name: tuple(dict.fromkeys(values)) for name, values in lists.items() if values}
    combined = [dict(zip(varied, values, strict=True)) for values in itertools.product(*varied.values())]
    counts = " x ".join(f"{len(values)} {_LISTS[name]}" for name, values in varied.items())
    if len(combined) > MAX_TRIALS:
        msg = f"{counts} are {len(combined)} trials; at most {MAX_TRIALS} are compared: shorten a list"
        raise ConfigError(msg)
    if len(combined) < 2:
        list_names = ", ".join(_LISTS.values())
        msg = f"there is one trial, and nothing to compare it with: give two or more values in one of {list_names}"
        raise ConfigError(msg)
    shown = {name: _shown(name, values) for name, values in varied.items() if len(values) > 1}
    names = [", ".join(shown[field][values[field]] for field in VARIED if field in shown) for values in combined]
    groups = _equal_trainings(combined, training_of)
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
    return Plan(dag=dag, run=run, target_accuracy=config.target_accuracy, trials=tuple(trials))


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


_LISTS: Final = {
    "solver": "solvers",
    "strategy": "strategies",
    "n_workers": "workers",
    "comm_period": "comm_periods",
    "base_lr": "base_lrs",
}


def _shown(name: str, values: Sequence[Value]) -> dict[Value, str]:
    if name == "solver":
        return dict(zip(values, _short_names([Path(str(value)) for value in values]), strict=True))
    words: dict[str, Callable[[Value], str]] = {
        "strategy": str,
        "n_workers": lambda value: "1 worker" if value == 1 else f"{value} workers",
        "comm_period": lambda value: f"tau {value}",
        "base_lr": lambda value: f"base_lr {value:g}",
    }
    return {value: words[name](value) for value in values}


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
    updated = {**params, **{name: value for name, value in values.items() if name != "base_lr"}}
    if "base_lr" in values:
        updated["overrides"] = f"{params.get('overrides') or ''}\nbase_lr: {values['base_lr']}".lstrip()
    return updated


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
        member = Member(comparison=str(run_dir), run=plan.run, name=trial.name)
        stages = RunPaths(Path(trial.run_dir)).stages
        stages.mkdir(parents=True, exist_ok=True)
        write_text_whole(stages / MEMBER_NAME, member.model_dump_json(indent=1) + "\n")


class Member(_Frozen):
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
