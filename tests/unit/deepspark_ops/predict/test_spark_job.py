"""Refusals of predictions by Spark before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.predict import PredictConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.predict.spark_job import check_output


def test_an_output_in_a_store_is_refused(tmp_path: Path) -> None:
    values = {"bundle": tmp_path, "input": tmp_path, "output": "s3://bucket/answers", "master": "local[2]"}
    with pytest.raises(ConfigError, match="output=s3://bucket/answers: with Spark the output is a folder"):
        check_output(parse_config(PredictConfig, values))
