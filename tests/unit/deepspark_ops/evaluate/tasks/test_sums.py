"""Each task: a sample's error, the main figure, and independence of batches; figures have their own tests."""

import itertools

import numpy as np
import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.metrics import read_metrics
from deepspark_ops.evaluate.tasks.answers import activated, sigmoid
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.tasks.metrics_head import figure_text, interval_text
from deepspark_ops.evaluate.tasks.registry import sum_of
from deepspark_ops.evaluate.tasks.task_sum import ReportHead
from tests.unit.deepspark_ops.evaluate.tasks.test_merge import SCORED

RNG = np.random.default_rng(3)


def chosen(task, shape=(3,), *, outputs=("ip",), activation="none", n_classes=0, ignore_label=None, margin=None):
    return ChosenTask(
        task=task, outputs=outputs, target="y", is_target_fed=True, activation=activation, shape=shape,
        n_classes=n_classes, ignore_label=ignore_label, found_by="a test", margin=margin,
    )  # fmt: skip


def sum_of_parts(task, answers, targets, *, cuts=(), worst=2):
    total = sum_of(task, worst=worst)
    edges = [0, *cuts, len(targets)]
    for start, end in itertools.pairwise(edges):
        total.add([answer[start:end] for answer in answers], targets[start:end], start=start)
    return total


CASES = {
    "regression": (chosen("regression"), [RNG.normal(size=(9, 3))], RNG.normal(size=(9, 3))),
    "reconstruction": (chosen("reconstruction", (1, 2, 2)), [RNG.random((9, 1, 2, 2))], RNG.random((9, 4))),
    "multi_label": (
        chosen("multi_label", n_classes=3, ignore_label=-1),
        [RNG.random((9, 3))],
        RNG.integers(-1, 2, (9, 3)).astype(float),
    ),
    "embedding": (
        chosen("embedding", (2,), outputs=("a", "b"), margin=0.5),
        [RNG.normal(size=(9, 2)), RNG.normal(size=(9, 2))],
        RNG.integers(0, 2, (9, 1)),
    ),
    "segmentation": (
        chosen("segmentation", (3, 2, 2), n_classes=3, ignore_label=255),
        [RNG.normal(size=(9, 3, 2, 2))],
        RNG.choice([0, 1, 2, 255], (9, 1, 2, 2)),
    ),
    "classification": (
        chosen("classification", n_classes=3),
        [RNG.dirichlet(np.ones(3), 9)],
        RNG.integers(0, 3, 9),
    ),
}


def slow_losses(task, answers, targets):
    """Each sample's own error, value by value."""
    losses = {}
    for row, target in enumerate(np.asarray(targets, np.float64).reshape(len(targets), -1)):
        values = [np.asarray(answer[row], np.float64) for answer in answers]
        if task in ("regression", "reconstruction"):
            pairs = list(zip(values[0].ravel(), target, strict=True))
            losses[row] = sum((answer - true) ** 2 for answer, true in pairs) / len(pairs)
        elif task == "multi_label":
            costs = [-np.log(p if true else 1 - p) for p, true in zip(values[0], target, strict=True) if true != -1]
            if costs:
                losses[row] = sum(costs) / len(costs)
        elif task == "embedding":
            distance = np.sqrt(sum((a - b) ** 2 for a, b in zip(*values, strict=True)))
            losses[row] = distance**2 / 2 if target[0] else max(0.5 - distance, 0) ** 2 / 2
        elif task == "segmentation":
            answer = values[0].reshape(3, -1).argmax(axis=0)
            counted = [(a, t) for a, t in zip(answer, target, strict=True) if t != 255]
            if counted:
                losses[row] = sum(a != t for a, t in counted) / len(counted)
        else:
            losses[row] = -np.log(values[0][int(target[0])])
    return losses


