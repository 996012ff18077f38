"""Results in a store: given to functions as they are, and refused by what opens files of the disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import deepspark_ops as ds
from deepspark_ops.api.results.prediction_inputs import prediction_input
from deepspark_ops.api.results.predictions import Predictions
from deepspark_ops.api.signatures import config_from_call
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.stores.store_path import data_path


@pytest.fixture
def dataset(written: Callable[[str, bytes], Path]) -> ds.Dataset:
    written("b/sets/pets/dataset.json", b"{}")
    return ds.Dataset("s3://b/sets/pets")


@pytest.mark.parametrize("opened", [open, os.fspath])  # Path has a message of its own since Python 3.12
def test_a_dataset_in_a_store_is_no_path_of_the_disk(dataset: ds.Dataset, opened: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match="s3://b/sets/pets is in a store"):
        opened(dataset)
    with pytest.raises(TypeError, match=r"s3://b/a\.parquet is in a store"):
        opened(Predictions(data_path("s3://b/a.parquet")))


def test_functions_take_a_dataset_in_a_store_and_its_folder(dataset: ds.Dataset, tmp_path: Path) -> None:
    for value in (dataset, dataset.folder, "s3://b/sets/pets"):
        config = config_from_call(
            TrainConfig, {"solver": tmp_path / "s.prototxt", "dataset": value, "run_dir": tmp_path}
        )
        assert config.dataset == data_path("s3://b/sets/pets")
        assert prediction_input(value, tmp_path) == {"input": data_path("s3://b/sets/pets")}
    assert ds.open(dataset.folder) == ds.open(dataset) == dataset


def test_other_results_are_on_a_disk() -> None:
    with pytest.raises(ds.ConfigError, match="s3://b/run: a run is on a disk, not in a store"):
        ds.Run("s3://b/run")
