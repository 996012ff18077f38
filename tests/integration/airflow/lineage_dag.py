"""A DAG whose ingestion runs in this process, for the test of what OpenLineage's file transport gets.

A script: ``python -m tests.integration.airflow.lineage_dag``, in the AIRFLOW_HOME of a test.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from airflow.sdk import DAG

from deepspark_ops.operators import DeepSparkIngestOperator

with DAG("lineage", schedule=None) as dag:
    DeepSparkIngestOperator(task_id="data", source="pets", test_fraction=0.5)


def main() -> None:
    """Run the DAG to its end."""
    from deepspark_ops.config.ingest import IngestConfig
    from deepspark_ops.operators.tasks import spark_stage
    from tests.reference.ingest_in_process import ingest

    def submit(hook: Any, application: str = "", **_: Any) -> None:
        config = IngestConfig.model_validate_json(Path(hook._application_args[0]).read_text())
        ingest(config, config.output.parent / "work")

    executed = []
    ingest_of_operator = DeepSparkIngestOperator.ingest

    def noted_ingest(operator: Any, *arguments: Any, **more: Any) -> Any:
        executed.append(operator)
        return ingest_of_operator(operator, *arguments, **more)

    spark_stage.StageSubmitHook.submit = submit  # type: ignore[assignment]
    spark_stage.require_java = lambda *_: Path("java")
    DeepSparkIngestOperator.ingest = noted_ingest  # type: ignore[method-assign]
    state = str(dag.test().state)
    (operator,) = executed
    emit(operator)
    sys.exit(state != "success")


def emit(operator: Any) -> None:
    """Send what the provider's extractor reads of an operator; ``dag.test()`` calls no listener of a task."""
    from airflow.providers.openlineage.extractors.base import DefaultExtractor
    from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState

    extractor, run = DefaultExtractor(operator), Run(str(uuid4()))
    for state, lineage in (
        (RunState.START, extractor.extract()),
        (RunState.COMPLETE, extractor.extract_on_complete(None)),
    ):
        OpenLineageAdapter().emit(
            RunEvent(
                eventType=state,
                eventTime=datetime.now(UTC).isoformat(),
                run=run,
                job=Job("tests", f"{operator.dag_id}.{operator.task_id}"),
                producer="https://example.com",
                inputs=lineage.inputs,
                outputs=lineage.outputs,
            )
        )


if __name__ == "__main__":
    main()
