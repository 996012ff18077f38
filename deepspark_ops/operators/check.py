"""Stage check: refuse what cannot work before any cluster time is spent, and decide where the run's files are."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from airflow.sdk import Asset, BaseOperator

from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.example_conf import example_conf, example_file
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.ingest import IngestConfig, SourceConfig
from deepspark_ops.config.promote import ApprovalConfig, PromoteConfig
from deepspark_ops.config.run_label import RunLabelConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.operators.form import config_from_params
from deepspark_ops.operators.ingest import chosen_dataset, named_source
from deepspark_ops.operators.notices.send import setting_problem
from deepspark_ops.operators.promote import ModelArguments, promote_config, skip, skip_judged_data
from deepspark_ops.operators.tasks.run_plan import DECIDED_VERSION, Places, is_ingested
from deepspark_ops.operators.tasks.run_start import (
    BY_DATA,
    DataEvent,
    data_events,
    kind_of,
    missed_text,
    start_text,
    stored_events,
)
from deepspark_ops.operators.tasks.stage_run import StageRun, ends_plainly, noted_stage
from deepspark_ops.processes.spark_submit import run_job
from deepspark_ops.registry.production import production_weights
from deepspark_ops.run_label.label import label_run
from deepspark_ops.run_paths import RunPaths, write_text_whole
from deepspark_ops.train.setup.strategy_plan import plan_strategy

_NO_SOURCE: Final = "no source: DEEPSPARK_RETRAIN_DEFAULTS names none"


class DeepSparkCheckOperator(ModelArguments, BaseOperator):
    """Start a run: validate the options of all stages, read solver and nets, and decide the folders of the run.

    The arguments are the arguments of all stages; every other task of the run takes the arguments of the task's stage.
    The output has the run's paths: ``run_dir``, the run's folder, ``dataset``, the dataset of ``dataset`` or
    ``source``, and ``production``, the weights in production with ``warm_start``.

    Example:
        .. code-block:: python

            check = DeepSparkCheckOperator(task_id="check", solver="nets/solver.prototxt", source="/data/list.txt")
            ingest = DeepSparkIngestOperator(task_id="ingest", run=check.output, source="/data/list.txt")
    """

    config_models = (
        CheckConfig, TrainConfig, RunLabelConfig, IngestConfig, EvaluateConfig, ExportConfig, PromoteConfig,
        ApprovalConfig,
    )  # fmt: skip
    required = ("solver",)
    not_arguments = frozenset({"output"})
    takes_run = False
    trains = True
    stage = "check"
    own_retries = 0

    def __init__(self, *, warm_start: bool = False, dataset_asset: Asset | None = None, **kwargs: Any) -> None:
        """Say what the DAG does.

        Args:
            warm_start: Whether training starts from the model in production, ``model`` in the folder ``models``.
            dataset_asset: The Asset whose events trigger a DAG that retrains. The run is skipped if the events are of
                another source or of data that a candidate was judged on already, and if the timetable's time has
                passed. Events that came since the run was made count, too.
            kwargs: Fields of the config models, Airflow's arguments.
        """
        if dataset_asset is not None:
            kwargs["inlets"] = [*(kwargs.get("inlets") or ()), dataset_asset]  # whose events the task reads
        super().__init__(**kwargs)
        self.warm_start = warm_start
        self.dataset_asset = dataset_asset

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str | None]:
        """Return the run's folder, the dataset and the weights in production."""
        values, run_dir = self.values(), self.stage_run(context).run_dir
        with noted_stage(run_dir, self.stage, self.log, first_group="preflight") as on_line:
            events = self._events(context)
            start = start_text(context["dag_run"], events)
            self.log.info("%s", start)
            for event in events:
                self.log.info("event of the dataset: %s", event.text())
            _note_decided(run_dir, started=start)
            self.refuse_unknown_conf(context)
            if name := label_run(run_dir, self.config(RunLabelConfig)).name:
                self.log.info("run: %s", name)
            self._skip_without_reason(context, run_dir, events)
            require_solver(values, context["dag_run"].dag_id, self.places.root, is_scheduled=self.warm_start)
            dataset = self.path("dataset") or chosen_dataset(values, self.places)
            run = StageRun(run_dir, dataset, self._production(context))
            if self.dataset_asset is not None:
                skip_judged_data(context, run, promote_config(self), named_source(values))
            config = checked_config(values, run, self.places)
            if problem := setting_problem():
                on_line(logging.WARNING, problem)
            run_job(
                "deepspark_ops.preflight",
                config,
                on_line=on_line,
                config_path=run.config_path(self.stage),
                cwd=self.places.root,
            )
            _note_decided(run_dir, **self._decided(run), started=start)
        self.log.info("run folder: %s", run.run_dir)
        return run.to_xcom()

    def _events(self, context: Any) -> list[DataEvent]:
        """Return the triggering events of the dataset Asset, and the events since the creation of the run.

        While the DAG may not begin another run, Airflow (3.3) keeps one row for all events of an Asset. The run of this
        row gets the events until the first event was queued. Airflow gives the later events to the DAG's next run by
        data, if a next run ever comes. So this run reads the later events.
        """
        run, asset = context["dag_run"], self.dataset_asset
        if asset is None or kind_of(run) != BY_DATA:
            return []
        triggering = context["triggering_asset_events"].get(asset, [])
        return data_events([*triggering, *stored_events(context, asset, since=run.run_after)])

    def _skip_without_reason(self, context: Any, run_dir: Path, events: Sequence[DataEvent]) -> None:
        """Skip a run of a retraining DAG if other data started the run, or if the run's time has passed.

        Raises:
            AirflowSkipException: Says why.
        """
        if self.dataset_asset is None:
            return
        if missed := missed_text(context["dag_run"], run_dir, os.environ):
            skip(context, missed)
        sources = {event.source for event in events}
        source = named_source(self.values())
        if sources and self.places.place_of(source) not in {self.places.place_of(other) for other in sources}:
            skip(
                context,
                f"the updated dataset is of {', '.join(sorted(sources))}; this DAG retrains on {source or _NO_SOURCE}",
            )

    def _decided(self, run: StageRun) -> dict[str, Any]:
        """Return what pages about the run need of what was decided."""
        plain = run.to_xcom()
        model = promote_config(self).model if "model" in self.values() else None
        return {"dataset": plain["dataset"], "production": plain["production"], "model": model}

    def _production(self, context: Any) -> Path | None:
        if not self.warm_start:
            return None
        promotion = self.promote_config(context)
        return production_weights(promotion.models, promotion.model)


