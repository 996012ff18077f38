"""Notifies the notifiers of the setting about a run. A failure here is only a line in the log."""

from __future__ import annotations

import glob
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal

from airflow.sdk.log import mask_secret

from deepspark_ops.errors import ConfigError
from deepspark_ops.operators.notices.setting import SETTING, Event, NotifierSetting, read_settings
from deepspark_ops.operators.tasks.installation import installed_places, site_url
from deepspark_ops.operators.tasks.run_addresses import answer_url, run_url
from deepspark_ops.run_paths import RunPaths

LIMIT_S: Final = 60.0
"""One notifier has this long: a mail server that does not answer must not hold up a run."""
_SHORTEST_SECRET: Final = 5
"""Airflow masks none that is shorter, and warns."""
_MOST_TRAININGS: Final = 10
"""Trainings in the text of a notice; a comparison may have hundreds."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Notice:
    """Content of a notification: ``deepspark`` in a notifier's templates, ``context["deepspark"]`` in ``notify``.

    Attributes:
        event: ``failed``, ``promoted``, ``kept`` or ``approval``.
        dag: Id of the DAG.
        run: Id of its run.
        task: Id of the task that tells.
        reason: Why, in one sentence, or the message that a task failed with.
        link: Address of the page to look at: Report, Training, or the one that asks for approval.
        run_folders: Folders of the run's trainings; a DAG with two trainings has two.
    """

    event: Event | Literal["finished"]
    dag: str
    run: str
    task: str
    reason: str
    link: str
    run_folders: tuple[Path, ...] = ()

    @property
    def text(self) -> str:
        """The whole notice as plain text: event, first line of the reason, each training, address."""
        first_line = next((line.strip() for line in self.reason.splitlines() if line.strip()), "")
        head = f"{self.dag}, run {self.run}: {self.event}"
        trainings = [_training_text(folder) for folder in self.run_folders[:_MOST_TRAININGS]]
        n_unlisted = len(self.run_folders) - len(trainings)
        more = [f"and {n_unlisted} more trainings"] if n_unlisted else []
        return "\n\n".join([f"{head}\n{first_line}".strip(), *trainings, *more, self.link])


def _training_text(run_folder: Path) -> str:
    from deepspark_ops.run_index.run_text import run_text  # imported here, since a DAG loads this module

    try:
        return run_text(run_folder)
    except OSError as error:
        return f"{run_folder}: {error}"


def make_notice(context: Any, event: Event | Literal["finished"], reason: str, *, page: str) -> Notice:
    """Return the notice of an event.

    Args:
        context: Of a task, or of a callback of a DAG, which may lack a task.
        event: What happened.
        reason: Why.
        page: The run's page to look at; ``answer`` is the one where a person answers the task.

    Raises:
        ConfigError: A field of the connection ``deepspark_default`` is wrong.
    """
    ti = context.get("ti")
    dag_id, run_id = (ti.dag_id, ti.run_id) if ti else (context["dag"].dag_id, context["run_id"])
    task_id = ti.task_id if ti else ""
    path = answer_url(dag_id, run_id, task_id) if page == "answer" else run_url(dag_id, run_id, page)
    places = getattr(context.get("task"), "places", None) or installed_places()
    folder = places.run_folder(dag_id, run_id)
    candidates = [folder, *sorted(folder.parent.glob(f"{glob.escape(folder.name)}__*"))]
    trainings = tuple(candidate for candidate in candidates if RunPaths(candidate).config.is_file())
    return Notice(event, dag_id, run_id, task_id, reason, site_url() + path, trainings)


def notify(context: Any, event: Event, reason: str, *, page: str = "report") -> None:
    """Notify every notifier of ``event``.

    Args:
        context: Of the task, in its process or in a callback.
        event: What happened.
        reason: Why.
        page: The run's page to look at; ``answer`` is the one where a person answers the task.
    """
    try:
        settings = [setting for setting in read_settings(os.environ) if event in setting.events]
        if not settings:
            return
        notice = make_notice(context, event, reason, page=page)
    except ConfigError as error:
        _log.warning("nobody is told that the event is %s: %s", event, error)
        return
    for setting in settings:
        _send(setting, {**context, "deepspark": notice}, event)


def notify_failed(context: Any) -> None:
    """Notify of a task's final failure; an ``on_failure_callback`` of Airflow."""
    notify(context, "failed", failure_reason(context), page="training")


def failure_reason(context: Any) -> str:
    """Return the message of a failed task; without a message the name of the task."""
    return str(context.get("exception") or "") or f"task {context['ti'].task_id} failed"


def failure_notices() -> dict[str, Any]:
    """Return entries of a DAG's ``default_args`` that notify of a failed task; nothing without the setting.

    A wrong setting is a single line in the log of the process with the DAG file.

    Example::

        with DAG("ours", default_args={"retries": 2, **failure_notices()}):
            ...
    """
    if problem := setting_problem():
        _warn_once(problem)
    return {"on_failure_callback": notify_failed} if os.environ.get(SETTING) else {}


def setting_problem() -> str | None:
    """Return the problem of the setting; None for a valid setting."""
    try:
        for setting in read_settings(os.environ):
            _find(setting.notifier)
    except ConfigError as error:
        return f"notifications do not work: {error}"
    return None


@cache
def _warn_once(problem: str) -> None:
    _log.warning("%s", problem)


def _find(name: str) -> Callable[..., Callable[[Any], Any]]:
    """Return a notifier's class.

    Raises:
        ConfigError: There is none.
    """
    module, _, member = name.rpartition(".")
    try:
        member_class = getattr(import_module(module), member)
    except Exception as error:  # noqa: BLE001 - importing runs somebody else's code
        why = f"{type(error).__name__}: {error}"
        msg = f"{SETTING}: there is no notifier {name} ({why}); its package must be installed, or lie on PYTHONPATH"
        raise ConfigError(msg) from None
    if not callable(member_class):
        msg = f"{SETTING}: {name} is no class; a notifier is a subclass of airflow.sdk.BaseNotifier"
        raise ConfigError(msg)
    notifier_class: Callable[..., Callable[[Any], Any]] = member_class
    return notifier_class


def _send(setting: NotifierSetting, context: dict[str, Any], event: Event) -> None:
    try:
        for name, value in setting.arguments.items():  # one whose name says so is a secret: no log shows it
            if not isinstance(value, str) or len(value) >= _SHORTEST_SECRET:
                mask_secret(value, name)
        with _limited(LIMIT_S):
            _find(setting.notifier)(**setting.arguments)(context)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - somebody else's code, and no reason for a run to fail
        _log.warning("notifier %s was not told %s: %s: %s", setting.notifier, event, type(error).__name__, error)
    else:
        _log.info("notifier %s was told: %s", setting.notifier, event)


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after a time, if the process's alarm is free."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def end(*_: object) -> None:
        msg = f"no end after {seconds:g} s"
        raise TimeoutError(msg)

    previous = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