@pytest.mark.parametrize("name", CASES)
def test_each_samples_error_is_the_loops_and_batches_do_not_matter(name, tmp_path):
    task, answers, targets = CASES[name]
    total = sum_of_parts(task, answers, targets)
    expected = slow_losses(name, answers, targets)
    samples = total.samples()
    assert samples.index.tolist() == list(expected)
    np.testing.assert_allclose(samples.loss, list(expected.values()), rtol=1e-12)
    metrics = total.metrics(ReportHead(SCORED))
    assert metrics.loss == pytest.approx(np.mean(list(expected.values())))
    assert (metrics.task, metrics.main.name) == (name, metrics.rows()[0].name)
    (tmp_path / "metrics.json").write_text(metrics.to_json())
    assert read_metrics(tmp_path / "metrics.json") == metrics
    in_parts = sum_of_parts(task, answers, targets, cuts=(1, 5)).metrics(ReportHead(SCORED))
    same = {"created": metrics.created, "loss": pytest.approx(metrics.loss)}
    assert in_parts.model_dump(exclude=set(same)) == metrics.model_dump(exclude=set(same))
    assert f"{metrics.main.name}=" in metrics.summary()


def test_vectors_without_another_of_their_class_do_not_count():
    vectors = [np.array([[0.0], [0.1], [5.0], [5.2], [9.0]])]
    total = sum_of_parts(chosen("embedding", (1,)), vectors, np.array([0, 0, 1, 0, 2]), cuts=(2,))
    metrics = total.metrics(ReportHead(SCORED))
    # Classes 1 and 2 have a sample each; the nearest sample to the last of class 0 is of class 1.
    assert (metrics.n_samples, metrics.n_ignored, metrics.main.value) == (3, 2, pytest.approx(2 / 3))
    samples = total.samples()
    assert (samples.index.tolist(), samples.loss.tolist()) == ([0, 1, 3], [0.0, 0.0, 1.0])
    with pytest.raises(DataError, match="of 2 samples no two are of one class"):
        sum_of_parts(chosen("embedding", (1,)), [np.zeros((2, 1))], np.array([0, 1])).metrics(ReportHead(SCORED))


def test_further_results_are_kept_with_their_own_figures(tmp_path):
    other_metrics = tuple(
        sum_of_parts(*CASES[name]).metrics(ReportHead(SCORED)) for name in ("regression", "multi_label", "segmentation")
    )
    metrics = sum_of_parts(*CASES["classification"]).metrics(ReportHead(SCORED, others=other_metrics))
    (tmp_path / "metrics.json").write_text(metrics.to_json())
    read = read_metrics(tmp_path / "metrics.json")
    assert read == metrics
    assert [type(metric) for metric in read.others] == [type(metric) for metric in other_metrics]


@pytest.mark.parametrize(
    ("name", "answers", "targets", "finding"),
    [
        ("embedding", None, np.full((9, 1), 2), "sample 0: similarity is 2; allowed: 1 for similar, 0 for not"),
        ("regression", [np.full((9, 3), np.nan)], None, "sample 0: the net's prediction is nan"),
        ("segmentation", [np.full((9, 3, 2, 2), np.inf)], None, "scores are not finite"),
        ("segmentation", None, np.full((9, 1, 2, 2), 7), "sample 0: label 7"),
        ("multi_label", None, np.full((9, 3), 0.5), "sample 0: label 0 is 0.5; allowed: 0 and 1"),
    ],
)
def test_what_a_task_cannot_have_is_refused_with_its_sample(name, answers, targets, finding):
    task, good_answers, good_targets = CASES[name]
    with pytest.raises(DataError, match=finding):
        sum_of_parts(task, answers or good_answers, good_targets if targets is None else targets)


def test_activations():
    values = np.array([[0.0, 2.0, -800.0]])
    assert activated(values, chosen("classification", activation="softmax", n_classes=3)).sum() == pytest.approx(1.0)
    np.testing.assert_allclose(activated(values, chosen("multi_label", activation="sigmoid")), sigmoid(values))
    np.testing.assert_allclose(sigmoid(values), [[0.5, 1 / (1 + np.exp(-2.0)), 0.0]])
    assert activated(values, chosen("regression")) is values


def test_figures_in_words():
    metrics = sum_of_parts(*CASES["classification"]).metrics(ReportHead(SCORED))
    low, high = metrics.top1_interval
    assert interval_text(metrics.main) == f"{100 * low:.1f} to {100 * high:.1f}"
    assert interval_text(sum_of_parts(*CASES["regression"]).metrics(ReportHead(SCORED)).main) == ""
    assert (figure_text(0.9981, is_share=True), figure_text(1234.5, is_share=False)) == ("99.81 %", "1234")
