"""The gate for what is no classification: the task's figure in its direction, and the samples' own errors."""

import numpy as np
import pytest

from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.registry.approval import question
from deepspark_ops.registry.gate import decide
from tests.reference.evaluations import evaluation, of_task

N = 200
TRUE = np.random.default_rng(1).normal(size=(N, 1))
NOISE = np.random.default_rng(2).normal(size=(N, 1))


def task_evaluation(answers, *, task="regression", targets=TRUE):
    return of_task(answers, targets, task=task)


BAD, GOOD = task_evaluation(TRUE + NOISE), task_evaluation(TRUE + 0.5 * NOISE)


def test_a_smaller_error_goes_in_and_a_larger_one_does_not():
    decision = decide(GOOD, BAD, PromoteConfig())
    assert (decision.promotes, decision.metric) == (True, "main")
    assert (decision.candidate, decision.production) == (GOOD.metrics.main.value, BAD.metrics.main.value)
    comparison = decision.comparison
    assert (comparison.n_gained, comparison.n_lost, comparison.classes) == (N, 0, ())
    assert comparison.gain == pytest.approx((NOISE**2).mean() * 0.75)
    assert decision.reason.startswith("promoted: RMSE ")
    of_worse = decide(BAD, GOOD, PromoteConfig())
    assert not of_worse.promotes
    assert of_worse.reason.endswith("; only a better model goes in")


def test_the_first_goes_in_without_another():
    decision = decide(BAD, None, PromoteConfig())
    assert decision.reason == f"promoted: RMSE {BAD.metrics.main.text()}; no model was in production"


def test_luck_does_not_go_in():
    lucky = task_evaluation(TRUE + NOISE * np.where(np.arange(N)[:, None] == 0, 0.99, 1.0))
    decision = decide(lucky, BAD, PromoteConfig())
    assert not decision.promotes
    assert decision.reason.endswith("at least 95 % confidence is needed")


def test_the_gain_asked_for_is_in_the_figures_unit():
    gain = BAD.metrics.main.value - GOOD.metrics.main.value
    assert decide(GOOD, BAD, PromoteConfig(min_gain=gain * 0.99)).promotes
    decision = decide(GOOD, BAD, PromoteConfig(min_gain=gain * 1.01))
    assert "min_gain asks for at least" in decision.reason
    assert decision.reason.endswith("of RMSE")


def test_higher_is_better_where_it_is():
    truth = (TRUE > 0).astype(float)
    sure, unsure = (
        task_evaluation(np.where(truth == 1, p, 1 - p), task="multi_label", targets=truth) for p in (0.9, 0.5)
    )
    assert decide(sure, unsure, PromoteConfig()).promotes
    assert not decide(unsure, sure, PromoteConfig()).promotes


def test_metrics_of_classes_and_nets_of_another_task_are_refused():
    with pytest.raises(
        ConfigError, match=r"^metric=top1: not defined for a regression; allowed here: main \(RMSE\), loss$"
    ):
        decide(GOOD, BAD, PromoteConfig(metric="top1"))
    labels = [0, 1] * (N // 2)
    classes = evaluation(labels, labels)
    with pytest.raises(DataError, match="scored as regression, production as classification"):
        decide(GOOD, classes, PromoteConfig())


def test_what_a_person_is_asked_names_the_tasks_figures():
    decision = decide(GOOD, BAD, PromoteConfig(), against="v3")
    text = question(decision, GOOD.metrics, BAD.metrics, model="m", timeout="1 h", links={})
    assert f"| RMSE | {GOOD.metrics.main.text()} | {BAD.metrics.main.text()} |" in text
    assert f"RMSE {GOOD.metrics.main.text()} against {BAD.metrics.main.text()}" in text
    assert "accuracy" not in text
