"""Stage promote: put the new model into production if the new model is better than production's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from airflow.sdk import Asset, BaseOperator

from caffe_import.file_access.regular_file import regular_bytes, regular_text
from deepspark_ops.config.base import parse_config, with_paths_from
from deepspark_ops.config.evaluate import ScoreBundleConfig
from deepspark_ops.config.promote import ApprovalConfig, PromoteConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.evaluate.comparison.section import with_decision
from deepspark_ops.evaluate.evaluation_folder import Evaluated, read_evaluation
from deepspark_ops.evaluate.metrics import REPORT_NAME
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.operators.form import is_left_out
from deepspark_ops.operators.notices.send import notify
from deepspark_ops.operators.provider.airflow_names import AirflowSkipException
from deepspark_ops.operators.tasks.run_note import REASON_KEY
from deepspark_ops.operators.tasks.run_plan import DEFAULT_MODELS, Places, is_ingested, read_decided
from deepspark_ops.operators.tasks.run_start import BY_DATA, kind_of
from deepspark_ops.operators.tasks.stage_arguments import StageArguments
from deepspark_ops.operators.tasks.stage_run import StageRun, ends_plainly, line_logger, noted_stage
from deepspark_ops.processes.spark_submit import run_job
from deepspark_ops.registry.candidate import PRODUCTION_EVALUATION, decide_against, decide_by_hand, find_candidate
from deepspark_ops.registry.changes import Author, note_rejected, promote
from deepspark_ops.registry.gate import KEPT_PRODUCTION, Decision, decide
from deepspark_ops.registry.overview import model_names, read_model
from deepspark_ops.registry.production import Production, version_folder
from deepspark_ops.run_paths import RunPaths, write_text_whole
from deepspark_ops.shards.manifest import split_digests
from deepspark_ops.tracking.tell import tell_model


class ModelArguments(StageArguments):
    """Part of an operator with a model as output."""

    def __init__(self, *, dag_model: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        """Keep the arguments.

        Args:
            dag_model: ``model`` and ``models`` as the DAG's author chose them. A run that names another model may
                change what a person who may trigger the DAG may change by the pages: a model of the same folder that
                no other DAG made. Without it a run may name any model.
            kwargs: The operator's own.
        """
        super().__init__(**kwargs)
        self._dag_model = dag_model

    def promote_config(self, context: Any) -> PromoteConfig:
        """Return the promote config of a run; without ``model`` for the model that the run's task check names.

        Raises:
            ConfigError: A value is wrong, or the model is one that a run of this DAG may not change.
        """
        config = promote_config(self)
        if "model" not in self.values() and (checked_model := read_decided(self.run_dir(context)).model):
            config = config.model_copy(update={"model": checked_model})
        if self._dag_model is not None:
            values = {name: value for name, value in self._dag_model.items() if not is_left_out(value)}
            of_dag = _with_models(with_paths_from(parse_config(PromoteConfig, values), self.places.home), self.places)
            _require_changeable(config, of_dag, self.places.models, str(context["dag_run"].dag_id))
        return config


def _require_changeable(config: PromoteConfig, of_dag: PromoteConfig, served: Path, dag_id: str) -> None:
    """Refuse a run with a model that the run's person may not change by the pages.

    Args:
        config: Of the run.
        of_dag: Config of the DAG's author.
        served: Folder of the models that pages change.
        dag_id: The DAG.

    Raises:
        ConfigError: Says why.
    """
    folder, folders = config.models.resolve(), {of_dag.models.resolve(), served.resolve()}
    if (folder, config.model) == (of_dag.models.resolve(), of_dag.model):
        return
    if folder not in folders:
        allowed = " or ".join(sorted(map(str, folders)))
        msg = f"models={config.models}: a run of {dag_id} changes models in {allowed} alone, as its author chose"
        raise ConfigError(msg)
    made_by = read_model(folder, config.model).made_by() if config.model in model_names(folder) else [dag_id]
    if other_dags := [dag for dag in made_by if dag != dag_id]:
        msg = (
            f"model={config.model}: {', '.join(other_dags)} made versions of it, so a run of {dag_id} may not change"
            " it; name a model of this DAG or a new one, or change it on its page (DeepSpark > Models)"
        )
        raise ConfigError(msg)


def promote_config(arguments: StageArguments) -> PromoteConfig:
    """Return an operator's promote config; a relative models folder is below the installation's home.

    Raises:
        ConfigError: A value is wrong.
    """
    return _with_models(arguments.config(PromoteConfig, folder=arguments.places.home), arguments.places)


def _with_models(config: PromoteConfig, places: Places) -> PromoteConfig:
    """Return a config with the installation's folder of models as the default."""
    is_default = config.models == places.home / DEFAULT_MODELS
    return config.model_copy(update={"models": places.models}) if is_default else config


