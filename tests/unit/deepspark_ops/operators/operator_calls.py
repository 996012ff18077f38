"""Operators called as Airflow calls them, without Airflow: a task's context, and the operators of a retraining."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from airflow.sdk import DAG, Asset, BaseOperator

from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.operators.promote import DeepSparkDecideOperator, DeepSparkPromoteOperator
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.operators.tasks.stage_arguments import argument_fields
from deepspark_ops.operators.tasks.stage_run import StageRun
from deepspark_ops.registry.changes import Author, promote
from deepspark_ops.registry.gate import Decision, decide
from deepspark_ops.registry.overview import read_model
from deepspark_ops.registry.production import production_weights
from tests.reference.bundles import make_bundle
from tests.reference.evaluations import answers_with, evaluation, write_evaluation

DATASET = Asset("deepspark_dataset", uri="x-deepspark://dataset")


OF_CHECK = "{{ ti.xcom_pull(task_ids='check') }}"
SLOT = datetime(2026, 11, 25, 3, 0, tzinfo=UTC)


def default_values(dag: DAG) -> dict[str, Any]:
    """Return the values of a form that nobody touched; ``dag.params.dump`` checks each by its schema, in 0.1 s."""
    return {name: dag.params.get_param(name).value for name in dag.params}


def context(
    dag: DAG,
    *,
    xcom: Any = None,
    conf: dict[str, Any] | None = None,
    events: Any = None,
    late_min: float = 0.0,
    stored: Any = (),
) -> dict[str, Any]:
    """Return a task's context: of a run triggered by ``events``, else of a scheduled run.

    ``stored`` are all events of the dataset Asset that Airflow keeps, oldest first.
    """
    params = default_values(dag) | (conf or {})
    pushed: dict[str, str] = {}
    return {
        "dag": SimpleNamespace(params=dag.params, tasks=[]),
        "params": params,
        "dag_run": SimpleNamespace(
            dag_id="d",
            run_id="r",
            conf=conf,
            run_type="asset_triggered" if events else "scheduled",
            triggering_user_name=None,
            run_after=SLOT,
            start_date=SLOT + timedelta(minutes=late_min),
            clear_number=0,
        ),
        "ti": SimpleNamespace(
            dag_id="d",
            run_id="r",
            task_id="t",
            xcom_pull=lambda task_ids: xcom,
            xcom_push=lambda key, value: pushed.update({key: value}),
        ),
        "pushed": pushed,
        "triggering_asset_events": events or {},
        "outlet_events": OutletEvents(),
        "inlet_events": EventsByAsset(DATASET, InletEvents(list(stored))),
    }


class EventsByAsset(Mapping[Asset, Any]):
    """The events of one Asset, by the name of the Asset as in Airflow: an Asset of Airflow 3.1 has no hash."""

    def __init__(self, asset: Asset, events: Any) -> None:
        self._asset, self._events = asset, events

    def __getitem__(self, asset: Asset) -> Any:
        if asset.name != self._asset.name:
            raise KeyError(asset.name)
        return self._events

    def __iter__(self) -> Iterator[Asset]:
        return iter([self._asset])

    def __len__(self) -> int:
        return 1


class InletEvents:
    """Airflow's from 3.2 on: events of an Asset among a task's inlets. Each call narrows what is read."""

    def __init__(self, events: list[Any]) -> None:
        self._events = events

    def after(self, moment: str) -> InletEvents:
        return InletEvents([event for event in self._events if event.timestamp >= datetime.fromisoformat(moment)])

    def ascending(self, ascending: bool) -> InletEvents:
        return self if ascending else InletEvents(self._events[::-1])

    def limit(self, count: int) -> InletEvents:
        return InletEvents(self._events[:count])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._events)


class OutletEvents:
    """Airflow's: what a task says of the event of each outlet."""

    def __init__(self) -> None:
        self.of_dataset = SimpleNamespace(extra=None)

    def __getitem__(self, asset: Asset) -> SimpleNamespace:
        assert asset is DATASET
        return self.of_dataset


