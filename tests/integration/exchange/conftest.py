"""Every module of this folder leaves no center behind in shared memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="module")
def _no_center_stays() -> Iterator[None]:
    yield
    mine = [p.name for p in Path("/dev/shm").glob(f"deepspark-*-{os.getpid()}-*")]
    assert mine == []
