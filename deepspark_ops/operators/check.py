"""Stage check: refuse what cannot work before any cluster time is spent, and decide where the run's files are."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, BaseOperator

from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.example_conf import example_conf, example_file
from deepspark_ops.config.ingest import IngestConfig, SourceConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest.sources.registry import require_source
from deepspark_ops.operators.form import config_from_params, refuse_unknown
from deepspark_ops.operators.notices.send import setting_problem
from deepspark_ops.operators.promote import approval_config, promote_config, skip, skip_judged_data
from deepspark_ops.operators.tasks.run_plan import DECIDED_VERSION, Places, is_ingested
from deepspark_ops.operators.tasks.run_start import DataEvent, data_events, missed_text, start_text
from deepspark_ops.operators.tasks.stage_run import StageRun, airflow_errors, ends_plainly, noted_stage
from deepspark_ops.processes.spark_submit import run_job
from deepspark_ops.registry.production import production_weights
from deepspark_ops.run_paths import RunPaths, write_text_whole
from deepspark_ops.train.setup.strategy_plan import plan_strategy


class CheckOperator(BaseOperator):
    """Validate every parameter of a run, read its solver and nets, and hand its paths to the stages.

    Its task must be called ``check``: the other operators look the run's paths up there. ``examples/own_dag.py`` is a
    whole DAG.

    Example:
        .. code-block:: python

            check = CheckOperator(task_id="check", places=installed_places())
    """

    own_retries = 0

    def __init__(
        self, *, places: Places, warm_start: bool = False, dataset_asset: Asset | None = None, **kwargs: Any
    ) -> None:
        """Say what the DAG does.

        Args:
            places: Where runs, datasets and models live.
            warm_start: Whether training starts from the model in production.
            dataset_asset: The Asset whose events trigger a DAG that retrains. The run is skipped if the events are of
                another source or of data that a candidate was judged on already, and if the timetable's time has
                passed.
            kwargs: Airflow's.
        """
        super().__init__(**kwargs)
        self.places = places
        self.warm_start = warm_start
        self.dataset_asset = dataset_asset

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str | None]:
        """Return the run's folder, its dataset and the weights in production."""
        params = context["params"]
        run_dir = self.places.run_folder(context["dag_run"].dag_id, context["dag_run"].run_id)
        with noted_stage(run_dir, str(self.task_id), self.log, first_group="preflight") as on_line, airflow_errors():
            start = start_text(context["dag_run"], self._events(context))
            self.log.info("%s", start)
            _note_decided(run_dir, started=start)
            refuse_unknown(context["dag_run"].conf, list(context["dag"].params))
            self._skip_without_reason(context, run_dir)
            require_solver(context, self.places.root, is_scheduled=self.warm_start)
            run = StageRun(run_dir, chosen_dataset(params, self.places), self._production(context))
            if self.dataset_asset is not None:
                skip_judged_data(context, run, self.places)
            config = checked_config(params, run, self.places)
            if problem := setting_problem():
                on_line(logging.WARNING, problem)
            run_job(
                "deepspark_ops.preflight",
                config,
                on_line=on_line,
                config_path=run.config_path("check"),
                cwd=self.places.root,
            )
            _note_decided(run_dir, **self._decided(context, run), started=start)
        self.log.info("run folder: %s", run.run_dir)
        return run.to_xcom()

    def _events(self, context: Any) -> list[DataEvent]:
        """Return the events of the dataset Asset that triggered the run."""
        if self.dataset_asset is None:
            return []
        return data_events(context["triggering_asset_events"].get(self.dataset_asset, []))

    def _skip_without_reason(self, context: Any, run_dir: Path) -> None:
        """Skip a run of a DAG that retrains if other data started it, or if its time has passed.

        Raises:
            AirflowSkipException: Says why.
        """
        if self.dataset_asset is None:
            return
        if missed := missed_text(context["dag_run"], run_dir, os.environ):
            skip(context, missed)
        sources = {event.source for event in self._events(context)}
        source = context["params"].get("source")
        if sources and self.places.place_of(source) not in {self.places.place_of(other) for other in sources}:
            skip(context, f"the updated dataset is of {', '.join(sorted(sources))}; this DAG retrains on {source}")

    def _decided(self, context: Any, run: StageRun) -> dict[str, Any]:
        """Return what pages about the run need of what was decided."""
        plain = run.to_xcom()
        model = promote_config(context, self.places).model if "model" in context["params"] else None
        return {"dataset": plain["dataset"], "production": plain["production"], "model": model}

    def _production(self, context: Any) -> Path | None:
        if not self.warm_start:
            return None
        approval_config(context)  # a wrong value is refused now, not after the training
        promotion = promote_config(context, self.places)
        return production_weights(promotion.models, promotion.model)