def decision_file(run: StageRun) -> Path:
    """Return the path of a run's decision."""
    return run.run_dir / "decision.json"


def read_decision(run: StageRun) -> Decision:
    """Return the decision of a run.

    Raises:
        DataError: There is none.
    """
    path = decision_file(run)
    if not path.is_file():
        msg = f'{path} is missing; clear task "decide" of this run'
        raise DataError(msg)
    return Decision.model_validate_json(regular_bytes(path))


def write_decision(run: StageRun, decision: Decision, *, waiting: str = "") -> Path:
    """Write a decision into the run's folder and earlier report, and return the path.

    ``waiting`` is the text of the report while the decision waits for a person.
    """
    path = decision_file(run)
    write_text_whole(path, decision.model_dump_json(indent=1) + "\n")
    tell_report(run, promotes=decision.promotes and not waiting, reason=waiting or decision.reason)
    return path


def skip(context: Any, reason: str) -> NoReturn:
    """Skip a task with the following tasks; at the run's end the run's note gets the reason.

    Raises:
        AirflowSkipException: With the reason.
    """
    note = f"nothing was trained: {reason}"
    context["ti"].xcom_push(key=REASON_KEY, value=note)
    raise AirflowSkipException(note)


def skip_judged_data(context: Any, run: StageRun, config: PromoteConfig, source: str) -> None:
    """Skip a run by data if a candidate for the run's model was judged with a training on the same data.

    Data without an ingestion are new: the files have changed.

    Args:
        context: Airflow's.
        run: The run's paths.
        config: Which model.
        source: Raw data of the run's dataset.

    Raises:
        AirflowSkipException: Says which candidate that was.
    """
    if run.dataset is None or not is_ingested(run.dataset) or kind_of(context["dag_run"]) != BY_DATA:
        return
    if config.model not in model_names(config.models):
        return
    judged = read_model(config.models, config.model).judged_data()
    if candidate := judged.get(split_digests(run.dataset)["train"]):
        skip(context, f"the data of {source} are those of {candidate}; they have not changed")


class DeepSparkDecideOperator(ModelArguments, BaseOperator):
    """Compare the run's model with production's; without a gain skip the following tasks.

    The output has the run's paths, ``decision``, the path of decision.json, and the file's ``digest``. The run's
    DeepSparkCheckOperator names the model in production by ``warm_start=True``.

    Example:
        .. code-block:: python

            decide = DeepSparkDecideOperator(task_id="decide", run=evaluate.output, model="digits", min_gain=0.01)
    """

    config_models = (PromoteConfig,)
    stage = "decide"

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str | None]:
        """Write the decision into the run's folder; skip the following tasks if the model stays out.

        Raises:
            AirflowSkipException: The model in production stays.
        """
        run = self.stage_run(context)
        with noted_stage(run.run_dir, self.stage, self.log):
            self.refuse_unknown_conf(context)
            config = self.promote_config(context)
            decision = self._decide(run, config)
            path = write_decision(run, decision)
            context["ti"].xcom_push(key=REASON_KEY, value=decision.reason)
            if not decision.promotes:
                note_rejected(config, decision, author_of(context), run.run_dir)
                notify(context, "kept", decision.reason)
                raise AirflowSkipException(decision.reason)
            self.log.info("%s", decision.reason)
        return {**run.to_xcom(), "decision": str(path), "digest": file_digest(path)}

    def _decide(self, run: StageRun, config: PromoteConfig) -> Decision:
        candidate = _evaluation(RunPaths(run.run_dir).evaluation)
        if run.production is None:
            return decide(candidate, None, config)
        production = _evaluation(run.run_dir / PRODUCTION_EVALUATION)
        return decide_against(candidate, production, run.production.parent, config)


def tell_report(run: StageRun, *, promotes: bool, reason: str) -> None:
    """Put a decision into the run's earlier report."""
    path = RunPaths(run.run_dir).evaluation / REPORT_NAME
    if path.is_file():
        page = with_decision(regular_text(path), promotes=promotes, reason=reason)
        write_text_whole(path, page)


def _evaluation(folder: Path) -> Evaluated:
    if not (folder / "metrics.json").is_file():
        msg = f'{folder / "metrics.json"} is missing; clear task "evaluate" of this run'
        raise DataError(msg)
    return read_evaluation(folder)


