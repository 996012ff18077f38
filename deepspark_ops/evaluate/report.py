"""``report.html``: one page that holds everything it shows, works without a network, in light, in dark and on paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib import resources
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from deepspark_ops.evaluate.charts import Line, confusion_chart, data_uri, grouped, line_chart
from deepspark_ops.evaluate.curves import Curves, Point
from deepspark_ops.evaluate.metrics import ClassReport, MetricsReport

Picture = npt.NDArray[np.uint8]

N_COLOURS = 6
MAX_NAMED_WORKERS = 8
MAX_CONFUSED_PAIRS = 10
PICTURE_PIXELS = 160
"""Larger pictures are scaled down to this, so that a page with ImageNet's mistakes stays small."""


def render_report(
    metrics: MetricsReport, *, curves: Curves, pictures: Mapping[int, Picture], settings: Mapping[str, str]
) -> str:
    """Return the page.

    Args:
        metrics: What was found.
        curves: Of the run's training; may be empty.
        pictures: Sample index -> gray (H, W) or BGR (H, W, 3) picture of a mistake; missing ones are left out.
        settings: Further facts about the run for the last section, name -> text.
    """
    title = metrics.scored.net or metrics.scored.run
    style = resources.files("deepspark_ops.evaluate").joinpath("report.css").read_text(encoding="utf-8")
    body = [
        _header(title, metrics),
        _tiles(metrics),
        _confusion(metrics),
        _classes(metrics),
        _training(curves),
        _mistakes(metrics, pictures),
        _origin(metrics, settings),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}: {percent(metrics.top1)} correct</title>\n<style>\n{style}</style></head>\n"
        f"<body><main>\n{''.join(body)}</main></body></html>\n"
    )


def percent(share: float | None) -> str:
    """Return a share as text with as many digits as make sense, a narrow space before the sign; a dash for none.

    Example:
        >>> [text.replace("\u202f", " ") for text in (percent(0.98611), percent(1.0), percent(0.9997))]
        ['98.6 %', '100 %', '99.97 %']
    """
    if share is None:
        return "\u2013"
    if share in (0.0, 1.0):
        return f"{share:.0%}".replace("%", "\u202f%")
    digits = 2 if share > 0.995 or share < 0.005 else 1
    return f"{100 * share:.{digits}f}\u202f%"


def _header(title: str, metrics: MetricsReport) -> str:
    scored = metrics.scored
    snapshot = f"snapshot at iteration {grouped(scored.iteration)}" if scored.iteration is not None else scored.weights
    dataset, when = Path(scored.dataset).name, metrics.created[:16].replace("T", " ")
    return (
        f"<header><h1>{escape(title)}</h1><p>Run <b>{escape(scored.run)}</b>, {escape(snapshot)}, scored on the "
        f"{scored.split} set of {escape(dataset)} &middot; {escape(when)} UTC"
        "</p></header>\n"
    )


def _tiles(metrics: MetricsReport) -> str:
    low, high = metrics.top1_interval
    n_wrong = metrics.n_samples - round(metrics.top1 * metrics.n_samples)
    tiles = [
        ("Top-1 accuracy", _value(percent(metrics.top1)), f"95 % interval {100 * low:.1f} to {100 * high:.1f}"),
        ("Mistakes", grouped(n_wrong), f"of {grouped(metrics.n_samples)} samples"),
    ]
    if metrics.top5 is not None:
        tiles.append(("Top-5 accuracy", _value(percent(metrics.top5)), "true class among the first five"))
    tiles.append(("Mean loss", f"{metrics.loss:.4f}", f"chance: {np.log(len(metrics.classes)):.3f}"))
    present = [report for report in metrics.classes if report.accuracy is not None]
    if present:
        weakest = min(present, key=lambda report: report.accuracy or 0.0)
        tiles.append(("Weakest class", _value(percent(weakest.accuracy)), f"“{escape(weakest.name)}”"))
    cells = "".join(
        f'<div class="tile{" first" if not at else ""}"><div class="name">{name}</div>'
        f'<div class="value">{value}</div><div class="note">{note}</div></div>'
        for at, (name, value, note) in enumerate(tiles)
    )
    return f'<section class="tiles">{cells}</section>\n'


def _value(text: str) -> str:
    return text.replace("\u202f%", '<span class="unit">%</span>')


def _confusion(metrics: MetricsReport) -> str:
    names = [report.name for report in metrics.classes]
    matrix = np.array(metrics.confusion, np.int64)
    return (
        "<h2>Confusion matrix</h2>"
        '<p class="lead">Each row is a true class, each column what the net took it for. Strength follows the share of '
        "the row.</p>"
        f'<div class="columns"><div class="card">{confusion_chart(matrix, names)}</div>'
        f'<div class="card"><h3>Most confused</h3>{_pairs(matrix, names)}</div></div>\n'
    )


