"""Tables, lines and JSON of ``deepspark time`` and ``deepspark test``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from deepspark_ops.single_net.mean_outputs import MeanOutputs
from deepspark_ops.single_net.net_time import NetTime
from deepspark_ops.sizes import share_text

_LISTED = 100
"""Listed values of an output; a larger output has a summary."""


def time_table(net_time: NetTime) -> Table:
    """Return a row per layer, with the layer's share of the time of all kernels."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("layer")
    table.add_column("type")
    for column in ("forward ms", "backward ms", "share"):
        table.add_column(column, justify="right")
    table.add_column("")
    layers = net_time.times.layers
    total = sum(layer.forward_ms + layer.backward_ms for layer in layers) + net_time.times.other_ms
    for layer in layers:
        share = (layer.forward_ms + layer.backward_ms) / total if total else 0.0
        note = f"forward in the kernel of {layer.computed_with}" if layer.computed_with else ""
        table.add_row(
            layer.layer, layer.type, f"{layer.forward_ms:.3f}", f"{layer.backward_ms:.3f}", share_text(share), note
        )
    return table


def time_summary(net_time: NetTime) -> str:
    """Return the times of the whole net, a time per line."""
    times = net_time.times
    kernels = sum(layer.forward_ms + layer.backward_ms for layer in times.layers)
    threads = "1 thread" if net_time.n_threads == 1 else f"{net_time.n_threads} threads"
    return (
        f"{net_time.name}: batches of {net_time.batch_size} on the CPU, {threads}, medians of {times.n_passes} passes\n"
        f"forward {times.forward_ms:.2f} ms, forward and backward {times.pass_ms:.2f} ms by the clock;"
        f" kernels of layers {kernels:.2f} ms, others {times.other_ms:.2f} ms"
    )


def time_json(net_time: NetTime) -> dict[str, Any]:
    """Return all times as plain values."""
    times = asdict(net_time.times)
    return {"net": net_time.name, "batch_size": net_time.batch_size, "n_threads": net_time.n_threads, **times}


def test_lines(mean_outputs: MeanOutputs) -> str:
    """Return the outputs as ``caffe test`` prints them: a line per value, with the value's share in the loss."""
    samples = (
        f"{mean_outputs.n_batches:,} batches of {mean_outputs.batch_size:,} over {mean_outputs.n_samples:,} samples"
    )
    lines = [f"{mean_outputs.name}: {samples}", f"Loss: {mean_outputs.loss:.6g}"]
    for blob, values in mean_outputs.outputs.items():
        if values.size > _LISTED:
            span = f"mean {values.mean():.6g}, from {values.min():.6g} to {values.max():.6g}"
            lines.append(f"{blob}: {values.size:,} values, {span}")
            continue
        weight = mean_outputs.weights.get(blob)
        for value in values.reshape(-1):
            loss = f" (* {weight:g} = {value * weight:.6g} loss)" if weight is not None else ""
            lines.append(f"{blob} = {value:.6g}{loss}")
    return "\n".join(lines)


def test_json(mean_outputs: MeanOutputs) -> dict[str, Any]:
    """Return all outputs as plain values; a scalar output is a number, other outputs are nested lists."""
    outputs = {blob: values.tolist() for blob, values in mean_outputs.outputs.items()}
    return {**asdict(mean_outputs), "net": mean_outputs.name, "outputs": outputs}
