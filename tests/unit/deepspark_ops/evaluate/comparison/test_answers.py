import numpy as np
import pytest

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.evaluate.comparison.answers import Comparison, compare_samples
from tests.reference.evaluations import answers_with, evaluation
from tests.reference.slow_paired import listed_mcnemar_p

LABELS = [0, 0, 0, 1, 1, 1, 1, 2, 2, 2]


def test_counts_and_classes_equal_a_loop_over_the_samples():
    generator = np.random.default_rng(8)
    labels = generator.integers(0, 4, 60)
    mine, production = (np.where(generator.random(60) < 0.7, labels, generator.integers(0, 4, 60)) for _ in range(2))
    comparison = compare_samples(
        evaluation(mine, labels, n_classes=4).samples,
        evaluation(production, labels, n_classes=4).samples,
        metric="top1",
        confidence=0.9,
        class_names=("a", "b"),
    )
    rows = list(zip(labels.tolist(), mine.tolist(), production.tolist(), strict=True))
    gained = sum(m == k != t for k, m, t in rows)
    lost = sum(t == k != m for k, m, t in rows)
    assert (comparison.n_gained, comparison.n_lost) == (gained, lost)
    assert comparison.gain == pytest.approx((gained - lost) / 60)
    assert (comparison.candidate, comparison.production) == (
        sum(m == k for k, m, _ in rows) / 60,
        sum(t == k for k, _, t in rows) / 60,
    )
    assert comparison.interval_level == 0.8
    assert [change.name for change in comparison.classes] == ["a", "b", "2", "3"]
    for change in comparison.classes:
        of_class = [(m == change.label, t == change.label) for k, m, t in rows if k == change.label]
        assert change.n_samples == len(of_class)
        assert change.candidate == sum(m for m, _ in of_class) / len(of_class)
        assert change.production == sum(t for _, t in of_class) / len(of_class)
        assert (change.n_gained, change.n_lost) == (
            sum(m and not t for m, t in of_class),
            sum(t and not m for m, t in of_class),
        )
        assert change.p_worse == listed_mcnemar_p(change.n_lost, change.n_gained)
        assert change.loss() == pytest.approx(change.production - change.candidate)


def test_loss_is_compared_by_sample():
    sure, unsure = (evaluation(LABELS, LABELS, n_classes=3, sureness=value).samples for value in (0.9, 0.8))
    comparison = compare_samples(sure, unsure, metric="loss", confidence=0.95)
    assert comparison.gain == pytest.approx(np.log(0.9 / 0.8))
    assert comparison.p_value == 1 / 10_001
    assert (comparison.n_gained, comparison.n_lost) == (0, 0)


def test_samples_that_production_never_saw_are_counted():
    mine = evaluation(LABELS, LABELS, n_classes=3, content=range(10)).samples
    known_content = np.array([0, 1, 2, 3, 99], np.uint64)
    assert compare_samples(mine, mine, metric="top1", confidence=0.9, known_content=known_content).n_new == 6
    assert compare_samples(mine, mine, metric="top1", confidence=0.9).n_new is None


def test_class_without_samples_has_no_share():
    samples = evaluation([0, 0], [0, 0], n_classes=2).samples
    change = compare_samples(samples, samples, metric="top1", confidence=0.9).classes[1]
    assert (change.n_samples, change.candidate, change.production, change.loss(), change.p_worse) == (
        0,
        None,
        None,
        0,
        1,
    )


def test_reads_back_equal():
    samples = evaluation(LABELS, LABELS, n_classes=3).samples
    comparison = compare_samples(samples, samples, metric="top1", confidence=0.9)
    assert Comparison.model_validate_json(comparison.model_dump_json()) == comparison


def test_other_samples_are_not_compared():
    mine = evaluation(LABELS, LABELS, n_classes=3).samples
    other = evaluation(LABELS, LABELS, n_classes=3, data="other").samples
    with pytest.raises(DataError) as caught:
        compare_samples(mine, other, metric="top1", confidence=0.9)
    assert str(caught.value) == (
        "the candidate was scored on other samples (sha256:same) than production (sha256:other); evaluate both on the "
        "same data"
    )
    fewer = evaluation(LABELS[:9], LABELS[:9], n_classes=3).samples
    with pytest.raises(DataError, match="10 samples count for the candidate and 9 for production"):
        compare_samples(mine, fewer, metric="top1", confidence=0.9)


def test_top5_of_few_classes_is_refused():
    samples = evaluation(LABELS, LABELS, n_classes=3).samples
    with pytest.raises(ConfigError, match=r"^metric=top5: not defined for 3 classes; allowed here: top1, loss$"):
        compare_samples(samples, samples, metric="top5", confidence=0.9)


def test_top5_counts_the_first_five():
    labels = np.arange(7)
    mine = evaluation(labels, labels, n_classes=7).samples
    production = evaluation(answers_with(labels, [0, 1], n_classes=7), labels, n_classes=7).samples
    # A wrong answer leaves the true class tied with five others behind it: sixth, by Caffe's ties the last of them.
    comparison = compare_samples(mine, production, metric="top5", confidence=0.9)
    assert (comparison.n_gained, comparison.n_lost, comparison.candidate, comparison.production) == (2, 0, 1.0, 5 / 7)
