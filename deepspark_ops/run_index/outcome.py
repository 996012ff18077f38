"""Outcome of a run for the model in production, from the run's files: promoted, kept out, rejected, or no training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from deepspark_ops.run_view.stage_status import StageStatus

PROMOTED: Final = "promoted"
BY_HAND: Final = "promoted by hand"
REJECTED: Final = "rejected"
NOTHING: Final = "nothing trained"
_ANSWERS: Final = {"refused": REJECTED, "nobody": "nobody approved"}
_PROMOTES: Final = "promote"
"""Task whose end puts the model into production."""
_SKIPPING: Final = ("check", "ingest")
"""Tasks that skip a training without a reason to train."""


def outcome_of(decision: Mapping[str, Any], statuses: Mapping[str, StageStatus]) -> str | None:
    """Return the outcome in words; None before a decision, or before the promotion.

    Args:
        decision: Content of ``decision.json``, of any version; empty without the file.
        statuses: Status files of the run's tasks.

    Example:
        >>> outcome_of({"promotes": False, "approval": {"answer": "refused"}}, {})
        'rejected'
        >>> outcome_of({"promotes": False, "approval": None}, {}), outcome_of({}, {})
        ('kept production', None)
    """
    if any(name in statuses and statuses[name].status == "skipped" for name in _SKIPPING):
        return NOTHING
    if "promotes" not in decision:
        return None
    approval = decision.get("approval")
    answer = approval.get("answer") if isinstance(approval, Mapping) else None
    if answer in _ANSWERS:
        return _ANSWERS[answer]
    if not decision["promotes"]:
        return "kept production"
    status = statuses.get(_PROMOTES)
    return PROMOTED if status is not None and status.status == "finished" else None