def _pairs(matrix: npt.NDArray[np.int64], names: Sequence[str]) -> str:
    wrong = matrix - np.diag(np.diag(matrix))
    support = np.maximum(matrix.sum(axis=1), 1)
    flat = np.argsort(-wrong, axis=None, kind="stable")[:MAX_CONFUSED_PAIRS]
    places = zip(*np.unravel_index(flat, wrong.shape), strict=True)
    found = [(int(row), int(column)) for row, column in places if wrong[row, column]]
    if not found:
        return '<p class="soft">No mistakes on these samples.</p>'
    rows = "".join(
        f"<tr><td>{escape(names[row])}</td><td>{escape(names[column])}</td>"
        f'<td class="number">{wrong[row, column]}</td>'
        f'<td class="number soft">{percent(wrong[row, column] / support[row])}</td></tr>'
        for row, column in found
    )
    return (
        '<table><thead><tr><th>True</th><th>Taken for</th><th class="number">Times</th><th class="number">Of class</th>'
        f"</tr></thead><tbody>{rows}</tbody></table>"
    )


def _classes(metrics: MetricsReport) -> str:
    lowest = min((report.accuracy for report in metrics.classes if report.accuracy is not None), default=None)
    rows = "".join(_class_row(report, lowest) for report in metrics.classes)
    return (
        '<h2>Classes</h2><p class="lead">Accuracy is the share of a class that is recognised (its recall); precision '
        "is the share of the answers with this class that are right.</p>"
        '<div class="card wide"><table><thead><tr><th>Class</th><th>Accuracy</th><th class="number">Precision</th>'
        '<th class="number">F1</th><th class="number">Right</th><th class="number">Samples</th>'
        f'<th class="number">Answers</th></tr></thead><tbody>{rows}</tbody></table></div>\n'
    )


def _class_row(report: ClassReport, lowest: float | None) -> str:
    share = report.accuracy or 0.0
    mark = " lowest" if report.accuracy is not None and report.accuracy == lowest and share < 1 else ""
    return (
        f'<tr><td>{escape(report.name)}</td><td><span class="bar{mark}"><i style="width:{100 * share:.1f}%"></i></span>'
        f'{percent(report.accuracy)}</td><td class="number">{percent(report.precision)}</td>'
        f'<td class="number">{percent(report.f1)}</td><td class="number">{grouped(report.correct)}</td>'
        f'<td class="number">{grouped(report.support)}</td><td class="number">{grouped(report.predicted)}</td></tr>'
    )


def _training(curves: Curves) -> str:
    cards = [
        *(_loss_card(curves), *_evaluation_cards(curves), _rate_card(curves)),
        *(_time_card(curves), *_worker_cards(curves), *_exchange_cards(curves)),
    ]
    drawn = [card for card in cards if card]
    if not drawn:
        return ""
    workers = "1 worker" if curves.n_workers == 1 else f"{curves.n_workers} workers"
    return (
        f'<h2>Training</h2><p class="lead">{workers}, {_duration(curves.seconds)} from the first event to the last. '
        "The clock counts minibatches over all workers, as the solver's iterations do.</p>"
        f'<div class="charts">{"".join(drawn)}</div>\n'
    )


def _loss_card(curves: Curves) -> str:
    if not curves.mean_loss:
        return ""
    lines = _worker_lines(curves.loss)
    mean = Line(f"mean of {curves.smoothing} reports", curves.mean_loss, "mean")
    if curves.smoothing == 1:
        return _card("Training loss", [replace(lines[0], style="line-0")], [], wants_log=True)
    legend = [*_worker_legend(lines), mean]
    return _card("Training loss", [*lines, mean], legend, wants_log=True)


def _worker_lines(points: Mapping[int, list[Point]]) -> list[Line]:
    """Return a line per worker; many share one colour, since a dozen entries of a legend say nothing."""
    is_named = len(points) <= MAX_NAMED_WORKERS
    return [
        Line(f"worker {worker}", line, f"line-{at % N_COLOURS if is_named else 0} thin")
        for at, (worker, line) in enumerate(points.items())
    ]


def _worker_legend(lines: Sequence[Line]) -> list[Line]:
    return list(lines) if len(lines) <= MAX_NAMED_WORKERS else [Line("workers", [], "line-0 thin")]


def _evaluation_cards(curves: Curves) -> list[str]:
    shares = {name: points for name, points in curves.evaluations.items() if "acc" in name.lower()}
    others = {name: points for name, points in curves.evaluations.items() if name not in shares}
    cards = []
    for title, chosen, is_share in (("Test accuracy", shares, True), ("Test loss", others, False)):
        lines = [
            Line(name, points, f"line-{at % N_COLOURS}", has_marks=True)
            for at, (name, points) in enumerate(chosen.items())
        ]
        if lines:
            cards.append(_card(title, lines, lines, wants_log=not is_share, is_share=is_share))
    return cards


