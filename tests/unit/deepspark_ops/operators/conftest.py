"""The folders of an installation whose small example can be trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepspark_ops.operators.tasks.run_plan import Places
from tests.e2e.small_example import SmallExample


@pytest.fixture
def locations(tmp_path: Path) -> Places:
    SmallExample(tmp_path).write()
    return Places(tmp_path, tmp_path / "home")
