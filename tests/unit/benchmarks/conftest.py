"""The script of ``benchmarks/`` that a module tests."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.unit.benchmarks.benchmark_script import loaded


@pytest.fixture(scope="module")
def script(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The module that ``SCRIPT`` of the test module names."""
    with loaded(request.module.SCRIPT) as module:
        yield module