def _rate_card(curves: Curves) -> str:
    if not curves.learning_rate:
        return ""
    return _card("Learning rate", [Line("learning rate", curves.learning_rate, "line-2")], [])


def _time_card(curves: Curves) -> str:
    if not curves.time_shares:
        return ""
    names = {"compute_s": "computing", "data_s": "waiting for data", "exchange_s": "exchanging"}
    lines = [Line(names[name], points, f"line-{at}") for at, (name, points) in enumerate(curves.time_shares.items())]
    return _card("Where the workers' time goes", lines, lines, is_share=True)


def _worker_cards(curves: Curves) -> list[str]:
    titles = {"images_per_s": "Images per second, each worker", "distance": "Distance of a worker from the center"}
    drawn = {name: _worker_lines(curves.workers[name]) for name in titles if name in curves.workers}
    return [_card(titles[name], lines, _worker_legend(lines)) for name, lines in drawn.items()]


def _exchange_cards(curves: Curves) -> list[str]:
    titles = {
        "exchanges_per_s": "Exchanges per second, all workers",
        "bytes_per_s": "Megabytes per second to and from the center",
        "staleness": "Staleness, exchanges by others since a worker's pull",
        "lost_updates": "Lost updates, share of what was pushed",
    }
    chosen = {name: curves.exchange[name] for name in titles if len(curves.exchange.get(name, [])) > 1}
    if "bytes_per_s" in chosen:
        chosen["bytes_per_s"] = [(clock, value / 1e6) for clock, value in chosen["bytes_per_s"]]
    return [
        _card(titles[name], [Line(name, points, f"line-{at % N_COLOURS}", has_marks=True)], [])
        for at, (name, points) in enumerate(chosen.items())
    ]


def _card(
    title: str, lines: Sequence[Line], legend: Sequence[Line], *, wants_log: bool = False, is_share: bool = False
) -> str:
    y_format = _share_text if is_share else _number_text
    chart = line_chart(
        lines, label=title, x_label="clock, minibatches", y_format=y_format, wants_log=wants_log, width=500, height=240
    )
    entries = "".join(
        f'<li><svg viewBox="0 0 20 8"><line class="line {line.style}" x1="1" x2="19" y1="4" y2="4"/></svg>'
        f"{escape(line.name)}</li>"
        for line in legend
    )
    listed = f'<ul class="legend">{entries}</ul>' if len(legend) > 1 else ""
    return f'<div class="card"><h3>{title}</h3>{chart}{listed}</div>'


def _share_text(value: float) -> str:
    return f"{100 * value:.4g}\u202f%"


def _number_text(value: float) -> str:
    return f"{value:.4g}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _mistakes(metrics: MetricsReport, pictures: Mapping[int, Picture]) -> str:
    names = [report.name for report in metrics.classes]
    figures = "".join(
        f"<figure>{_picture(pictures[mistake.index], mistake.index)}<figcaption>{escape(names[mistake.label])} "
        f"taken for <b>{escape(names[mistake.predicted])}</b>"
        f'<br><span class="soft">{percent(mistake.probability)}, true {percent(mistake.label_probability)}</span>'
        "</figcaption></figure>"
        for mistake in metrics.mistakes
        if mistake.index in pictures
    )
    if not figures:
        return ""
    return (
        '<h2>Worst mistakes</h2><p class="lead">Wrong answers that the net was surest of: its probability for the '
        "answer, then for the true class.</p>"
        f'<div class="gallery">{figures}</div>\n'
    )


def _picture(picture: Picture, index: int) -> str:
    largest = max(picture.shape[:2])
    if largest > PICTURE_PIXELS:
        size = tuple(
            max(1, round(extent * PICTURE_PIXELS / largest)) for extent in (picture.shape[1], picture.shape[0])
        )
        picture = np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)
    kind = "picture small" if largest <= PICTURE_PIXELS // 2 else "picture"
    source = data_uri(picture, is_photo=largest > 64)
    return f'<img class="{kind}" alt="sample {index}" title="sample {index}" src="{source}">'


def _origin(metrics: MetricsReport, settings: Mapping[str, str]) -> str:
    scored = metrics.scored
    facts = {
        "Weights": scored.weights,
        "Weights digest": scored.weights_digest,
        "Dataset": f"{scored.dataset} ({scored.split})",
        "Dataset digest": scored.dataset_digest,
        "Class scores": f"blob {scored.score_blob}",
        **settings,
    }
    if metrics.n_ignored:
        facts["Ignored"] = f"{grouped(metrics.n_ignored)} samples with the net's ignore_label"
    entries = "".join(f"<dt>{escape(name)}</dt><dd><code>{escape(text)}</code></dd>" for name, text in facts.items())
    return f'<h2>Where this comes from</h2><div class="card"><dl>{entries}</dl></div>\n'
