"""The chart of a model's versions by their figure: coordinates of an SVG from the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from deepspark_ops.operators.pages.templates import figure

VERSIONS_SHOWN: Final = 24
STEP: Final = 58.0
_MARGIN_X, _MARGIN_Y, _HEIGHT = 34.0, 22.0, 92.0
_ACCURACY: Final = "top1"


def accuracy_chart(versions: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the coordinates of each version's figure and interval, oldest first; None for less than two versions.

    Args:
        versions: As a model's JSON has them, oldest first; left out are those without figures, and those that are
            judged by another figure than the last one.
    """
    last = alike([version["judged"] for version in versions])[-1:]
    scored = [
        version for version in versions if last and version["judged"] and version["judged"]["name"] == last[0]["name"]
    ]
    scored = scored[-VERSIONS_SHOWN:]
    if len(scored) < 2:
        return None
    spans = [version["judged"]["interval"] or (version["judged"]["value"],) * 2 for version in scored]
    low, high = float(min(span[0] for span in spans)), float(max(span[1] for span in spans))
    scale = _HEIGHT / ((high - low) or 1.0)

    def y_of(value: float) -> float:
        return round(_MARGIN_Y + (high - value) * scale, 1)

    points = [
        {
            "version": version["version"],
            "text": figure(version["judged"], wants_name=False),
            "is_production": version["is_production"],
            "x": round(_MARGIN_X + at * STEP, 1),
            "y": y_of(version["judged"]["value"]),
            "y_high": y_of(span[1]),
            "y_low": y_of(span[0]),
        }
        for at, (version, span) in enumerate(zip(scored, spans, strict=True))
    ]
    width = 2 * _MARGIN_X + (len(scored) - 1) * STEP
    label = "Accuracy" if last[0]["name"] == _ACCURACY else last[0]["label"]
    return {"points": points, "label": label, "width": width, "height": _MARGIN_Y + _HEIGHT + 26.0}


def alike(judged: Sequence[Mapping[str, Any] | None]) -> list[Mapping[str, Any]]:
    """Return the figures of the last figure's kind."""
    figures = [row for row in judged if row is not None]
    return [row for row in figures if row["name"] == figures[-1]["name"]]


def column_name(judged: Sequence[Mapping[str, Any] | None]) -> str:
    """Return the head of a column of figures: the figures' name, or ``judged by`` for several kinds.

    Example:
        >>> column_name([{"name": "rmse", "label": "RMSE"}, None]), column_name([])
        ('RMSE', 'accuracy')
    """
    labels = {row["name"]: row["label"] for row in judged if row is not None}
    if not labels or set(labels) == {_ACCURACY}:
        return "accuracy"
    return next(iter(labels.values())) if len(labels) == 1 else "judged by"
