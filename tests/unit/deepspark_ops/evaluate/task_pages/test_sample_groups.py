import re

import numpy as np
import pytest

from deepspark_ops.evaluate.report import render_report
from deepspark_ops.evaluate.task_pages.sample_groups import (
    MOST_OF_BARS,
    MOST_OF_CELLS,
    MOST_OF_CLASSES,
    MOST_PER_GROUP,
    SampleGroup,
    groups_behind_figures,
    limited,
)
from deepspark_ops.evaluate.tasks.task_sum import ReportHead
from deepspark_ops.run_view.curves import read_curves
from tests.unit.deepspark_ops.evaluate.per_sample.test_rows import write_scored_rows
from tests.unit.deepspark_ops.evaluate.tasks.test_merge import SCORED, N, task_answers


def groups_of(task, folder, *, rows=True):
    """Return the groups of a task's answers, its figures, answers, and targets."""
    chosen, values, targets = task_answers(task)
    for part in (range(50), range(50, N)):  # two files of rows, as two tasks of Spark write them
        write_scored_rows(folder / f"{part.start:015d}.parquet", chosen, values, targets, part)
    total = write_scored_rows(folder / "whole", chosen, values, targets, range(N))
    metrics = total.metrics(ReportHead(SCORED))
    return groups_behind_figures(metrics, total.samples(), folder if rows else None), metrics, values[0], targets


def by_id(groups):
    return {group.id: group for group in groups.groups}


def largest_loss_first(losses, positions):
    return tuple(sorted(positions, key=lambda at: (-losses[at], at)))


def check_bars(shown, chart, bars, values, losses, title):
    """Compare each bar with the samples whose values lie in the bar; return the number of bars with samples to open."""
    n_bars = 0
    for bar, count in enumerate(bars.counts):
        low, high = bars.low + bar * bars.width, bars.low + (bar + 1) * bars.width
        positions = [at for at in range(N) if low <= values[at] < high]
        assert len(positions) == count
        if (group := shown.get(f"{chart}-{bar}")) is not None:
            n_bars += 1
            assert group.count == count
            assert group.indices == largest_loss_first(losses, positions)[: len(group.indices)]
            assert group.title == f"{title} from {low:.4g} to {high:.4g}"
    return n_bars


def test_cells_classes_and_bars_of_a_classification_have_their_samples(tmp_path):
    groups, metrics, probabilities, labels = groups_of("classification", tmp_path)
    predicted, losses = probabilities.argmax(axis=1), -np.log(probabilities[np.arange(N), labels])
    expected = {}
    for at in range(N):
        expected.setdefault(f"cell-{labels[at]}-{predicted[at]}", []).append(at)
        expected.setdefault(f"class-{labels[at]}", []).append(at)
        confidence = float(np.float32(probabilities[at].max()))
        bar = next(k for k, item in enumerate(metrics.calibration.bins) if item.low < confidence <= item.high)
        expected.setdefault(f"confidence-{bar}", []).append(at)
    shown = by_id(groups)
    assert set(shown) == set(expected)
    for name, positions in expected.items():
        assert shown[name].count == len(positions)
        assert shown[name].indices == largest_loss_first(losses, positions)[: len(shown[name].indices)]
        assert 1 <= len(shown[name].indices) <= MOST_PER_GROUP
    assert [shown[f"confidence-{k}"].count for k, item in enumerate(metrics.calibration.bins) if item.count] == [
        item.count for item in metrics.calibration.bins if item.count
    ]
    assert tuple(groups.texts) == largest_loss_first(losses, groups.texts)
    wrong = next(at for at in groups.texts if predicted[at] != labels[at])
    assert groups.texts[wrong][0] == f"{labels[wrong]} taken for {predicted[wrong]}"
    share = 100 * probabilities[wrong, labels[wrong]]
    assert groups.texts[wrong][1] == f"true class {share:.1f} %"


