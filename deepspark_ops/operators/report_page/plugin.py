"""Airflow plugin: a run's report as a tab of the run and as a link on its evaluate task.

An installed package registers it by an entry point, a checkout by ``plugins/deepspark_plugin.py``. Every Airflow
process imports this file, each task's too, so nothing heavy is imported before a page is asked for.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from airflow.plugins_manager import AirflowPlugin
from airflow.sdk import BaseOperator, BaseOperatorLink

from deepspark_ops.operators.evaluate import EvaluateOperator

URL_PREFIX = "/deepspark"
Asgi = Callable[
    [MutableMapping[str, Any], Callable[..., Awaitable[Any]], Callable[..., Awaitable[Any]]], Awaitable[None]
]


def report_url(dag_id: str, run_id: str) -> str:
    """Return the path of a run's report; a run id holds ``:`` and ``+``, which a URL reads otherwise."""
    return f"{URL_PREFIX}/runs/{urllib.parse.quote(dag_id, safe='')}/{urllib.parse.quote(run_id, safe='')}/report"


@cache
def _report_app() -> Asgi:
    from deepspark_ops.operators.installation import installed_places
    from deepspark_ops.operators.report_page.page import build_app

    return build_app(installed_places())


async def report_app(
    scope: MutableMapping[str, Any], receive: Callable[..., Awaitable[Any]], send: Callable[..., Awaitable[Any]]
) -> None:
    """Serve the pages; the application behind is made at the first request."""
    await _report_app()(scope, receive, send)


class ReportLink(BaseOperatorLink):
    """Button on the evaluate task that opens the run's report."""

    name = "Report"
    operators = (EvaluateOperator,)

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Return the report's address."""
        return report_url(ti_key.dag_id, ti_key.run_id)


class DeepSparkPlugin(AirflowPlugin):
    """Registers the pages with Airflow."""

    name = "deepspark"
    fastapi_apps = [{"app": report_app, "url_prefix": URL_PREFIX, "name": "DeepSpark"}]  # noqa: RUF012 - Airflow's form
    external_views = [  # noqa: RUF012
        {
            "name": "Report",
            "href": f"{URL_PREFIX}/runs/{{DAG_ID}}/{{RUN_ID}}/report",
            "destination": "dag_run",
            "url_route": "deepspark-report",
        }
    ]
    operator_extra_links = [ReportLink()]  # noqa: RUF012


def plugin_of_folder() -> type[DeepSparkPlugin] | None:
    """Return the plugin for a file in Airflow's plugins folder; None where the installed package registers it.

    Airflow takes the first plugin of a name, the folder's before the package's, and reports the second one as an
    import error in its UI.
    """
    return None if entry_points(group="airflow.plugins", name=DeepSparkPlugin.name or "") else DeepSparkPlugin
