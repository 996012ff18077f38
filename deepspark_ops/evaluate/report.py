"""``report.html``: a page without other files, for use without a network, in light, in dark and on paper.

``report.html.jinja`` has the text and tables and escapes every value; this module computes the values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
from jinja2 import Template
from markupsafe import Markup

from deepspark_ops.evaluate.charts import Line, confusion_chart, grouped, line_chart, line_table, share_tick
from deepspark_ops.evaluate.comparison.section import ComparisonSection, section_view
from deepspark_ops.evaluate.metrics import classes_of
from deepspark_ops.evaluate.task_pages.confidence import confidence_sections
from deepspark_ops.evaluate.task_pages.examples import Example
from deepspark_ops.evaluate.task_pages.pages import slice_sections, task_page
from deepspark_ops.evaluate.task_pages.parts import Card, Section, Tile, picture_view, shown
from deepspark_ops.evaluate.task_pages.report_name import report_name
from deepspark_ops.evaluate.task_pages.sample_groups import SampleGroups, cell_id, class_id
from deepspark_ops.evaluate.tasks.classification import ClassificationMetrics
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport
from deepspark_ops.page_templates import template_environment
from deepspark_ops.run_view.curves import Curves, Point
from deepspark_ops.shards.thumbnail import Picture
from deepspark_ops.sizes import share_text

N_COLOURS = 6
MAX_NAMED_WORKERS = 8
MAX_CONFUSED_PAIRS = 10


def render_report(
    metrics: MetricsReport,
    *,
    curves: Curves,
    pictures: Mapping[int, Picture],
    settings: Mapping[str, str],
    section: ComparisonSection | None = None,
    examples: Mapping[int, Example] | None = None,
    groups: SampleGroups | None = None,
    sample_names: Mapping[int, str] | None = None,
    mistake_maps: Sequence[Example] = (),
    name: str = "",
    tags: Sequence[str] = (),
) -> str:
    """Return the page.

    Args:
        metrics: What was found.
        curves: Of the run's training; may be empty.
        pictures: Sample index -> gray (H, W) or BGR (H, W, 3) picture of a mistake, of a sample of ``section`` or of
            ``groups``; missing ones are left out.
        settings: Further facts about the run for the last section, name -> text.
        section: The net against the one in production; None for no such section.
        examples: Of another task than classification, samples by position, as ``wanted_examples`` names them.
        groups: The samples that figures open; None for none.
        sample_names: Sample index -> file or key of a sample of ``groups``.
        mistake_maps: Of a classification, mistakes with their saliency maps.
        name: Of the run, as lists and pages name it; empty: the net's name.
        tags: Of the run.
    """
    scored = metrics.scored
    groups = groups or SampleGroups()
    links, title = groups.links(), name or scored.net or scored.run
    classes = classes_of(metrics)
    names = [] if classes is None else [report.name for report in classes.classes]
    page = None if classes is not None else task_page(metrics, examples or {}, links)
    return _page().render(
        title=title,
        name=report_name(title, tags),
        style=Markup(resources.files("deepspark_ops.evaluate").joinpath("report.css").read_text(encoding="utf-8")),
        metrics=metrics,
        scored=scored,
        snapshot=f"snapshot at iteration {grouped(scored.iteration)}"
        if scored.iteration is not None
        else scored.weights,
        dataset=Path(scored.dataset).name,
        when=metrics.created[:16].replace("T", " "),
        headline=f"{share_text(classes.top1)} correct" if classes else f"{metrics.main.label} {metrics.main.text()}",
        page=page,
        others=metrics.others,
        slices=slice_sections(metrics),
        tiles=_tiles(classes) if classes else page.tiles if page else (),
        against=section and section_view(section, names, {at: picture_view(value) for at, value in pictures.items()}),
        **(_class_view(classes, names, pictures, links, mistake_maps) if classes else {}),
        groups=groups,
        grouped_samples=_grouped_samples(groups, pictures, sample_names or {}),
        curves=curves,
        duration=_duration(curves.seconds),
        cards=[*_cards(curves)],
        facts=_facts(metrics, settings),
    )


def _class_view(
    metrics: ClassificationMetrics,
    names: Sequence[str],
    pictures: Mapping[int, Picture],
    links: Mapping[str, str],
    mistake_maps: Sequence[Example],
) -> dict[str, object]:
    drawing = None
    if metrics.confusion:
        matrix = np.array(metrics.confusion, np.int64)
        cells = ((int(row), int(column)) for row, column in zip(*np.nonzero(matrix), strict=True))
        cell_links = {cell: links[cell_id(*cell)] for cell in cells if cell_id(*cell) in links}
        drawing = Markup(confusion_chart(matrix, names, cell_links))
    return {
        "confusion": drawing,
        "pairs": _pairs(metrics, links),
        "class_links": {report.label: links.get(class_id(report.label)) for report in metrics.classes},
        "lowest": min((report.accuracy for report in metrics.classes if report.accuracy is not None), default=None),
        "mistakes": _mistakes(metrics, pictures),
        "explained": _explained(metrics, names, mistake_maps),
        "confidence": confidence_sections(metrics, links),
    }


@cache
def _page() -> Template:
    environment = template_environment("deepspark_ops.evaluate")
    environment.filters["grouped"] = grouped
    return environment.get_template("report.html.jinja")


def _tiles(metrics: ClassificationMetrics) -> list[Tile]:
    low, high = metrics.top1_interval
    n_wrong = metrics.n_samples - round(metrics.top1 * metrics.n_samples)
    tiles = [
        ("Top-1 accuracy", share_text(metrics.top1), f"95 % interval {100 * low:.1f} to {100 * high:.1f}"),
        ("Mistakes", grouped(n_wrong), f"of {grouped(metrics.n_samples)} samples"),
    ]
    if metrics.top5 is not None:
        tiles.append(("Top-5 accuracy", share_text(metrics.top5), "true class among the first five"))
    tiles.append(("Mean loss", f"{metrics.loss:.4f}", f"chance: {np.log(len(metrics.classes)):.3f}"))
    present = [report for report in metrics.classes if report.accuracy is not None]
    if present:
        weakest = min(present, key=lambda report: report.accuracy or 0.0)
        tiles.append(("Weakest class", share_text(weakest.accuracy), f"“{weakest.name}”"))
    return [Tile(name, value, note) for name, value, note in tiles]


def _pairs(metrics: ClassificationMetrics, links: Mapping[str, str]) -> list[dict[str, object]]:
    """Return the most frequently confused pairs of classes, the most frequent first."""
    return [
        {
            "true": metrics.classes[pair.label].name,
            "predicted": metrics.classes[pair.predicted].name,
            "times": pair.times,
            "share": pair.times / metrics.classes[pair.label].support,
            "link": links.get(cell_id(pair.label, pair.predicted)),
        }
        for pair in metrics.confused[:MAX_CONFUSED_PAIRS]
    ]


def _cards(curves: Curves) -> Iterator[Card]:
    yield from _loss_cards(curves)
    yield from _evaluation_cards(curves)
    if curves.learning_rate:
        yield _card("Learning rate", [Line("learning rate", curves.learning_rate, "line-2")], [])
    if curves.time_shares:
        names = {"compute_s": "computing", "data_s": "waiting for data", "exchange_s": "exchanging"}
        shares = enumerate(curves.time_shares.items())
        lines = [Line(names[name], points, f"line-{at}") for at, (name, points) in shares]
        yield _card("Where the workers' time goes", lines, lines, is_share=True)
    titles = {"images_per_s": "Images per second, each worker", "distance": "Distance of a worker from the center"}
    for name in (name for name in titles if name in curves.workers):
        lines = _worker_lines(curves.workers[name])
        yield _card(titles[name], lines, _worker_legend(lines))
    yield from _exchange_cards(curves)


def _loss_cards(curves: Curves) -> Iterator[Card]:
    if not curves.mean_loss:
        return
    lines = _worker_lines(curves.loss)
    mean = Line(f"mean of {curves.smoothing} reports", curves.mean_loss, "mean")
    if curves.smoothing == 1:
        yield _card("Training loss", [replace(lines[0], style="line-0")], [], wants_log=True)
    else:
        yield _card("Training loss", [*lines, mean], [*_worker_legend(lines), mean], wants_log=True)


def _worker_lines(points: Mapping[int, list[Point]]) -> list[Line]:
    """Return a line per worker; many workers share a colour, since a dozen entries of a legend say nothing."""
    is_named = len(points) <= MAX_NAMED_WORKERS
    return [
        Line(f"worker {worker}", line, f"line-{at % N_COLOURS if is_named else 0} thin")
        for at, (worker, line) in enumerate(points.items())
    ]


def _worker_legend(lines: Sequence[Line]) -> list[Line]:
    return list(lines) if len(lines) <= MAX_NAMED_WORKERS else [Line("workers", [], "line-0 thin")]


def _marked_lines(curves: Mapping[str, Sequence[Point]]) -> list[Line]:
    return [
        Line(name, points, f"line-{at % N_COLOURS}", has_marks=True) for at, (name, points) in enumerate(curves.items())
    ]


def _evaluation_cards(curves: Curves) -> Iterator[Card]:
    shares = {name: points for name, points in curves.evaluations.items() if "acc" in name.lower()}
    losses = {name: points for name, points in curves.evaluations.items() if name not in shares}
    for title, chosen, is_share in (("Test accuracy", shares, True), ("Test loss", losses, False)):
        if lines := _marked_lines(chosen):
            yield _card(title, lines, lines, wants_log=not is_share, is_share=is_share)


def _exchange_cards(curves: Curves) -> Iterator[Card]:
    titles = {
        "exchanges_per_s": "Exchanges per second, all workers",
        "bytes_per_s": "Megabytes per second to and from the center",
        "staleness": "Staleness, exchanges by others since a worker's pull",
        "lost_updates": "Lost updates, share of what was pushed",
    }
    chosen = {name: curves.exchange[name] for name in titles if len(curves.exchange.get(name, [])) > 1}
    if "bytes_per_s" in chosen:
        chosen["bytes_per_s"] = [(clock, value / 1e6) for clock, value in chosen["bytes_per_s"]]
    for line in _marked_lines(chosen):
        yield _card(titles[line.name], [line], [])


def _card(
    title: str, lines: Sequence[Line], legend: Sequence[Line], *, wants_log: bool = False, is_share: bool = False
) -> Card:
    y_format = share_tick if is_share else _number_text
    x_label = "clock, minibatches"
    chart = line_chart(
        lines, label=title, x_label=x_label, y_format=y_format, wants_log=wants_log, width=500, height=240
    )
    return Card(title, Markup(chart), legend, Markup(line_table(lines, x_label=x_label, y_format=y_format)))


def _number_text(value: float) -> str:
    """Return a value of an axis: four digits, or all of a large number rather than a power of ten.

    Example:
        >>> _number_text(0.046875), _number_text(150000.0)
        ('0.04688', '150,000')
    """
    return grouped(value) if abs(value) >= 1_000 else f"{value:.4g}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _mistakes(metrics: ClassificationMetrics, pictures: Mapping[int, Picture]) -> list[dict[str, object]]:
    names = [report.name for report in metrics.classes]
    return [
        {
            "index": mistake.index,
            "true": names[mistake.label],
            "predicted": names[mistake.predicted],
            "probability": mistake.probability,
            "label_probability": mistake.label_probability,
            **picture_view(pictures[mistake.index]),
        }
        for mistake in metrics.mistakes
        if mistake.index in pictures
    ]


def _explained(metrics: ClassificationMetrics, names: Sequence[str], maps: Sequence[Example]) -> list[Section]:
    """Return the section of the mistakes with saliency maps; empty without maps."""
    if not maps:
        return []
    mistakes = {mistake.index: mistake for mistake in metrics.mistakes}
    lead = (
        "Where the net looks: red pixels raise the score of the wrong class, blue pixels lower the score. "
        "From left to right: " + ", ".join(name for name, _ in maps[0].pictures) + "."
    )
    explained = []
    for example in maps:
        mistake = mistakes[example.index]
        answer = f"{names[mistake.label]} taken for {names[mistake.predicted]}"
        explained.append(shown(example, [answer, share_text(mistake.probability)]))
    return [Section("Pixels behind the worst mistakes", lead, shown=explained)]


def _grouped_samples(
    groups: SampleGroups, pictures: Mapping[int, Picture], sample_names: Mapping[int, str]
) -> list[dict[str, object]]:
    """Return each sample once, with the groups of the sample."""
    ids_of: dict[int, list[str]] = {}
    for group in groups.groups:
        for index in group.indices:
            ids_of.setdefault(index, []).append(group.id)
    return [
        {
            "name": sample_names.get(index, f"sample {index}"),
            "lines": lines,
            "group_ids": ids_of[index],
            "picture": picture_view(pictures[index]) if index in pictures else None,
        }
        for index, lines in groups.texts.items()
    ]


def _facts(metrics: MetricsReport, settings: Mapping[str, str]) -> dict[str, str]:
    scored = metrics.scored
    facts = {
        "Weights": scored.weights,
        "Weights digest": scored.weights_digest,
        "Dataset": f"{scored.dataset} ({scored.split})",
        "Dataset digest": scored.dataset_digest,
        "Class scores" if classes_of(metrics) else "Answers": f"blob {scored.score_blob}",
        **({} if classes_of(metrics) else {"Compared with": f"blob {scored.target_blob}"}),
        **settings,
    }
    if metrics.n_ignored:
        facts["Ignored"] = f"{grouped(metrics.n_ignored)} {metrics.counted} with the net's ignore_label"
    return facts
