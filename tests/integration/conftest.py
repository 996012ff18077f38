"""Fixtures of this folder: the small dataset of several files, and settings that leave out slow parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deepspark_ops.evaluate import scoring
from tests.integration.small_run import make_dataset


@pytest.fixture(scope="module", autouse=True)
def _speed_by_five_passes() -> Iterator[None]:
    """An evaluation in this process times its net for five passes instead of for a second: no test reads the figure.

    ``tests/unit/deepspark_ops/evaluate/test_scoring.py`` tests ``measure_speed``, with other stretches.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "SPEED_STRETCH_S", 1e-6)
        yield


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("dataset")
    make_dataset(root)
    return root
