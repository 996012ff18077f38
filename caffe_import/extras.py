"""Packages for a part of this project: which extra of ``deepspark`` brings a missing package.

A part without its framework calls ``require`` when it is imported; the outermost loops of commands
and stages turn any other failed import into the same message with ``missing_extra``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

EXTRAS: Final = {
    "tensorflow": "train",
    "keras": "train",
    "packaging": "train",
    "pyspark": "spark",
    "py4j": "spark",
    "cryptography": "spark",
    "pyarrow": "tables",
    "fastavro": "tables",
    "tf2onnx": "onnx",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "fastapi": "serve",
    "uvicorn": "serve",
    "mlflow": "mlflow",
    "optuna": "search",
    "pandas": "notebook",
    "plotly": "notebook",
    "openlineage": "lineage",
    "airflow.providers.openlineage": "lineage",
    "airflow": "airflow",
    "airflow.providers.apache.spark": "airflow",
}
"""Import name -> extra in ``pyproject.toml``."""


class MissingExtra(ModuleNotFoundError):
    """A part's framework is not installed; ``str(error)`` is the whole message for the user."""


def require(*packages: str, part: str) -> None:
    """Refuse the import or the start of a part whose packages are not installed; none of them is imported.

    Args:
        packages: Of ``EXTRAS``.
        part: What is asked for, e.g. ``caffe_import.tf_graph``.

    Raises:
        MissingExtra: Some are missing; the message names their extras.
    """
    if missing := [package for package in packages if not _is_there(package)]:
        raise MissingExtra(_message(missing, part), name=missing[0])


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """Return what to install after a failed import; None where no extra of ours brings the package."""
    if isinstance(error, MissingExtra):
        return str(error)
    name = error.name or ""
    packages = [package for package in EXTRAS if f"{name}.".startswith(f"{package}.") or package.startswith(f"{name}.")]
    return _message(packages[-1:], _importing_part(error)) if name and packages else None


def _is_there(package: str) -> bool:
    first, *inner_names = package.split(".")
    # Asking for a dotted name would import what is before the dot, and Airflow takes a second.
    return (
        any(Path(entry, first, *inner_names).is_dir() for entry in sys.path)
        if inner_names
        else find_spec(first) is not None
    )


def _importing_part(error: ModuleNotFoundError) -> str:
    """Return the module of ours whose import failed: the innermost one in the traceback."""
    part, trace = "deepspark", error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module != __name__ and module.startswith(("caffe_import.", "deepspark_ops.")):
            part = module
        trace = trace.tb_next
    return part


def _message(missing: Sequence[str], part: str) -> str:
    extras = ",".join(sorted({EXTRAS[package] for package in missing}))
    return (
        f"{part} needs {' and '.join(missing)}, which {sys.executable or 'this Python'} does not have:"
        f' pip install "deepspark[{extras}]"'
    )
