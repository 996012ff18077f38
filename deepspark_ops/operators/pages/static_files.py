"""Scripts and style sheets of the pages, and the path of the chart library."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_STATIC: Final = Path(__file__).with_name("static")


@cache
def chart_library() -> Path:
    """Return plotly.js from the installed package plotly.

    Raises:
        ModuleNotFoundError: plotly is not installed.
    """
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(name="plotly")
    return Path(spec.origin).with_name("package_data") / "plotly.min.js"


def chart_library_name() -> str:
    """Return the name by which pages ask for ``chart_library``; another version has another address."""
    return f"{chart_library().name}?v={version('plotly')}"


def static_file(name: str) -> Path | None:
    """Return a script or style sheet of the pages; None for any other name."""
    files = {path.name: path for path in _STATIC.iterdir() if path.suffix in (".js", ".css")}
    return files.get(name)
