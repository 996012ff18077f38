import json

import numpy as np
import pytest

from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.registry.gate import Decision, decide
from deepspark_ops.shards.manifest import SplitRule
from tests.reference.evaluations import answers_with, evaluation

LABELS = np.arange(359) % 10
HASH = SplitRule(by="name_hash", seed=1, test_fraction=0.2)
NAMES = tuple(f"n{k}" for k in range(10))


def scored(*wrong, speed=None, **options):
    answers = answers_with(LABELS, wrong, n_classes=10)
    return evaluation(answers, LABELS, n_classes=10, names=NAMES, speed=speed, **options)


def with_options(config, **options):
    return PromoteConfig.model_validate({**config.model_dump(), **options})


def test_first_model_goes_in_unopposed(config):
    decision = decide(scored(*range(300)), None, config)
    assert decision.promotes
    assert decision.comparison is None
    assert decision.reason == "promoted: top1 16.4 %; no model was in production"


def test_one_sample_of_359_does_not_decide(config):
    decision = decide(scored(1, 2), scored(1, 2, 3), config)
    assert not decision.promotes
    assert decision.reason == (
        "kept production: +0.3 points on 359 samples, p = 0.50; at least 95 % confidence is needed"
    )
    assert decide(scored(1, 2), scored(1, 2, 3), with_options(config, confidence=0.5)).promotes


@pytest.mark.parametrize(
    ("mine", "production", "options", "promotes"),
    [
        # Gained and lost samples, and whether McNemar's exact p = P(X >= gained) is small enough: 4:0 0.0625, 5:0
        # 0.03125, 7:1 0.0352, 6:1 0.0625, 11:4 0.0592, 12:4 0.0384.
        ([], range(4), {}, False),
        ([], range(5), {}, True),
        ([20], range(7), {}, True),
        ([20], range(6), {}, False),
        (range(20, 24), range(11), {}, False),
        (range(20, 24), range(12), {}, True),
        ([], range(5), {"confidence": 0.97}, False),
        ([], range(4), {"confidence": 0.9}, True),
        # Nothing gained, or less.
        (range(5), range(5), {"confidence": 0.5}, False),
        (range(5), [], {"confidence": 0.5}, False),
        # 10 of 359 are 2.79 points.
        ([], range(10), {"min_gain": 0.027}, True),
        ([], range(10), {"min_gain": 0.028}, False),
        # Loss: 2 of 359 wrong answers cost log(9 * 9) each, in all resamples except those without a wrong answer.
        ([], range(2), {"metric": "loss"}, False),
        ([], range(12), {"metric": "loss"}, True),
        (range(12), [], {"metric": "loss"}, False),
    ],
)
def test_only_a_gain_beyond_chance_is_promoted(config, mine, production, options, promotes):
    assert decide(scored(*mine), scored(*production), with_options(config, **options)).promotes is promotes


@pytest.mark.parametrize(
    ("mine", "production", "options", "reason"),
    [
        ([], range(9), {}, "promoted: +2.5 points on 359 samples, p = 0.002"),
        (range(9), [], {}, "kept production: -2.5 points on 359 samples, p = 1.00; only a better model goes in"),
        ([3], [4], {}, "kept production: 0.0 points on 359 samples, p = 0.75; only a better model goes in"),
        (
            [],
            range(9),
            {"min_gain": 0.05},
            "kept production: +2.5 points on 359 samples, p = 0.002; min_gain asks for at least 5.0 points",
        ),
        (
            [],
            range(9),
            {"metric": "loss"},
            "promoted: loss 0.1054 against 0.2155 on 359 samples, p < 0.0001",
        ),
    ],
)
def test_reason_is_a_sentence_with_the_figures(config, mine, production, options, reason):
    assert decide(scored(*mine), scored(*production), with_options(config, **options)).reason == reason


def test_worse_class_keeps_production(config):
    # Production errs on 40 samples of nine classes; the candidate on 6 of the 36 of class 3 alone.
    production = [k for k in range(359) if k % 10 != 3][:40]
    mine = [k for k in range(359) if k % 10 == 3][:6]
    decision = decide(scored(*mine), scored(*production), config)
    assert decision.reason == (
        'kept production: +9.5 points on 359 samples, p < 0.0001, but class "n3" fell by 16.7 points on 36 samples '
        "(p = 0.02); max_class_loss allows 5.0 points; a larger one lets it in, or deepspark models promote --force"
    )
    assert decide(scored(*mine), scored(*production), with_options(config, max_class_loss=0.17)).promotes
    # Five samples of a class of 36 are within chance where ten classes are looked at: 0.03125 > 0.2 / 10.
    assert decide(scored(*mine[:5]), scored(*production), config).promotes


def test_a_class_that_production_answers_anyway_is_not_looked_at(config):
    # Production takes the samples of n other classes of nine for class 3, and so has all of class 3 right.
    mine = [k for k in range(359) if k % 10 == 3][:6]
    for n_taken, promotes in ((10, True), (6, True), (5, False)):
        answered_classes = [(3 + k) % 10 for k in range(n_taken)]
        production = evaluation(
            np.where(np.isin(LABELS, answered_classes), 3, LABELS), LABELS, n_classes=10, names=NAMES, sureness=0.9
        )
        decision = decide(scored(*mine), production, config)
        assert decision.promotes is promotes
        assert ('class "n3" fell by 16.7 points' in decision.reason) is not promotes


