"""A person's approval of a candidate after the gate: the question, and the decision with the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from deepspark_ops.evaluate.comparison.answers import Comparison
from deepspark_ops.evaluate.comparison.paired import p_text
from deepspark_ops.evaluate.comparison.section import changed_classes
from deepspark_ops.evaluate.metrics import classes_of
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport, interval_text
from deepspark_ops.registry.gate import KEPT_PRODUCTION, PROMOTED, Approval, Decision
from deepspark_ops.sizes import share_text

CLASSES_SHOWN: Final = 6
MAX_COMMENT_CHARS: Final = 500
"""Characters of a person's comment."""
_MARKUP = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~&:/@])")


def gate_decision(decision: Decision) -> Decision:
    """Return the gate's decision, without the answer to an earlier question."""
    if decision.approval is None:
        return decision
    return decision.model_copy(update={"promotes": True, "reason": decision.approval.asked, "approval": None})


def answered(decision: Decision, approval: Approval, *, timeout: str) -> Decision:
    """Return the decision with the answer.

    Args:
        decision: Decision of the gate, which promotes.
        approval: Answer of a person.
        timeout: Time limit of the answer, as the user wrote it.
    """
    figures = decision.reason.removeprefix(PROMOTED)
    comment_text = f" ({approval.comment})" if approval.comment else ""
    reason = {
        "approved": f"{PROMOTED}{figures}; approved by {approval.who}{comment_text}",
        "refused": f"{KEPT_PRODUCTION}refused by {approval.who}{comment_text}; {figures}",
        "nobody": f"{KEPT_PRODUCTION}nobody approved within {timeout}; {figures}",
    }[approval.answer]
    return decision.model_copy(
        update={"promotes": approval.answer == "approved", "reason": reason, "approval": approval}
    )


def waiting_text(decision: Decision) -> str:
    """Return the reason of the decision before the answer."""
    return f"waits for approval: {decision.reason.removeprefix(PROMOTED)}"


def subject(decision: Decision, model: str) -> str:
    """Return the question in a line of plain text."""
    figures = decision.reason.removeprefix(PROMOTED)
    return f"Put a new version of {model} into production? {figures[:1].upper()}{figures[1:]}"


def question(
    decision: Decision,
    candidate: MetricsReport,
    production: MetricsReport | None,
    *,
    model: str,
    timeout: str,
    links: Mapping[str, str],
) -> str:
    """Return the question with all facts, in Markdown; special characters in names are escaped.

    Args:
        decision: Decision of the gate.
        candidate: Figures of the candidate.
        production: Figures of the model in production, on the same samples; None without such a model.
        model: Name of the model.
        timeout: Time limit of the answer, as the user wrote it.
        links: Name of a page -> address.
    """
    against = _text(decision.against or "production")
    gate_text = f"passed the comparison with the model in production ({against})."
    refusal_text = f"keeps {against}."
    if production is None:
        gate_text, refusal_text = (
            "has no other to be compared with. Nothing is in production yet.",
            "leaves the model without one.",
        )
    parts = [
        f"A model that was trained for **{_text(model)}** {gate_text}",
        _figures(candidate, production, against),
    ]
    if decision.comparison is not None:
        parts += [_gain(decision.comparison), _classes(decision.comparison)]
    parts += [
        " · ".join(f"[{name}]({address})" for name, address in links.items()),
        f"**Approve** puts it into production. **Reject**, or no answer within {timeout}, {refusal_text}",
    ]
    return "\n\n".join(part for part in parts if part)


def _figures(candidate: MetricsReport, production: MetricsReport | None, against: str) -> str:
    columns = [("new", candidate)] + ([] if production is None else [(f"production ({against})", production)])
    if classes_of(candidate) is None:
        rows = [
            (
                row.label,
                [
                    {row_of_metrics.name: row_of_metrics.text() for row_of_metrics in metrics.rows()}.get(row.name, "-")
                    for _, metrics in columns
                ],
            )
            for row in candidate.rows()
        ]
    else:
        rows = _accuracies([metrics for _, metrics in columns])
    rows.append(("images/s", [_speed(metrics) for _, metrics in columns]))
    head = f"| {candidate.n_samples:,} samples | " + " | ".join(name for name, _ in columns) + " |"
    return "\n".join([head, "| --- |" + " --- |" * len(columns), *_rows(rows)])


def _accuracies(columns: list[MetricsReport]) -> list[tuple[str, list[str]]]:
    rows = [
        (
            "accuracy (95 % interval)",
            [f"{metrics.main.text()} [{interval_text(metrics.main, between=', ')}]" for metrics in columns],
        )
    ]
    class_metrics = [classes_of(metrics) for metrics in columns]
    if class_metrics[0] is not None and class_metrics[0].top5 is not None:
        rows.append(("top-5 accuracy", [share_text(metrics.top5 if metrics else None) for metrics in class_metrics]))
    rows.append(("loss", [f"{metrics.loss:.4g}" for metrics in columns]))
    return rows


def _gain(comparison: Comparison) -> str:
    groups = "" if comparison.n_groups is None else f" ({comparison.n_groups:,} groups of samples)"
    if comparison.figures is not None:
        candidate_figure, production_figure = comparison.figures
        return (
            f"Gain: **{candidate_figure.label} {candidate_figure.text()} against {production_figure.text()}**; "
            f"{comparison.gain:.4g} less error a sample, "
            f"{_interval(comparison, '.4g', 1)}, {p_text(comparison.p_value)}{groups}. The error "
            f"of {comparison.n_gained:,} samples is smaller with the new model, of {comparison.n_lost:,} with "
            "production's."
        )
    if comparison.metric == "loss":
        gain = f"{comparison.gain:.4g} less loss, {_interval(comparison, '.4g', 1)}"
    else:
        measure = "accuracy" if comparison.metric == "top1" else "top-5 accuracy"
        gain = f"{100 * comparison.gain:+.1f} points of {measure}, {_interval(comparison, '+.1f', 100)}"
    return (
        f"Gain: **{gain}**, {p_text(comparison.p_value)}{groups}. "
        f"{comparison.n_gained:,} samples are right with the new model alone, {comparison.n_lost:,} with production's."
    )


def _interval(comparison: Comparison, form: str, factor: int) -> str:
    if comparison.interval is None:
        return "too few groups for an interval"
    low, high = (format(factor * bound, form) for bound in comparison.interval)
    return f"{100 * comparison.interval_level:.3g} % interval {low} to {high}"


def _classes(comparison: Comparison) -> str:
    changed = changed_classes(comparison)
    if not changed:
        return ""
    rows = [
        (_text(change.name), [f"{change.n_samples:,}", share_text(change.candidate), share_text(change.production)])
        for change in changed[:CLASSES_SHOWN]
    ]
    head = ["| classes that changed most | samples | new | production |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *_rows(rows)])


def _rows(rows: list[tuple[str, list[str]]]) -> list[str]:
    return [f"| {name} | " + " | ".join(values) + " |" for name, values in rows]


def _speed(metrics: MetricsReport) -> str:
    return "-" if metrics.speed is None else f"{metrics.speed.images_per_s:,.0f}"


def _text(name: str) -> str:
    r"""Return a name as Markdown, with special characters escaped.

    Example:
        >>> print(_text("[a](b)\n|"))
        \[a\]\(b\) \|
    """
    return _MARKUP.sub(r"\\\1", " ".join(name.split()))
