"""Stage promote: is the new model better than the one in production, and if so put it into production."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import Asset, BaseOperator

from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.comparison.section import with_decision
from deepspark_ops.evaluate.evaluation_folder import Evaluated, read_evaluation
from deepspark_ops.evaluate.metrics import REPORT_NAME
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.operators.airflow_names import AirflowSkipException
from deepspark_ops.operators.form import config_from_params
from deepspark_ops.operators.run_note import REASON_KEY
from deepspark_ops.operators.run_plan import Places
from deepspark_ops.operators.stage_run import StageRun, airflow_errors, ends_plainly, line_logger
from deepspark_ops.registry.candidate import PRODUCTION_EVALUATION
from deepspark_ops.registry.champion import decide_against
from deepspark_ops.registry.changes import Author, note_kept, promote
from deepspark_ops.registry.gate import Decision, decide
from deepspark_ops.registry.production import Production, version_folder
from deepspark_ops.run_paths import RunPaths, write_text_whole
from deepspark_ops.tracking.tell import tell_model, tell_run


def promote_config(context: Any, places: Places) -> PromoteConfig:
    """Return the promote config of a run; a relative models folder is below the installation's home.

    Raises:
        ConfigError: A value is wrong.
    """
    return config_from_params(PromoteConfig, context["params"], places.home)


def decision_file(run: StageRun) -> Path:
    """Where a run keeps the decision about its model."""
    return run.run_dir / "decision.json"


class DecideOperator(BaseOperator):
    """Compare the run's model with production's; without a gain what follows is skipped."""

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
        with airflow_errors():
            config = promote_config(context, self.places)
            decision = self._decide(run, config)
        path = decision_file(run)
        write_text_whole(path, decision.model_dump_json(indent=1) + "\n")
        _tell_report(run, decision)
        context["ti"].xcom_push(key=REASON_KEY, value=decision.reason)
        self.log.info("%s", decision.reason)
        if not decision.promotes:
            with airflow_errors():
                note_kept(config, decision, author_of(context), run.run_dir.name)
            raise AirflowSkipException(decision.reason)
        return {"decision": str(path), "digest": file_digest(path)}

    def _decide(self, run: StageRun, config: PromoteConfig) -> Decision:
        candidate = _evaluation(RunPaths(run.run_dir).evaluation)
        if run.production is None:
            return decide(candidate, None, config)
        production = _evaluation(run.run_dir / PRODUCTION_EVALUATION)
        return decide_against(candidate, production, run.production.parent, config)


def _tell_report(run: StageRun, decision: Decision) -> None:
    """Put the decision into the run's report, which was written before it was made."""
    path = RunPaths(run.run_dir).evaluation / REPORT_NAME
    if path.is_file():
        page = with_decision(path.read_text(encoding="utf-8"), promotes=decision.promotes, reason=decision.reason)
        write_text_whole(path, page)


def _evaluation(folder: Path) -> Evaluated:
    if not (folder / "metrics.json").is_file():
        msg = f'{folder / "metrics.json"} is missing; clear task "evaluate" of this run'
        raise DataError(msg)
    return read_evaluation(folder)


class PromoteOperator(BaseOperator):
    """Copy the run's bundle among the model's versions and point production at it."""

    def __init__(self, *, places: Places, model_asset: Asset, **kwargs: Any) -> None:
        """Announce a new model in production as an event of ``model_asset``."""
        super().__init__(outlets=[model_asset], **kwargs)
        self.places = places
        self._model_asset = model_asset

    @ends_plainly
    def execute(self, context: Any) -> dict[str, str]:
        """Promote; a retry with the same bundle changes nothing."""
        run = StageRun.of(context)
        with airflow_errors():
            config = promote_config(context, self.places)
            decision = Decision.model_validate_json(decision_file(run).read_bytes())
            bundle = RunPaths(run.run_dir).bundle
            production = promote(bundle, decision, config, author_of(context), run_dir=run.run_dir)
        folder = version_folder(config.models, production)
        made = {"model": config.model, "version": str(folder), "digest": production.manifest_digest}
        context["outlet_events"][self._model_asset].extra = made | event_figures(production)
        self.log.info("model %s: %s is in production (%s)", config.model, production.version, decision.reason)
        tell_run(run.run_dir, line_logger(self.log))
        tell_model(config.models / config.model, line_logger(self.log))
        return made


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
        "interval": list(comparison.interval) if comparison else None,
        "p_value": comparison.p_value if comparison else None,
        "dataset_digest": decision.dataset_digest if decision else None,
    }
