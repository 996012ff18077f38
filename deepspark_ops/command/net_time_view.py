"""The table and the JSON of ``deepspark time``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from deepspark_ops.timing.net_time import NetTime


def time_table(found: NetTime) -> Table:
    """Return a row per layer, with its share of all kernels' time."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("layer")
    table.add_column("type")
    for column in ("forward ms", "backward ms", "share"):
        table.add_column(column, justify="right")
    table.add_column("")
    layers = found.times.layers
    total = sum(one.forward_ms + one.backward_ms for one in layers) + found.times.other_ms
    for one in layers:
        share = (one.forward_ms + one.backward_ms) / total if total else 0.0
        note = f"forward in the kernel of {one.computed_with}" if one.computed_with else ""
        table.add_row(
            one.layer, one.type, f"{one.forward_ms:.3f}", f"{one.backward_ms:.3f}", f"{100 * share:.1f} %", note
        )
    return table


def time_summary(found: NetTime) -> str:
    """Return what holds for the net as a whole, in a line for each thing."""
    times = found.times
    kernels = sum(one.forward_ms + one.backward_ms for one in times.layers)
    threads = "1 thread" if found.n_threads == 1 else f"{found.n_threads} threads"
    return (
        f"{found.name}: batches of {found.batch_size} on the CPU, {threads}, medians of {times.n_passes} passes\n"
        f"forward {times.forward_ms:.2f} ms, forward and backward {times.pass_ms:.2f} ms by the clock;"
        f" kernels of layers {kernels:.2f} ms, others {times.other_ms:.2f} ms"
    )


def time_json(found: NetTime) -> dict[str, Any]:
    """Return all of it as plain values."""
    times = asdict(found.times)
    return {"net": found.name, "batch_size": found.batch_size, "n_threads": found.n_threads, **times}