def require_solver(context: Any, root: Path, *, is_scheduled: bool = False) -> None:
    """Refuse a run that names no solver.

    Args:
        context: Airflow's.
        root: Folder that relative paths start from.
        is_scheduled: Whether the DAG has scheduled runs, which take their values from a file.

    Raises:
        ConfigError: Says where a solver can be given, and the conf of an example.
    """
    if str(context["params"].get("solver") or "").strip():
        return
    dag_id = context["dag_run"].dag_id
    options = "the form, in conf or in the JSON file of DEEPSPARK_RETRAIN_DEFAULTS" if is_scheduled else "form or conf"
    msg = (
        f"solver: no value; name a Caffe solver prototxt in {options}. Example: {example_file(dag_id, root)}, which is"
        f" the conf {json.dumps(example_conf(dag_id, root))}"
    )
    raise ConfigError(msg)


def _note_decided(
    run_dir: Path, *, started: str, dataset: str | None = None, production: str | None = None, model: str | None = None
) -> None:
    """Write for the run's pages what started it, and what was decided so far."""
    decided = {"format_version": DECIDED_VERSION, "dataset": dataset, "production": production, "model": model}
    write_text_whole(RunPaths(run_dir).decided, json.dumps({**decided, "started": started}, indent=1) + "\n")


def chosen_dataset(params: Mapping[str, Any], places: Places) -> Path | None:
    """Return the folder of the dataset that a run's source is ingested into; None without a source.

    Raises:
        ConfigError: A value is wrong, a file is missing, or there would be no test set.
    """
    if not any(str(params.get(name) or "").strip() for name in ("source", "query")):
        return None
    ingest = config_from_params(IngestConfig, params, places.root, output=Path("undecided"))
    _require_files(ingest)
    _require_test_split(ingest)
    return places.dataset_folder(ingest)


def checked_config(params: Mapping[str, Any], run: StageRun, places: Places) -> CheckConfig:
    """Validate the values of all stages, so that a wrong one is refused now and not after the training.

    Returns:
        What the process of stage check looks at further.

    Raises:
        ConfigError: Names each wrong value.
    """
    root = places.root
    train = config_from_params(
        TrainConfig, params, root, run_dir=run.run_dir, dataset=run.dataset, named_files=places.named_files()
    )
    plan_strategy(train)
    config_from_params(EvaluateConfig, params, root, run_dir=run.run_dir)
    data: dict[str, Any] = {"dataset": run.dataset}
    if run.dataset is not None and not is_ingested(run.dataset):
        data = {"ingest": config_from_params(SourceConfig, params, root)}
    return config_from_params(
        CheckConfig, params, root, **data, parity=True, run_dir=run.run_dir, named_files=places.named_files()
    )


def _require_files(config: IngestConfig) -> None:
    for name in ("source", "test_source", "labels", "class_names"):
        path: Path | None = getattr(config, name)
        if path is not None:
            require_source(path, option=name)


def _require_test_split(config: IngestConfig) -> None:
    if config.test_source is None and config.test_fraction == 0:
        msg = "test_fraction=0 and no test_source: the evaluation needs a test set; give one of them"
        raise ConfigError(msg)
