"""Stage compare outside Airflow: the trials of a comparison in turn, then table and page."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from caffe_import.errors import CaffeImportError
from caffe_import.files.allowed_roots import allowed_roots_used
from caffe_import.solver.loaded_solver import load_solver
from deepspark_ops.api import stages
from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.compare import CompareTrainingsConfig
from deepspark_ops.config.compare import CompareConfig
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError, DeepSparkError, TrainingFailed
from deepspark_ops.processes.named_files import allowed_roots
from deepspark_ops.run_paths import RunPaths, write_text_whole
from deepspark_ops.run_view.stage_status import StatusFile, read_statuses
from deepspark_ops.train.setup.strategy_plan import plan_strategy, training_identity
from deepspark_ops.trials.plan import Plan, Trial, Value, form_values, make_plan, read_plan, write_plan
from deepspark_ops.trials.standing import EVALUATE, TRAIN

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
    configs = _checked(config, plan)
    _refuse_other_plan(config.run_dir, plan)
    write_plan(config.run_dir, plan)
    for trial in plan.trials:
        _run_trial(trial, configs[trial.number], is_shown=is_shown)
    _write_page(config, plan)
    return config.run_dir


def _planned(config: CompareTrainingsConfig) -> Plan:
    if config.base_lrs and "base_lr" in config.overrides:
        msg = f"base_lrs={config.base_lrs} and overrides={config.overrides!r} has base_lr, too: give one of them"
        raise ConfigError(msg)

    def training_of(values: Mapping[str, Value]) -> object:
        try:
            return training_identity(_train_config(config, values, config.run_dir))
        except (ConfigError, CaffeImportError):
            return object()  # _checked reports the error with the trial's name

    lists = CompareConfig(**{name: value for name, value in config if name in CompareConfig.model_fields})
    return make_plan(lists, _DAG, config.run_dir.name, lambda run: config.run_dir.parent / run, training_of)


def _train_config(config: CompareTrainingsConfig, values: Mapping[str, Value], run_dir: Path) -> TrainConfig:
    shared = {**config.training_values(), "run_dir": run_dir}
    return parse_config(TrainConfig, form_values(values, shared))


def _checked(config: CompareTrainingsConfig, plan: Plan) -> dict[int, TrainConfig]:
    """Return the config of each trial, by number, with a known strategy and a readable solver.

    Raises:
        ConfigError: Names each trial that is wrong.
    """
    configs, problems = {}, []
    for trial in plan.trials:
        try:
            training = _train_config(config, trial.values, Path(trial.run_dir))
            plan_strategy(training)
            with allowed_roots_used(allowed_roots(training.named_files, (training.solver.parent, training.dataset))):
                load_solver(training.solver, training.overrides)
            configs[trial.number] = training
        except (ConfigError, CaffeImportError) as error:
            problems.append(f'trial {trial.number}, "{trial.name}": {error}')
    if problems:
        raise ConfigError("\n".join(problems))
    return configs


def _refuse_other_plan(run_dir: Path, plan: Plan) -> None:
    earlier = read_plan(run_dir)
    if earlier is not None and earlier.trials != plan.trials:
        msg = (
            f"run_dir={run_dir}: holds a comparison of {len(earlier.trials)} other trials"
            f" ({', '.join(trial.name for trial in earlier.trials[:4])}, ...): give another folder"
        )
        raise ConfigError(msg)
    if earlier is None and RunPaths(run_dir).config.exists():
        msg = f"run_dir={run_dir}: holds a run, and a comparison needs a folder of its own: give another folder"
        raise ConfigError(msg)


def _run_trial(trial: Trial, config: TrainConfig, *, is_shown: bool) -> None:
    """Train and score a trial; a failure is noted in the trial's folder."""
    statuses = read_statuses(config.run_dir)
    evaluated = parse_config(EvaluateConfig, {"run_dir": config.run_dir, "devices": config.devices})
    work: dict[str, Callable[[], object]] = {
        TRAIN: lambda: stages.train(config, is_shown=is_shown),
        EVALUATE: lambda: stages.evaluate(evaluated, is_shown=is_shown),
    }
    for stage, run in work.items():
        if stage in statuses and statuses[stage].status == "finished":
            continue
        status = StatusFile(config.run_dir, stage)
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


def _write_page(config: CompareTrainingsConfig, plan: Plan) -> None:
    from deepspark_ops.trials.page import render_page  # OpenCV, by the charts
    from deepspark_ops.trials.table import CSV_NAME, TABLE_NAME, make_table, read_courses

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
