from __future__ import annotations

import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.strategies.base import configure
from deepspark_ops.exchange.strategies.deepspark_param import DeepSparkParam, parse_deepspark_param

FILE = """\
period: 50
moving_rate: 0.1

# decay_rate: 0.1
decay_step: 1010  # minibatches of one worker

server_factor: 1
factor_decay_step: 10000 factor_decay_rate: 0.1
factor_decay_limit: 1
"""


def test_steps_become_exchanges() -> None:
    found = parse_deepspark_param(FILE, n_workers=4)
    assert found == DeepSparkParam(
        50,
        0.1,
        {
            "decay_step": 20,
            "server_factor": 1.0,
            "factor_decay_step": 800,
            "factor_decay_rate": 0.1,
            "factor_decay_limit": 1,
        },
    )
    configure("deepspark", found.options)


def test_negative_step_means_never_as_in_deepspark() -> None:
    found = parse_deepspark_param("period: 5 moving_rate: 0.1 decay_step: -1", n_workers=2)
    assert found.options == {"decay_step": 0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("moving_rate: 0.1", 'p.prototxt: "period" is missing; DeepSpark requires period, moving_rate'),
        ("period: 0 moving_rate: 1", "p.prototxt: period=0: must be at least 1"),
        ("period: x", 'p.prototxt:1: period is "x"; expected an integer'),
        ("period: 1\nmoving_rate: fast", 'p.prototxt:2: moving_rate is "fast"; expected a number'),
        ("period: 1\nperiod: 2", 'p.prototxt:2: "period" is given twice'),
        ("period 1", 'p.prototxt:1: "period" is not of the form "name: value"'),
        (
            "periode: 1",
            'p.prototxt:1: unknown field "periode"; allowed: period, moving_rate, decay_limit, decay_rate, decay_step,'
            " factor_decay_limit, factor_decay_rate, factor_decay_step, loss_budget, server_factor;"
            ' did you mean "period"?',
        ),
    ],
)
def test_errors_name_line_finding_and_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_deepspark_param(text, n_workers=2, path="p.prototxt")
    assert str(caught.value) == message
