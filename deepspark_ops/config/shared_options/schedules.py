"""Schedules ``VALUE@CLOCK ...``: values over the clock."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

OTHER_FORM: Final = "other_form"
"""Kind of pydantic's error for a text without the form of a schedule."""
_SCHEDULE = r"[0-9.eE+-]+@\d+( +[0-9.eE+-]+@\d+)*"


def schedule_entries(text: str) -> tuple[tuple[int, float], ...]:
    """Return ``(clock, value)`` of a schedule ``VALUE@CLOCK ...``: the value applies from the minibatch ``clock`` on.

    Raises:
        ValueError: The text is no schedule, does not start at 0, or does not ascend.

    Example:
        >>> schedule_entries("1@0 10@2000")
        ((0, 1.0), (2000, 10.0))
    """
    hint = "a schedule is VALUE@CLOCK, one after another from @0 on, e.g. '1@0 10@2000'"
    if "@" not in text:
        raise PydanticCustomError(OTHER_FORM, "{hint}", {"hint": hint})
    if not re.fullmatch(_SCHEDULE, text.strip()):
        raise ValueError(hint)
    entries = _entries(text)
    clocks = [clock for clock, _ in entries]
    if clocks[0] != 0 or clocks != sorted(set(clocks)):
        msg = f"the clocks {', '.join(map(str, clocks))} do not begin at 0 and ascend; {hint}"
        raise ValueError(msg)
    return entries


def _entries(text: str) -> tuple[tuple[int, float], ...]:
    pairs = (entry.split("@") for entry in text.split())
    return tuple((int(clock), float(value)) for value, clock in pairs)


def _period_schedule(text: str) -> str:
    for _, value in schedule_entries(text):
        if not 1 <= value <= 1_000_000 or value != int(value):  # the comparison excludes infinity before int()
            msg = f"{value:g} is not a whole number from 1 to 1000000"
            raise ValueError(msg)
    return text


def _refuse_other_shares(entries: Sequence[tuple[int, float]]) -> None:
    for _, value in entries:
        if not 0.0 < value <= 1.0:
            msg = f"{value:g} is not in (0, 1]"
            raise ValueError(msg)


def _rate_schedule(text: str) -> str:
    _refuse_other_shares(schedule_entries(text))
    return text


def floor_entries(text: str) -> tuple[tuple[int, float], ...]:
    """Return ``(clock, accuracy)`` of ``ACCURACY@CLOCK ...``, ascending clocks; no entry of an empty text.

    Raises:
        ValueError: The text has another form.

    Example:
        >>> floor_entries("0.3@500 0.6@1000")
        ((500, 0.3), (1000, 0.6))
    """
    entries = _entries(text) if re.fullmatch(_SCHEDULE, text.strip()) else ()
    clocks = [clock for clock, _ in entries]
    if (text.strip() and not entries) or clocks != sorted(set(clocks)):
        msg = "must be ACCURACY@CLOCK with ascending clocks, e.g. '0.3@500 0.6@1000'"
        raise ValueError(msg)
    return entries


def _accuracy_floor(text: str) -> str:
    _refuse_other_shares(floor_entries(text))
    return text


AccuracyFloor = Annotated[str, AfterValidator(_accuracy_floor)]
PeriodSchedule = Annotated[str, AfterValidator(_period_schedule)]
RateSchedule = Annotated[str, AfterValidator(_rate_schedule)]
