"""Versions of Python and of installed distributions, of this process and of another host's process. No framework."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

COMPARED = ("tensorflow", "numpy", "deepspark")
"""Distributions that driver and workers of a training share; pyspark is compared by Spark."""


def installed_versions(*distributions: str) -> dict[str, str]:
    """Return name -> version of the installed distributions."""
    versions = {}
    for name in distributions:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def running_versions() -> dict[str, str]:
    """Return name -> version of Python and of the distributions in ``COMPARED``."""
    return {"Python": platform.python_version(), **installed_versions(*COMPARED)}


def differing_names(versions: Mapping[str, str], other_versions: Mapping[str, str]) -> list[str]:
    """Return the names whose versions differ, in the order of ``versions``; a name of one side is left out.

    Example:
        >>> differing_names({"numpy": "2.3.1", "tensorflow": "2.21.0"}, {"numpy": "2.3.4", "pyspark": "4.0.1"})
        ['numpy']
    """
    return [name for name, number in versions.items() if other_versions.get(name) not in (None, number)]