def test_a_bar_of_residuals_has_its_samples(tmp_path):
    groups, metrics, predicted, true = groups_of("regression", tmp_path)
    residuals = predicted.astype(np.float64) - true.astype(np.float64)
    losses = (residuals**2).mean(axis=1)
    shown = by_id(groups)
    n_bars = 0
    for output, figures in enumerate(metrics.figures.outputs):
        title = f"Residual of output {output}"
        n_bars += check_bars(shown, f"residual-{output}", figures.residuals, residuals[:, output], losses, title)
    assert n_bars == len(groups.groups) > 20
    assert len(groups.texts) <= MOST_OF_BARS
    at = next(iter(groups.texts))
    assert groups.texts[at][0] == "predicted " + ", ".join(f"{value:.4g}" for value in predicted[at])


def test_a_bar_of_errors_of_a_reconstruction_has_its_samples(tmp_path):
    groups, metrics, given_back, original = groups_of("reconstruction", tmp_path, rows=False)
    losses = ((given_back.astype(np.float64) - original) ** 2).mean(axis=1)
    bars = metrics.figures.errors
    for bar, count in enumerate(bars.counts):
        if count:
            group = by_id(groups)[f"error-{bar}"]
            low = bars.low + bar * bars.width
            positions = [at for at in range(N) if low <= losses[at] < low + bars.width]
            assert group.count == count
            assert group.indices == largest_loss_first(losses, positions)[: len(group.indices)]


def test_without_rows_there_are_no_bars_of_residuals_and_confidences(tmp_path):
    assert groups_of("regression", tmp_path, rows=False)[0].groups == ()
    tasks = ("multi_label", "segmentation", "embedding")
    assert all(groups_of(task, tmp_path, rows=False)[0].groups == () for task in tasks)
    ids = by_id(groups_of("classification", tmp_path, rows=False)[0])
    assert {name.partition("-")[0] for name in ids} == {"cell", "class"}


def test_a_label_has_the_samples_with_it(tmp_path):
    groups, metrics, probabilities, labels = groups_of("multi_label", tmp_path)
    right = np.where(labels == 1, probabilities, 1 - probabilities)
    losses = -np.log(right).mean(axis=1)
    shown = by_id(groups)
    assert set(shown) == {"class-0", "class-1", "class-2"}
    for label, report in enumerate(metrics.figures.labels):
        positions = [at for at in range(N) if labels[at, label] == 1]
        assert shown[f"class-{label}"].title == f"With label “{report.name}”"
        assert shown[f"class-{label}"].count == len(positions)
        assert shown[f"class-{label}"].indices == largest_loss_first(losses, positions)[:MOST_PER_GROUP]
    names = [report.name for report in metrics.figures.labels]
    for at, lines in groups.texts.items():
        answered = [names[k] for k in range(3) if probabilities[at, k] > 0.5]
        present = [names[k] for k in range(3) if labels[at, k] == 1]
        assert lines == (f"answered: {', '.join(answered) or 'none'}", f"there: {', '.join(present)}")


def test_a_class_of_pixels_has_the_pictures_with_the_class(tmp_path):
    groups, metrics, scores, labels = groups_of("segmentation", tmp_path)
    losses = [np.mean(scores[at].argmax(axis=0) != labels[at]) for at in range(N)]
    shown = by_id(groups)
    assert set(shown) == {f"class-{k}" for k in range(4)}
    for k, report in enumerate(metrics.figures.classes):
        positions = [at for at in range(N) if (labels[at] == k).any()]
        assert shown[f"class-{k}"].title == f"With class “{report.name}”"
        assert shown[f"class-{k}"].count == len(positions)
        assert shown[f"class-{k}"].indices == largest_loss_first(losses, positions)[:MOST_PER_GROUP]
    at = next(iter(groups.texts))
    assert groups.texts[at] == (f"{100 * (1 - losses[at]):.1f} % of its pixels right",)


