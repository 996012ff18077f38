"""Write the table and the picture of ``make bench`` from the JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.speed.nets import NETS, ROOT
from deepspark_ops.run_paths import write_text_whole

DOCS = ROOT / "docs" / "evidence"
RESULTS = DOCS / "training_speed.json"
PICTURE = DOCS / "training_speed.svg"
PAGE = DOCS / "benchmarks.md"
BEGIN, END = "<!-- make bench: begin -->", "<!-- make bench: end -->"
BARS = {("2x1", "step"): 1.4, ("1x2", "step"): 1.2, ("1x2", "forward"): 1.2, ("2x1", "forward"): 1.2}
"""Smallest ratio that the project wants: rate of this project / rate of the best peer."""
MODES = {"2x1": "2 of 1 thread", "1x2": "1 of 2 threads"}
FLOOR_BAR = 1.4
"""Ratio of step to floor; above this value the time outside the kernels is worth work."""
HEAD = (
    "| net (batch) | processes | step: ours | best peer | ratio | by floor | forward: ours | best peer | ratio"
    " | by floor | MiB: ours | best peer |",
    "| --- " * 12 + "|",
)
ROW_HEIGHT, LABEL_WIDTH, PLOT_WIDTH = 15, 210, 420


def peers(mode: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contenders without this project, the floor and failed contenders."""
    return {
        name: result
        for name, result in mode["contenders"].items()
        if name not in ("ours", "floor") and "failure" not in result
    }


def best_peer(mode: Mapping[str, Any], kind: str) -> tuple[str, dict[str, Any]]:
    """Return the peer of the highest rate."""
    return max(peers(mode).items(), key=lambda item: item[1][kind]["samples_per_s"])


def ratio(mode: Mapping[str, Any], kind: str) -> float:
    """Return our rate by the rate of the best peer."""
    return mode["contenders"]["ours"][kind]["samples_per_s"] / best_peer(mode, kind)[1][kind]["samples_per_s"]


def by_floor(mode: Mapping[str, Any], kind: str) -> float:
    """Return the time of our step or pass by the time of the floor."""
    contenders = mode["contenders"]
    return contenders["floor"][kind]["samples_per_s"] / contenders["ours"][kind]["samples_per_s"]


def _rate(samples_per_s: float) -> str:
    return f"{samples_per_s:,.0f}" if samples_per_s >= 100 else f"{samples_per_s:.3g}"


def _cells(mode_name: str, mode: Mapping[str, Any], kind: str) -> list[str]:
    name, peer = best_peer(mode, kind)
    value = ratio(mode, kind)
    shown = f"{value:.2f}" if value >= BARS[mode_name, kind] else f"**{value:.2f}**"
    rates = (mode["contenders"]["ours"][kind]["samples_per_s"], peer[kind]["samples_per_s"])
    return [_rate(rates[0]), f"{_rate(rates[1])} {name}", shown, f"{by_floor(mode, kind):.2f}"]


def rows(name: str, result: Mapping[str, Any]) -> list[str]:
    """Return the rows of a net."""
    lines = []
    for mode_name, title in MODES.items():
        mode = result["modes"][mode_name]
        memory = [mode["contenders"]["ours"]["peak_mib"], best_peer(mode, "step")[1]["peak_mib"]]
        cells = [f"{NETS[name].title} ({NETS[name].batch_size})", title]
        cells += _cells(mode_name, mode, "step") + _cells(mode_name, mode, "forward")
        lines.append("| " + " | ".join([*cells, *(f"{mib:,.0f}" for mib in memory)]) + " |")
    return lines


