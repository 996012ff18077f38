"""Fixtures of every test of a single module."""

import os

import pytest


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync nothing: thousands of small files would wait for the disk longer than the tests compute."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
