"""The picture of time to target against workers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from xml.sax.saxutils import escape

from benchmarks.defaults.runs import Runs
from benchmarks.defaults.studies import ASYNCHRONOUS, IN_ROUNDS, NETS, STUDIES
from benchmarks.defaults.tables import best_speedups
from deepspark_ops.evaluate.charts import Band, Line, line_chart

WIDTH, HEIGHT = 520, 250
COLOURS = ("#2878be", "#d98a1f", "#2f9270", "#a3559d", "#c0392b", "#1d2026", "#8a8f98", "#6b8e23", "#7a5230")
STYLE = (
    "text{font:11.5px Helvetica,Arial,sans-serif;fill:#1d2026}.tick,.axis{fill:#626873}"
    ".grid{stroke:#e4e2dd;stroke-width:1}.title{font-size:17px;font-weight:bold}.name{font-size:13px;font-weight:bold}"
    ".line{fill:none;stroke-width:2;stroke-linejoin:round}.band{fill-opacity:0.12;stroke:none}"
    + "".join(
        f".line-{i}{{stroke:{c}}}circle.line-{i}{{fill:{c};stroke:#fff}}.band.line-{i}{{fill:{c};stroke:none}}"
        for i, c in enumerate(COLOURS)
    )
)


def picture(nets: Sequence[str], seeds: Sequence[int], runs: Runs) -> str:
    """Return the SVG of time to target against workers: every strategy a line, a band over seeds; a row per net."""
    names = ASYNCHRONOUS + IN_ROUNDS
    nets = [net for net in nets if not NETS[net].studies]
    parts: list[str] = []
    for study, x in (("strategies", 0), ("stragglers", 1)):
        for y, net in enumerate(nets):
            lines, bands = [], []
            for number, name in enumerate(names):
                points = []
                for p in STUDIES[study].workers:
                    if values := best_speedups(study, net, name, p, seeds, runs):
                        points.append((float(p), fmean(values), min(values), max(values)))
                if points:
                    points.insert(0, (1.0, 1.0, 1.0, 1.0))  # a single worker by definition
                    style = f"line-{number}"
                    lines.append(Line(name, [(p, mean) for p, mean, _, _ in points], style, has_marks=True))
                    bands.append(Band([(p, low, high) for p, _, low, high in points], style))
            if not lines:
                continue
            to = f"{NETS[net].target:.0%}" if NETS[net].target else "its accuracy less 2 points"
            title = f"{NETS[net].title}, to {to}{': one in eight slow' if x else ''}"
            chart = line_chart(
                lines, label=title, x_label="workers", y_format=lambda value: f"{value:g}", width=WIDTH, height=HEIGHT,
                has_log_x=True, x_ticks=(1, *STUDIES["strategies"].workers), bands=bands,
            )  # fmt: skip
            chart_x, chart_y = 20 + x * (WIDTH + 20), 84 + y * (HEIGHT + 34)
            parts.append(f'<text class="name" x="{chart_x}" y="{chart_y}">{escape(title)}</text>')
            parts.append(f'<svg x="{chart_x}" y="{chart_y + 8}" width="{WIDTH}" height="{HEIGHT}">{chart}</svg>')
    for number, name in enumerate(names):
        legend_x = 20 + 118 * number
        parts.append(f'<line class="line line-{number}" x1="{legend_x}" x2="{legend_x + 24}" y1="52" y2="52"/>')
        parts.append(f'<text x="{legend_x + 30}" y="56">{name}</text>')
    width, height = 2 * (WIDTH + 20) + 20, 84 + len(nets) * (HEIGHT + 34)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' role="img"><style>{STYLE}</style><rect width="100%" height="100%" fill="#ffffff"/>'
        '<text class="title" x="20" y="30">Times faster than one worker to nearly its accuracy</text>'
    )
    return "".join([head, *parts, "</svg>"]) + "\n"
