"""Asks a person, on Airflow's page Required Actions, whether a model with a passed comparison goes into production."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Param

from deepspark_ops.config.promote import ApprovalConfig, PromoteConfig
from deepspark_ops.config.shared_options.durations import length_of
from deepspark_ops.evaluate.evaluation_folder import read_evaluation
from deepspark_ops.evaluate.metrics import METRICS_NAME
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport
from deepspark_ops.operators.notices.send import notify
from deepspark_ops.operators.promote import (
    ModelArguments,
    author_of,
    read_decision,
    write_decision,
)
from deepspark_ops.operators.provider.airflow_names import AirflowSkipException
from deepspark_ops.operators.tasks.installation import site_path
from deepspark_ops.operators.tasks.run_addresses import run_url
from deepspark_ops.operators.tasks.run_note import REASON_KEY
from deepspark_ops.operators.tasks.stage_run import StageRun, ends_plainly, noted_stage
from deepspark_ops.registry.approval import MAX_COMMENT_CHARS, answered, gate_decision, question, subject, waiting_text
from deepspark_ops.registry.candidate import PRODUCTION_EVALUATION
from deepspark_ops.registry.changes import Author, note_rejected
from deepspark_ops.registry.gate import Approval
from deepspark_ops.registry.versions import now_text
from deepspark_ops.run_paths import RunPaths

_COMMENT = "comment"


class DeepSparkApproveOperator(ModelArguments, ApprovalOperator):
    """Wait until a person approves or refuses; refused, or without an answer in time, what follows is skipped.

    Without ``approval`` the task is skipped, so the promoting task needs a trigger rule for skipped tasks. The waiting
    task holds no worker's slot. The output has the run's paths, ``approved``, ``who`` and ``comment``.

    Example:
        .. code-block:: python

            approve = DeepSparkApproveOperator(task_id="approve", run=export.output, model="digits", approval=True)
            approve >> DeepSparkPromoteOperator(
                task_id="promote", run=export.output, model="digits", approval=True,
                trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
            )
    """

    config_models = (PromoteConfig, ApprovalConfig)
    stage = "approve"

    def __init__(self, **kwargs: Any) -> None:
        """Keep the arguments; what is asked, and how long, is decided when the task runs."""
        about = Param("", type=["string", "null"], title="Comment", description="Kept in the model's history")
        kwargs["execution_timeout"] = None  # of default_args: how long a person has is approval_timeout
        super().__init__(
            subject="Put a new version into production?",
            defaults=self.REJECT,  # what Airflow answers when the time is over
            **kwargs,
        )
        # What the page asks for beside the answer; not the DAG's form. airflow.sdk of 3.1.0 does not export ParamsDict.
        self.params = type(self.params)({_COMMENT: about})  # type: ignore[has-type]

    @ends_plainly
    def execute(self, context: Any) -> Any:
        """Ask, and give the worker back until the answer.

        Raises:
            AirflowSkipException: The run asks nobody.
        """
        run = self.stage_run(context)
        with noted_stage(run.run_dir, self.stage, self.log):
            self.refuse_unknown_conf(context)
            config = self.config(ApprovalConfig)
            if not config.approval:
                msg = "nobody is asked: approval is off"
                raise AirflowSkipException(msg)
            self._prepare(context, run, config.approval_timeout)
            return super().execute(context)

    def _prepare(self, context: Any, run: StageRun, timeout: str) -> None:
        decision = gate_decision(read_decision(run))
        model = self.promote_config(context).model
        paths = RunPaths(run.run_dir)
        pages = {"Report": "report", "Training": "training"}
        dag_run = context["dag_run"]
        self.response_timeout = length_of(timeout)
        self.subject = subject(decision, model)
        self.body = question(
            decision,
            read_evaluation(paths.evaluation).metrics,
            _production_metrics(run),
            model=model,
            timeout=timeout,
            links={name: site_path() + run_url(dag_run.dag_id, dag_run.run_id, page) for name, page in pages.items()},
        )
        waiting = waiting_text(decision)
        write_decision(run, decision, waiting=waiting)
        self.log.info("%s (at most %s)", waiting, timeout)
        self.notifiers = [lambda values: notify(values, "approval", waiting, page="answer")]

    def execute_complete(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Keep the answer; without an approval skip what follows."""
        return self._take(context, event=event)

    @ends_plainly
    def _take(self, context: Any, *, event: Mapping[str, Any]) -> dict[str, Any]:
        run = self.stage_run(context)
        with noted_stage(run.run_dir, self.stage, self.log):
            gate = gate_decision(read_decision(run))
            approval = _approval(event, gate.reason, approve=self.APPROVE)
            decision = answered(gate, approval, timeout=self.config(ApprovalConfig).approval_timeout)
            write_decision(run, decision)
            if not decision.promotes:
                author = Author(approval.who) if approval.who else author_of(context)
                note_rejected(self.promote_config(context), decision, author, run.run_dir)
            context["ti"].xcom_push(key=REASON_KEY, value=decision.reason)
            self.log.info("%s", decision.reason)
            if not decision.promotes:
                notify(context, "kept", decision.reason)
            super().execute_complete(context, dict(event))
        return {**run.to_xcom(), "approved": decision.promotes, "who": approval.who, "comment": approval.comment}


def _production_metrics(run: StageRun) -> MetricsReport | None:
    folder = run.run_dir / PRODUCTION_EVALUATION
    has_any = run.production is not None and (folder / METRICS_NAME).is_file()
    return read_evaluation(folder).metrics if has_any else None


def _approval(event: Mapping[str, Any], question_text: str, *, approve: str) -> Approval:
    """Return the answer from Airflow; without a person after the end of the time."""
    person = event.get("responded_by_user")
    person_name = str(person["name"] or person["id"]) if person else None
    at = event.get("responded_at")
    comment = " ".join(str((event.get("params_input") or {}).get(_COMMENT) or "").split())[:MAX_COMMENT_CHARS]
    answer = "nobody" if person_name is None else "approved" if event["chosen_options"] == [approve] else "refused"
    return Approval.model_validate(
        {
            "answer": answer,
            "who": person_name,
            "at": at.isoformat(timespec="seconds") if isinstance(at, datetime) else now_text(),
            "comment": comment or None,
            "asked": question_text,
        }
    )
