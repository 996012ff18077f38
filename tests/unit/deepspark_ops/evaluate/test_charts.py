import base64
import re
import xml.etree.ElementTree as ET

import cv2
import numpy as np
import pytest

from deepspark_ops.evaluate.charts import (
    MAX_TABLE_ROWS,
    Line,
    confusion_chart,
    difference_chart,
    line_chart,
    line_table,
    log_ticks,
    nice_ticks,
    share_tick,
    thin_out,
)


def polylines(svg):
    root = ET.fromstring(svg)
    return [
        [tuple(float(part) for part in pair.split(",")) for pair in line.get("points").split()]
        for line in root.iter("polyline")
    ]


def test_line_keeps_proportions_and_larger_values_lie_higher():
    svg = line_chart(
        [Line("loss", [(0, 0.0), (50, 5.0), (100, 10.0)], "line-0")], label="x", x_label="clock", y_format=str
    )
    (points,) = polylines(svg)
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.11)  # coordinates are rounded to a tenth
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.11)
    assert y0 > y2


def test_log_axis_gives_equal_factors_equal_heights():
    svg = line_chart(
        [Line("", [(0, 0.01), (1, 0.1), (2, 1.0)], "line-0")], label="x", x_label="c", y_format=str, wants_log=True
    )
    ((_, y0), (_, y1), (_, y2)) = polylines(svg)[0]
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.11)


@pytest.mark.parametrize("points", [[(5, 2.0)], [(5, 0.0), (6, 0.0)], [(0, -3.0), (1, 4.0)]])
def test_degenerate_lines_are_drawn(points):
    svg = line_chart([Line("a", points, "line-0", has_marks=True)], label="x", x_label="c", y_format=str)
    assert "nan" not in svg
    assert "inf" not in svg
    assert len(polylines(svg)[0]) == len(points)


def test_names_are_escaped_everywhere():
    names = ["a<b", "c&d"]
    svg = confusion_chart(np.array([[1, 2], [0, 3]]), names)
    titles = [title.text for title in ET.fromstring(svg).iter("title")]
    assert "true a<b, predicted c&d: 2 of 3" in titles


def test_confusion_cells_stand_in_their_row_and_column_with_strength_by_share():
    svg = confusion_chart(np.array([[3, 1], [0, 4]]), ["a", "b"])
    cells = {}
    for group in ET.fromstring(svg).iter("g"):
        rect = group.findall("rect")
        title = group.find("title").text
        box = rect[0]
        opacity = float(rect[1].get("fill-opacity")) if len(rect) > 1 else 0.0
        kind = rect[1].get("class") if len(rect) > 1 else ""
        cells[title] = (float(box.get("x")), float(box.get("y")), opacity, kind)
    wrong = cells["true a, predicted b: 1 of 4"]
    right = cells["true a, predicted a: 3 of 4"]
    below = cells["true b, predicted a: 0 of 4"]
    assert wrong[0] > right[0]
    assert wrong[1] == right[1]
    assert below[1] > right[1]
    assert wrong[2] == pytest.approx(0.12 + 0.88 * 0.5)  # square root of a quarter
    assert (right[3], wrong[3], below[3]) == ("right", "wrong", "")


def test_many_classes_become_one_small_image():
    n = 1000
    matrix = np.eye(n, dtype=np.int64) * 40
    matrix[3, 5] = 10
    html = confusion_chart(matrix, [str(k) for k in range(n)])
    assert html.startswith("<img")
    assert len(html) < 100_000
    encoded = re.search(r"base64,([^\"]+)", html)[1]
    pixels = cv2.imdecode(np.frombuffer(base64.b64decode(encoded), np.uint8), cv2.IMREAD_UNCHANGED)
    assert pixels.shape == (n, n, 4)
    assert pixels[3, 5, 3] == round(255 * (10 / 50) ** 0.5)
    assert pixels[5, 3, 3] == 0


def cells_of(svg):
    cells = {}
    for group in ET.fromstring(svg).iter("g"):
        boxes, text = group.findall("rect"), group.find("text")
        kind = (boxes[1].get("class"), float(boxes[1].get("fill-opacity"))) if len(boxes) > 1 else None
        cells[group.find("title").text] = (kind, None if text is None else text.text)
    return cells


def test_difference_shows_the_second_minus_the_first_with_its_sign():
    first, second = np.array([[9, 1], [4, 6]]), np.array([[5, 5], [4, 7]])
    cells = cells_of(difference_chart(first, second, ["a<b", "c"]))
    counts = "true {}, predicted {}: {} in the first, {} in the second"
    assert cells == {
        counts.format("a<b", "a<b", 9, 5): (("fewer", 1.0), "\u22124"),
        counts.format("a<b", "c", 1, 5): (("more", 1.0), "+4"),
        counts.format("c", "a<b", 4, 4): (None, None),
        counts.format("c", "c", 6, 7): (("more", 0.12 + 0.88 * 0.5), "+1"),  # square root of a quarter
    }


