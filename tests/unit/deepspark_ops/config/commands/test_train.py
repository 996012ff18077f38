from __future__ import annotations

from pathlib import Path

from deepspark_ops.config.base import parse_config
from deepspark_ops.config.commands.train import NamedTrainConfig
from deepspark_ops.config.flat_fields import config_from_fields
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.train.setup.strategy_plan import training_identity

VALUES = {"solver": Path("s.prototxt"), "run_dir": Path("run"), "n_workers": 4, "master": "local[2]"}


def test_a_training_has_the_same_config_whatever_its_name_is():
    training = parse_config(TrainConfig, VALUES)
    for label in ({}, {"name": "a", "tags": "b,c"}):
        named = config_from_fields(NamedTrainConfig, {**VALUES, **label})
        assert type(named.training()) is TrainConfig
        assert named.training() == training
        assert named.training().model_dump_json() == training.model_dump_json()
        assert named.training().is_in_spark == training.is_in_spark
        assert training_identity(named.training()) == training_identity(training)
    assert named.label.tag_words() == ("b", "c")
