"""The pipeline around the importer, and the Python API: ``import deepspark_ops as ds``, ``ds.train(solver, ...)``.

Names of the API are loaded at the first use, so ``import deepspark_ops`` loads nothing: every process of a stage
imports this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepspark_ops.api.calls import check as check
    from deepspark_ops.api.calls import compare as compare
    from deepspark_ops.api.calls import convert as convert
    from deepspark_ops.api.calls import evaluate as evaluate
    from deepspark_ops.api.calls import export as export
    from deepspark_ops.api.calls import ingest as ingest
    from deepspark_ops.api.calls import pack as pack
    from deepspark_ops.api.calls import predict as predict
    from deepspark_ops.api.calls import simulate as simulate
    from deepspark_ops.api.calls import train as train
    from deepspark_ops.api.opening import open as open
    from deepspark_ops.api.pycaffe.net import TEST as TEST
    from deepspark_ops.api.pycaffe.net import TRAIN as TRAIN
    from deepspark_ops.api.pycaffe.net import Net as Net
    from deepspark_ops.api.results.bundle import Bundle as Bundle
    from deepspark_ops.api.results.dataset import Dataset as Dataset
    from deepspark_ops.api.results.model import Model as Model
    from deepspark_ops.api.results.run import Run as Run
    from deepspark_ops.errors import ConfigError as ConfigError

_MODULES = {
    **dict.fromkeys(
        ("check", "compare", "convert", "evaluate", "export", "ingest", "pack", "predict", "simulate", "train"),
        "deepspark_ops.api.calls",
    ),
    "open": "deepspark_ops.api.opening",
    **dict.fromkeys(("Net", "TEST", "TRAIN"), "deepspark_ops.api.pycaffe.net"),
    "Bundle": "deepspark_ops.api.results.bundle",
    "Dataset": "deepspark_ops.api.results.dataset",
    "Model": "deepspark_ops.api.results.model",
    "Run": "deepspark_ops.api.results.run",
    "ConfigError": "deepspark_ops.errors",
}
"""Name of the API -> the module that has it."""

# Python binds a package's name in its parent when the package is first imported. These five packages have the names of
# functions: they are imported here, where they are empty, and their names are freed for ``__getattr__``.
for _name in ("evaluate", "export", "ingest", "predict", "train"):
    import_module(f"deepspark_ops.{_name}")
    del globals()[_name]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
