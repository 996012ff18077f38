"""A table of measured runs for tests, in place of the package's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deepspark_ops.exchange.strategies import measured


@contextmanager
def measured_table(folder: Path, rows: list[tuple[str, str, int, float, float, float | None]]) -> Iterator[None]:
    """Have (net, strategy, workers, stragglers, lost points, times faster) be what was measured."""
    names = ("net", "strategy", "workers", "stragglers", "lost_points", "times_faster")
    plain = [{**dict(zip(names, row, strict=True)), "minibatches": 600, "seeds": 3} for row in rows]
    path = folder / "measured.json"
    path.write_text(json.dumps({"format_version": 1, "made_by": "a test", "rows": plain}))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(measured, "MEASURED_FILE", path)
        measured.measured_rows.cache_clear()
        yield
    measured.measured_rows.cache_clear()