def operator_of(kind: Any, dag: DAG, locations: Places, **arguments: Any) -> Any:
    """Return an operator whose values are those of the DAG's form, and whose run is the output of a task ``check``."""
    form = {name: f"{{{{ params.{name} }}}}" for name in dag.params if name in argument_fields(kind)}
    run = {"run": OF_CHECK} if kind.takes_run else {"trials": OF_CHECK} if "trials" in kind.more_templates else {}
    named = {"task_id": str(uuid4()), "refuse_unknown_conf": True}
    return kind(**{**named, **form, **run, **arguments}, places=locations, dag=dag)


def rendered(operator: BaseOperator, values: dict[str, Any]) -> Any:
    """Return an operator with rendered templates of a task's context, as Airflow does before execution."""
    copy = operator.prepare_for_execution()
    copy.render_template_fields(values)
    return copy


def execute(operator: BaseOperator, values: dict[str, Any]) -> Any:
    """Call the operator's own code; Airflow's guard wants a task runner around the call."""
    ready = rendered(operator, values)
    return type(ready).execute.__wrapped__(ready, values)


LABELS = [0, 1] * 50
MODEL = Asset("deepspark_model", uri="x-deepspark://model")


class Retraining:
    """A model whose version v1 errs on 9 of 100 samples, and the operators of a run that began with v1."""

    def __init__(self, locations: Places, dag: DAG) -> None:
        self.models = locations.home / "models"
        self._locations = locations
        self._dag = dag
        self.promoted("first", self._decision())
        self.run = StageRun(locations.home / "r", None, production_weights(self.models, "model"))

    def promoted(self, name: str, decision: Decision) -> str:
        config = PromoteConfig(models=self.models, model="model")
        bundle = make_bundle(self._locations.home / name / "bundle", name.encode(), run=name)
        return promote(bundle, decision, config, Author("anna")).version

    def bundle(self) -> Path:
        return self.models / "model" / "versions" / "v1"

    def _decision(self) -> Decision:
        return decide(evaluation([0], [0]), None, PromoteConfig())

    noted: str | None = None

    def scored(self, n_wrong: int) -> None:
        assert self.run.production is not None
        weights = file_digest(self.run.production).removeprefix("sha256:")
        production = evaluation(answers_with(LABELS, range(9)), LABELS, weights=weights)
        write_evaluation(self.run.run_dir / "evaluation_production", production)
        mine = evaluation(answers_with(LABELS, range(n_wrong)), LABELS)
        write_evaluation(self.run.run_dir / "evaluation", mine)

    conf: dict[str, Any] | None = None

    def context(self) -> dict[str, Any]:
        return context(self._dag, xcom=self.run.to_xcom(), conf=self.conf)

    def decide(self) -> dict[str, str]:
        operator = operator_of(DeepSparkDecideOperator, self._dag, self._locations)
        values = self.context()
        try:
            return dict(execute(operator, values))
        finally:
            self.noted = values["pushed"].get("deepspark_decision")

    def promote(self) -> tuple[dict[str, str], dict[str, Any]]:
        make_bundle(self.run.run_dir / "bundle", b"second", run="second")
        event = SimpleNamespace(extra={})
        operator = operator_of(DeepSparkPromoteOperator, self._dag, self._locations, model_asset=MODEL)
        values = self.context() | {"outlet_events": ByAsset(event)}
        try:
            return dict(execute(operator, values)), event.extra
        finally:
            self.noted = values["pushed"].get("deepspark_decision", self.noted)

    def history(self) -> list[tuple[str, str | None, str]]:
        return [(entry.action, entry.version, entry.who) for entry in read_model(self.models, "model").history]


class ByAsset:
    def __init__(self, event: SimpleNamespace) -> None:
        self._event = event

    def __getitem__(self, asset: Asset) -> SimpleNamespace:
        assert asset == MODEL
        return self._event