def test_a_bar_of_distances_has_its_pairs(tmp_path):
    groups, metrics, first, is_same = groups_of("embedding", tmp_path)
    _, (_, second), _ = task_answers("embedding")
    distances = np.sqrt(((first.astype(np.float64) - second) ** 2).sum(axis=1))
    losses = 0.5 * np.where(is_same == 1, distances, np.maximum(1.0 - distances, 0.0)) ** 2
    shown = by_id(groups)
    n_bars = 0
    for chart, bars, word in (
        ("same", metrics.figures.distances.same, "alike"),
        ("other", metrics.figures.distances.other, "other"),
    ):
        of_kind = np.where((is_same == 1) == (chart == "same"), distances, np.nan)  # NaN lies in no bar
        n_bars += check_bars(shown, chart, bars, of_kind, losses, f"Distance of {word} pairs")
    assert n_bars == len(groups.groups) > 10
    at = next(iter(groups.texts))
    assert groups.texts[at] == (f"distance {distances[at]:.4g}", "alike" if is_same[at] == 1 else "not alike")


def disjoint_groups(sizes):
    starts = np.cumsum([0, *sizes])
    return [
        SampleGroup(f"g-{at}", "", size, tuple(range(starts[at], starts[at] + min(size, MOST_PER_GROUP))))
        for at, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("most", "lengths"),
    [(100, [8, 3, 1, 8]), (12, [4, 3, 1, 4]), (11, [3, 3, 1, 4]), (3, [1, 1, 1]), (1, [1]), (0, [])],
)
def test_groups_take_turns_until_the_bound(most, lengths):
    shown = set()
    groups = limited(disjoint_groups([9, 3, 1, 20]), most, shown)
    sizes = {group.id: len(group.indices) for group in groups}
    assert sum(sizes.values()) == len(shown) <= most
    if most == 3:
        assert sizes == {"g-3": 1, "g-0": 1, "g-1": 1}
    elif most == 1:
        assert sizes == {"g-3": 1}
    else:
        assert [sizes[f"g-{at}"] for at in range(len(lengths))] == lengths


def test_samples_that_are_shown_already_cost_nothing():
    groups = [SampleGroup("a", "", 5, (1, 2, 3)), SampleGroup("b", "", 4, (2, 9, 3))]
    assert [group.indices for group in limited(groups, 1, {1, 2, 3})] == [(1, 2, 3), (2, 9, 3)]
    assert [group.indices for group in limited(groups, 0, {1, 2, 3})] == [(1, 2, 3), (2,)]


def test_many_classes_have_a_bounded_number_of_samples():
    from deepspark_ops.evaluate.scores import ScoreSum
    from deepspark_ops.evaluate.tasks.classification import build_metrics

    rng = np.random.default_rng(3)
    probabilities, labels = rng.random((1_500, 150)), rng.integers(0, 150, 1_500)
    total = ScoreSum(150)
    total.add(probabilities / probabilities.sum(axis=1, keepdims=True), labels)
    groups = groups_behind_figures(build_metrics(total.result(), SCORED, ()), total.result().answers, None)
    cells = [group for group in groups.groups if " taken for " in group.title]
    assert len(cells) == MOST_OF_CELLS
    assert min(group.count for group in cells) >= 1
    assert len(groups.texts) <= MOST_OF_CELLS + 2 * MOST_OF_CLASSES
    assert len(groups.groups) > len(cells)


@pytest.mark.parametrize(("task", "names"), [("multi_label", "labels"), ("segmentation", "classes")])
def test_the_name_of_a_label_or_class_leads_to_its_samples(task, names, tmp_path):
    groups, metrics, _, _ = groups_of(task, tmp_path)
    page = render_report(metrics, curves=read_curves([]), pictures={}, settings={}, groups=groups)
    links = re.findall(r'<td><a href="#([\w-]+)">([^<]+)</a></td>', page)
    assert links == [(f"class-{label}", report.name) for label, report in enumerate(getattr(metrics.figures, names))]
    assert all(f'id="{group_id}"' in page for group_id, _ in links)
