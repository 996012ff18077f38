"""A bundle for promotion by a person: the bundle's scores, and the gate."""

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
"""Folder of a run with the evaluation of the model in production."""
Score = Callable[[Path, Path, Path], None]
"""Scores a bundle on a run's data: (run_dir, bundle, output folder)."""


@dataclass(frozen=True)
class Candidate:
    """A bundle to promote.

    Attributes:
        bundle: A complete bundle.
        run_dir: Run of the bundle; None for a bundle outside a run.
    """

    bundle: Path
    run_dir: Path | None


def find_candidate(path: Path) -> Candidate:
    """Return the bundle in folder ``path``, or the bundle of the run ``path``.

    Raises:
        ConfigError: The folder is neither a bundle nor a run with a bundle.
    """
    run = RunPaths(path)
    if (path / MANIFEST_NAME).is_file():
        above = RunPaths(path.parent)
        is_of_run = above.config.is_file() and above.bundle == path
        return Candidate(path, path.parent if is_of_run else None)
    if (run.bundle / MANIFEST_NAME).is_file():
        return Candidate(run.bundle, path)
    content = "a run without a bundle" if run.config.is_file() else "no bundle and no run"
    msg = f'bundle={path}: {content}; give a folder that "deepspark export" wrote, or the run that has one'
    raise ConfigError(msg)


def decide_by_hand(candidate: Candidate, config: PromoteConfig, score: Score) -> Decision:
    """Decide with the gate of retraining about a person's bundle.

    Production's answers are compared if production was scored on the candidate's samples. Otherwise ``score`` scores
    production, if the candidate lies in a run, and the run keeps the scores.

    Raises:
        ConfigError: The candidate or production has no scores.
        DataError: A file is damaged.
    """
    candidate_scores = _candidate_evaluation(candidate)
    production = read_production(config.models, config.model)
    if production is None:
        return decide(candidate_scores, None, config)
    champion = version_folder(config.models, production)
    production_scores = _production_evaluation(candidate, candidate_scores, champion, score)
    return decide_against(candidate_scores, production_scores, champion, config)


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


def _candidate_evaluation(candidate: Candidate) -> Evaluated:
    folder = candidate.bundle
    if candidate.run_dir is not None and (RunPaths(candidate.run_dir).evaluation / SAMPLES_NAME).is_file():
        folder = RunPaths(candidate.run_dir).evaluation
    if not (folder / SAMPLES_NAME).is_file():
        msg = (
            f"{folder}: no {SAMPLES_NAME}, so there are no answers to compare; evaluate and export the run again, or "
            "promote with --force"
        )
        raise ConfigError(msg)
    evaluated = read_evaluation(folder)
    exported = read_manifest(candidate.bundle).origin.weights_digest
    if (scored := evaluated.metrics.scored.weights_digest) != exported:
        msg = f"{folder} is the evaluation of the weights {scored}, the bundle has {exported}; evaluate the run again"
        raise DataError(msg)
    return evaluated


def _production_evaluation(
    candidate: Candidate, candidate_scores: Evaluated, champion: Path, score: Score
) -> Evaluated:
    data = candidate_scores.metrics.scored.dataset_digest
    if (champion / SAMPLES_NAME).is_file():
        champion_scores = read_evaluation(champion)
        if champion_scores.metrics.scored.dataset_digest == data:
            # The evaluation names the scored snapshot; the bundle's weights file holds the same numbers.
            return _named_by(champion_scores, file_digest(champion / WEIGHTS_NAME))
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