def test_slower_model_keeps_production(config):
    decision = decide(scored(speed=400.0), scored(*range(9), speed=1000.0), config)
    assert decision.reason == (
        "kept production: +2.5 points on 359 samples, p = 0.002, but it scores 400 images/s where production "
        "scores 1,000, 60 % less; max_slowdown allows 50 %"
    )
    assert decide(scored(speed=500.0), scored(*range(9), speed=1000.0), config).promotes
    assert decide(scored(speed=400.0), scored(*range(9)), config).promotes


def with_speed(evaluated, **fields):
    speed = evaluated.metrics.speed.model_copy(update=fields)
    object.__setattr__(evaluated, "metrics", evaluated.metrics.model_copy(update={"speed": speed}))
    return evaluated


@pytest.mark.parametrize(("slowest", "promotes"), [(None, False), (1000.0, False), (820.0, False), (800.0, True)])
def test_a_slowdown_within_the_spread_of_its_measurements_is_none(config, slowest, promotes):
    production = with_speed(scored(*range(9), speed=1000.0), slowest_images_per_s=slowest)
    decision = decide(scored(speed=400.0), production, config)
    assert decision.promotes is promotes
    if not promotes:
        assert "60 % less; max_slowdown allows 50 %" in decision.reason


@pytest.mark.parametrize(("batch_size", "promotes"), [(100, True), (160, True), (170, False)])
def test_less_than_a_millisecond_a_batch_is_no_slowdown(config, batch_size, promotes):
    # 100 samples of a tiny net in 1.1 ms and in 0.5 ms: much of it is the call's own time, and chance.
    mine = with_speed(scored(speed=90_000.0), batch_size=batch_size)
    production = with_speed(scored(*range(9), speed=200_000.0), batch_size=batch_size)
    assert decide(mine, production, config).promotes is promotes


def test_speeds_of_two_machines_are_not_compared(config):
    other = scored(*range(9), speed=1000.0)
    speed = other.metrics.speed.model_copy(update={"machine": "another"})
    object.__setattr__(other, "metrics", other.metrics.model_copy(update={"speed": speed}))
    assert decide(scored(speed=1.0), other, config).promotes


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (NAMES[:9], "kept production: the label set has changed: 10 classes, production has 9"),
        ((*NAMES[:9], "x"), 'kept production: the label set has changed: class 9 is "n9", in production "x"'),
    ],
)
def test_changed_label_set_keeps_production(config, labels, reason):
    assert decide(scored(), scored(*range(50)), config, production_labels=labels).reason == reason
    assert decide(scored(), scored(*range(50)), config, production_labels=NAMES).promotes


@pytest.mark.parametrize(
    ("now", "then", "keeps"),
    [
        (HASH, HASH, False),
        (HASH, None, False),
        (None, HASH, False),
        (HASH, SplitRule(by="name_hash", seed=1, test_fraction=0.3), False),
        (HASH, SplitRule(by="name_hash", seed=1, test_fraction=0.1), True),
        (HASH, SplitRule(by="name_hash", seed=2, test_fraction=0.2), True),
        (HASH, SplitRule(by="name_hash", seed=1, test_fraction=0.1, validation_fraction=0.1), False),
        (HASH, SplitRule(by="name_hash", seed=1, test_fraction=0.1, validation_fraction=0.05), True),
        (HASH, SplitRule(by="test_source"), True),
        (SplitRule(by="list", named="a"), SplitRule(by="list", named="a"), False),
        (SplitRule(by="list", named="a"), SplitRule(by="list", named="b"), True),
        (SplitRule(by="test_source"), SplitRule(by="test_source"), False),
    ],
)
def test_production_is_not_scored_on_what_it_was_trained_on(config, now, then, keeps):
    decision = decide(scored(split_rule=now), scored(*range(9), split_rule=now), config, production_split=then)
    assert decision.promotes is not keeps
    if keeps:
        assert decision.reason.startswith(
            "kept production: its training samples may be among these test samples, which were split off otherwise ("
            f"{now.text()}; when production was trained: {then.text()}); keep the split, or decide "
        )


def test_reason_says_how_many_samples_are_new(config):
    decision = decide(scored(), scored(*range(9)), config, known_content=np.arange(350).astype(np.uint64))
    assert decision.comparison.n_new == 9
    assert decision.reason == (
        "promoted: +2.5 points on 359 samples, p = 0.002 (9 of the samples are new since production was promoted)"
    )


def test_decision_reads_back_equal_and_old_ones_are_read(config):
    decision = decide(scored(speed=3.0), scored(*range(9)), config)
    assert Decision.model_validate_json(decision.model_dump_json()) == decision
    assert decision.format_version == 3
    old = {
        key: json.loads(decision.model_dump_json())[key] for key in ("promotes", "metric", "candidate", "production")
    }
    read = Decision.model_validate({**old, "dataset_digest": "sha256:1", "reason": "top1 0.9 against 0.8"})
    assert (read.format_version, read.comparison) == (1, None)


def test_scores_on_different_samples_are_not_compared(config):
    with pytest.raises(DataError, match="scored on other samples"):
        decide(scored(), scored(data="other"), config)


def test_metric_that_is_not_defined_is_refused(config):
    with pytest.raises(ConfigError, match=r"^metric=top5: not defined for 2 classes; allowed here: top1, loss$"):
        decide(evaluation([0], [0]), None, with_options(config, metric="top5"))
