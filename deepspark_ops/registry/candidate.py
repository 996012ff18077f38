"""A bundle that a person wants in production: where its scores are, and the gate for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.evaluate.evaluation_folder import Evaluated, read_evaluation
from deepspark_ops.evaluate.metrics import METRICS_NAME
from deepspark_ops.evaluate.sample_scores import SAMPLES_NAME
from deepspark_ops.export.manifest import MANIFEST_NAME, WEIGHTS_NAME, file_digest, read_manifest
from deepspark_ops.registry.champion import decide_against
from deepspark_ops.registry.gate import DECISION_VERSION, Decision, compared_metric, decide, metric_value
from deepspark_ops.registry.production import read_production, version_folder
from deepspark_ops.run_paths import RunPaths

PRODUCTION_EVALUATION = "evaluation_production"
"""Folder of a run that holds the evaluation of what is in production."""
Score = Callable[[Path, Path, Path], None]
"""Scores a bundle on a run's data: (run_dir, bundle, output folder)."""


@dataclass(frozen=True)
class Candidate:
    """What is to be promoted.

    Attributes:
        bundle: A complete bundle.
        run_dir: The run that it lies in; None for a bundle by itself.
    """

    bundle: Path
    run_dir: Path | None


def find_candidate(path: Path) -> Candidate:
    """Return the bundle that ``path`` is, or that the run ``path`` has.

    Raises:
        ConfigError: It is neither.
    """
    run = RunPaths(path)
    if (path / MANIFEST_NAME).is_file():
        above = RunPaths(path.parent)
        is_of_run = above.config.is_file() and above.bundle == path
        return Candidate(path, path.parent if is_of_run else None)
    if (run.bundle / MANIFEST_NAME).is_file():
        return Candidate(run.bundle, path)
    found = "a run without a bundle" if run.config.is_file() else "no bundle and no run"
    msg = f'bundle={path}: {found}; give a folder that "deepspark export" wrote, or the run that has one'
    raise ConfigError(msg)


def decide_by_hand(candidate: Candidate, config: PromoteConfig, score: Score) -> Decision:
    """Decide by the gate of retraining about a bundle that a person chose.

    Production is compared by its own answers, if it was scored on the candidate's samples; else, if the candidate lies
    in its run, ``score`` makes them, and the run keeps them.

    Raises:
        ConfigError: There is nothing to compare by.
        DataError: Something is damaged.
    """
    mine = _own_evaluation(candidate)
    production = read_production(config.models, config.model)
    if production is None:
        return decide(mine, None, config)
    champion = version_folder(config.models, production)
    theirs = _production_evaluation(candidate, mine, champion, score)
    return decide_against(mine, theirs, champion, config)


def forced(candidate: Candidate, config: PromoteConfig, reason: str) -> Decision:
    """Return the decision of a person who does not ask the gate.

    Raises:
        DataError: The bundle is damaged.
    """
    metrics = None
    if (candidate.bundle / METRICS_NAME).is_file():
        metrics = read_evaluation(candidate.bundle).metrics if (candidate.bundle / SAMPLES_NAME).is_file() else None
    return Decision(
        format_version=DECISION_VERSION,
        promotes=True,
        metric=config.metric if metrics is None else compared_metric(metrics, config.metric),
        candidate=None if metrics is None else metric_value(metrics, config.metric),
        production=None,
        dataset_digest=None if metrics is None else metrics.scored.dataset_digest,
        reason=f"promoted by hand without a comparison: {reason}",
        is_forced=True,
    )


def _own_evaluation(candidate: Candidate) -> Evaluated:
    folder = candidate.bundle
    if candidate.run_dir is not None and (RunPaths(candidate.run_dir).evaluation / SAMPLES_NAME).is_file():
        folder = RunPaths(candidate.run_dir).evaluation
    if not (folder / SAMPLES_NAME).is_file():
        msg = (
            f"{folder}: no {SAMPLES_NAME}, so there are no answers to compare; evaluate and export the run again, or "
            "promote with --force"
        )
        raise ConfigError(msg)
    found = read_evaluation(folder)
    exported = read_manifest(candidate.bundle).origin.weights_digest
    if (scored := found.metrics.scored.weights_digest) != exported:
        msg = f"{folder} is the evaluation of the weights {scored}, the bundle has {exported}; evaluate the run again"
        raise DataError(msg)
    return found


def _production_evaluation(candidate: Candidate, mine: Evaluated, champion: Path, score: Score) -> Evaluated:
    data = mine.metrics.scored.dataset_digest
    if (champion / SAMPLES_NAME).is_file():
        known = read_evaluation(champion)
        if known.metrics.scored.dataset_digest == data:
            # The bundle names the snapshot that was scored; its weights file holds the same numbers.
            return _named_by(known, file_digest(champion / WEIGHTS_NAME))
    if candidate.run_dir is None:
        msg = (
            f"production was not scored on the samples of {candidate.bundle} ({data}); give the run's folder instead, "
            "so that it can be, or promote with --force"
        )
        raise ConfigError(msg)
    folder = candidate.run_dir / PRODUCTION_EVALUATION
    if not _is_of(folder, file_digest(champion / WEIGHTS_NAME), data):
        score(candidate.run_dir, champion, folder)
    return read_evaluation(folder)


def _is_of(folder: Path, weights: str, data: str) -> bool:
    if not (folder / SAMPLES_NAME).is_file():
        return False
    scored = read_evaluation(folder).metrics.scored
    return (scored.weights_digest, scored.dataset_digest) == (weights, data)


def _named_by(evaluated: Evaluated, weights: str) -> Evaluated:
    scored = evaluated.metrics.scored.model_copy(update={"weights_digest": weights})
    return Evaluated(evaluated.metrics.model_copy(update={"scored": scored}), evaluated.samples)
