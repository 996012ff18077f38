"""pandas and plotly: loaded on demand, since few answers need pandas or plotly."""

from __future__ import annotations

from typing import Any

from caffe_import.extras import require


def load_pandas(part: str) -> Any:
    """Return the module pandas.

    Raises:
        MissingExtra: It is not installed; the message names the extra.
    """
    require("pandas", part=part)
    import pandas

    return pandas


def load_plotly(part: str) -> tuple[Any, Any]:
    """Return plotly's modules ``graph_objects`` and ``subplots``.

    Raises:
        MissingExtra: It is not installed; the message names the extra.
    """
    require("plotly", part=part)
    import plotly.graph_objects
    import plotly.subplots

    return plotly.graph_objects, plotly.subplots
