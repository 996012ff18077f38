import xml.etree.ElementTree as ET

import numpy as np
import pytest

from deepspark_ops.evaluate.figures.calibration import CalibrationSum
from deepspark_ops.evaluate.figures.figure_charts import (
    MAX_BARS,
    MAX_CURVES,
    bar_chart,
    density_chart,
    drawn_curves,
    precision_recall_curves,
    reliability_chart,
    residual_chart,
    roc_curves,
)
from deepspark_ops.evaluate.figures.ranking import RankingSum
from deepspark_ops.evaluate.figures.regression import Density, RegressionSum, ResidualHistogram


def parsed(chart):
    return ET.fromstring(f"<div>{chart}</div>")


def table(chart):
    """Return the texts of each row of the table below a chart."""
    return [[cell.text for cell in row] for row in parsed(chart).iter("tr")]


def lines(svg):
    return {
        (line.findtext("title") or line.get("class")): [
            tuple(float(part) for part in pair.split(",")) for pair in line.get("points").split()
        ]
        for line in parsed(svg).iter("polyline")
    }


def boxes(svg, style="box"):
    return [
        (
            *(float(rect.get(name)) for name in ("x", "y", "width", "height")),
            rect.findtext("title"),
            float(rect.get("fill-opacity", "1")),
        )
        for rect in parsed(svg).iter("rect")
        if rect.get("class") == style
    ]


def ranked(n_classes):
    rng = np.random.default_rng(1)
    total = RankingSum(n_classes)
    total.add(rng.random((80, n_classes)), rng.random((80, n_classes)) < 0.5)
    return {f"c<{at}": ranked_class for at, ranked_class in enumerate(total.result().classes)}


def test_roc_goes_from_corner_to_corner_and_bends_as_counted():
    total = RankingSum(1)
    total.add(np.array([[0.9], [0.6], [0.4]]), np.array([[True], [False], [True]]))
    classes = {"a": total.result().classes[0]}
    chart, values = roc_curves(classes)
    drawn = lines(chart)
    curve, chance = drawn["a: area 0.5000"], drawn["by chance"]
    assert (curve[0], curve[-1]) == (chance[0], chance[-1])
    (x0, y0), (x1, y1) = chance
    shares = [((x - x0) / (x1 - x0), (y - y0) / (y1 - y0)) for x, y in curve]
    expected = [(0, 0), (0, 0.5), (1, 0.5), (1, 1)]
    assert [part for point in shares for part in point] == pytest.approx([p for e in expected for p in e], abs=1e-3)
    assert table(values) == [["false positive rate", "a: area 0.5000"], ["0", "0.5"], ["1", "1"]]


def test_curves_are_few_and_escaped():
    classes = ranked(9)
    for svg, _ in (roc_curves(classes), precision_recall_curves(classes)):
        assert sum(name.startswith("c<") for name in lines(svg)) == MAX_CURVES
    assert [line.name for line in drawn_curves(classes)] == [f"c<{at}" for at in range(MAX_CURVES)]


def test_precision_falls_as_counted():
    total = RankingSum(1)
    total.add(np.array([[0.9], [0.6], [0.4]]), np.array([[True], [False], [True]]))
    classes = {"a": total.result().classes[0]}
    chart, values = precision_recall_curves(classes)
    drawn = lines(chart)
    curve = drawn["a: average precision 0.8333"]
    (x0, bottom), (right, _) = drawn["line none"]
    assert [round((x - x0) / (right - x0), 3) for x, _ in curve] == [0.5, 0.5, 1.0]
    head = ["recall", "a: average precision 0.8333"]
    assert table(values) == [head, ["0.5", "0.5"], ["1", "0.6667"]]
    heights = [bottom - y for _, y in curve]
    assert heights[1] / heights[0] == pytest.approx(0.5, abs=0.01)
    assert heights[2] / heights[0] == pytest.approx(2 / 3, abs=0.01)