def reasons(name: str, result: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line per net below a bar: the missed bars, and the parts of the step's time."""
    missed = [
        f"{kind} {MODES[mode]} {ratio(result['modes'][mode], kind):.2f} (bar {bar})"
        for (mode, kind), bar in BARS.items()
        if ratio(result["modes"][mode], kind) < bar
    ]
    kernels = result["kernels"]
    named = ", ".join(f"`{kernel}` {share:.0%}" for kernel, share in kernels["kernels"].items())
    floor = by_floor(result["modes"]["1x2"], "step")
    part = "in the net's convolutions and products" if floor < FLOOR_BAR else "outside the convolutions and products"
    text = f"- {NETS[name].title}: {kernels['outside']:.0%} of a step outside oneDNN's kernels"
    text += f" ({named})" if named else " (oneDNN reports none)"
    yield text + (
        f". Below its bar: {', '.join(missed)}. The time of a step is mostly {part}."
        if missed
        else ". Every bar is kept."
    )


def all_peers(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of all contenders of a process of two threads."""
    columns = sorted({peer for result in results.values() for peer in result["modes"]["1x2"]["contenders"]})
    columns.sort(key=lambda column: (column != "ours", column != "floor", column))
    yield "| net | " + " | ".join(columns) + " |"
    yield "| --- " * (len(columns) + 1) + "|"
    for name, result in results.items():
        contenders = result["modes"]["1x2"]["contenders"]
        cells = [_step_cell(contenders.get(column)) for column in columns]
        yield f"| {NETS[name].title} | " + " | ".join(cells) + " |"


def _step_cell(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return ""
    return "failed" if "failure" in result else _rate(result["step"]["samples_per_s"])


def table(results: Mapping[str, Any]) -> str:
    """Return the whole text between the marks."""
    ordered = {name: results[name] for name in NETS if name in results}
    machines: dict[str, list[str]] = {}
    for name, result in ordered.items():
        conditions = f"{result['cpu']}; {result['date'][:10]}"
        load = f"{NETS[name].title} {result['load_average_before']:.1f}, {result['repeats']} repeats"
        machines.setdefault(conditions, []).append(load)
    lines = [BEGIN, *(f"Machine: {cpu}. Load before the start: {'; '.join(nets)}." for cpu, nets in machines.items())]
    lines += [
        "",
        "Samples per second of all processes together, medians of interleaved blocks. Ratio: ours by the best peer,",
        "bold below its bar (step 1.4 with two processes, 1.2 with one; forward pass 1.2). By floor: time by the time",
        "of the net's convolutions and products alone, and of the memory that a step must read and write. MiB: most",
        "memory held by steps.",
        "",
        *HEAD,
        *(line for name, result in ordered.items() for line in rows(name, result)),
        "",
        "![Ratios](training_speed.svg)",
        "",
        *(line for name, result in ordered.items() for line in reasons(name, result)),
        "",
        "Steps of a process of two threads, samples per second of the contenders that were best of their framework:",
        "",
        *all_peers(ordered),
        END,
    ]
    return "\n".join(lines)


def picture(results: Mapping[str, Any]) -> str:
    """Return an SVG of bars: our rate by the best peer's."""
    ordered = [name for name in NETS if name in results]
    values = {(name, mode, kind): ratio(results[name]["modes"][mode], kind) for name in ordered for mode, kind in BARS}
    largest = max([1.6, *values.values()])
    scale = PLOT_WIDTH / largest
    height = ROW_HEIGHT * (len(BARS) + 1) * len(ordered) + 40
    width = LABEL_WIDTH + PLOT_WIDTH + 60
    font = 'font-family="Helvetica,Arial,sans-serif" font-size="11"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {font}>'
        f'<rect width="{width}" height="{height}" fill="#fff"/>'
        '<text x="8" y="16" font-weight="bold">Samples per second, ours / best peer</text>'
    ]
    y = 28
    for name in ordered:
        parts.append(f'<text x="8" y="{y + 11}" font-weight="bold">{escape(NETS[name].title)}</text>')
        for (mode, kind), bar in BARS.items():
            value = values[name, mode, kind]
            colour = "#2f9270" if value >= bar else "#d98a1f" if value >= 1 else "#c0392b"
            bar_width, x = value * scale, LABEL_WIDTH
            parts += [
                f'<text x="{x - 6}" y="{y + 11}" text-anchor="end" fill="#626873">{kind}, {MODES[mode]}</text>',
                f'<rect x="{x}" y="{y + 2}" width="{bar_width:.1f}" height="{ROW_HEIGHT - 4}" fill="{colour}"/>',
                f'<text x="{x + bar_width + 4:.1f}" y="{y + 11}">{value:.2f}</text>',
            ]
            y += ROW_HEIGHT
        y += ROW_HEIGHT
    x = LABEL_WIDTH + scale
    line = f'x1="{x:.1f}" y1="24" x2="{x:.1f}" y2="{height - 8}"'
    parts.append(f'<line {line} stroke="#1d2026" stroke-dasharray="3 3"/></svg>')
    return "".join(parts) + "\n"


def with_table(text: str, block: str) -> str:
    """Return a page with another text between the page's marks.

    Raises:
        ValueError: The page has no marks.
    """
    head, begin, body = text.partition(BEGIN)
    _, end, tail = body.partition(END)
    if not begin or not end:
        msg = f"{PAGE} has no lines {BEGIN} and {END}"
        raise ValueError(msg)
    return head + block + tail


def write_json(path: Path, results: Mapping[str, Any]) -> None:
    """Write the results, whole."""
    write_text_whole(path, json.dumps(results, indent=1) + "\n")


def write_pages(results: Mapping[str, Any]) -> None:
    """Write table and picture."""
    write_text_whole(PAGE, with_table(PAGE.read_text(), table(results)))
    write_text_whole(PICTURE, picture(results))
