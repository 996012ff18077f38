"""The small dataset of several files, and the nets that the runs of a file share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.small_run import make_dataset


@pytest.fixture(scope="module", autouse=True)
def _nets_are_compiled_once() -> Iterator[None]:
    from tests.integration.train.shared_nets import nets_compiled_once  # TensorFlow

    with nets_compiled_once():
        yield


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("dataset")
    make_dataset(root, n_train=64)
    return root
