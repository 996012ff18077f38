"""Accuracy over a model's versions as a drawing: places on an SVG, made on the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

VERSIONS_SHOWN: Final = 24
STEP: Final = 58.0
_LEFT, _TOP, _HEIGHT = 34.0, 22.0, 92.0


def accuracy_chart(versions: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return where each version's accuracy and its interval are drawn, oldest first; None for less than two.

    Args:
        versions: As a model's JSON has them, oldest first; those without figures are left out.
    """
    scored = [one for one in versions if one["figures"]][-VERSIONS_SHOWN:]
    if len(scored) < 2:
        return None
    low = float(min(one["figures"]["top1_interval"][0] for one in scored))
    high = float(max(one["figures"]["top1_interval"][1] for one in scored))
    scale = _HEIGHT / ((high - low) or 1.0)

    def place(share: float) -> float:
        return round(_TOP + (high - share) * scale, 1)

    points = [
        {
            "version": one["version"],
            "top1": one["figures"]["top1"],
            "is_production": one["is_production"],
            "x": round(_LEFT + at * STEP, 1),
            "y": place(one["figures"]["top1"]),
            "y_high": place(one["figures"]["top1_interval"][1]),
            "y_low": place(one["figures"]["top1_interval"][0]),
        }
        for at, one in enumerate(scored)
    ]
    width = 2 * _LEFT + (len(scored) - 1) * STEP
    return {"points": points, "width": width, "height": _TOP + _HEIGHT + 26.0}
