"""Loads a benchmark's script as a module; ``benchmarks`` is a folder of scripts, not a package."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from tests.paths import ROOT

BENCHMARKS = ROOT / "benchmarks"


@contextmanager
def loaded(name: str) -> Iterator[ModuleType]:
    """Yield the module of ``benchmarks/NAME.py``, known to ``sys.modules`` meanwhile."""
    spec = importlib.util.spec_from_file_location(f"{name}_benchmark", BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]