class DeepSparkPromoteOperator(ModelArguments, BaseOperator):
    """Copy the run's bundle among the model's versions and point production at it, if the run's decision says so.

    A run without a DeepSparkDecideOperator is decided here: the candidate is compared with the model in production,
    after a missing score of production. With ``approval`` the task promotes only an approved model
    (DeepSparkApproveOperator). The output has the run's paths, ``model`` (the name), ``version`` (the version's folder)
    and ``digest`` (of the manifest). The event of the asset has the figures, too.

    Example:
        .. code-block:: python

            DeepSparkPromoteOperator(task_id="promote", run=export.output, model="digits", model_asset=Asset("digits"))
    """

    config_models = (PromoteConfig, ApprovalConfig)
    stage = "promote"

    def __init__(self, *, model_asset: Asset | None = None, **kwargs: Any) -> None:
        """Keep the arguments.

        Args:
            model_asset: A new model in production is announced as an event of it.
            kwargs: Fields of ``PromoteConfig`` and ``ApprovalConfig``, Airflow's arguments.
        """
        if model_asset is not None:
            kwargs["outlets"] = [*(kwargs.get("outlets") or ()), model_asset]
        super().__init__(**kwargs)
        self._model_asset = model_asset

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str | None]:
        """Promote; a retry with the same bundle changes nothing.

        Raises:
            AirflowSkipException: The decision keeps the model in production.
        """
        run = self.stage_run(context)
        with noted_stage(run.run_dir, self.stage, self.log):
            self.refuse_unknown_conf(context)
            config = self.promote_config(context)
            decision = self._decision(run, config)
            if not decision.promotes:
                raise AirflowSkipException(decision.reason)
            _require_approval(decision, self.config(ApprovalConfig))
            production = self._promote(context, run, decision, config)
        folder = version_folder(config.models, production)
        event_values = {"model": config.model, "version": str(folder), "digest": production.manifest_digest}
        if self._model_asset is not None:
            context["outlet_events"][self._model_asset].extra = event_values | event_figures(production)
        note = f"model {config.model}: {production.version} is in production ({decision.reason})"
        self.log.info("%s", note)
        tell_model(config.models / config.model, line_logger(self.log))
        notify(context, "promoted", note)
        return {**run.to_xcom(), **event_values}

    def _decision(self, run: StageRun, config: PromoteConfig) -> Decision:
        """Return the run's decision; without a decision decide now and write the decision."""
        if decision_file(run).is_file():
            return read_decision(run)
        if not (bundle := RunPaths(run.run_dir).bundle).is_dir():
            msg = f'{bundle} is missing; clear task "export" of this run'
            raise DataError(msg)

        def score(run_dir: Path, bundle: Path, output: Path) -> None:
            values = {"run_dir": run_dir, "bundle": bundle, "output": output, "dataset": run.dataset}
            score_config = parse_config(ScoreBundleConfig, values)
            config_path = run.config_path("evaluate_production")
            run_job("deepspark_ops.export.scores", score_config, on_line=line_logger(self.log), config_path=config_path)

        decision = decide_by_hand(find_candidate(run.run_dir), config, score)
        write_decision(run, decision)
        return decision

    def _promote(self, context: Any, run: StageRun, decision: Decision, config: PromoteConfig) -> Production:
        approval = decision.approval
        author = Author(approval.who) if approval is not None and approval.who else author_of(context)
        try:
            return promote(RunPaths(run.run_dir).bundle, decision, config, author, run_dir=run.run_dir)
        except ConfigError as error:
            note = f"{KEPT_PRODUCTION}{error}"
            tell_report(run, promotes=False, reason=note)
            context["ti"].xcom_push(key=REASON_KEY, value=note)
            raise


def _require_approval(decision: Decision, config: ApprovalConfig) -> None:
    if config.approval and decision.approval is None:
        msg = (
            "the run asks for approval (approval=true), but nobody has approved this decision; clear the task that "
            "asks (DeepSparkApproveOperator) together with this one"
        )
        raise ConfigError(msg)


def author_of(context: Any) -> Author:
    """Return who triggered a run, or what kind of run nobody triggered: scheduled, asset_triggered, backfill."""
    run = context["dag_run"]
    return Author(str(getattr(run, "triggering_user_name", None) or kind_of(run)))


def event_figures(production: Production) -> dict[str, Any]:
    """Return the figures in the event of a new model: plain JSON values."""
    decision = production.decision
    comparison = decision.comparison if decision else None
    return {
        "number": production.version,
        "previous": production.previous,
        "reason": production.reason,
        "metric": decision.metric if decision else None,
        "candidate": decision.candidate if decision else None,
        "production": decision.production if decision else None,
        "gain": comparison.gain if comparison else None,
        "interval": list(comparison.interval) if comparison and comparison.interval else None,
        "p_value": comparison.p_value if comparison else None,
        "n_groups": comparison.n_groups if comparison else None,
        "dataset_digest": decision.dataset_digest if decision else None,
    }
