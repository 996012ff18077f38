"""Numbers of workers: a number, a range, ``auto``."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.plan import PlanConfig
from deepspark_ops.config.shared_options.worker_count import WorkerRange
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError


def config(**values: Any) -> TrainConfig:
    return parse_config(TrainConfig, {"solver": "s", "run_dir": "r", **values})


@pytest.mark.parametrize(
    ("value", "most", "fewest"),
    [(3, 3, 1), ("3", 3, 1), ("4..16", 16, 4), ("4..4", 4, 4), ("auto", 64, 1), (WorkerRange("2..8"), 8, 2)],
)
def test_a_number_of_workers_is_read_and_written_alike(value: Any, most: int, fewest: int) -> None:
    read = config(n_workers=value)
    reread = parse_config(TrainConfig, json.loads(read.model_dump_json()))
    for each_config in (read, reread, copy.deepcopy(read), TrainConfig.model_validate(read.model_dump())):
        assert (each_config.n_workers, each_config.fewest_workers) == (most, fewest)
        assert isinstance(each_config.n_workers, WorkerRange) == (str(value) not in ("3",))


@pytest.mark.parametrize("value", [0, 10_001, "two", "", "4..", "..4", "-1..4", "4...5", 2.5, None, [4, 16]])
def test_another_number_of_workers_is_refused_with_what_is_allowed(value: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"^n_workers=.*: must be a whole number from 1 to 10000, a range like 4..16, or"
    ):
        config(n_workers=value)


@pytest.mark.parametrize("text", ["16..4", "0..4", "1..10001"])
def test_a_range_that_descends_or_leaves_the_bounds_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=rf"^n_workers='{text}': a range ascends, from 1 to 10000, e.g. 4..16$"):
        config(n_workers=text)


def test_a_range_and_another_smallest_number_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match=r"min_workers=6 and n_workers=4..16: give one, a range has both"):
        config(n_workers="4..16", min_workers=6)
    assert config(n_workers="4..16", min_workers=4).fewest_workers == 4
    assert config(n_workers="auto", min_workers=3).fewest_workers == 3


def test_the_planner_takes_a_range() -> None:
    assert parse_config(PlanConfig, {"solver": "s", "workers": "1,4..20"}).worker_counts == (1, 4, 8, 16, 20)
    with pytest.raises(ConfigError, match="each must be 1 to 100000"):
        parse_config(PlanConfig, {"solver": "s", "workers": "0..4"})
