"""The client that tests of several pages ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.airflow.page_runs import pages_client


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Any]:
    with pages_client(tmp_path) as pages:
        yield pages
