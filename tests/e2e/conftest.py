"""Fixtures of the tests that run DAGs: the session's Airflow, and an example for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Page
from tests.e2e.airflow_instance import AirflowInstance
from tests.e2e.shared_airflow import started_airflow
from tests.e2e.small_example import SmallExample


@pytest.fixture(scope="session")
def airflow() -> AirflowInstance:
    """The one Airflow of this session, up; see airflow_instance.py."""
    return AirflowInstance(*started_airflow())


@pytest.fixture
def example(tmp_path: Path) -> SmallExample:
    """A net, a solver and data of the test's own."""
    return SmallExample(tmp_path).write()


@pytest.fixture
def page(opened: Page) -> Iterator[Page]:
    """The page that a module has opened; the console must stay free of errors."""
    opened.troubles.clear()
    yield opened
    assert opened.troubles == []