def test_reliability_bars_are_as_high_as_the_share_of_right_answers():
    total = CalibrationSum(4)
    total.add(np.array([0.3, 0.4, 0.9, 0.9]), np.array([True, False, True, True]))
    svg = reliability_chart(total.result())
    low, high = boxes(svg)
    assert high[3] / low[3] == pytest.approx(2.0, abs=0.01)
    assert low[4] == "2 answers with confidence 0.25 to 0.5: 50.0 % right, mean confidence 35.0 %"
    gaps = boxes(svg, "gap")
    assert gaps[0][3] / low[3] == pytest.approx(0.15 / 0.5, abs=0.01)
    assert gaps[1][3] / high[3] == pytest.approx(0.1, abs=0.01)
    assert table(svg)[2] == ["0.25 to 0.5", "2", "50.0 %", "35.0 %"]


def test_bars_are_links_where_an_address_is_known():
    total = CalibrationSum(4)
    total.add(np.array([0.3, 0.9]), np.array([True, False]))
    svg = reliability_chart(total.result(), {1: "?a=1&b=<2>"})
    assert svg.count("<a ") == svg.count("</a>") == 1
    title = "1 answer with confidence 0.25 to 0.5: 100.0 % right, mean confidence 30.0 %"
    assert f'<a href="?a=1&amp;b=&lt;2&gt;" aria-label="{title}"><rect class="box"' in svg
    assert 'role="group"' in svg
    svg = residual_chart(ResidualHistogram(-1.0, 0.5, (1, 0, 4, 2), 3, 0), links={1: "#none", 2: "#x"})
    assert svg.count("<a ") == 1  # a bar without samples is no link
    assert '<a href="#x" aria-label="0 to 0.5: 4 samples">' in svg
    assert 'role="img"' in residual_chart(ResidualHistogram(-1.0, 0.5, (1,), 0, 0))


def test_residual_bars_stand_in_order_with_heights_by_count():
    svg = residual_chart(ResidualHistogram(-1.0, 0.5, (1, 0, 4, 2), 3, 0))
    bars = boxes(svg)
    assert [bar[3] / bars[0][3] for bar in bars] == pytest.approx([1, 4, 2], abs=0.05)
    assert bars[0][0] < bars[1][0] < bars[2][0]
    assert bars[1][4] == "0 to 0.5: 4 samples"
    assert "predicted minus true (3 further out)" in svg
    head = ["predicted minus true", "samples"]
    assert table(svg) == [head, ["-1 to -0.5", "1"], ["0 to 0.5", "4"], ["0.5 to 1", "2"]]


def test_density_has_truth_across_and_prediction_up():
    svg = density_chart(Density(0.0, 0.0, 1.0, ((1, 0), (0, 4))))
    first, second = boxes(svg)
    assert second[0] > first[0]
    assert second[1] < first[1]
    assert (first[5], second[5]) == (pytest.approx(0.56), 1.0)
    (start, end) = lines(svg)["line guide dash"]
    assert start[0] == pytest.approx(first[0], abs=0.1)
    assert end[1] == pytest.approx(second[1], abs=0.1)


def test_lengths_of_bars_are_shares():
    svg = bar_chart([("sky & sea", 0.5), ("road", 1.0), ("never", None)], label="IoU")
    bars = boxes(svg)
    assert [bar[2] for bar in bars] == [150.0, 300.0, 0.0]
    titles = [title.text for title in parsed(svg).iter("title")]
    assert titles == ["sky & sea: 50.0 %", "road: 100.0 %", "never: \u2013"]
    assert len(boxes(bar_chart([("a", 0.1)] * 99, label="x"))) == MAX_BARS


@pytest.mark.parametrize("value", [0.0, 3.0, -1e6])
def test_equal_values_are_drawn(value):
    total = RegressionSum(1)
    total.add(np.full((5, 1), value), np.full((5, 1), value))
    output = total.result().outputs[0]
    for svg in (residual_chart(output.residuals), density_chart(output.density)):
        assert "nan" not in svg
        assert "inf" not in svg
        assert len(boxes(svg)) == 1
