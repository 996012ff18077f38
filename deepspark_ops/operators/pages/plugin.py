"""Airflow plugin: pages about a run as tabs of the run and its tasks, and as links on the tasks.

An installed package registers the plugin by an entry point, a checkout by ``plugins/deepspark_plugin.py``. Every
Airflow process imports this file, each task's too, so nothing heavy is imported before a page is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.plugins_manager import AirflowPlugin
from airflow.sdk import BaseOperator, BaseOperatorLink

from deepspark_ops.operators.approve import DeepSparkApproveOperator
from deepspark_ops.operators.check import DeepSparkCheckOperator
from deepspark_ops.operators.clean import DeepSparkCleanOperator
from deepspark_ops.operators.compare import (
    DeepSparkCheckTrialsOperator,
    DeepSparkCompareOperator,
    DeepSparkEvaluateTrialOperator,
    DeepSparkIngestOnceOperator,
    DeepSparkTrainTrialOperator,
)
from deepspark_ops.operators.convert import DeepSparkConvertOperator
from deepspark_ops.operators.evaluate import DeepSparkEvaluateOperator, DeepSparkEvaluateProductionOperator
from deepspark_ops.operators.export import DeepSparkExportOperator
from deepspark_ops.operators.ingest import DeepSparkIngestOperator
from deepspark_ops.operators.pages.addresses import (
    RUNS_URL,
    URL_PREFIX,
    find_run,
    model_url,
    run_url,
)
from deepspark_ops.operators.predict import DeepSparkPredictOperator
from deepspark_ops.operators.promote import DeepSparkDecideOperator, DeepSparkPromoteOperator
from deepspark_ops.operators.simulate import DeepSparkSimulateTrialsOperator
from deepspark_ops.operators.tasks import marked_run, run_note
from deepspark_ops.operators.tasks.installation import site_path
from deepspark_ops.operators.tasks.run_plan import Places, read_decided
from deepspark_ops.operators.train import DeepSparkTrainOperator

if TYPE_CHECKING:
    from deepspark_ops.operators.pages.run.training import TrainingPage

Asgi = Callable[
    [MutableMapping[str, Any], Callable[..., Awaitable[Any]], Callable[..., Awaitable[Any]]], Awaitable[None]
]


@cache
def _installation() -> Places:
    from deepspark_ops.operators.tasks.installation import installed_places

    return installed_places()


@cache
def _training() -> TrainingPage:
    from deepspark_ops.operators.pages.lists.airflow_runs import AirflowRuns
    from deepspark_ops.operators.pages.run.training import TrainingPage

    return TrainingPage(_installation(), AirflowRuns().of)


@cache
def _pages() -> Asgi:
    from deepspark_ops.operators.pages.app import build_app

    return build_app(_installation(), _training())


async def pages_app(
    scope: MutableMapping[str, Any], receive: Callable[..., Awaitable[Any]], send: Callable[..., Awaitable[Any]]
) -> None:
    """Serve the pages; the application behind is made at the first request."""
    await _pages()(scope, receive, send)


_FIRST_TASKS: Final = (
    DeepSparkCheckOperator,
    DeepSparkIngestOperator,
    DeepSparkCheckTrialsOperator,
    DeepSparkIngestOnceOperator,
)
_TRAIN: Final = (DeepSparkTrainOperator, DeepSparkTrainTrialOperator)
_LATER_TASKS: Final = (
    DeepSparkEvaluateOperator,
    DeepSparkEvaluateProductionOperator,
    DeepSparkExportOperator,
    DeepSparkDecideOperator,
    DeepSparkApproveOperator,
    DeepSparkPromoteOperator,
    DeepSparkEvaluateTrialOperator,
    DeepSparkCompareOperator,
    DeepSparkSimulateTrialsOperator,
)


_UPSTREAM_TASK: Final = re.compile(r"task_ids='([^']+)'")
"""Task in the template of another task's output, as Airflow writes the template."""


class PageLink(BaseOperatorLink):
    """Button on a task for a page of the task's run. Airflow and the provider's description name the subclasses.

    Airflow takes the buttons from the plugin. Links of an operator's attribute ``operator_extra_links`` appear at the
    task's end, too late for the page of a training.

    Attributes:
        name: Text of the button.
        page: Page of the run.
        operators: Classes of the tasks with the button.
    """

    name: ClassVar[str]
    page: ClassVar[str] = ""

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Return the page's address."""
        return site_path() + run_url(ti_key.dag_id, _run_of_task(operator, ti_key), self.page)


