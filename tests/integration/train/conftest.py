"""The small dataset that several files train on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.small_run import make_dataset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("dataset")
    make_dataset(root, n_train=64)
    return root
