"""Nets that the virtual runs of a file share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.train.shared_nets import nets_compiled_once


@pytest.fixture(scope="module", autouse=True)
def _nets_are_compiled_once() -> Iterator[None]:
    with nets_compiled_once():
        yield
