"""Stage promote: is the new model better than the one in production, and if so put it into production."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from airflow.sdk import Asset, BaseOperator

from caffe_import.files.regular_file import regular_bytes, regular_text
from deepspark_ops.config.promote import ApprovalConfig, PromoteConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.evaluate.comparison.section import with_decision
from deepspark_ops.evaluate.evaluation_folder import Evaluated, read_evaluation
from deepspark_ops.evaluate.metrics import REPORT_NAME
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.operators.airflow_names import AirflowSkipException
from deepspark_ops.operators.form import config_from_params
from deepspark_ops.operators.notices.send import notify
from deepspark_ops.operators.tasks.run_note import REASON_KEY
from deepspark_ops.operators.tasks.run_plan import Places, is_ingested
from deepspark_ops.operators.tasks.stage_run import StageRun, airflow_errors, ends_plainly, line_logger, noted_stage
from deepspark_ops.registry.candidate import PRODUCTION_EVALUATION
from deepspark_ops.registry.champion import decide_against
from deepspark_ops.registry.changes import Author, note_kept, promote
from deepspark_ops.registry.gate import KEPT, Decision, decide
from deepspark_ops.registry.overview import model_names, read_model
from deepspark_ops.registry.production import Production, version_folder
from deepspark_ops.run_paths import DatasetPaths, RunPaths, write_text_whole
from deepspark_ops.tracking.tell import tell_model


def promote_config(context: Any, places: Places) -> PromoteConfig:
    """Return the promote config of a run; a relative models folder is below the installation's home.

    Raises:
        ConfigError: A value is wrong.
    """
    return config_from_params(PromoteConfig, context["params"], places.home)


def approval_config(context: Any) -> ApprovalConfig:
    """Return whether a run asks a person, and how long it waits.

    Raises:
        ConfigError: A value is wrong.
    """
    return config_from_params(ApprovalConfig, context["params"], Path())


def decision_file(run: StageRun) -> Path:
    """Where a run keeps the decision about its model."""
    return run.run_dir / "decision.json"


def read_decision(run: StageRun) -> Decision:
    """Return the decision that a run keeps.

    Raises:
        DataError: There is none.
    """
    path = decision_file(run)
    if not path.is_file():
        msg = f'{path} is missing; clear task "decide" of this run'
        raise DataError(msg)
    return Decision.model_validate_json(regular_bytes(path))


def write_decision(run: StageRun, decision: Decision) -> Path:
    """Keep a decision in the run's folder, and return where."""
    path = decision_file(run)
    write_text_whole(path, decision.model_dump_json(indent=1) + "\n")
    return path


def skip(context: Any, reason: str) -> NoReturn:
    """Skip a task and what follows it; the run's note gets the reason when the run has ended.

    Raises:
        AirflowSkipException: With the reason.
    """
    told = f"nothing was trained: {reason}"
    context["ti"].xcom_push(key=REASON_KEY, value=told)
    raise AirflowSkipException(told)


def skip_judged_data(context: Any, run: StageRun, places: Places) -> None:
    """Skip a run that data have started if a candidate for its model was trained on the same data and judged.

    Data that are not ingested yet are new: their files have changed.

    Raises:
        AirflowSkipException: Says which candidate that was.
    """
    kind = context["dag_run"].run_type
    if run.dataset is None or not is_ingested(run.dataset) or getattr(kind, "value", kind) != "asset_triggered":
        return
    config = promote_config(context, places)
    if config.model not in model_names(config.models):
        return
    judged = read_model(config.models, config.model).judged_data()
    if candidate := judged.get(file_digest(DatasetPaths(run.dataset).manifest("train"))):
        skip(context, f"the data of {context['params']['source']} are those of {candidate}; they have not changed")


