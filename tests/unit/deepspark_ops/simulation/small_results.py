"""Results of runs that were never made."""

from __future__ import annotations

from typing import Any

from deepspark_ops.simulation.results import CurvePoint, VirtualResult


def result(strategy: str, workers: int, seed: int, values: list[float], **changes: Any) -> VirtualResult:
    """Return a result with a test every 100 minibatches of 50 ms."""
    curve = [
        CurvePoint(clock=100 * k, virtual_s=100 * k * 0.05 / workers, value=value) for k, value in enumerate(values)
    ]
    plain: dict[str, Any] = {
        "strategy": strategy, "workers": workers, "seed": seed, "figure": "accuracy", "accuracy": values[-1],
        "virtual_s": curve[-1].virtual_s, "clock": curve[-1].clock, "bytes": 1_000_000, "exchanges": 10,
        "comm_period": 3, "staleness": 1.0, "center_load": 0.1, "exchange_share": 0.02, "slow_workers": 0,
        "reissued_grants": 0, "host_s": 1.0, "digest": "0" * 64, "failure": None, "curve": tuple(curve),
    }  # fmt: skip
    return VirtualResult(**{**plain, **changes})
