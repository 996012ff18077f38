"""Tables, lines and JSON of ``deepspark time`` and ``deepspark test``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from deepspark_ops.single_net.mean_outputs import MeanOutputs
from deepspark_ops.single_net.net_time import NetTime

_LISTED = 100
"""Values of one output that are listed; of a larger output there is a summary."""


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


def test_lines(found: MeanOutputs) -> str:
    """Return the outputs as ``caffe test`` prints them: a line for each value, what it adds to the loss behind it."""
    samples = f"{found.n_batches:,} batches of {found.batch_size:,} over {found.n_samples:,} samples"
    lines = [f"{found.name}: {samples}"]
    for blob, values in found.outputs.items():
        if values.size > _LISTED:
            span = f"mean {values.mean():.6g}, from {values.min():.6g} to {values.max():.6g}"
            lines.append(f"{blob}: {values.size:,} values, {span}")
            continue
        weight = found.weights.get(blob)
        for value in values.reshape(-1):
            loss = f" (* {weight:g} = {value * weight:.6g} loss)" if weight is not None else ""
            lines.append(f"{blob} = {value:.6g}{loss}")
    return "\n".join([*lines, f"loss = {found.loss:.6g}"])


def test_json(found: MeanOutputs) -> dict[str, Any]:
    """Return all of it as plain values; a scalar output is a number, another one a list in its shape."""
    outputs = {blob: values.tolist() for blob, values in found.outputs.items()}
    return {**asdict(found), "net": found.name, "outputs": outputs}
