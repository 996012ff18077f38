"""Parts of the samples, summed apart and merged in any order, give the sum over all samples."""

import numpy as np
import pytest

from deepspark_ops.config.shared_options.task import TASK_NAMES
from deepspark_ops.evaluate.scores import ScoreSum, softmax
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.tasks.metrics_head import ScoredOn
from deepspark_ops.evaluate.tasks.registry import sum_of
from deepspark_ops.evaluate.tasks.task_sum import ReportHead

N = 120
SCORED = ScoredOn(
    net="n", run="r", iteration=1, weights="w", weights_digest="sha256:1", dataset="/d", dataset_digest="sha256:2",
    split="test", score_blob="ip",
)  # fmt: skip


def task_answers(task):
    """Return the chosen task, answers (one array an output) and targets."""
    rng = np.random.default_rng(len(task))
    chosen = {"outputs": ("a", "b") if task == "embedding" else ("a",), "shape": (3,), "n_classes": 0}
    values, targets = [rng.normal(size=(N, 3)).astype(np.float32)], rng.normal(size=(N, 3)).astype(np.float32)
    if task == "classification":
        chosen["n_classes"], values, targets = 7, [softmax(rng.normal(size=(N, 7)))], rng.integers(0, 7, N)
    elif task == "multi_label":
        chosen["n_classes"], values = 3, [rng.random((N, 3))]
        targets = (rng.random((N, 3)) < 0.4).astype(np.float32)
    elif task == "embedding":
        values, targets = [*values, rng.normal(size=(N, 3)).astype(np.float32)], rng.integers(0, 2, N)
    elif task == "segmentation":
        chosen |= {"n_classes": 4, "shape": (4, 5, 5)}
        values, targets = [rng.normal(size=(N, 4, 5, 5))], rng.integers(0, 4, (N, 5, 5))
    form = {"target": "t", "is_target_fed": True, "activation": "none", "ignore_label": None, "found_by": "test"}
    return ChosenTask(task=task, **chosen, **form), values, targets


def sum_of_rows(chosen, values, targets, rows, *, batch):
    total = sum_of(chosen, worst=4)
    for start in range(rows.start, rows.stop, batch):
        part = slice(start, min(start + batch, rows.stop))
        total.add([value[part] for value in values], targets[part], start=start)
    return total


def metrics_of(total):
    return total.metrics(ReportHead(SCORED)).model_copy(update={"created": ""})


@pytest.mark.parametrize("task", TASK_NAMES)
def test_parts_in_any_order_give_the_report_of_the_whole(task):
    chosen, values, targets = task_answers(task)
    undivided = sum_of_rows(chosen, values, targets, range(N), batch=10)
    parts = [sum_of_rows(chosen, values, targets, range(at, at + 40), batch=10) for at in (80, 0, 40)]
    total = parts[0]
    for part in parts[1:]:
        total.merge(part)
    assert metrics_of(total).to_json() == metrics_of(undivided).to_json()
    mine, expected = vars(total.samples()), vars(undivided.samples())
    assert all((mine[name] == expected[name]).all() for name in expected)
    assert mine["index"].tolist() == list(range(N))


def test_ignored_samples_and_mistakes_of_parts_are_put_together():
    _, (rows,), labels = task_answers("classification")
    undivided, first, second = (ScoreSum(7, worst=5, ignore_label=2) for _ in range(3))
    undivided.add(rows, labels)
    second.add(rows[50:], labels[50:], start=50)
    first.add(rows[:50], labels[:50], start=0)
    second.merge(first)
    mine, expected = second.result(), undivided.result()
    assert (mine.mistakes, mine.n_ignored, mine.loss) == (expected.mistakes, expected.n_ignored, expected.loss)
    assert mine.answers.index.tolist() == np.flatnonzero(labels != 2).tolist()
    assert (mine.calibration, mine.ranking) == (expected.calibration, expected.ranking)


def test_scores_that_are_no_probabilities_have_neither_ranking_nor_calibration():
    _, (rows,), labels = task_answers("classification")
    first, second = ScoreSum(7), ScoreSum(7)
    first.add(rows, labels)
    second.add(3 * rows, labels, start=len(rows))
    first.merge(second)
    assert (first.result().calibration, first.result().ranking) == (None, None)
