from __future__ import annotations

import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.run_index.filter_language import FIELDS, Condition, parse_filter
from deepspark_ops.run_index.listing import KnownRun, row_of
from deepspark_ops.run_index.summary import RunSummary

DAY = 1_795_651_200.0
"""2026-11-26, UTC."""


def row(run, *, state="success", seconds=60.0, **fields):
    known_run = KnownRun(
        "deepspark_train", run, state, when=DAY + 3600.0, began=100.0, ended=100.0 + seconds, user="Ada"
    )
    return row_of(known_run, RunSummary(**fields), now=500.0)


LENET = row("lenet", net="LeNet", n_workers=2, accuracy=0.98, tau="4", tags=("base line", "v2"), clock=1500, loss=0.1)
ALEX = row("alex", net="AlexNet", n_workers=8, accuracy=0.90, tau="auto", seconds=7200.0, archived=True)
EMPTY = row("empty", state="failed", error="no such file")
ROWS = [LENET, ALEX, EMPTY]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["lenet", "alex", "empty"]),
        ("accuracy>0.97 and workers=2 and net~lenet", ["lenet"]),
        ("accuracy > 97%", ["lenet"]),
        ("accuracy>=0.9 && accuracy<=90%", ["alex"]),
        ("net=alexnet", ["alex"]),
        ("net~NET AND workers<8", ["lenet"]),
        ("net!~lenet", ["alex", "empty"]),
        ("net!=LeNet", ["alex", "empty"]),
        ("workers!=2", ["alex", "empty"]),
        ("workers>1", ["lenet", "alex"]),
        ('tag="base line"', ["lenet"]),
        ("tags~base", ["lenet"]),
        ("tag!=v2", ["alex", "empty"]),
        ("tau=4", ["lenet"]),
        ("tau<=10", ["lenet"]),
        ("clock>1,000", ["lenet"]),
        ("duration>=2h", ["alex"]),
        ("duration<2min", ["lenet", "empty"]),
        ("duration=7200", ["alex"]),
        ("when=2026-11-26", ["lenet", "alex", "empty"]),
        ("when>2026-11-26", []),
        ("archived=yes", ["alex"]),
        ("archived!=yes", ["lenet", "empty"]),
        ("state=failed and error~'such file'", ["empty"]),
        ("who=ada and loss<1", ["lenet"]),
    ],
)
def test_a_filter_chooses_the_rows_that_fit_every_condition(text, expected):
    conditions = parse_filter(text)
    checks = [condition.check() for condition in conditions]
    assert [chosen_row["run"] for chosen_row in ROWS * 2 if all(check(chosen_row) for check in checks)] == expected * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("acuracy>0.9", 'filter: there is no field "acuracy"; the nearest is accuracy'),
        ("worker=2", 'filter: there is no field "worker"; the nearest is workers'),
        ("zzz=2", 'filter: there is no field "zzz"; known: name, tag, note,'),
        ("accuracy>high", "filter: accuracy>high: the value is a number, e.g. 0.97 or 97%"),
        ("when>today", "filter: when>today: the value is a day, e.g. 2026-11-26"),
        ("duration>2weeks", "filter: duration>2weeks: the value is a number, e.g. 90, 90s, 15min or 2h"),
        ("archived=maybe", "filter: archived=maybe: the value is yes or no"),
        ("net>lenet", "filter: net>lenet: the operators of net are = != ~ !~"),
        ("accuracy~9", "filter: accuracy~9: the operators of accuracy are = != > >= < <="),
        ("lenet", 'filter: "lenet" is no condition: write a field, an operator and a value'),
        ("net=a or net=b", 'filter: "or net=b" follows a condition: write "and" between two conditions'),
        ("net=a and", 'filter: "" is no condition'),
        ("net=", 'filter: "net=" is no condition'),
    ],
)
def test_a_mistake_is_told_in_a_line_with_the_nearest_field_or_what_is_allowed(text, message):
    with pytest.raises(ConfigError) as refused:
        parse_filter(text)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_every_field_is_a_key_of_a_row():
    assert {field.key for field in FIELDS.values()} <= set(LENET)
    assert Condition("figure", "!=", 1.0).check()(LENET)