def require_solver(values: Mapping[str, Any], dag_id: str, root: Path, *, is_scheduled: bool = False) -> None:
    """Refuse a run without a solver.

    Args:
        values: Of the operator's arguments.
        dag_id: The DAG.
        root: Folder that relative paths start from.
        is_scheduled: Whether the DAG has scheduled runs, which take their values from a file.

    Raises:
        ConfigError: Says where a solver can be given, and the conf of an example.
    """
    if "solver" in values:
        return
    options = "the form, in conf or in the JSON file of DEEPSPARK_RETRAIN_DEFAULTS" if is_scheduled else "form or conf"
    msg = (
        f"solver: no value; name a Caffe solver prototxt in {options}. Example: {example_file(dag_id, root)}, which is"
        f" the conf {json.dumps(example_conf(dag_id, root))}"
    )
    raise ConfigError(msg)


def _note_decided(
    run_dir: Path, *, started: str, dataset: str | None = None, production: str | None = None, model: str | None = None
) -> None:
    """Write the reason of the start and the decisions so far, for the run's pages."""
    decided = {"format_version": DECIDED_VERSION, "dataset": dataset, "production": production, "model": model}
    write_text_whole(RunPaths(run_dir).decided, json.dumps({**decided, "started": started}, indent=1) + "\n")


def checked_config(values: Mapping[str, Any], run: StageRun, places: Places) -> CheckConfig:
    """Validate the values of all stages: a wrong value is refused now and not after the training.

    Returns:
        What the process of stage check looks at further.

    Raises:
        ConfigError: Names each wrong value.
    """
    root = places.root
    train = config_from_params(
        TrainConfig, values, root, run_dir=run.run_dir, dataset=run.dataset, named_files=places.named_files()
    )
    plan_strategy(train)
    # Of the solver's stages, training alone starts from these weights.
    later = {name: value for name, value in values.items() if name != "weights"}
    config_from_params(EvaluateConfig, later, root, run_dir=run.run_dir)
    config_from_params(ExportConfig, later, root, run_dir=run.run_dir)
    config_from_params(PromoteConfig, later, root)
    config_from_params(ApprovalConfig, later, root)
    data: dict[str, Any] = {"dataset": run.dataset}
    if run.dataset is not None and not is_ingested(run.dataset) and {"source", "query"} & set(values):
        data = {"ingest": config_from_params(SourceConfig, values, root), "dataset": None}
    check_values = {name: value for name, value in values.items() if name != "dataset"}
    return config_from_params(
        CheckConfig,
        {"parity": True, **check_values},
        root,
        **data,
        run_dir=run.run_dir,
        named_files=places.named_files(),
    )
