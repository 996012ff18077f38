import numpy as np
import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.comparison.section import make_section, section_view, with_decision
from deepspark_ops.evaluate.report import render_report
from deepspark_ops.run_view.curves import read_curves
from tests.reference.evaluations import answers_with, evaluation
from tests.unit.deepspark_ops.evaluate.test_report import Balance

LABELS = np.arange(120) % 4
NAMES = ("<zero>", "one", "two", "three")


def evaluation_of(*wrong, **options):
    return evaluation(answers_with(LABELS, wrong, n_classes=4), LABELS, n_classes=4, names=NAMES, **options)


def picture_of(section):
    return {index: np.full((8, 8), index, np.uint8) for index in section.shown_samples()}


def page_of(mine, production, **options):
    section = make_section(mine, production, options.get("known"))
    return render_report(
        mine.metrics, curves=read_curves([]), pictures=picture_of(section), settings={}, section=section
    )


def test_samples_with_different_answers_are_listed_by_classes_in_turn():
    # Production is wrong on five samples of class 0 and one of class 1, this run on two of class 3.
    section = make_section(evaluation_of(3, 7), evaluation_of(0, 4, 8, 12, 16, 1), None)
    assert [(sample.index, sample.label, sample.candidate, sample.production) for sample in section.gained] == [
        (0, 0, 0, 1),
        (1, 1, 1, 2),
        (4, 0, 0, 1),
        (8, 0, 0, 1),
        (12, 0, 0, 1),
        (16, 0, 0, 1),
    ]
    assert [(sample.index, sample.candidate, sample.production) for sample in section.lost] == [(3, 0, 3), (7, 0, 3)]
    assert [(change.label, change.n_gained, change.n_lost) for change in section.changed_classes()] == [
        (0, 5, 0),
        (3, 0, 2),
        (1, 1, 0),
    ]


def test_only_samples_with_a_picture_are_shown_where_that_is_asked():
    section = make_section(
        evaluation_of(3, 7), evaluation_of(0, 4, 8, 12, 16, 1), None, has_picture={4, 16, 7}.__contains__
    )
    assert section.shown_samples() == (4, 16, 7)
    assert (section.comparison.n_gained, section.comparison.n_lost) == (6, 2)


def test_no_more_pictures_than_a_page_takes():
    section = make_section(evaluation_of(), evaluation_of(*range(40)), None)
    assert len(section.gained) == 12
    assert len(section_view(section, NAMES, picture_of(section))["gained"]) == 12
    assert section_view(section, NAMES, {})["gained"] == []


def test_page_shows_both_nets_and_their_differences():
    known_content = np.arange(100).astype(np.uint64)
    page = page_of(
        evaluation_of(3, 7, speed=500.0), evaluation_of(0, 4, 8, 12, 16, 1, speed=400.0), known=known_content
    )
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    assert "Against production" in page
    assert "20 of the samples are new since production was promoted." in page
    assert "+3.3 points" in page
    assert "Right now, wrong before" in page
    assert page.count("data:image/png;base64,") == 8 + 2  # and the two mistakes
    assert "now &lt;zero&gt;, was one" in page
    assert "<zero>" not in page
    assert ">500</td>" in page


def test_page_of_equal_nets_says_so():
    page = page_of(evaluation_of(1), evaluation_of(1))
    assert "Both nets get the same samples right." in page
    assert "Which of the samples are new since production was promoted is not known." in page
    assert "Right now, wrong before" not in page


def test_page_without_production_has_no_section():
    mine = evaluation_of(1)
    assert "Against production" not in render_report(mine.metrics, curves=read_curves([]), pictures={}, settings={})


def test_decision_is_put_in_its_place_once():
    page = page_of(evaluation_of(1), evaluation_of(2))
    first = with_decision(page, promotes=False, reason="kept production: class <x> fell")
    assert '<p class="decision kept">Kept production: class &lt;x&gt; fell</p>' in first
    second = with_decision(first, promotes=True, reason="promoted: why")
    assert second.count('class="decision ') == 1
    assert '<p class="decision promoted">Promoted: why</p>' in second
    assert with_decision("<p>other page</p>", promotes=True, reason="x") == "<p>other page</p>"


def test_evaluations_of_other_samples_are_refused():
    with pytest.raises(DataError, match="scored on other samples"):
        make_section(evaluation_of(), evaluation_of(data="other"), None)