def test_difference_of_equal_matrices_is_empty_and_numbers_stand_where_they_are_legible():
    same = np.eye(3, dtype=np.int64)
    assert {cell for cell in cells_of(difference_chart(same, same, ["a", "b", "c"])).values()} == {(None, None)}
    matrix = np.eye(40, dtype=np.int64)
    texts = {text for _, text in cells_of(difference_chart(matrix, 2 * matrix, [str(k) for k in range(40)])).values()}
    assert texts == {None}


@pytest.mark.parametrize("n_classes", [2, 3, 10, 21, 30])
@pytest.mark.parametrize("largest", [99, 9_999, 123_456, 9_999_999, 2_147_483_647])
@pytest.mark.parametrize("chart", ["confusion", "difference"])
def test_numbers_stay_inside_of_their_cells(n_classes, largest, chart):
    matrix = np.random.default_rng(0).integers(0, largest, (n_classes, n_classes), endpoint=True)
    matrix[0, 1] = largest
    names = [str(k) for k in range(n_classes)]
    svg = confusion_chart(matrix, names) if chart == "confusion" else difference_chart(matrix, matrix.T, names)
    n_texts = 0
    for group in ET.fromstring(svg).iter("g"):
        if (text := group.find("text")) is not None:
            n_texts += 1
            # 0.696 font sizes: a bold digit of DejaVu Sans, the widest font of the page's; M, G and signs are counted
            # as 0.995, 0.821 and 0.838 of DejaVu Sans Bold.
            widths = {"M": 0.995, "G": 0.821, "+": 0.838, "\u2212": 0.838, ".": 0.38}
            width = float(text.get("font-size")) * sum(widths.get(letter, 0.696) for letter in text.text)
            assert width <= float(group.find("rect").get("width")), text.text
            assert float(text.get("font-size")) >= 5
    if chart == "confusion" or n_classes < 30:  # five letters do not fit into 19 pixels
        assert n_texts >= n_classes


def test_large_counts_are_shortened_only_where_they_would_be_illegible():
    matrix = np.array([[123_456, 1_999_999], [12, 2_147_483_647]])
    assert [text for _, text in cells_of(confusion_chart(matrix, ["a", "b"])).values()] == [
        "123456", "1999999", "12", "2.1G",
    ]  # fmt: skip
    large_matrix = np.full((30, 30), 123_456)
    cells = cells_of(confusion_chart(large_matrix, [str(k) for k in range(30)]))
    assert {text for _, text in cells.values()} == {"123k"}
    assert "true 3, predicted 4: 123456 of 3703680" in cells


def test_thinning_keeps_the_mean():
    points = [(float(k), float(k * k)) for k in range(1000)]
    thin = thin_out(points, most=100)
    assert len(thin) == 100
    assert sum(y for _, y in thin) / 100 == pytest.approx(sum(y for _, y in points) / 1000)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.93, 0.986), (-3.0, 700.0), (1e-7, 3e-7), (5.0, 5.0)])
def test_ticks_cover_the_range_with_few_round_values(low, high):
    ticks = nice_ticks(low, high, 5)
    assert ticks[0] <= low
    assert ticks[-1] >= high
    assert 2 <= len(ticks) <= 9


def test_log_ticks_of_many_decades_stay_few():
    assert len(log_ticks(1e-20, 1e20)) <= 8


def test_the_x_axis_names_the_ticks_that_are_given() -> None:
    points = [(1.0, 1.0), (4.0, 3.0), (16.0, 9.0)]
    svg = line_chart(
        [Line("a", points, "line-0")], label="x", x_label="workers", y_format=str, has_log_x=True, x_ticks=(1, 2, 4, 32)
    )
    assert re.findall(r'text-anchor="middle">(\d+)<', svg) == ["1", "2", "4"]


def test_a_charts_table_has_the_last_value_of_each_line_up_to_the_row() -> None:
    lines = [
        Line("all <", [(float(x), x / 100) for x in range(0, 101)], "line-0"),
        Line("late", [(60.0, 0.5)], "line-1"),
    ]
    table = ET.fromstring(line_table(lines, x_label="clock", y_format=share_tick))
    rows = [[cell.text for cell in row] for row in table.iter("tr")]
    assert rows[0] == ["clock", "all <", "late"]
    assert len(rows) == 1 + MAX_TABLE_ROWS
    assert (rows[1], rows[-1]) == (["0", "0 %", "\u2013"], ["100", "100 %", "50 %"])
    for x, loss, late in rows[1:]:
        assert (loss, late) == (f"{x} %", "50 %" if int(x) >= 60 else "\u2013")
    few = ET.fromstring(line_table(lines[1:], x_label="clock", y_format=share_tick))
    assert [[cell.text for cell in row] for row in few.iter("tr")][1:] == [["60", "50 %"]]
