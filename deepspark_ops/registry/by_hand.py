"""Promotion of a bundle by a person; shared by the command and the page."""

from __future__ import annotations

from dataclasses import dataclass

from deepspark_ops.config.promote import HandPromoteConfig
from deepspark_ops.registry.candidate import Score, decide_by_hand, find_candidate, forced
from deepspark_ops.registry.changes import Author, note_rejected, promote
from deepspark_ops.registry.gate import Decision
from deepspark_ops.registry.production import Production


@dataclass(frozen=True)
class ByHand:
    """Result of a promotion by hand.

    Attributes:
        decision: Decision of the gate, or of the person who skipped the gate.
        production: Version in production after the promotion; None if the candidate was rejected.
    """

    decision: Decision
    production: Production | None


def promote_by_hand(config: HandPromoteConfig, person: str, score: Score, *, force: bool) -> ByHand:
    """Put a bundle into production if the gate allows the promotion.

    The model's history has a line for a rejected candidate, too.

    Args:
        config: The bundle, the model, the reason and the gate's bounds.
        person: The person.
        score: Scores the model in production on the candidate's samples, if the scores are missing.
        force: Skip the gate.

    Raises:
        ConfigError: The bundle does not exist, or has no scores to compare.
        DataError: A file is damaged.
        RegistryBusy: Another process has held the lock for too long.
    """
    candidate = find_candidate(config.bundle)
    author = Author(person, config.reason)
    decision = forced(candidate, config, config.reason) if force else decide_by_hand(candidate, config, score)
    if not decision.promotes:
        note_rejected(config, decision, author, candidate.run_dir or candidate.bundle)
        return ByHand(decision, None)
    return ByHand(decision, promote(candidate.bundle, decision, config, author, run_dir=candidate.run_dir))
