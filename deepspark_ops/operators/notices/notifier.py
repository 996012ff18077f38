"""Notifier for callbacks of any DAG: the run's end as one text, for the log or for another notifier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow.sdk import BaseNotifier

from deepspark_ops.operators.notices.send import Notice, failure_reason, make_notice

_SUCCESS = "success"
"""Airflow's state of a successful task, and its reason for a DAG's ``on_success_callback``."""


class DeepSparkNotifier(BaseNotifier):
    """Writes the end of a task or DAG run to the log, or passes it on to another notifier.

    Templates of the other notifier know ``deepspark.text``: event, first line of the error, address of the page, and
    for each training name, state, verdict and figures. ``deepspark.event`` is ``finished`` or ``failed``.

    Example::

        with DAG("ours", on_failure_callback=DeepSparkNotifier(SlackNotifier(text="{{ deepspark.text }}"))):
            ...
    """

    def __init__(self, target: Callable[[Any], Any] | None = None, **kwargs: Any) -> None:
        """Choose the target.

        Args:
            target: Notifier of Airflow, or a function of the context; None writes to the log.
            kwargs: Arguments of Airflow's notifiers.
        """
        super().__init__(**kwargs)
        self.target = target

    def notify(self, context: Any) -> None:
        """Pass the notice on."""
        notice = _notice_of_end(context)
        if self.target is None:
            self.log.info("%s", notice.text)
        else:
            self.target({**context, "deepspark": notice})


def _notice_of_end(context: Any) -> Notice:
    dag_reason = context.get("reason")  # of a callback of the DAG
    if (dag_reason or getattr(context.get("ti"), "state", None)) == _SUCCESS:
        return make_notice(context, "finished", "", page="report")
    reason = f"DAG run: {dag_reason}" if dag_reason else failure_reason(context)
    return make_notice(context, "failed", reason, page="training")
