"""Durations as text: ``24 h``, ``90 min``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Final

from pydantic import AfterValidator

ALLOWED: Final = "a length of time with its unit: 30 s, 90 min, 24 h or 2 d"
_SECONDS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86400}
_LONGEST: Final = timedelta(days=365)
_FORM = re.compile(r"(\d+(?:\.\d+)?) *(s|min|h|d)")


def length_of(text: str) -> timedelta:
    """Return the duration in a text.

    Raises:
        ValueError: The text is no duration, or the duration is not above zero and at most a year.

    Example:
        >>> length_of("90 min"), length_of("1.5h")
        (datetime.timedelta(seconds=5400), datetime.timedelta(seconds=5400))
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        msg = f"must be {ALLOWED}"
        raise ValueError(msg)
    length = timedelta(seconds=min(float(match[1]) * _SECONDS[match[2]], 2 * _LONGEST.total_seconds()))
    if not timedelta(0) < length <= _LONGEST:
        msg = "must be above zero and at most 365 d"
        raise ValueError(msg)
    return length


def _checked(text: str) -> str:
    length_of(text)
    return text.strip()


Duration = Annotated[str, AfterValidator(_checked)]
"""Text of a duration; ``length_of`` parses the text."""
