import pytest

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "is_in_spark"),
    [
        ({}, False),
        ({"master": "local[2]"}, True),
        ({"engine": "spark"}, True),
        ({"engine": "spark", "master": "spark://h:7077"}, True),
        ({"engine": "process"}, False),
    ],
)
def test_the_engine_says_where_samples_are_scored(options, is_in_spark):
    assert parse_config(EvaluateConfig, {"run_dir": "r", **options}).is_in_spark == is_in_spark


def test_a_process_with_a_master_is_refused():
    with pytest.raises(ConfigError, match="engine=process, master=local: a process needs no master"):
        parse_config(EvaluateConfig, {"run_dir": "r", "engine": "process", "master": "local"})
