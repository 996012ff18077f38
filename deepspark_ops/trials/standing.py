"""State of a trial, from the status files of the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from deepspark_ops.run_view.stage_status import NO_MESSAGE, StageStatus

Word = Literal["waiting", "running", "trained", "finished", "failed"]
TRAIN, EVALUATE = "train", "evaluate"
_NEVER: Final = "it was not trained: the run ended before"


@dataclass(frozen=True)
class Standing:
    """State of a trial.

    Attributes:
        word: State in one word; ``trained``: not scored yet.
        reason: Error message of a failed trial, whole; else empty.
    """

    word: Word
    reason: str = ""


def standing_of(statuses: Mapping[str, StageStatus], *, is_over: bool) -> Standing:
    """Return the state of a trial.

    Args:
        statuses: Status files of the trial's tasks.
        is_over: Whether no task will continue, so that a task without a noted end has no message.
    """
    train, evaluate = statuses.get(TRAIN), statuses.get(EVALUATE)
    for status in (train, evaluate):
        if status is not None and status.status == "failed":
            return Standing("failed", status.message or NO_MESSAGE)
    if evaluate is not None and evaluate.status == "finished":
        return Standing("finished")
    if is_over:
        return Standing("failed", NO_MESSAGE if train is not None else _NEVER)
    if any(status is not None and status.status == "running" for status in (train, evaluate)):
        return Standing("running")
    return Standing("trained" if train is not None and train.status == "finished" else "waiting")
