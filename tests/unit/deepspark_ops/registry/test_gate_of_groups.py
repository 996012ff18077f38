"""Production moves by what the groups of samples say, whatever the net is for."""

from dataclasses import replace

import numpy as np
import pytest

from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.evaluate.evaluation_folder import Evaluated
from deepspark_ops.registry.gate import Decision, decide
from tests.reference.evaluations import answers_with, evaluation, of_pairs, of_task

N_GROUPS, SIZE = 8, 20
N = N_GROUPS * SIZE
LABELS = np.arange(N) % 2
GROUPS = np.repeat(np.arange(N_GROUPS, dtype=np.uint64), SIZE)


def in_groups(evaluated: Evaluated, groups=GROUPS) -> Evaluated:
    return Evaluated(evaluated.metrics, replace(evaluated.samples, group=groups))


def classifier(wrong):
    return evaluation(answers_with(LABELS, wrong), LABELS)


def top5(wrong):
    """Ten classes; what is wrong here is not among the first five."""
    labels = np.arange(N) % 10
    evaluated = evaluation(labels, labels, n_classes=10)
    ranks = np.where(np.isin(np.arange(N), list(wrong)), 7, 0).astype(np.int32)
    answers = replace(evaluated.samples.classes(), rank=ranks)
    return Evaluated(evaluated.metrics, replace(evaluated.samples, answers=answers))


def of_errors(task):
    def with_errors(wrong):
        is_wrong = np.isin(np.arange(N), list(wrong))
        if task == "embedding":
            return of_pairs(np.where(is_wrong, 0.9, 0.1), np.ones(N))
        wrong_answer, right_answer = (0.4, 0.9) if task == "multi_label" else (2.0, 1.0)
        return of_task(np.where(is_wrong, wrong_answer, right_answer)[:, None], np.ones((N, 1)), task=task)

    return with_errors


CASES = {
    "top1": (classifier, "main"),
    "top5": (top5, "top5"),
    "loss": (classifier, "loss"),
    "regression": (of_errors("regression"), "main"),
    "regression_by_loss": (of_errors("regression"), "loss"),
    "multi_label": (of_errors("multi_label"), "loss"),
    "embedding": (of_errors("embedding"), "loss"),
}


@pytest.fixture
def config(tmp_path):
    return PromoteConfig(models=tmp_path / "models", model="m", max_class_loss=1.0)


@pytest.mark.parametrize("case", CASES)
def test_a_gain_in_two_groups_is_chance_and_one_in_all_is_not(config, case):
    evaluated_with, metric = CASES[case]
    config = config.model_copy(update={"metric": metric})
    in_two = np.flatnonzero(GROUPS >= N_GROUPS - 2)
    everywhere = np.arange(N) % 4 == 0
    for wrong, promotes in ((in_two, False), (np.flatnonzero(everywhere), True)):
        by_sample = decide(evaluated_with([]), evaluated_with(wrong), config)
        assert by_sample.promotes
        assert by_sample.comparison.n_groups is None
        decision = decide(in_groups(evaluated_with([])), in_groups(evaluated_with(wrong)), config)
        assert decision.promotes is promotes, decision.reason
        assert decision.comparison.n_groups == N_GROUPS
        assert f"on {N} samples of {N_GROUPS} groups, p = " in decision.reason
        assert Decision.model_validate_json(decision.model_dump_json()) == decision


def test_few_groups_never_show_a_gain(config):
    groups = np.repeat(np.arange(4, dtype=np.uint64), N // 4)
    decision = decide(in_groups(classifier([]), groups), in_groups(classifier(range(0, N, 2)), groups), config)
    assert not decision.promotes
    assert decision.comparison.interval is None
    assert decision.reason == (
        "kept production: +50.0 points on 160 samples of 4 groups, p = 0.06; so few groups cannot show a gain beyond "
        "chance: at least 5 are needed for 95 % confidence"
    )


def test_one_evaluation_with_groups_is_enough(config):
    """Production's may be of an earlier version."""
    decision = decide(classifier([]), in_groups(classifier(np.flatnonzero(GROUPS == 3))), config)
    assert (decision.promotes, decision.comparison.n_groups) == (False, N_GROUPS)


def test_a_class_that_is_worse_in_one_group_alone_keeps_nothing_back(config):
    config = config.model_copy(update={"max_class_loss": 0.05})
    in_one = np.flatnonzero((GROUPS == 0) & (np.arange(N) % 4 == 1))
    in_half_of_the_others = np.flatnonzero((GROUPS > 0) & (np.arange(N) % 4 == 0))
    mine, production = classifier(in_one), classifier(in_half_of_the_others)
    assert "class" in decide(mine, production, config).reason
    decision = decide(in_groups(mine), in_groups(production), config)
    assert decision.promotes, decision.reason
