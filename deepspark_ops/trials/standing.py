"""How a trial stands, by what its tasks have noted in its folder."""

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
    """How a trial stands.

    Attributes:
        word: In one word; ``trained`` is not scored yet.
        reason: Why it failed, whole; empty otherwise.
    """

    word: Word
    reason: str = ""


def standing_of(statuses: Mapping[str, StageStatus], *, is_over: bool) -> Standing:
    """Return how a trial stands.

    Args:
        statuses: What its tasks have noted.
        is_over: Whether no task of it will go on, so that a task that notes no end has left no message.
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
