"""Tables and lines of ``deepspark models``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from deepspark_ops.evaluate.tasks.metrics_head import interval_text
from deepspark_ops.registry.overview import ModelOverview
from deepspark_ops.registry.versions import Figures, VersionRecord

_SHOWN_HISTORY = 20


def headline(model: ModelOverview) -> str:
    """Return the version in production and the reason of the promotion, in a line."""
    current = model.production
    if current is None:
        return f"{model.name}: nothing is in production"
    return f"{model.name}: {current.version} is in production since {_when(current.promoted)} UTC; {current.reason}"


def models_table(overviews: Sequence[ModelOverview]) -> Table:
    """Return a row per model."""
    table = _table("model", "production", "accuracy", "95 % interval", "since", "by", "versions")
    for model in overviews:
        record, current = model.of_production(), model.production
        figures = _figures(record.figures if record else None)
        since = [_when(current.promoted), current.who] if current else ["", ""]
        table.add_row(model.name, current.version if current else "none", *figures, *since, str(len(model.versions)))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column)
    return table


def _figures(figures: Figures | None) -> tuple[str, str]:
    if figures is None:
        return "", ""
    main = figures.judged_by()
    if main is None:
        return "", ""
    name = "" if main.name == "top1" else f"{main.label} "
    return f"{name}{main.text()}", interval_text(main)


def _when(text: str) -> str:
    return text[:16].replace("T", " ")


def version_table(model: ModelOverview) -> Table:
    """Return a row per version, newest first."""
    table = _table("version", "accuracy", "95 % interval", "samples", "made", "run", "from", "data", "state")
    for record in reversed(model.versions):
        is_current = model.production is not None and record.version == model.production.version
        state = "in production" if is_current else "" if record.version in model.present else "bundle removed"
        figures = record.figures
        table.add_row(
            record.version,
            *_figures(figures),
            f"{figures.n_samples:,}" if figures else "",
            _when(record.created),
            Text(record.origin.run),
            record.started_from or "",
            _short(record.origin.datasets.get("train")),
            state,
        )
    return table


def history_table(model: ModelOverview) -> Table:
    """Return the history, newest first; only the end of a long history."""
    table = _table("when (UTC)", "who", "what", "why")
    for entry in reversed(model.history[-_SHOWN_HISTORY:]):
        action_text = (
            f"{entry.action} {entry.version}" if entry.version else f"{entry.action} {entry.previous or 'production'}"
        )
        reason_text = (
            f"{entry.reason} ({entry.comment})" if entry.comment and entry.comment not in entry.reason else entry.reason
        )
        table.add_row(_when(entry.at), Text(entry.who), action_text, Text(reason_text))
    return table


def lineage(record: VersionRecord) -> str:
    """Return the sources of a version, in a line of short digests."""
    origin = record.origin
    data = (
        ", ".join(f"{split} {_short(digest)}" for split, digest in origin.datasets.items()) or "the net's own sources"
    )
    start = f", started from {record.started_from}" if record.started_from else ""
    made_by = f"solver {_short(origin.solver_digest) or 'unknown'}{start}, DeepSpark {origin.code_version or 'unknown'}"
    return (
        f"{record.version}: data {data} -> net {_short(origin.net_digest)}, "
        f"{made_by} -> run {origin.run}, iteration {origin.iteration} -> bundle {_short(record.manifest_digest)}"
    )


def _short(digest: str | None) -> str:
    return "" if digest is None else digest.removeprefix("sha256:")[:8]
