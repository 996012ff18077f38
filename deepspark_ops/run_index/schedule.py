"""Schedule of a DAG in words. No framework."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

BY_HAND: Final = "only when it is triggered"
_ASSETS_FIRST: Final = "Triggered by assets or "
"""Prefix of Airflow's description of a timetable with assets."""
_OF_ASSETS_ALONE: Final = "Triggered by assets"
_NEVER: Final = "Never, external triggers only"
_DAILY: Final = re.compile(r"At (\d\d:\d\d)")


@dataclass(frozen=True)
class Schedule:
    """Schedule of a DAG in Airflow.

    Attributes:
        dag: Id of the DAG.
        text: Schedule in words.
        next_run: Next scheduled start, seconds since the epoch; None without a timetable.
        is_paused: Whether the DAG is paused.
    """

    dag: str
    text: str
    next_run: float | None
    is_paused: bool


def schedule_text(description: str, *, timezone: str = "", assets: Mapping[str, Any] | None = None) -> str:
    """Return a schedule in words.

    Args:
        description: Airflow's description of the timetable; ``At 03:00`` for a cron expression.
        timezone: Time zone of the timetable; empty if unknown.
        assets: Airflow's expression of the assets in the schedule; None without assets.

    Example:
        >>> asset = {"asset": {"name": "deepspark_dataset"}}
        >>> schedule_text("Triggered by assets or At 03:00", timezone="UTC", assets={"all": [asset]})
        '03:00 UTC every day, or when deepspark_dataset is updated'
        >>> schedule_text("At 06:30, only on Monday", timezone="Europe/Oslo")
        'at 06:30, only on Monday (Europe/Oslo)'
        >>> schedule_text("Triggered by assets", assets={"any": [asset, {"asset": {"name": "b"}}]})
        'when deepspark_dataset or b is updated'
        >>> schedule_text("Never, external triggers only")
        'only when it is triggered'
    """
    by_time = description.removeprefix(_ASSETS_FIRST)
    if by_time in ("", _NEVER, _OF_ASSETS_ALONE):
        by_time = ""
    elif daily := _DAILY.fullmatch(by_time):
        by_time = " ".join(part for part in (daily[1], timezone, "every day") if part)
    else:
        by_time = by_time[:1].lower() + by_time[1:] + (f" ({timezone})" if timezone else "")
    parts = [by_time] if by_time else []
    if assets:
        parts.append(f"when {_asset_words(assets)} updated")
    return ", or ".join(parts) or BY_HAND


def _asset_words(expression: Mapping[str, Any]) -> str:
    words = _names(expression)
    return f"{words} are" if " and " in words else f"{words} is"


def _names(expression: Mapping[str, Any]) -> str:
    """Return the names of an expression: ``{"asset": {...}}``, ``{"alias": {...}}``, ``{"any"|"all": [...]}``."""
    for kind, word in (("all", " and "), ("any", " or ")):
        if kind in expression:
            return word.join(_names(part) for part in expression[kind])
    (value,) = list(expression.values())[:1] or [{}]
    return str(value.get("name", "an asset")) if isinstance(value, Mapping) else "an asset"


def timezone_of(timetable: object) -> str:
    """Return the time zone inside a timetable in Airflow's serialized form; empty without a time zone.

    Example:
        >>> timezone_of({"__var": {"timetable": {"__var": {"expression": "0 3 * * *", "timezone": "UTC"}}}})
        'UTC'
    """
    if not isinstance(timetable, Mapping):
        return ""
    if isinstance(timezone := timetable.get("timezone"), str):
        return timezone
    return next((zone for part in timetable.values() if (zone := timezone_of(part))), "")
