"""A candidate for production: its scores, the gate against production, and the promotion by a person."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deepspark_ops.config.promote import HandPromoteConfig, PromoteConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.evaluate.evaluation_folder import Evaluated, read_evaluation
from deepspark_ops.evaluate.metrics import METRICS_NAME
from deepspark_ops.evaluate.sample_scores import SAMPLES_NAME, read_samples
from deepspark_ops.export.manifest import MANIFEST_NAME, WEIGHTS_NAME, file_digest, find_bundle, read_manifest
from deepspark_ops.registry.changes import Author, note_rejected, promote
from deepspark_ops.registry.gate import DECISION_VERSION, Decision, compared_metric, decide, metric_value
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.registry.production import Production, read_production, version_folder
from deepspark_ops.registry.versions import read_versions
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


@dataclass(frozen=True)
class ByHand:
    """Result of a promotion by hand.

    Attributes:
        decision: Decision of the gate, or of the person who skipped the gate.
        production: Version in production after the promotion; None if the candidate was rejected.
    """

    decision: Decision
    production: Production | None


def find_candidate(path: Path) -> Candidate:
    """Return the bundle in folder ``path``, or the bundle of the run ``path``.

    Raises:
        ConfigError: The folder is neither a bundle nor a run with a bundle, or a run with several.
    """
    bundle = find_bundle(path)
    if not (bundle / MANIFEST_NAME).is_file():
        remedy = 'give a folder that "deepspark export" wrote, or the run that has one'
        msg = f"bundle={path}: no bundle and no run; {remedy}"
        raise ConfigError(msg)
    above = RunPaths(bundle.parent)
    is_of_run = bundle != path or (above.config.is_file() and above.bundle == bundle)
    return Candidate(bundle, above.root if is_of_run else None)


def promote_by_hand(config: HandPromoteConfig, person: str, score: Score, *, force: bool) -> ByHand:
    """Put a bundle into production if the gate allows the promotion.

    The model's history has a line for a rejected candidate, too.

    Args:
        config: The bundle, the model, the reason and the gate's bounds.
        person: The person.
        score: Scores the model in production on the candidate's samples, if the scores are missing.
        force: Skip the gate.

    Raises:
        ConfigError: The bundle does not exist, is in production already, or has no scores to compare.
        DataError: A file is damaged.
        RegistryBusy: Another process has held the lock for too long.
    """
    candidate = find_candidate(config.bundle)
    production = read_production(config.models, config.model)
    if production is not None and production.manifest_digest == file_digest(candidate.bundle / MANIFEST_NAME):
        msg = f'model "{config.model}": bundle={candidate.bundle} is in production already, as {production.version}'
        raise ConfigError(msg)
    author = Author(person, config.reason)
    decision = forced(candidate, config, config.reason) if force else decide_by_hand(candidate, config, score)
    if not decision.promotes:
        note_rejected(config, decision, author, candidate.run_dir or candidate.bundle)
        return ByHand(decision, None)
    return ByHand(decision, promote(candidate.bundle, decision, config, author, run_dir=candidate.run_dir))


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


def decide_against(candidate: Evaluated, production: Evaluated, bundle: Path, config: PromoteConfig) -> Decision:
    """Decide about a candidate against the bundle that was in production when the candidate's run started.

    Args:
        candidate: Evaluation of the candidate.
        production: The evaluation of the bundle's weights on the same samples.
        bundle: A version of the model.
        config: Bounds of the gate, and the model's name.

    Raises:
        ConfigError: The metric is not defined for these classes.
        DataError: The evaluation is of other weights than the bundle's, or of other samples than the candidate's; or
            the bundle is damaged.
    """
    manifest = read_manifest(bundle)
    if (weights := production.metrics.scored.weights_digest) != manifest.files[WEIGHTS_NAME]:
        msg = (
            f"production's evaluation is of the weights {weights}, its bundle {bundle} has "
            f'{manifest.files[WEIGHTS_NAME]}; clear task "evaluate_production" of this run'
        )
        raise DataError(msg)
    samples = bundle / SAMPLES_NAME
    names = {record.folder: record.version for record in read_versions(ModelFolder(config.models / config.model))}
    return decide(
        candidate,
        production,
        config,
        production_labels=manifest.output.labels or tuple(str(label) for label in range(manifest.output.n_classes)),
        production_split=manifest.origin.split_rule,
        known_content=read_samples(samples).content if samples.is_file() else None,
        against=names.get(bundle.name, bundle.name),
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