def _run_of_task(operator: Any, ti_key: Any) -> str:
    """Return the id of a task's run, of several runs in a DAG run.

    The run's folder has the name of the task that started the run (``StageArguments``). The template of argument
    ``run`` names the task before.
    """
    suffix = f"_{ti_key.map_index}" if ti_key.map_index >= 0 else ""
    task, visited = operator, set()
    while task is not None and task.task_id not in visited:
        visited.add(task.task_id)
        run = f"{ti_key.run_id}__{task.task_id}{suffix}"
        folder = find_run(_installation(), ti_key.dag_id, run)
        if folder is not None and folder.is_dir():
            return run
        upstream = _UPSTREAM_TASK.search(str(getattr(task, "run", "")))
        task = task.dag.get_task(upstream[1]) if upstream else None
    from deepspark_ops.operators.pages.run.run_parts import SeveralRuns, run_of_tab

    try:  # a mapped ``run``, or the output of a function of the user: the task's notes tell
        index = str(ti_key.map_index)
        return run_of_tab(_installation(), ti_key.dag_id, ti_key.run_id, task_id=ti_key.task_id, map_index=index)
    except SeveralRuns:
        return str(ti_key.run_id)


class TrainingLink(PageLink):
    """Button for the page *Training*."""

    name = "Training"
    page = "training"
    operators = [*_FIRST_TASKS, *_TRAIN, *_LATER_TASKS]  # noqa: RUF012 - Airflow's form


class ReportLink(PageLink):
    """Button for the report of the run's evaluation."""

    name = "Report"
    page = "report"
    operators = [*_TRAIN, *_LATER_TASKS]  # noqa: RUF012


class RunLink(PageLink):
    """Button for the page of a run without a training."""

    name = "Run"
    page = "training"
    operators = [DeepSparkConvertOperator, DeepSparkPredictOperator, DeepSparkCleanOperator]  # noqa: RUF012


class BundleLink(PageLink):
    """Button for the page of the run's bundle."""

    name = "Bundle"
    page = "bundle"
    operators = [DeepSparkExportOperator, DeepSparkConvertOperator, DeepSparkPromoteOperator]  # noqa: RUF012


class ModelLink(PageLink):
    """Button for the page of the run's model, shown after task check has noted the name."""

    name = "Model"
    operators = [DeepSparkDecideOperator, DeepSparkApproveOperator, DeepSparkPromoteOperator]  # noqa: RUF012

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Return the page's address; empty before the model is known, and then no button appears."""
        folder = find_run(_installation(), ti_key.dag_id, ti_key.run_id)
        model = read_decided(folder).model if folder is not None else None
        return site_path() + model_url(model) if model else ""


class SparkUiLink(PageLink):
    """Button for Spark's own pages, shown during a training with these pages."""

    name = "Spark UI"
    operators = [*_TRAIN]  # noqa: RUF012

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Return the address from the run's notes; without pages empty, and then no button appears."""
        run = _run_of_task(operator, ti_key)
        return str(_training().answer(ti_key.dag_id, run, has_lines=False)["spark_ui"])


def _tab(name: str, page: str, destination: str) -> dict[str, Any]:
    """Return a tab in Airflow's form. A route may have a single destination."""
    href = f"{site_path()}{URL_PREFIX}/runs/{{DAG_ID}}/{{RUN_ID}}/{page}"
    if destination == "task_instance":
        href += "?task_id={TASK_ID}&map_index={MAP_INDEX}"  # of several runs in a DAG run: the task's run
    route = f"deepspark-{page}" if destination == "dag_run" else f"deepspark-{page}-{destination.replace('_', '-')}"
    return {"name": name, "href": href, "destination": destination, "url_route": route}


class DeepSparkPlugin(AirflowPlugin):
    """Registers the pages with Airflow."""

    name = "deepspark"
    fastapi_apps = [{"app": pages_app, "url_prefix": URL_PREFIX, "name": "DeepSpark"}]  # noqa: RUF012 - Airflow's form
    external_views = [  # noqa: RUF012
        {
            "name": "DeepSpark",
            "href": f"{site_path()}{RUNS_URL}",
            "destination": "nav",
            "nav_top_level": True,
            "url_route": "deepspark",
        },
        _tab("Training", "training", "dag_run"),
        _tab("Training", "training", "task_instance"),
        _tab("Report", "report", "dag_run"),
    ]
    operator_extra_links = [  # noqa: RUF012
        TrainingLink(),
        ReportLink(),
        RunLink(),
        BundleLink(),
        ModelLink(),
        SparkUiLink(),
    ]
    listeners = [marked_run, run_note]  # noqa: RUF012


def plugin_of_folder() -> type[DeepSparkPlugin] | None:
    """Return the plugin for a file in Airflow's plugins folder; None if the installed package registers the plugin.

    Airflow takes the first plugin of a name, the folder's before the package's, and reports the second one as an
    import error in its UI.
    """
    installed = entry_points(group="airflow.plugins", name=DeepSparkPlugin.name or "")
    return None if f"{__name__}:DeepSparkPlugin" in [entry.value for entry in installed] else DeepSparkPlugin
