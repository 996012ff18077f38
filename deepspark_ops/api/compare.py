"""Stage compare outside Airflow: the trials of a comparison in turn, then table and page."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from caffe_import.errors import CaffeImportError
from caffe_import.file_access.allowed_roots import allowed_roots_used
from caffe_import.solver.loaded_solver import load_solver
from deepspark_ops.api import stages
from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.compare import CompareTrainingsConfig
from deepspark_ops.config.compare import CompareConfig, Value
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.run_label import MAX_NAME, RunLabelConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError, DeepSparkError, TrainingFailed
from deepspark_ops.processes.named_files import allowed_roots
from deepspark_ops.run_label.label import RunLabel, label_run, read_label
from deepspark_ops.run_paths import RunPaths, write_text_whole
from deepspark_ops.run_view.stage_status import StatusFile, read_statuses
from deepspark_ops.train.setup.strategy_plan import plan_strategy, training_identity
from deepspark_ops.trials.plan import (
    Plan,
    Trial,
    form_values,
    is_continuation,
    make_plan,
    read_plan,
    refuse_double_fields,
    write_plan,
)
from deepspark_ops.trials.standing import EVALUATE, TRAIN
from deepspark_ops.trials.table import CSV_NAME, TABLE_NAME, make_table, read_courses
from deepspark_ops.trials.turn import begin_trial, refuse_search_without_accuracy, representatives

_LOG = logging.getLogger(__name__)
_SHOWN: Final = ("solver", "overrides", "dataset", "weights", "strategy", "n_workers", "comm_period", "devices")
_DAG: Final = ""
"""A comparison outside Airflow is of no DAG."""


def compare_trainings(config: CompareTrainingsConfig, *, is_shown: bool = True) -> Path:
    """Train and score every trial, and return the comparison's folder; a failed trial is a row with the reason.

    A finished trial of the folder is not trained again: the same call continues after an interruption.

    Raises:
        ConfigError: A list or a trial's values are wrong, or the folder is of another comparison.
        TrainingFailed: Every trial failed.
    """
    plan = _planned(config)
    _check(config, plan)
    write_plan(config.run_dir, _continued(config.run_dir, plan))
    label_run(config.run_dir, RunLabelConfig(name=config.name, tags=config.tags))
    for trial in plan.trials:
        _run_trial(config, trial, is_shown=is_shown)
    _write_page(config)
    return config.run_dir


def _planned(config: CompareTrainingsConfig) -> Plan:
    lists = CompareConfig(**{name: value for name, value in config if name in CompareConfig.model_fields})
    refuse_double_fields(lists, config.overrides)

    def training_of(values: Mapping[str, Value]) -> object:
        try:
            return training_identity(_train_config(config, values, config.run_dir))
        except (ConfigError, CaffeImportError):
            return object()  # _checked reports the error with the trial's name

    return make_plan(lists, _DAG, config.run_dir.name, lambda run: config.run_dir.parent / run, training_of)


def _train_config(config: CompareTrainingsConfig, values: Mapping[str, Value], run_dir: Path) -> TrainConfig:
    shared = {**config.training_values(), "run_dir": run_dir}
    return parse_config(TrainConfig, form_values(values, shared))


def _check(config: CompareTrainingsConfig, plan: Plan) -> None:
    """Refuse a trial with an unknown strategy or an unreadable solver, and a search that cannot work.

    Raises:
        ConfigError: Names each trial that is wrong.
        ModuleNotFoundError: Optuna is missing.
    """
    problems = []
    for trial, values in representatives(plan):
        try:
            training = _train_config(config, values, Path(trial.run_dir))
            plan_strategy(training)
            with allowed_roots_used(allowed_roots(training.named_files, (training.solver.parent, training.dataset))):
                refuse_search_without_accuracy(config, load_solver(training.solver, training.overrides))
        except (ConfigError, CaffeImportError) as error:
            problems.append(f'trial {trial.number}, "{trial.name}": {error}')
    if problems:
        raise ConfigError("\n".join(problems))


def _continued(run_dir: Path, plan: Plan) -> Plan:
    """Return the plan, with the values that an earlier call has chosen.

    Raises:
        ConfigError: The folder is of another comparison, or of a run.
    """
    earlier = read_plan(run_dir)
    if earlier is None and RunPaths(run_dir).config.exists():
        msg = f"run_dir={run_dir}: holds a run, and a comparison needs a folder of its own: give another folder"
        raise ConfigError(msg)
    if earlier is None:
        return plan
    if not is_continuation(earlier, plan):
        msg = (
            f"run_dir={run_dir}: holds a comparison of {len(earlier.trials)} other trials"
            f" ({', '.join(trial.name for trial in earlier.trials[:4])}, ...): give another folder"
        )
        raise ConfigError(msg)
    return plan.model_copy(update={"trials": earlier.trials})


def _run_trial(config: CompareTrainingsConfig, trial: Trial, *, is_shown: bool) -> None:
    """Train and score a trial; a failure is noted in the trial's folder.

    A trial that an earlier call has stopped early goes on from its snapshot, if this call stops no trial early.
    """
    run_dir = Path(trial.run_dir)
    goes_on = config.early_stop == "none" and read_courses([trial])[trial.number].early_stop
    statuses = {} if goes_on else read_statuses(run_dir)
    evaluated = parse_config(EvaluateConfig, {"run_dir": run_dir, "devices": config.devices})
    work: dict[str, Callable[[], object]] = {
        TRAIN: lambda: stages.train(_begun(config, trial), is_shown=is_shown),
        EVALUATE: lambda: stages.evaluate(evaluated, is_shown=is_shown),
    }
    for stage, run in work.items():
        if stage in statuses and statuses[stage].status == "finished":
            continue
        status = StatusFile(run_dir, stage)
        try:
            run()
        except (DeepSparkError, CaffeImportError) as error:
            status.end("failed", str(error))
            _LOG.warning('trial %d, "%s": %s failed: %s', trial.number, trial.name, stage, error)
            return
        except BaseException:
            status.end("failed", "it was interrupted")
            raise
        status.end("finished")


def label_trial(trial: Trial, label: RunLabel) -> None:
    """Give a trial the comparison's tags, and the trial's name after the comparison's, once the name is known."""
    name = f"{label.name}: {trial.name}" if label.name else trial.name
    shown_name = name[:MAX_NAME] if trial.is_chosen else ""
    label_run(Path(trial.run_dir), RunLabelConfig(name=shown_name, tags=", ".join(label.tags)))


