import re
from html.parser import HTMLParser

import numpy as np
import pytest
from markupsafe import escape

from deepspark_ops.evaluate.report import render_report
from deepspark_ops.evaluate.scores import ScoreSum, softmax
from deepspark_ops.evaluate.task_pages.report_name import with_name
from deepspark_ops.evaluate.task_pages.sample_groups import SampleGroup, SampleGroups
from deepspark_ops.evaluate.tasks.classification import build_metrics
from deepspark_ops.evaluate.tasks.metrics_head import ScoredOn
from deepspark_ops.events import Event
from deepspark_ops.run_view.curves import read_curves

VOID = {"meta", "img", "br"}


class Balance(HTMLParser):
    """Fails on a tag that is closed out of order."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def make_metrics(*, n=300, n_classes=6, names=None, perfect=False):
    rng = np.random.default_rng(5)
    labels = rng.integers(0, n_classes, n)
    logits = rng.normal(size=(n, n_classes))
    logits[np.arange(n), labels] += 100 if perfect else 2
    total = ScoreSum(n_classes, worst=6)
    total.add(softmax(logits), labels)
    scored = ScoredOn(
        net="<net>",
        run="run & co",
        iteration=1000,
        weights="w.caffemodel",
        weights_digest="sha256:aa",
        dataset="/data/x",
        dataset_digest="sha256:bb",
        split="test",
        score_blob="ip",
    )
    return build_metrics(total.result(), scored, names or tuple(f"<c{k}>" for k in range(n_classes)))


def make_events():
    losses = [Event("loss", k, k % 2, {"loss": 5.0 / (k + 1), "learning_rate": 0.01}, float(k)) for k in range(40)]
    return [*losses, Event("evaluation", 40, 0, {"test_net": 0, "accuracy": 0.9, "loss": 0.2}, 41.0)]


def pictures_of(metrics):
    return {mistake.index: np.zeros((8, 8), np.uint8) for mistake in metrics.mistakes}


def report_of(metrics=None, **options):
    """Return the report of metrics; without options there are neither curves nor pictures."""
    options = {"curves": read_curves([]), "pictures": {}, "settings": {}} | options
    return render_report(metrics or make_metrics(), **options)


def assert_balanced(page):
    parser = Balance()
    parser.feed(page)
    assert parser.open == []


def test_page_is_balanced_and_needs_nothing_from_outside():
    metrics = make_metrics()
    page = report_of(metrics, curves=read_curves(make_events()), pictures=pictures_of(metrics), settings={"a": "b"})
    assert_balanced(page)
    assert not re.search(r"(https?:)?//(?!\s)[a-z]", page)
    assert "<script" not in page
    assert len(page) < 200_000


def test_page_of_many_classes_has_the_confused_pairs_in_place_of_the_matrix():
    metrics = make_metrics().model_copy(update={"confusion": ()})
    page = report_of(metrics, pictures=pictures_of(metrics))
    worst = metrics.confused[0]
    assert "<h2>Confused classes</h2>" in page
    assert "With 6 classes there is no matrix." in page
    assert "confusion" not in page.partition("</style>")[2]
    row = f'<td>&lt;c{worst.label}&gt;</td><td>&lt;c{worst.predicted}&gt;</td><td class="number">{worst.times}</td>'
    assert row in page


def test_text_of_the_user_is_escaped():
    metrics = make_metrics()
    page = report_of(metrics, pictures=pictures_of(metrics), settings={"<k>": "<script>alert(1)</script>"})
    for text in ("<net>", "<c1>", "run & co", "<script>", "<k>"):
        assert text not in page
    assert "&lt;net&gt;" in page


def test_every_mistake_has_its_picture_and_words():
    metrics = make_metrics()
    page = report_of(metrics, pictures=pictures_of(metrics))
    assert page.count("<figure>") == 6
    worst = metrics.mistakes[0]
    assert f"&lt;c{worst.label}&gt; taken for <b>&lt;c{worst.predicted}&gt;</b>" in page


def test_a_figure_leads_to_its_samples_without_a_script():
    metrics = make_metrics()
    counts = np.array(metrics.confusion)
    times, label, predicted = max((counts[k, j], k, j) for k, j in np.ndindex(6, 6) if k != j)
    bar = next(at for at, item in enumerate(metrics.calibration.bins) if item.count > 1)
    cell, of_class, of_bar = f"cell-{label}-{predicted}", f"class-{label}", f"confidence-{bar}"
    groups = SampleGroups(
        (
            SampleGroup(cell, "<a> taken for b", times, (7, 9)),
            SampleGroup(of_class, "All of class <a>", 40, (7,)),
            SampleGroup(of_bar, "Confidence", 1, (9,)),
        ),
        {9: ("<a> taken for b", "true class 1 %"), 7: ("<a>",)},
    )
    page = report_of(metrics, pictures={7: np.zeros((8, 8), np.uint8)}, groups=groups, sample_names={7: "a/<7>.png"})
    assert_balanced(page)
    names = f"true &lt;c{label}&gt;, predicted &lt;c{predicted}&gt;"
    assert page.count(f'<a href="#{cell}" aria-label="{names}: {times} of ') == 1
    assert f'<a href="#{cell}">&lt;c{label}&gt;</a>' in page  # in the table of pairs
    assert f'<td><a href="#{of_class}">&lt;c{label}&gt;</a></td>' in page
    assert page.count(f'<a href="#{of_bar}" aria-label="') == 1
    section = page[page.index('<section class="samples"') : page.index("</section>", page.index('class="samples"'))]
    assert f'&lt;a&gt; taken for b <span class="soft">(2 of {times} samples, the largest loss first)' in section
    assert re.findall(r'<figure class="(.*?)">', section) == [f"{cell} {of_bar}", f"{cell} {of_class}"]
    assert section.count("<img") == 1  # each sample has its picture once
    assert "a/&lt;7&gt;.png" in section
    assert "sample 9" in section
    for group in groups.groups:
        assert f'<h3 id="{group.id}"' in section
        assert f"#{group.id}:target ~ .gallery .{group.id} {{ display: block; }}" in page
    assert "<a>" not in page
    assert "<script" not in page


def test_without_samples_no_figure_promises_samples():
    page = report_of()
    assert '<section class="samples"' not in page
    assert "to samples" not in page
    assert 'href="#' not in page


def test_the_head_has_the_name_of_the_run_and_its_tags():
    page = report_of(name="first: <try>", tags=("paper", "<b>"))
    assert "<title>first: &lt;try&gt;: " in page
    assert '<h1>first: &lt;try&gt; <span class="tag">paper</span> <span class="tag">&lt;b&gt;</span></h1>' in page
    assert "Net <b>&lt;net&gt;</b>, run <b>run &amp; co</b>" in page
    assert "<h1>&lt;net&gt;</h1>" in report_of()
    for other, tags in ((r"again \1 & <more>: 2", ("<i>",)), ("x", ())):
        page = with_name(page, other, tags)
        assert page.count(f"<title>{escape(other)}: ") == page.count(f"<h1>{escape(other)}") == 1
        assert re.findall(r'<span class="tag">(.*?)</span>', page) == [escape(tag) for tag in tags]
        assert "first:" not in page
    assert with_name("<title>old: 1</title><h1>old</h1>", "new", ()) == "<title>old: 1</title><h1>old</h1>"


def test_four_charts_are_drawn_from_the_events():
    page = report_of(curves=read_curves(make_events()))
    for title in ("Training loss", "Test accuracy", "Test loss", "Learning rate"):
        assert f"<h3>{title}</h3><svg" in page


def test_what_workers_and_center_did_is_drawn():
    measures = {"loss": 1.0, "images_per_s": 50.0, "distance": 0.1, "compute_s": 1.0, "data_s": 0.5, "exchange_s": 0.5}
    served = {"exchanges_per_s": 5.0, "bytes_per_s": 2e6, "staleness": 1.0, "lost_updates": 0.0}
    events = [Event("loss", clock, clock % 2, measures, 0.0) for clock in range(4)]
    events += [Event("server", clock, -1, served, 0.0) for clock in (1, 2)]
    page = report_of(curves=read_curves(events))
    for title in (
        "Where the workers' time goes",
        "Images per second, each worker",
        "Distance of a worker from the center",
        "Exchanges per second, all workers",
        "Megabytes per second to and from the center",
        "Staleness, exchanges by others since a worker's pull",
        "Lost updates, share of what was pushed",
    ):
        assert f"<h3>{escape(title)}</h3><svg" in page
    assert "</svg>exchanging</li>" in page


def test_run_without_events_or_mistakes_says_so_by_leaving_sections_out():
    page = report_of(make_metrics(perfect=True))
    assert "<h2>Training</h2>" not in page
    assert "<h2>Worst mistakes</h2>" not in page
    assert "No mistakes on these samples." in page


@pytest.mark.slow
def test_a_thousand_classes_stay_below_two_megabytes():
    metrics = make_metrics(n=5000, n_classes=1000, names=tuple(f"class number {k}" for k in range(1000)))
    large = {
        mistake.index: np.random.default_rng(0).integers(0, 255, (256, 256, 3), np.uint8)
        for mistake in metrics.mistakes
    }
    page = report_of(metrics, curves=read_curves(make_events()), pictures=large)
    assert len(page) < 2_000_000


def test_ranking_and_calibration_are_shown_and_old_files_go_without():
    metrics = make_metrics()
    page = report_of(metrics)
    assert f"Expected calibration error {100 * metrics.calibration.ece:.1f}" in page
    worst = min(range(6), key=lambda at: metrics.ranking.classes[at].roc_auc)
    assert f"&lt;c{worst}&gt;: area {metrics.ranking.classes[worst].roc_auc:.4f}" in page
    for title in ("ROC curves", "Precision over recall", "Reliability"):
        assert f"<h3>{title}</h3>" in page
    old = metrics.model_copy(update={"ranking": None, "calibration": None})
    assert "Reliability" not in report_of(old)
