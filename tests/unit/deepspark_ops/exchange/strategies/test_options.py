from __future__ import annotations

import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.options import StrategyOptions, parse_strategy_options


def parse(name: str, text: str) -> StrategyOptions:
    return parse_strategy_options(name, text, n_workers=4)


def test_values_get_the_options_kind() -> None:
    assert parse("staleness", "count_own: true; push_scale: 1").options == {"count_own": True, "push_scale": 1.0}
    assert parse("softsync", "# three\nupdates_per_apply: 3").options == {"updates_per_apply": 3}
    assert parse("easgd", "  ").options == {}


def test_the_option_file_of_deepspark_is_read_unchanged() -> None:
    options = parse("deepspark", "period: 50\nmoving_rate: 0.1 decay_rate: 0.5\nfactor_decay_step: 10000")
    assert options == StrategyOptions({"decay_rate": 0.5, "factor_decay_step": 800}, 50, 0.1)


def test_steps_of_deepsparks_file_become_exchanges() -> None:
    text = """\
period: 50
moving_rate: 0.1

# decay_rate: 0.1
decay_step: 1010  # minibatches of one worker

server_factor: 1
factor_decay_step: 10000 factor_decay_rate: 0.1
factor_decay_limit: 1
"""
    expected = {"decay_step": 20, "server_factor": 1.0, "factor_decay_step": 800, "factor_decay_rate": 0.1}
    assert parse("deepspark", text) == StrategyOptions({**expected, "factor_decay_limit": 1}, 50, 0.1)


def test_negative_step_means_never_as_in_deepspark() -> None:
    assert parse("deepspark", "period: 5 moving_rate: 0.1 decay_step: -1").options == {"decay_step": 0}


def test_deepsparks_options_without_its_period_count_exchanges() -> None:
    assert parse("deepspark", "decay_step: 30 decay_rate: 0.5") == StrategyOptions(
        {"decay_step": 30, "decay_rate": 0.5}
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("esgd", "", 'strategy "esgd" is unknown'),
        (
            "local_sgd",
            "block_rate: 1\nblok_momentum: 0.5",
            'strategy_options:2: option "blok_momentum" of strategy local_sgd is unknown; allowed: block_momentum,'
            ' block_rate; did you mean "block_momentum"?',
        ),
        (
            "sync",
            "tau: 3",
            'strategy_options:1: option "tau" of strategy sync is unknown; allowed: none, sync has no options of its'
            " own",
        ),
        (
            "sync",
            "center: tree",
            'strategy_options:1: option "center" of strategy sync is unknown; allowed: none, sync has no options of its'
            " own; strategies with center: eamsgd, easgd",
        ),
        ("softsync", "updates_per_apply: 1.5", 'strategy_options:1: updates_per_apply is "1.5"; expected an integer'),
        ("staleness", "count_own: 1", 'strategy_options:1: count_own is "1"; expected true or false'),
        ("downpour", "push_scale: half", 'strategy_options:1: push_scale is "half"; expected a number'),
        ("downpour", "push_scale: 2", "strategy_options: push_scale=2: must be in [0, 1]; 0 means 1/n_workers"),
        ("downpour", "push_scale", 'strategy_options:1: "push_scale" is not of the form "name: value"'),
        (
            "deepspark",
            "period: 3",
            'strategy_options: "moving_rate" is missing; DeepSpark requires period, moving_rate',
        ),
        ("deepspark", "moving_rate: 0.1", 'strategy_options: "period" is missing'),
        ("deepspark", "period: 0 moving_rate: 1", "strategy_options: period=0: must be at least 1"),
        ("deepspark", "period: x", 'strategy_options:1: period is "x"; expected an integer'),
        ("deepspark", "period: 1\nmoving_rate: fast", 'strategy_options:2: moving_rate is "fast"; expected a number'),
        ("deepspark", "period: 1\nperiod: 2", 'strategy_options:2: "period" is given twice'),
        (
            "deepspark",
            "periode: 1",
            'strategy_options:1: option "periode" of strategy deepspark is unknown; allowed: period, moving_rate,'
            " decay_rate, decay_step, decay_limit, server_factor, factor_decay_rate, factor_decay_step,"
            ' factor_decay_limit, loss_budget; did you mean "period"?',
        ),
    ],
)
def test_mistakes_are_told_by_field_with_what_is_allowed(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(name, text)
    assert message in str(caught.value)