class DecideOperator(BaseOperator):
    """Compare the run's model with production's; without a gain what follows is skipped.

    Its result has ``decision``, the path of decision.json, and that file's ``digest``. The DAG's form needs the fields
    of ``PromoteConfig``; its task ``check`` names the model in production by ``warm_start=True``.

    Example:
        .. code-block:: python

            decide = DecideOperator(task_id="decide", places=installed_places())
            [evaluate_production, evaluate] >> decide >> export >> promote
    """

    def __init__(self, *, places: Places, **kwargs: Any) -> None:
        """Keep where runs and models live."""
        super().__init__(**kwargs)
        self.places = places

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str]:
        """Write the decision into the run's folder; skip what follows if the model stays out.

        Raises:
            AirflowSkipException: The model in production stays.
        """
        run = StageRun.of(context)
        with noted_stage(run.run_dir, str(self.task_id), self.log), airflow_errors():
            config = promote_config(context, self.places)
            decision = self._decide(run, config)
            path = write_decision(run, decision)
            tell_report(run, promotes=decision.promotes, reason=decision.reason)
            context["ti"].xcom_push(key=REASON_KEY, value=decision.reason)
            self.log.info("%s", decision.reason)
            if not decision.promotes:
                note_kept(config, decision, author_of(context), run.run_dir)
                notify(context, "kept", decision.reason)
                raise AirflowSkipException(decision.reason)
        return {"decision": str(path), "digest": file_digest(path)}

    def _decide(self, run: StageRun, config: PromoteConfig) -> Decision:
        candidate = _evaluation(RunPaths(run.run_dir).evaluation)
        if run.production is None:
            return decide(candidate, None, config)
        production = _evaluation(run.run_dir / PRODUCTION_EVALUATION)
        return decide_against(candidate, production, run.production.parent, config)


def tell_report(run: StageRun, *, promotes: bool, reason: str) -> None:
    """Put a decision into the run's report, which was written before it was made."""
    path = RunPaths(run.run_dir).evaluation / REPORT_NAME
    if path.is_file():
        page = with_decision(regular_text(path), promotes=promotes, reason=reason)
        write_text_whole(path, page)


def _evaluation(folder: Path) -> Evaluated:
    if not (folder / "metrics.json").is_file():
        msg = f'{folder / "metrics.json"} is missing; clear task "evaluate" of this run'
        raise DataError(msg)
    return read_evaluation(folder)


class PromoteOperator(BaseOperator):
    """Copy the run's bundle among the model's versions and point production at it.

    Where the DAG's form has the fields of ``ApprovalConfig`` and the run asks for approval, it promotes what a person
    has approved and nothing else. Its result has ``model``, its name, ``version``, the version's folder, and
    ``digest``, that of its manifest; the event of the asset has the figures too.

    Example:
        .. code-block:: python

            promote = PromoteOperator(task_id="promote", places=installed_places(), model_asset=Asset("our_model"))
            decide >> export >> promote
    """

    def __init__(self, *, places: Places, model_asset: Asset, **kwargs: Any) -> None:
        """Announce a new model in production as an event of ``model_asset``."""
        super().__init__(outlets=[model_asset], **kwargs)
        self.places = places
        self._model_asset = model_asset

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str]:
        """Promote; a retry with the same bundle changes nothing.

        Raises:
            AirflowSkipException: The decision keeps the model in production.
        """
        run = StageRun.of(context)
        with noted_stage(run.run_dir, str(self.task_id), self.log), airflow_errors():
            config = promote_config(context, self.places)
            decision = read_decision(run)
            if not decision.promotes:
                raise AirflowSkipException(decision.reason)
            _require_approval(decision, approval_config(context))
            production = self._promote(context, run, decision, config)
        folder = version_folder(config.models, production)
        made = {"model": config.model, "version": str(folder), "digest": production.manifest_digest}
        context["outlet_events"][self._model_asset].extra = made | event_figures(production)
        told = f"model {config.model}: {production.version} is in production ({decision.reason})"
        self.log.info("%s", told)
        tell_model(config.models / config.model, line_logger(self.log))
        notify(context, "promoted", told)
        return made

    def _promote(self, context: Any, run: StageRun, decision: Decision, config: PromoteConfig) -> Production:
        approval = decision.approval
        author = Author(approval.who) if approval is not None and approval.who else author_of(context)
        try:
            return promote(RunPaths(run.run_dir).bundle, decision, config, author, run_dir=run.run_dir)
        except ConfigError as error:
            told = f"{KEPT}{error}"
            tell_report(run, promotes=False, reason=told)
            context["ti"].xcom_push(key=REASON_KEY, value=told)
            raise


def _require_approval(decision: Decision, config: ApprovalConfig) -> None:
    if config.approval and decision.approval is None:
        msg = (
            "the run asks for approval (approval=true), but nobody has approved this decision; clear the task that "
            "asks (ApproveOperator) together with this one"
        )
        raise ConfigError(msg)


def author_of(context: Any) -> Author:
    """Return who triggered a run, or what kind of run nobody triggered: scheduled, asset_triggered, backfill."""
    run = context["dag_run"]
    return Author(str(getattr(run, "triggering_user_name", None) or getattr(run.run_type, "value", run.run_type)))


def event_figures(production: Production) -> dict[str, Any]:
    """Return what the event of a new model says beside its place: plain JSON values."""
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