def _begun(config: CompareTrainingsConfig, trial: Trial) -> TrainConfig:
    """Return the config of a trial that begins, with its values and the accuracies to reach."""

    def training(values: Mapping[str, Value]) -> TrainConfig:
        return _train_config(config, values, Path(trial.run_dir))

    def max_iter_of(values: Mapping[str, Value]) -> int:
        config_of_values = training(values)
        return load_solver(config_of_values.solver, config_of_values.overrides).spec.max_iter

    turn = begin_trial(config.run_dir, trial.number, max_iter_of)
    if trial.name != turn.trial.name:
        _LOG.info("trial %d: %s", trial.number, turn.trial.name)
    label_trial(turn.trial, read_label(config.run_dir))
    chosen = training(turn.trial.values)
    return chosen.model_copy(update={"stop_below": turn.stop_below}) if turn.stop_below else chosen


def _write_page(config: CompareTrainingsConfig) -> None:
    from deepspark_ops.trials.page import render_page  # OpenCV, by the charts

    plan = read_plan(config.run_dir)
    assert plan is not None, "written by this call"
    courses = read_courses(plan.trials)
    table = make_table(plan, courses)
    folder = RunPaths(config.run_dir).evaluation
    folder.mkdir(parents=True, exist_ok=True)
    varied = plan.trials[0].values
    shared: dict[str, Any] = {name: getattr(config, name) for name in _SHOWN if name not in varied}
    settings = {name: " ".join(str(value).split()) for name, value in shared.items() if value not in (None, "")}
    write_text_whole(folder / "report.html", render_page(table, courses, settings))
    write_text_whole(folder / CSV_NAME, table.to_csv())
    write_text_whole(folder / TABLE_NAME, table.to_json())
    if all(row.status == "failed" for row in table.rows):
        msg = f'every trial failed; the first one, "{table.rows[0].name}": {table.rows[0].reason}'
        raise TrainingFailed(msg)
