from datetime import timedelta

import pytest

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.promote import ApprovalConfig
from deepspark_ops.config.shared_options.durations import length_of
from deepspark_ops.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"), [("30 s", 30), ("90 min", 5400), ("24 h", 86400), ("2 d", 172800), (" 0.5h ", 1800)]
)
def test_a_number_and_a_unit(text, seconds):
    assert length_of(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["24", "h", "24 hours", "-1 h", "1 h 30 min", ""])
def test_anything_else_is_refused_with_what_is_allowed(text):
    with pytest.raises(ConfigError) as refused:
        parse_config(ApprovalConfig, {"approval_timeout": text})
    allowed = "must be a length of time with its unit: 30 s, 90 min, 24 h or 2 d"
    assert str(refused.value) == f"approval_timeout={text!r}: {allowed}"


@pytest.mark.parametrize("text", ["0 s", "366 d", "9" * 400 + " d"])
def test_no_time_and_more_than_a_year_are_refused(text):
    with pytest.raises(ConfigError, match="must be above zero and at most 365 d"):
        parse_config(ApprovalConfig, {"approval_timeout": text})
