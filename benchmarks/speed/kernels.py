"""The oneDNN kernels of a step, from the output of ``ONEDNN_VERBOSE``, and the share of the step outside kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

ENVIRONMENT = {"ONEDNN_VERBOSE": "profile_exec"}
N_NAMED = 4
"""Number of kernels in the JSON: the kernels with the most time."""


def kernel_times(lines: Iterable[str]) -> Counter[str]:
    """Return milliseconds by ``primitive implementation``; other lines are passed over."""
    times: Counter[str] = Counter()
    for line in lines:
        fields = line.strip().split(",")
        if not line.startswith("onednn_verbose,") or "exec" not in fields:
            continue
        at = fields.index("exec")
        times[f"{fields[at + 2]} {fields[at + 3]}"] += float(fields[-1])
    return times


def kernel_share(lines: Iterable[str], seconds: float) -> dict[str, Any]:
    """Return the share of ``seconds`` outside kernels, and the kernels with the most time with their shares."""
    times = kernel_times(lines)
    total_ms = 1000 * seconds
    return {
        "outside": round(1 - times.total() / total_ms, 3),
        "kernels": {name: round(ms / total_ms, 3) for name, ms in times.most_common(N_NAMED)},
    }
