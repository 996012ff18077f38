"""The question to a person before a promotion, and the decision after the answer."""

import pytest

from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.registry.approval import answered, gate_decision, question, subject, waiting_text
from deepspark_ops.registry.gate import Approval, Decision, decide
from tests.reference.evaluations import answers_with, evaluation

LABELS = [0, 1, 2] * 40
NAMES = ("cat", "[x](http://evil)|<b>", "dog")
LINKS = {"Report": "/deepspark/runs/d/r/report", "Training": "/deepspark/runs/d/r/training"}
FIGURES = "+9.2 points on 120 samples, p = 0.0005"


def scored(*wrong):
    answers = answers_with(LABELS, wrong, n_classes=3)
    return evaluation(answers, LABELS, n_classes=3, names=NAMES, speed=1000.0)


MINE, PRODUCTION = scored(1), scored(*range(12))
DECISION = decide(MINE, PRODUCTION, PromoteConfig(), against="v6")


def asked_text(decision=DECISION, production=PRODUCTION.metrics):
    return question(decision, MINE.metrics, production, model="digits", timeout="24 h", links=LINKS)


def answer(word, user="anna", comment=None):
    return Approval(answer=word, who=user, at="2026-11-22T12:00:00+00:00", comment=comment, asked=DECISION.reason)


def test_question_has_the_figures_that_a_person_decides_by():
    # The same numbers as in the report: Wilson's intervals, and Bonett and Price's of the gain.
    (low, high), (their_low, their_high) = MINE.metrics.top1_interval, PRODUCTION.metrics.top1_interval
    gain_low, gain_high = DECISION.comparison.interval
    assert asked_text() == (
        "A model that was trained for **digits** passed the comparison with the model in production (v6).\n\n"
        "| 120 samples | new | production (v6) |\n"
        "| --- | --- | --- |\n"
        f"| accuracy (95 % interval) | 99.2 % [{100 * low:.1f}, {100 * high:.1f}] "
        f"| 90.0 % [{100 * their_low:.1f}, {100 * their_high:.1f}] |\n"
        f"| loss | {MINE.metrics.loss:.4g} | {PRODUCTION.metrics.loss:.4g} |\n"
        "| images/s | 1,000 | 1,000 |\n\n"
        f"Gain: **+9.2 points of accuracy, 90 % interval {100 * gain_low:+.1f} to {100 * gain_high:+.1f}**, "
        "p = 0.0005. 11 samples are right with the new model alone, 0 with production's.\n\n"
        "| classes that changed most | samples | new | production |\n"
        "| --- | --- | --- | --- |\n"
        "| cat | 40 | 100.0 % | 90.0 % |\n"
        "| dog | 40 | 100.0 % | 90.0 % |\n"
        "| \\[x\\]\\(http\\:\\/\\/evil\\)\\|\\<b\\> | 40 | 97.5 % | 90.0 % |\n\n"
        "[Report](/deepspark/runs/d/r/report) · [Training](/deepspark/runs/d/r/training)\n\n"
        "**Approve** puts it into production. **Reject**, or no answer within 24 h, keeps v6."
    )
    assert subject(DECISION, "digits") == f"Put a new version of digits into production? {FIGURES}"


def test_question_about_a_first_model_compares_with_nothing():
    first = decide(MINE, None, PromoteConfig())
    text = asked_text(first, None)
    assert "| 120 samples | new |\n| --- | --- |\n| accuracy (95 % interval) | 99.2 % [" in text
    assert "Nothing is in production yet." in text
    assert text.endswith("**Reject**, or no answer within 24 h, leaves the model without one.")
    assert "Gain" not in text


def test_question_about_a_gain_in_loss_says_loss():
    by_loss = decide(MINE, PRODUCTION, PromoteConfig(metric="loss"), against="v6")
    assert f"Gain: **{by_loss.comparison.gain:.4g} less loss, 90 % interval " in asked_text(by_loss)


@pytest.mark.parametrize(
    ("approval", "promotes", "reason"),
    [
        (answer("approved"), True, f"promoted: {FIGURES}; approved by anna"),
        (answer("approved", comment="go"), True, f"promoted: {FIGURES}; approved by anna (go)"),
        (answer("refused"), False, f"kept production: refused by anna; {FIGURES}"),
        (answer("refused", comment="why"), False, f"kept production: refused by anna (why); {FIGURES}"),
        (answer("nobody", user=None), False, f"kept production: nobody approved within 24 h; {FIGURES}"),
    ],
)
def test_answer_makes_the_decision(approval, promotes, reason):
    decision = answered(DECISION, approval, timeout="24 h")
    assert (decision.promotes, decision.reason) == (promotes, reason)
    assert decision.comparison == DECISION.comparison
    assert Decision.model_validate_json(decision.model_dump_json()) == decision
    # Whoever is asked again is asked about the gate's decision, not about the last answer.
    assert gate_decision(decision) == DECISION
    assert gate_decision(DECISION) == DECISION


def test_until_there_is_an_answer_it_waits():
    assert waiting_text(DECISION) == f"waits for approval: {FIGURES}"
