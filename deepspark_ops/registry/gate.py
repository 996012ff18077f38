"""Gate of promotion: only a significantly better model replaces production."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.evaluate.comparison.answers import ClassChange, Comparison, Metric, compare_evaluations
from deepspark_ops.evaluate.comparison.grouped import fewest_groups
from deepspark_ops.evaluate.comparison.paired import p_text
from deepspark_ops.evaluate.evaluation_folder import Evaluated
from deepspark_ops.evaluate.metrics import classes_of
from deepspark_ops.evaluate.tasks.metrics_head import MainFigure, MetricsReport, Speed, figure_text
from deepspark_ops.frozen_model import FrozenModel
from deepspark_ops.shards.manifest import SplitRule
from deepspark_ops.sizes import share_text

DECISION_VERSION: Final = 3
CLASS_ALARM: Final = 0.2
"""Family-wise error rate of the test for worse classes (Bonferroni over the classes): the share of candidates that the
gate refuses although no class is worse. A wrong refusal keeps a working model."""
ANSWERED_ANYWAY: Final = 0.5
"""Classes that production predicts for this share of other classes' samples are skipped. A constant predictor scores
100 % on its class, so any real classifier looks worse there."""

SLOWER_S: Final = 1e-3
"""Tolerated extra time per batch: the call overhead of a tiny net, or a disturbance of the measurement."""

PROMOTED: Final = "promoted: "
KEPT_PRODUCTION: Final = "kept production: "


class Approval(FrozenModel):
    """A person's answer about a candidate after the gate.

    Attributes:
        answer: The answer; ``nobody`` without an answer in time.
        who: Name of the person.
        at: Time of the answer; UTC, ISO 8601, whole seconds.
        comment: Comment of the person.
        asked: Reason of the gate in the question.
    """

    answer: Literal["approved", "refused", "nobody"]
    who: str | None
    at: str
    comment: str | None = None
    asked: str


class Decision(FrozenModel):
    """Should the candidate go into production?

    Attributes:
        format_version: Version of the file; version 1 ends with ``reason``, lacks ``format_version`` and compares
            plain values. Version 2 lacks ``main``.
        promotes: Whether the candidate goes into production.
        metric: Compared metric; ``main``: the main figure of a task other than classification.
        candidate: The candidate's value; None if a person promoted a bundle without scores.
        production: The value of the model in production on the same samples; None without such a model.
        dataset_digest: Digest of the samples; None for a bundle without scores.
        reason: Reason in one sentence.
        confidence: Required confidence.
        comparison: Gain, interval, p-value, discordant samples and classes; None without a model in production.
        candidate_speed: Scoring speed of the candidate; None if not measured.
        production_speed: Scoring speed of the model in production; None if not measured.
        against: Compared version in production, ``v6``; None if production was empty.
        is_forced: Did a person decide against or without the comparison?
        approval: A person's answer; None without a question or before the answer.
    """

    format_version: Literal[1, 2, 3] = 1
    promotes: bool
    metric: Literal["top1", "top5", "loss", "main"]
    candidate: float | None
    production: float | None
    dataset_digest: str | None
    reason: str
    confidence: float | None = None
    comparison: Comparison | None = None
    candidate_speed: Speed | None = None
    production_speed: Speed | None = None
    against: str | None = None
    is_forced: bool = False
    approval: Approval | None = None


def decide(
    candidate: Evaluated,
    production: Evaluated | None,
    config: PromoteConfig,
    *,
    production_labels: Sequence[str] = (),
    production_split: SplitRule | None = None,
    known_content: npt.NDArray[np.uint64] | None = None,
    against: str | None = None,
) -> Decision:
    """Compare two models by scores on the same samples; without a model in production the candidate is promoted.

    The candidate must be better by at least ``min_gain``, with ``confidence`` in the gain against chance. No class may
    be worse by more than ``max_class_loss`` (beyond chance), the net must not be slower by more than ``max_slowdown``,
    and the label sets must be equal.

    Args:
        candidate: Evaluation of the candidate.
        production: Evaluation of the model in production, on the same samples.
        config: Bounds of the gate.
        production_labels: Class names of the model in production; empty if unknown.
        production_split: Rule that separated production's training samples from test samples; None if unknown.
        known_content: Content hashes of the samples at production's promotion; None if unknown.
        against: Name of the version in production, for the record.

    Raises:
        ConfigError: The metric is not defined for these classes (top5 of five or fewer).
        DataError: The two were scored on different samples.
    """
    metric = compared_metric(candidate.metrics, config.metric)
    candidate_value = metric_value(candidate.metrics, metric)
    comparison = None
    if production is None:
        problem, reason = None, f"{PROMOTED}{_value_text(candidate.metrics, metric)}; no model was in production"
    else:
        comparison = compare_evaluations(
            candidate,
            production,
            metric="loss" if metric == "main" else metric,
            confidence=config.confidence,
            known_content=known_content,
        )
        problem = _other_split(candidate.metrics.scored.split_rule, production_split) or _first_problem(
            candidate, production, comparison, config, production_labels
        )
        reason = f"{KEPT_PRODUCTION}{problem}" if problem else f"{PROMOTED}{_gain_text(comparison)}"
        reason += _new_samples_text(comparison)
    return Decision(
        format_version=DECISION_VERSION,
        promotes=problem is None,
        metric=metric,
        candidate=candidate_value,
        production=_value_in_production(comparison, metric),
        dataset_digest=candidate.metrics.scored.dataset_digest,
        reason=reason,
        confidence=config.confidence,
        comparison=comparison,
        candidate_speed=candidate.metrics.speed,
        production_speed=production.metrics.speed if production else None,
        against=against,
    )


def compared_metric(metrics: MetricsReport, metric: str) -> Metric | Literal["main"]:
    """Return the metric for ``main``; other metrics are returned unchanged.

    Raises:
        ConfigError: The task has no such metric.
    """
    is_classification = classes_of(metrics) is not None
    if metric == "main":
        return "top1" if is_classification else "main"
    if metric == "loss":
        return "loss"
    if not is_classification:
        msg = f"metric={metric}: not defined for a {metrics.task}; allowed here: main ({metrics.main.label}), loss"
        raise ConfigError(msg)
    return "top5" if metric == "top5" else "top1"


def metric_value(metrics: MetricsReport, metric: str) -> float:
    """Return a metric's value.

    Raises:
        ConfigError: The metric is not defined for these classes.
    """
    metric = compared_metric(metrics, metric)
    if metric == "loss":
        return metrics.loss
    classes = classes_of(metrics)
    if classes is None:
        return metrics.main.value
    value = classes.top1 if metric == "top1" else classes.top5
    if value is None:
        msg = f"metric={metric}: not defined for {len(classes.classes)} classes; allowed here: top1, loss"
        raise ConfigError(msg)
    return value


def _value_in_production(comparison: Comparison | None, metric: str) -> float | None:
    if comparison is None:
        return None
    return comparison.figures[1].value if metric == "main" and comparison.figures else comparison.production


def _first_problem(
    candidate: Evaluated,
    production: Evaluated,
    comparison: Comparison,
    config: PromoteConfig,
    production_labels: Sequence[str],
) -> str | None:
    checks: list[Callable[[], str | None]] = [
        lambda: _changed_labels(candidate.class_names(), production_labels),
        lambda: _lower_figure(comparison, config),
        lambda: _small_gain(comparison, config),
        lambda: _but(comparison, _worse_class(comparison, config.max_class_loss)),
        lambda: _but(comparison, _slower(candidate.metrics.speed, production.metrics.speed, config.max_slowdown)),
    ]
    return next((problem for check in checks if (problem := check()) is not None), None)


def _other_split(now: SplitRule | None, then: SplitRule | None) -> str | None:
    if now is None or then is None or not now.may_test_on_samples_trained_on(then):
        return None
    return (
        f"its training samples may be among these test samples, which were split off otherwise ({now.text()}; when "
        f"production was trained: {then.text()}); keep the split, or decide yourself with "
        "deepspark models promote --force"
    )


def _changed_labels(candidate_labels: Sequence[str], production_labels: Sequence[str]) -> str | None:
    if not candidate_labels or not production_labels or tuple(candidate_labels) == tuple(production_labels):
        return None
    start = "the label set has changed"
    if len(candidate_labels) != len(production_labels):
        return f"{start}: {len(candidate_labels)} classes, production has {len(production_labels)}"
    label = next(
        k for k, names in enumerate(zip(candidate_labels, production_labels, strict=True)) if names[0] != names[1]
    )
    return f'{start}: class {label} is "{candidate_labels[label]}", in production "{production_labels[label]}"'


def _lower_figure(comparison: Comparison, config: PromoteConfig) -> str | None:
    """Return a refusal if the main figure is not better, or better by less than ``min_gain``."""
    if comparison.figures is None or config.metric == "loss":
        return None
    candidate_figure, production_figure = comparison.figures
    if not candidate_figure.is_better_than(production_figure):
        return f"{_gain_text(comparison)}; only a better model goes in"
    if abs(candidate_figure.value - production_figure.value) < config.min_gain:
        needed = figure_text(config.min_gain, is_share=candidate_figure.is_share)
        return f"{_gain_text(comparison)}; min_gain asks for at least {needed} of {candidate_figure.label}"
    return None


def _small_gain(comparison: Comparison, config: PromoteConfig) -> str | None:
    text = _gain_text(comparison)
    if comparison.gain <= 0:
        return f"{text}; only a better model goes in"
    if comparison.n_groups is not None and comparison.n_groups < fewest_groups(config.confidence):
        needed = f"at least {fewest_groups(config.confidence)} are needed for {_percent(config.confidence)} confidence"
        return f"{text}; so few groups cannot show a gain beyond chance: {needed}"
    if comparison.p_value > 1 - config.confidence:
        return f"{text}; at least {_percent(config.confidence)} confidence is needed"
    is_of_figure = comparison.figures is not None and config.metric != "loss"
    if comparison.gain < config.min_gain and not is_of_figure:
        return f"{text}; min_gain asks for at least {_amount(comparison.metric, config.min_gain)}"
    return None


def _but(comparison: Comparison, problem: str | None) -> str | None:
    """Return the refusal of a candidate with a gain as a whole and this problem."""
    return None if problem is None else f"{_gain_text(comparison)}, but {problem}"


def _worse_class(comparison: Comparison, allowed: float) -> str | None:
    present = [change for change in comparison.classes if change.n_samples]
    suspects = [
        change
        for change in present
        if change.loss() > allowed
        and change.p_worse <= CLASS_ALARM / len(present)
        and (change.production_takes or 0.0) < ANSWERED_ANYWAY
    ]
    if not suspects:
        return None
    worst: ClassChange = max(suspects, key=ClassChange.loss)
    return (
        f'class "{worst.name}" fell by {_amount("top1", worst.loss())} on {worst.n_samples:,} samples ('
        f"{p_text(worst.p_worse)}); max_class_loss allows {_amount('top1', allowed)}; a larger one lets it in, or "
        "deepspark models promote --force"
    )


def _slower(candidate_speed: Speed | None, production_speed: Speed | None, allowed: float) -> str | None:
    if (
        candidate_speed is None
        or production_speed is None
        or (candidate_speed.machine, candidate_speed.batch_size)
        != (production_speed.machine, production_speed.batch_size)
    ):
        return None
    slowdown = 1 - candidate_speed.images_per_s / production_speed.images_per_s
    # The candidate's best against production's worst: noise of the measurement must not refuse an equal net.
    slowest_production = min(
        production_speed.slowest_images_per_s or production_speed.images_per_s, production_speed.images_per_s
    )
    lost_s = candidate_speed.batch_size / candidate_speed.images_per_s - candidate_speed.batch_size / slowest_production
    if 1 - candidate_speed.images_per_s / slowest_production <= allowed or lost_s < SLOWER_S:
        return None
    return (
        f"it scores {candidate_speed.images_per_s:,.0f} images/s where production scores "
        f"{production_speed.images_per_s:,.0f}, "
        f"{_percent(slowdown)} less; max_slowdown allows {_percent(allowed)}"
    )


def _gain_text(comparison: Comparison) -> str:
    if comparison.figures is not None:
        return f"{_figures_text(*comparison.figures)} {_samples_text(comparison)}"
    sign = "+" if comparison.gain > 0 else "-" if comparison.gain < 0 else ""
    amount = f"{sign}{_amount(comparison.metric, abs(comparison.gain))}"
    if comparison.metric == "loss":
        amount = f"loss {comparison.candidate:.4g} against {comparison.production:.4g}"
    elif comparison.metric == "top5":
        amount += " of top-5 accuracy"
    return f"{amount} {_samples_text(comparison)}"


def _samples_text(comparison: Comparison) -> str:
    groups = "" if comparison.n_groups is None else f" of {comparison.n_groups:,} groups"
    return f"on {comparison.n_samples:,} samples{groups}, {p_text(comparison.p_value)}"


def _new_samples_text(comparison: Comparison) -> str:
    if not comparison.n_new:
        return ""
    return f" ({comparison.n_new:,} of the samples are new since production was promoted)"


def _figures_text(candidate_figure: MainFigure, production_figure: MainFigure) -> str:
    return f"{candidate_figure.label} {candidate_figure.text()} against {production_figure.text()}"


def _value_text(metrics: MetricsReport, metric: str) -> str:
    if metric == "main":
        return f"{metrics.main.label} {metrics.main.text()}"
    value = metric_value(metrics, metric)
    return f"loss {value:.4g}" if metric == "loss" else f"{metric} {share_text(value)}"


def _amount(metric: str, value: float) -> str:
    if metric == "loss":
        return f"{value:.4g}"
    points = 100 * value
    return f"{points:.1f} points" if points >= 0.1 or not points else f"{points:.2g} points"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
