"""The report of stage plan as a picture: SVG text without external scripts, fonts or styles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from deepspark_ops.errors import ConfigError
from deepspark_ops.evaluate.charts import Line, line_chart
from deepspark_ops.planning.plan_report import PlanReport, Row
from deepspark_ops.planning.plan_view import duration
from deepspark_ops.run_paths import write_text_whole

_WIDTH: Final = 520
_HEIGHT: Final = 250
_GAP: Final = 34
_HEAD: Final = 86
_MARGIN: Final = 20
_COLOURS: Final = ("#2878be", "#d98a1f")
_STYLE: Final = (
    "text{font:11.5px Helvetica,Arial,sans-serif;fill:#1d2026}.tick,.axis{fill:#626873}"
    ".grid{stroke:#e4e2dd;stroke-width:1}.title{font-size:17px;font-weight:bold}.name{font-size:13px;font-weight:bold}"
    ".line{fill:none;stroke-width:2;stroke-linejoin:round}.dash{stroke-dasharray:5 4}"
    + "".join(f".line-{i}{{stroke:{c}}}circle.line-{i}{{fill:{c};stroke:#fff}}" for i, c in enumerate(_COLOURS))
)


def write_plan_picture(report: PlanReport, path: Path | None) -> None:
    """Draw the prediction to a file; nothing if no path is given.

    Raises:
        ConfigError: The file cannot be written, or is to be no SVG.
    """
    if path is None:
        return
    if path.suffix.lower() != ".svg":
        msg = f"plot={path}: is drawn as SVG, which every browser shows; give a name that ends in .svg"
        raise ConfigError(msg)
    try:
        write_text_whole(path, plan_svg(report))
    except OSError as error:
        msg = f"plot={path}: cannot be written: {error.strerror}"
        raise ConfigError(msg) from error


def plan_svg(report: PlanReport) -> str:
    """Return four charts over the number of workers: images/s, time per epoch or exchange, staleness, server load.

    One line shows the configured options, the other line the advice; the dashed line in the first chart shows the
    workers without exchanges.
    """
    advised = [advice.row for advice in report.advice]
    ideal = [(float(row.workers), row.images_per_s / row.efficiency) for row in report.rows]

    def chart(label: str, value: Callable[[Row], float], y_format: Callable[[float], str], *, is_log: bool) -> str:
        lines = [
            Line("as given", [(float(row.workers), value(row)) for row in report.rows], "line-0", has_marks=True),
            Line("advised", [(float(row.workers), value(row)) for row in advised], "line-1", has_marks=True),
        ]
        if label == "images/s":
            lines.append(Line("without exchanges", ideal, "line-0 dash"))
        return line_chart(
            lines, label=label, x_label="workers", y_format=y_format, width=_WIDTH, height=_HEIGHT, wants_log=is_log,
            has_log_x=True,
        )  # fmt: skip

    def epoch_s(row: Row) -> float:
        return row.epoch_s if row.epoch_s is not None else row.exchange_ms / 1e3

    charts = [
        ("images/s", chart("images/s", lambda row: row.images_per_s, _short, is_log=True)),
        (
            "time per epoch" if report.epoch_images else "time of an exchange",
            chart("time per epoch", epoch_s, duration, is_log=True),
        ),
        ("server load", chart("server load", lambda row: row.server_load, lambda share: f"{share:.0%}", is_log=False)),
        ("staleness", chart("staleness", lambda row: row.staleness, _short, is_log=False)),
    ]
    width, height = 2 * (_WIDTH + _MARGIN) + _MARGIN, _HEAD + 2 * (_HEIGHT + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' role="img"><style>{_STYLE}</style><rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text class="title" x="{_MARGIN}" y="30">{escape(report.net)}: {report.strategy},'
        f" minibatches of {report.images_per_step:,} in {report.step_ms:.4g} ms</text>",
        *_legend(report),
    ]
    for number, (name, drawn) in enumerate(charts):
        x, y = _MARGIN + number % 2 * (_WIDTH + _MARGIN), _HEAD + number // 2 * (_HEIGHT + _GAP)
        parts.append(f'<text class="name" x="{x}" y="{y}">{name}</text>')
        parts.append(f'<svg x="{x}" y="{y + 8}" width="{_WIDTH}" height="{_HEIGHT}">{drawn}</svg>')
    return "".join([*parts, "</svg>"])


def _legend(report: PlanReport) -> list[str]:
    first, last = report.rows[0].comm_period, report.rows[-1].comm_period
    period = f"tau {first}" if first == last else f"tau {first} to {last}"
    configured_text = f"as given ({period}, key ranges {report.rows[0].n_servers}, {report.rows[0].wire_dtype})"
    parts = []
    for number, name in enumerate((configured_text, "tau, key ranges and wire dtype as advised", "without exchanges")):
        x = _MARGIN + 345 * number
        style = f"line line-{number}" if number < 2 else "line line-0 dash"
        parts.append(f'<line class="{style}" x1="{x}" x2="{x + 26}" y1="52" y2="52"/>')
        parts.append(f'<text x="{x + 33}" y="56">{escape(name)}</text>')
    return parts


def _short(value: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.4g} {unit}"
    return f"{value:.4g}"
