"""What a person does to a model by hand, one code for the command and for the page: promote a bundle they chose."""

from __future__ import annotations

from dataclasses import dataclass

from deepspark_ops.config.promote import HandPromoteConfig
from deepspark_ops.registry.candidate import Score, decide_by_hand, find_candidate, forced
from deepspark_ops.registry.changes import Author, note_kept, promote
from deepspark_ops.registry.gate import Decision
from deepspark_ops.registry.production import Production


@dataclass(frozen=True)
class ByHand:
    """How it ended.

    Attributes:
        decision: Of the gate, or of the person who did not ask it.
        production: What is in production now; None if the candidate stays out.
    """

    decision: Decision
    production: Production | None


def promote_by_hand(config: HandPromoteConfig, who: str, score: Score, *, force: bool) -> ByHand:
    """Put the bundle that a person chose into production, if the gate lets it in.

    A candidate that stays out is a line of the model's history, too.

    Args:
        config: The bundle, the model, the reason and the gate's bounds.
        who: The person.
        score: Scores what is in production on the candidate's samples, where that was not done yet.
        force: Do not ask the gate.

    Raises:
        ConfigError: There is no such bundle, or nothing to compare it by.
        DataError: Something is damaged.
        RegistryBusy: Somebody else has held the lock for too long.
    """
    candidate = find_candidate(config.bundle)
    author = Author(who, config.reason)
    decision = forced(candidate, config, config.reason) if force else decide_by_hand(candidate, config, score)
    if not decision.promotes:
        note_kept(config, decision, author, candidate.run_dir or candidate.bundle)
        return ByHand(decision, None)
    return ByHand(decision, promote(candidate.bundle, decision, config, author, run_dir=candidate.run_dir))
