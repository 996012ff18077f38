"""The tasks of a comparison: a check, an ingestion, a training and an evaluation per trial, and a table."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator

from caffe_import.errors import CaffeImportError
from caffe_import.file_access.allowed_roots import allowed_roots_used
from caffe_import.solver.loaded_solver import load_solver
from deepspark_ops.api.compare import label_trial
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.commands.simulate import SimulateConfig
from deepspark_ops.config.compare import CompareConfig, Value
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.run_label import RunLabelConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError, TrainingFailed
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.operators.check import checked_config, require_solver
from deepspark_ops.operators.evaluate import DeepSparkEvaluateOperator
from deepspark_ops.operators.form import config_from_params
from deepspark_ops.operators.ingest import DeepSparkIngestOperator, chosen_dataset
from deepspark_ops.operators.notices.send import setting_problem
from deepspark_ops.operators.provider.airflow_names import AirflowFailException, AirflowSkipException
from deepspark_ops.operators.simulate import simulates, simulation_of
from deepspark_ops.operators.tasks.stage_run import StageRun, ends_plainly, noted_stage
from deepspark_ops.operators.tasks.trial_run import ComparisonArguments, TrialArguments, TrialRun, TrialsArguments
from deepspark_ops.operators.train import DeepSparkTrainOperator
from deepspark_ops.processes.job_log import LineHandler
from deepspark_ops.processes.named_files import allowed_roots
from deepspark_ops.processes.spark_submit import run_job
from deepspark_ops.run_label.label import label_run, read_label
from deepspark_ops.run_paths import RunPaths, write_text_whole
from deepspark_ops.run_view.stage_status import read_statuses
from deepspark_ops.train.setup.strategy_plan import training_identity
from deepspark_ops.trials.plan import (
    Plan,
    form_values,
    make_plan,
    read_member,
    read_plan,
    refuse_double_fields,
    write_plan,
)
from deepspark_ops.trials.standing import TRAIN
from deepspark_ops.trials.turn import refuse_search_without_accuracy, representatives

_SHOWN_SETTINGS = (
    "solver", "overrides", "source", "weights", "strategy", "strategy_options", "n_workers", "comm_period", "devices",
)  # fmt: skip


class DeepSparkCheckTrialsOperator(ComparisonArguments, BaseOperator):
    """Decide the trials, validate the values of each trial, and read each solver with the nets once.

    The output is a list with an entry per trial, for ``DeepSparkTrainTrialOperator`` and
    ``DeepSparkEvaluateTrialOperator``.

    Example:
        .. code-block:: python

            form = form_templates(TrainConfig)
            check = DeepSparkCheckTrialsOperator(task_id="check", strategies="easgd,sync", **form)
            DeepSparkTrainTrialOperator.partial(task_id="train", **form).expand(trial=check.output)
    """

    config_models = (
        CompareConfig, CheckConfig, TrainConfig, RunLabelConfig, IngestConfig, EvaluateConfig, SimulateConfig,
    )  # fmt: skip
    not_arguments = frozenset({"dataset", "out", "output"})
    returns_mapping = False
    stage = "check"
    own_retries = 0

    @ends_plainly
    def execute(self, context: Any) -> list[dict[str, Any]]:
        """Return the trials."""
        params, run, run_dir = self.values(), context["dag_run"], self.run_dir(context)
        with noted_stage(run_dir, self.stage, self.log, first_group="preflight") as on_line:
            self.refuse_unknown_conf(context)
            label = label_run(run_dir, self.config(RunLabelConfig))
            compare = self.config(CompareConfig)
            if not compare.solvers:
                require_solver(params, run.dag_id, self.places.root)
            refuse_double_fields(compare, str(params.get("overrides") or ""))
            plan = self._plan(compare, run, run_dir, params)
            dataset = chosen_dataset(params, self.places)
            if compare.simulate:
                simulation_of(params, StageRun(run_dir, dataset, None), self.places)
            configs = self._checked(plan, params, dataset)
            if problem := setting_problem():
                on_line(logging.WARNING, problem)
            if not compare.simulate:
                write_plan(run_dir, plan)
                for trial in plan.trials:
                    label_trial(trial, label)
            self._look_into(configs, run_dir, on_line)
        for trial in plan.trials:
            self.log.info("trial %d of %d: %s: %s", trial.number, len(plan.trials), trial.name, trial.run_dir)
            if trial.same_runs:
                self.log.info("trial %d is also: %s: the same run", trial.number, "; ".join(trial.same_runs))
        dataset_text = None if dataset is None else str(dataset)
        return [asdict(TrialRun(trial.name, trial.run_dir, dataset_text, trial.values)) for trial in plan.trials]

    def _plan(self, compare: CompareConfig, run: Any, run_dir: Path, params: Mapping[str, Any]) -> Plan:
        """Return the trials; a simulated trial has neither folder nor page."""
        if compare.simulate:
            if compare.search != "grid":
                msg = f"simulate with search={compare.search}: virtual trials are made of lists: take search=grid"
                raise ConfigError(msg)
            return make_plan(compare, run.dag_id, run.run_id, lambda _run: run_dir)

        def training_of(values: Mapping[str, Value]) -> object:
            trial_params = form_values(values, params)
            try:
                config = config_from_params(TrainConfig, trial_params, self.places.root, run_dir=run_dir)
                return training_identity(config)
            except ConfigError:
                return object()  # it is told of with the trial's name, by _checked

        folder_of = partial(self.places.run_folder, run.dag_id)
        return make_plan(compare, run.dag_id, run.run_id, folder_of, training_of)

    def _checked(self, plan: Plan, params: Mapping[str, Any], dataset: Path | None) -> list[CheckConfig]:
        """Validate each trial's values.

        Raises:
            ConfigError: Names each trial that is wrong, with what is wrong.
        """
        configs, problems = [], []
        for trial, values in representatives(plan):
            trial_values = form_values(values, params)
            try:
                config = checked_config(trial_values, StageRun(Path(trial.run_dir), dataset, None), self.places)
                with allowed_roots_used(allowed_roots(config.named_files, (config.solver.parent, dataset))):
                    solver = load_solver(config.solver, config.overrides)
                if plan.options is not None:
                    refuse_search_without_accuracy(plan.options, solver)
                configs.append(config)
            except (ConfigError, CaffeImportError) as error:
                problems.append(f'trial {trial.number}, "{trial.name}": {error}')
        if problems:
            raise ConfigError("\n".join(problems))
        return configs

    def _look_into(self, configs: Sequence[CheckConfig], run_dir: Path, on_line: LineHandler) -> None:
        """Read each solver's nets and data, once with the most workers of the solver's trials."""
        for solver in dict.fromkeys(config.solver for config in configs):
            most = max((config for config in configs if config.solver == solver), key=lambda config: config.n_workers)
            path = RunPaths(most.run_dir or run_dir).stages / "check.json"
            run_job("deepspark_ops.preflight", most, on_line=on_line, config_path=path, cwd=self.places.root)


class DeepSparkIngestOnceOperator(TrialsArguments, DeepSparkIngestOperator):
    """Ingest the source of a comparison once, for all trials. The output is the list of the check stage.

    Tasks mapped over this output do not run without data, although they run after a failed training.
    """

    config_models = (IngestConfig, CompareConfig)
    not_arguments = frozenset({"output", *CompareConfig.model_fields}) - {"simulate"}
    returns_mapping = False

    def ingest(self, context: Any, until: float) -> Any:
        """Ingest a new or changed source, and return the trials to train: no trial of a simulation."""
        super().ingest(context, until)
        return [] if simulates(self.values(), self.places) else list(self.trials)


class DeepSparkTrainTrialOperator(TrialArguments, DeepSparkTrainOperator):
    """Train a trial; ``trial`` is an entry of the output of ``DeepSparkCheckTrialsOperator``."""

    not_arguments = frozenset({"dataset"})
    least_accuracies = ""

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str | None]:
        """Train with the values that the search chooses now, and with the accuracies of the trials before."""
        run = TrialRun(**self.trial)
        turn = run.begin(self._max_iter_of)
        self.log.info("trial %d: %s", turn.trial.number, turn.trial.name)
        label_trial(turn.trial, read_label(run.comparison))
        self.trial = {**self.trial, "name": turn.trial.name, "values": turn.trial.values}
        self.least_accuracies = turn.stop_below
        return super().execute(context)

    def _max_iter_of(self, values: Mapping[str, Value]) -> int:
        run = TrialRun(**self.trial).stage_run()
        params = form_values(values, super().values())
        config = config_from_params(TrainConfig, params, self.places.root, run_dir=run.run_dir, dataset=run.dataset)
        return load_solver(config.solver, config.overrides).spec.max_iter

    def values(self) -> dict[str, Any]:
        """Return the form's values, updated with the trial's values."""
        values = form_values(TrialRun(**self.trial).values, super().values())
        return {**values, "stop_below": self.least_accuracies} if self.least_accuracies else values


class DeepSparkEvaluateTrialOperator(TrialArguments, DeepSparkEvaluateOperator):
    """Score a trial; ``trial`` is an entry of the output of ``DeepSparkCheckTrialsOperator``."""

    def stage_run(self, context: Any) -> StageRun:
        """Return the trial's paths.

        Raises:
            AirflowFailException: Its training failed.
        """
        run = super().stage_run(context)
        if member := read_member(run.run_dir):
            self.trial = {**self.trial, "name": member.name}  # the search has chosen the values since check
        trained = read_statuses(run.run_dir).get(TRAIN)
        if trained is None or trained.status != "finished":
            # No skip: Airflow skips what follows a skipped task, whatever else has succeeded.
            msg = f'trial "{self.trial["name"]}" has not been trained; the log of its task train says why'
            raise AirflowFailException(msg)
        return run


class DeepSparkCompareOperator(ComparisonArguments, BaseOperator):
    """Write table and page of the run's trials; a failed trial is a row with the reason.

    The arguments are the common options of the trials. The output has ``run_dir``, ``report``, ``table``
    (comparison.json) and the table's ``digest``.
    """

    config_models = (CompareConfig, TrainConfig, IngestConfig)
    not_arguments = frozenset({"dataset", "output"})
    stage = "compare"

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str]:
        """Write table and page, and return their paths."""
        from deepspark_ops.trials.page import render_page  # OpenCV, by the charts
        from deepspark_ops.trials.table import CSV_NAME, TABLE_NAME, make_table, read_courses

        if simulates(self.values(), self.places):
            msg = "simulate is on: task simulate has the table"
            raise AirflowSkipException(msg)
        run_dir = self.run_dir(context)
        folder = RunPaths(run_dir).evaluation
        with noted_stage(run_dir, self.stage, self.log):
            plan = read_plan(run_dir)
            if plan is None:
                msg = f"{run_dir}: the run has no list of trials; clear its task check together with this one"
                raise ConfigError(msg)
            courses = read_courses(plan.trials)
            table = make_table(plan, courses)
            page = render_page(table, courses, _settings(plan, self.values()))
            write_text_whole(folder / "report.html", page)
            write_text_whole(folder / CSV_NAME, table.to_csv())
            write_text_whole(folder / TABLE_NAME, table.to_json())
            for line in table.lines():
                self.log.info("%s", line)
            if all(row.status == "failed" for row in table.rows):
                msg = f'every trial failed; the first one, "{table.rows[0].name}": {table.rows[0].reason}'
                raise TrainingFailed(msg)
        return {
            "run_dir": str(run_dir),
            "report": str(folder / "report.html"),
            "table": str(folder / TABLE_NAME),
            "digest": file_digest(folder / TABLE_NAME),
        }


def _settings(plan: Plan, params: Mapping[str, Any]) -> dict[str, str]:
    """Return what the trials have in common, name -> text."""
    varied = plan.trials[0].values
    return {
        name: " ".join(str(params[name]).split())
        for name in _SHOWN_SETTINGS
        if name not in varied and params.get(name) not in (None, "")
    }
