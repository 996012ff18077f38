"""The start of a DAG run in words, and the missed time of a run by the timetable. Needs no Airflow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from deepspark_ops.errors import ConfigError
from deepspark_ops.run_view.stage_status import read_statuses

LATEST_VARIABLE: Final = "DEEPSPARK_RETRAIN_LATEST_START"
LATEST_START_MIN: Final = 15
"""A scheduler that works starts a run within seconds; one that is restarted, within minutes."""
BY_DATA: Final = "asset_triggered"
_EVENTS_SHOWN: Final = 3


@dataclass(frozen=True)
class DataEvent:
    """A new or changed dataset of an ingestion.

    Attributes:
        source: Its raw data, as the ingestion's form named them.
        dataset: Its folder.
        dag: The DAG whose ingestion sent the event; empty if it is not known.
        run: That DAG's run; empty likewise.
    """

    source: str
    dataset: str
    dag: str = ""
    run: str = ""

    def text(self) -> str:
        """Return the event in words."""
        by = f"{self.dag}, run {self.run}, ingested " if self.dag else ""
        return f"{by}{self.source} ({Path(self.dataset).name})" if self.dataset else f"{by}{self.source}"


def data_events(events: Iterable[Any]) -> list[DataEvent]:
    """Return the content of Airflow's events of the dataset Asset, without events that lack a source."""
    return [
        DataEvent(
            str(event.extra["source"]),
            str(event.extra.get("dataset") or ""),
            str(getattr(event, "source_dag_id", None) or ""),
            str(getattr(event, "source_run_id", None) or ""),
        )
        for event in events
        if event.extra.get("source")
    ]


def stored_events(
    context: Any, asset: Any, *, since: datetime | None = None, newest: int | None = None
) -> Sequence[Any]:
    """Return Airflow's stored events of an Asset.

    Args:
        context: Airflow's, of a task that has the Asset among its inlets.
        asset: The Asset.
        since: Only events from this moment on.
        newest: At most so many, the newest ones, newest first.
    """
    events = context["inlet_events"][asset]
    if isinstance(events, list):  # Airflow 3.1 selects none: it gives all, oldest first
        later = [event for event in events if since is None or event.timestamp >= since]
        return later if newest is None else later[::-1][:newest]
    if since is not None:
        events = events.after(since.isoformat())
    return list(events if newest is None else events.ascending(False).limit(newest))


def kind_of(dag_run: Any) -> str:
    """Return Airflow's word for the start of a run."""
    return str(getattr(dag_run.run_type, "value", dag_run.run_type))


def start_text(dag_run: Any, events: Iterable[DataEvent]) -> str:
    """Return the start of a run in words: a person, the timetable, or data.

    Args:
        dag_run: Airflow's run.
        events: Of the dataset Asset, that triggered it.
    """
    kind = kind_of(dag_run)
    if kind == BY_DATA:
        texts = list(dict.fromkeys(event.text() for event in events))
        shown = "; ".join(texts[-_EVENTS_SHOWN:][::-1]) or "an event that names no source"
        more = f"; and {len(texts) - _EVENTS_SHOWN} events before" if len(texts) > _EVENTS_SHOWN else ""
        return f"started by data: {shown}{more}"
    if kind == "scheduled":
        return f"started by the timetable, for {_moment(dag_run.run_after)}"
    user = getattr(dag_run, "triggering_user_name", None)
    if kind == "manual":
        return f"started by {user}" if user else "started by hand"
    return f"started as {kind.replace('_', ' ')} run" + (f" by {user}" if user else "")


def missed_text(dag_run: Any, run_dir: Path, environment: Mapping[str, str]) -> str | None:
    """Return the reason to skip a run by the timetable after a missed time; None for a run to train.

    Airflow makes up the last missed time of a paused DAG or a stopped scheduler. A run that waited for earlier runs of
    the DAG, or was cleared by a person, missed no time.

    Args:
        dag_run: Airflow's run.
        run_dir: Its folder; beside it are those of the DAG's other runs.
        environment: ``DEEPSPARK_RETRAIN_LATEST_START``: minutes after its time that a run may begin.

    Raises:
        ConfigError: The variable is no number of minutes.
    """
    kind = kind_of(dag_run)
    if kind != "scheduled" or dag_run.start_date is None or getattr(dag_run, "clear_number", None):
        return None
    allowed_s = 60.0 * _latest_start_min(environment)
    slot_s, began_s = dag_run.run_after.timestamp(), dag_run.start_date.timestamp()
    if began_s - slot_s <= allowed_s:
        return None
    busy_until_s = slot_s
    for first_s, last_s in sorted(_active_times(run_dir, slot_s)):
        if first_s <= busy_until_s + allowed_s:
            busy_until_s = max(busy_until_s, last_s)
    if began_s - busy_until_s <= allowed_s:
        return None
    return (
        f"it began {(began_s - slot_s) / 60.0:,.0f} minutes after its time, {_moment(dag_run.run_after)}; after more"
        f" than {allowed_s / 60.0:g} minutes ({LATEST_VARIABLE}) a run by the timetable is not made up; the timetable's"
        " next run trains, and so does a run that you trigger"
    )


def _latest_start_min(environment: Mapping[str, str]) -> float:
    text = environment.get(LATEST_VARIABLE) or str(LATEST_START_MIN)
    try:
        minutes = float(text)
    except ValueError:
        minutes = -1.0
    if not minutes > 0.0:
        msg = f"{LATEST_VARIABLE}={text}: give the minutes after its time that a run may begin, a number above 0"
        raise ConfigError(msg)
    return minutes


def _active_times(run_dir: Path, since_s: float) -> Iterator[tuple[float, float]]:
    """Yield begin and last sign of life of the DAG's other runs after a moment, seconds since the epoch."""
    for folder in run_dir.parent.iterdir() if run_dir.parent.is_dir() else ():
        statuses = read_statuses(folder).values() if folder != run_dir else ()
        if statuses and (last_s := max(status.time for status in statuses)) > since_s:
            yield min(status.began for status in statuses), last_s


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")
