"""``report.html`` of a dataset: one file, no network, no script, light, dark and on paper."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from html import escape
from importlib import resources
from itertools import islice
from typing import Any, Final

import numpy as np
from markupsafe import Markup

from caffe_import.file_access.text_file import open_text_file
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.contact_sheet import class_strips
from deepspark_ops.ingest.findings import KINDS, NOTES
from deepspark_ops.ingest.inspect.facts import dataset_facts
from deepspark_ops.ingest.report.profile import (
    Profile,
    Values,
    chi_square,
    common_edges,
    drift_word,
    read_profile,
    stability_index,
)
from deepspark_ops.page_templates import template_environment
from deepspark_ops.run_paths import DatasetPaths, write_text_whole
from deepspark_ops.shards.class_name import class_name
from deepspark_ops.shards.manifest import is_dataset, read_manifest
from deepspark_ops.shards.table_columns import TableColumns
from deepspark_ops.shards.thumbnail import encoded
from deepspark_ops.sizes import share_text
from deepspark_ops.stores.store_path import DataPath

_log = logging.getLogger(__name__)
_SHOWN_CLASSES: Final = 200
_SHOWN_FINDINGS: Final = 40
_SHOWN_COLUMNS: Final = 200
_OF_COLUMNS: Final = frozenset({"constant_column", "missing_value", "drifted_column"})
_CHART: Final = (320, 120)
_DISTRIBUTIONS: Final = {
    "width": "Width of the images as they came, pixels",
    "height": "Height of the images as they came, pixels",
    "mean": "Mean of an image's values",
    "std": "Standard deviation of an image's values",
}


def add_report(dataset: DataPath, earlier: Profile | None) -> None:
    """Write the report beside the splits of a dataset; an error becomes a warning, since the dataset is whole.

    The report shows the drift since the profile ``earlier``; None for the first version.
    """
    path = DatasetPaths(dataset).report
    try:
        write_text_whole(path, render_report(dataset, earlier))
        _log.info("ingest: report of the dataset: %s", path)
    except (OSError, DataError) as error:
        _log.warning("ingest: no report of the dataset: %s", error)


def profile_before(dataset: DataPath, previous: DataPath | None) -> Profile | None:
    """Return the profile of the version before a new version; None without a readable version."""
    folder = previous or dataset
    if not is_dataset(folder):
        return None
    try:
        return read_profile(folder)
    except DataError:
        return None


def render_report(dataset: DataPath, earlier: Profile | None) -> str:
    """Return the page.

    Raises:
        DataError: The dataset is missing or damaged.
    """
    facts, now = dataset_facts(dataset), read_profile(dataset)
    table = read_manifest(DatasetPaths(dataset).split("train")).table
    strips = class_strips(DatasetPaths(dataset).split("train"))
    return (
        template_environment("deepspark_ops.ingest.report")
        .get_template("page.html.jinja")
        .render(
            style=Markup(resources.files("deepspark_ops.evaluate").joinpath("report.css").read_text(encoding="utf-8")),
            facts=facts,
            before=earlier,
            tiles=_tiles(facts, table),
            columns=[] if table is None else _columns(dataset, table),
            table=table,
            classes=_classes(facts, now, earlier)[:_SHOWN_CLASSES],
            n_classes=len(now.classes),
            drift=None if earlier is None or not now.classes else _class_drift(now, earlier),
            distributions=_distributions(now, earlier),
            warnings=_warnings(facts),
            findings=_findings(dataset, facts),
            strips=[
                (class_name(facts["class_names"], label), encoded(strip).data_uri())
                for label, strip in sorted(strips.items())
            ],
        )
    )


def _tiles(facts: Mapping[str, Any], table: TableColumns | None) -> list[tuple[str, str, str]]:
    """Return (name, value, note) of each tile."""
    splits = facts["splits"]
    tiles = [
        (f"{name} samples", f"{split['n_samples']:,}", f"{len(split['shards']):,} shards")
        for name, split in splits.items()
    ]
    train = splits["train"]
    shape = " x ".join(str(extent) for extent in train["sample_shape"])
    holds = f"samples of {shape}" if table is None else f"{shape} features in {len(table.features):,} columns"
    if table is not None and not train["n_classes"]:
        tiles.append(("values to be predicted", f"{len(table.labels):,}", f"{', '.join(table.labels)}; {holds}"))
    else:
        tiles.append(("classes", f"{train['n_classes']:,}", holds))
    n_bytes = sum(split["n_bytes"] for split in splits.values())
    tiles.append(
        ("on disk", f"{n_bytes / 1e6:,.1f} MB", f"{train['shard_format']}{', encoded' if train['encoded'] else ''}")
    )
    duplicates = sum(
        count for split in splits.values() for kind, count in split["warnings"].items() if "duplicate" in kind
    )
    tiles.append(("duplicates", f"{duplicates:,}", "records with the content of an earlier one"))
    tiles.append(("rejected", f"{sum(split['n_rejected'] for split in splits.values()):,}", "records in no shard"))
    return tiles


def _columns(dataset: DataPath, table: TableColumns) -> list[tuple[str, float, float, str]]:
    """Return (name, mean, deviation, notes) of the first features of a table."""
    notes: dict[str, list[str]] = {}
    for item in _named_findings(DatasetPaths(dataset).split("train")):
        if item["kind"] in _OF_COLUMNS:
            notes.setdefault(item["name"], []).append(item["text"])
    rows = zip(table.feature_names(), table.mean, table.std, strict=True)
    return [(name, mean, std, "; ".join(notes.get(name, ()))) for name, mean, std in islice(rows, _SHOWN_COLUMNS)]


def _classes(facts: Mapping[str, Any], now: Profile, earlier: Profile | None) -> list[dict[str, Any]]:
    total, total_before = sum(now.classes.values()), sum(earlier.classes.values()) if earlier else 0
    other_counts = {name: split["label_histogram"] for name, split in facts["splits"].items() if name != "train"}
    largest = max(now.classes.values(), default=1) or 1
    rows = []
    for label, (name, count) in enumerate(now.classes.items()):
        share_before = earlier.classes.get(name, 0) / max(1, total_before) if earlier else None
        share = count / max(1, total)
        rows.append(
            {
                "name": name,
                "count": count,
                "share": share,
                "bar": count / largest,
                "others": [counts[label] if label < len(counts) else 0 for counts in other_counts.values()],
                "change": None if share_before is None else share - share_before,
                "is_new": earlier is not None and name not in earlier.classes,
            }
        )
    return rows


def _class_drift(now: Profile, earlier: Profile) -> dict[str, Any]:
    names = list(dict.fromkeys((*earlier.classes, *now.classes)))
    counts = [[profile.classes.get(name, 0) for name in names] for profile in (earlier, now)]
    index = stability_index(*counts)
    statistic, freedom, chance = chi_square(*counts)
    gone = [name for name in earlier.classes if name not in now.classes]
    return {
        "index": index,
        "word": drift_word(index),
        "chi": statistic,
        "freedom": freedom,
        "chance": chance,
        "gone": gone,
    }


def _distributions(now: Profile, earlier: Profile | None) -> list[dict[str, Any]]:
    distributions = []
    for column, title in _DISTRIBUTIONS.items():
        values, weights = now.column(column)
        if not len(values):
            continue
        earlier_values, earlier_weights = earlier.column(column) if earlier else (np.empty(0), np.empty(0))
        edges = common_edges([values, earlier_values])
        counts = np.histogram(values, edges, weights=weights)[0]
        counts_before = np.histogram(earlier_values, edges, weights=earlier_weights)[0] if len(earlier_values) else None
        index = None
        if counts_before is not None:
            # Scaled to the number of looks: else a bin without a look would weigh like thousands of samples.
            index = stability_index(_scaled(counts_before, len(earlier_values)), _scaled(counts, len(values)))
        is_one_value = len(edges) == 2
        distributions.append(
            {
                "title": title,
                "chart": "" if is_one_value else Markup(histogram_svg(title, edges, counts, counts_before)),
                "index": index,
                "word": None if index is None else drift_word(index),
                "range": f"all {values[0]:,.4g}" if is_one_value else f"{values.min():,.4g} to {values.max():,.4g}",
                "n_looks": len(values),
            }
        )
    return distributions


def _scaled(counts: Values, total: int) -> Values:
    return np.asarray(counts * (total / max(float(counts.sum()), 1e-12)), np.float64)


def histogram_svg(title: str, edges: Values, now: Values, earlier: Values | None) -> str:
    """Return shares of the bins as an ``<svg>``: a bar for each, and a line for the earlier version."""
    width, height = _CHART
    shares = now / max(now.sum(), 1e-12)
    shares_before = None if earlier is None else earlier / max(earlier.sum(), 1e-12)
    top = max(shares.max(), 0 if shares_before is None else shares_before.max(), 1e-12)
    step = width / len(shares)
    parts = [f'<svg class="histogram" viewBox="0 0 {width} {height + 18}" role="img" aria-label="{escape(title)}">']
    for at, share in enumerate(shares):
        bar = height * share / top
        text = f"{edges[at]:,.4g} to {edges[at + 1]:,.4g}: {share_text(share)}"
        if shares_before is not None:
            text += f", before {share_text(shares_before[at])}"
        parts.append(
            f"<g><title>{text}</title>"
            f'<rect class="room" x="{at * step:.2f}" y="0" width="{step:.2f}" height="{height}"/>'
            f'<rect class="now" x="{at * step + 1:.2f}" y="{height - bar:.2f}" width="{max(step - 2, 0.5):.2f}"'
            f' height="{bar:.2f}"/></g>'
        )
    if shares_before is not None:
        points = " ".join(
            f"{x:.2f},{height - height * share / top:.2f}"
            for at, share in enumerate(shares_before)
            for x in (at * step, (at + 1) * step)
        )
        parts.append(f'<polyline class="before" points="{points}"/>')
    parts.append(f'<text x="0" y="{height + 14}">{edges[0]:,.4g}</text>')
    parts.append(f'<text x="{width}" y="{height + 14}" text-anchor="end">{edges[-1]:,.4g}</text></svg>')
    return "".join(parts)


def _warnings(facts: Mapping[str, Any]) -> list[tuple[str, str, int, bool]]:
    """Return (split, description, count, whether the kind is a note) of each kind of warning."""
    return [
        (split, KINDS[kind], count, kind in NOTES)
        for split, split_facts in facts["splits"].items()
        for kind, count in split_facts["warnings"].items()
    ]


def _findings(dataset: DataPath, facts: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return (split, kind, name, text) of the first named findings."""
    findings: list[tuple[str, str, str, str]] = []
    for split in facts["splits"]:
        for item in islice(_named_findings(DatasetPaths(dataset).split(split)), _SHOWN_FINDINGS - len(findings)):
            findings.append((split, item["kind"].replace("_", " "), item["name"], item["text"]))
    return findings


def _named_findings(folder: DataPath) -> Iterator[dict[str, str]]:
    """Yield the entries in the list of a split's warnings."""
    name = read_manifest(folder).warnings_file
    if name is not None and (folder / name).is_file():
        with open_text_file(folder / name) as lines:
            yield from map(json.loads, lines)
