"""DAGs as a user writes them, run by ``dag.test()``; the stages' own processes are left out.

A script: ``python -m tests.integration.airflow.own_dags RESULT.json``, in the AIRFLOW_HOME of a test, whose DAGs folder
has this file. Airflow parses it, too. The script makes Airflow's database first.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from airflow.sdk import DAG, Asset, TaskGroup, task
from packaging.version import Version

from deepspark_ops.operators import (
    DeepSparkCheckOperator,
    DeepSparkEvaluateOperator,
    DeepSparkExportOperator,
    DeepSparkIngestOperator,
    DeepSparkPredictOperator,
    DeepSparkTrainOperator,
)

SOLVER, LIST = "s.prototxt", "list.txt"

with DAG("alone", schedule=None) as single:
    DeepSparkTrainOperator(
        task_id="fit",
        solver=SOLVER,
        n_workers="{{ params.workers }}",
        strategy="{{ params.strategy }}",
        params={"strategy": "sync", "workers": 3},
    )

with DAG("two", schedule=None) as two:
    for name, workers in (("small", 1), ("large", 3)):
        first = DeepSparkCheckOperator(task_id=f"check_{name}", solver=SOLVER, source=LIST, n_workers=workers)
        data = DeepSparkIngestOperator(task_id=f"ingest_{name}", run=first.output, source=LIST)
        DeepSparkTrainOperator(task_id=f"train_{name}", run=data.output, solver=SOLVER, n_workers=workers)

with DAG("grouped", schedule=None) as grouped, TaskGroup("pipeline"):
    checked = DeepSparkCheckOperator(task_id="check", solver=SOLVER)
    trained = DeepSparkTrainOperator(task_id="train", run=checked.output, solver=SOLVER)
    scored = DeepSparkEvaluateOperator(task_id="evaluate", run=trained.output)
    exported = DeepSparkExportOperator(task_id="export", run=scored.output)
    DeepSparkPredictOperator(task_id="predict", bundle=exported.output, input=LIST)

with DAG("mapped", schedule=None) as mapped:
    fits = DeepSparkTrainOperator.partial(task_id="fit", n_workers=2).expand(solver=["s.prototxt", "t.prototxt"])
    DeepSparkEvaluateOperator.partial(task_id="score").expand(run=fits.output)


@task
def choose() -> dict[str, Any]:
    """Return what a function of the user decides."""
    return {"solver": SOLVER, "n_workers": 2}


@task
def report(scores: dict[str, str]) -> str:
    """Return what a function of the user makes of an operator's output."""
    return Path(scores["metrics"]).read_text(encoding="utf-8")


with DAG("taskflow", schedule=None) as taskflow:
    chosen = choose()
    ingested = DeepSparkIngestOperator(task_id="data", source=LIST)
    fitted = DeepSparkTrainOperator(
        task_id="fit", solver=chosen["solver"], n_workers=chosen["n_workers"], dataset=ingested.output
    )
    report(DeepSparkEvaluateOperator(task_id="score", run=fitted.output, split="train").output)

with DAG("waits", schedule=None) as waits:
    DeepSparkIngestOperator(task_id="data", source=LIST, output="held", asset=Asset("x"))

DAGS = (single, two, grouped, mapped, taskflow, waits)


def make_database() -> None:
    """Make Airflow's database by Airflow's command, in this process, which has loaded Airflow."""
    from airflow.__main__ import main as airflow

    # dag.test() of the first versions of Airflow 3.1 wants the DAGs in the database.
    is_early = Version(version("apache-airflow-core")) < Version("3.1.8")
    for arguments in (("db", "migrate"), *([("dags", "reserialize")] if is_early else [])):
        with mock.patch.object(sys, "argv", ["airflow", *arguments]):
            airflow()


def write_results(stage: str, values: dict[str, Any], run_dir: Path) -> None:
    """Write the files of a stage that later stages read before they start a process."""
    from tests.reference.bundles import make_bundle
    from tests.reference.dataset_files import put_manifest_text

    files = {
        "train": [
            run_dir / "config.json",
            *(run_dir / "snapshots" / f"s_iter_9.{suffix}" for suffix in ("caffemodel", "state.h5")),
        ],
        "evaluate": [run_dir / "evaluation" / "metrics.json"],
    }
    for path in files.get(stage, []):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("of the stub")
    for split in ("train", "test") if stage == "ingest" else ():
        put_manifest_text(Path(values["output"]), split, "of the stub")
    if stage == "export":
        make_bundle(run_dir / "bundle")


def main(result: Path) -> None:
    """Run every DAG to its end, and write the arguments of stages and the results of tasks."""
    from deepspark_ops.operators import check
    from deepspark_ops.operators.tasks import process_stage, spark_stage, turn

    started: list[dict[str, Any]] = []

    def leave(values: dict[str, Any], stage: str) -> None:
        started.append({"stage": stage, **values})
        write_results(stage, values, Path(values.get("run_dir") or result.parent))

    def run_job(module: str, config: Any, **_: Any) -> None:
        leave(json.loads(config.model_dump_json()), module.split(".")[1])

    def submit(hook: Any, application: str = "", **_: Any) -> None:
        leave(json.loads(Path(hook._application_args[0]).read_text()), hook._name)

    for module in (check, process_stage):
        module.run_job = run_job  # type: ignore[attr-defined]
    spark_stage.StageSubmitHook.submit = submit  # type: ignore[assignment]
    spark_stage.require_java = lambda *_: Path("java")
    held = ExitStack()

    async def end_of_the_other_task(seconds: float) -> None:
        assert not started, "the stage began beside another task"
        held.close()

    turn.asyncio = SimpleNamespace(to_thread=asyncio.to_thread, sleep=end_of_the_other_task)  # type: ignore[attr-defined]
    runs = {}
    for dag in DAGS:
        started.clear()
        if dag is waits:
            assert held.enter_context(turn.turn_at(result.parent / "held", "task x of y, run z"))
        dag_run = dag.test()
        runs[dag.dag_id] = {
            "state": str(dag_run.state),
            "outputs": {
                ti.task_id + (f"[{ti.map_index}]" if ti.map_index >= 0 else ""): ti.xcom_pull(
                    task_ids=ti.task_id, map_indexes=ti.map_index
                )
                for ti in dag_run.get_task_instances()
            },
            "started": list(started),
        }
    result.write_text(json.dumps(runs, indent=1, default=str))


if __name__ == "__main__":
    make_database()
    main(Path(sys.argv[1]))
