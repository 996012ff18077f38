import numpy as np
import pytest

from deepspark_ops.evaluate.scores import Answers
from deepspark_ops.evaluate.task_pages.confused_cells import MOST_PER_CELL, confused_cells


def make_answers(n=2_000, n_classes=7, seed=1):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, n_classes, n).astype(np.int32)
    predicted = np.where(rng.random(n) < 0.6, label, rng.integers(0, n_classes, n)).astype(np.int32)
    index = np.sort(rng.choice(10 * n, n, replace=False)).astype(np.int64)
    return Answers(index, rng.exponential(1.0, n), label, predicted, (label != predicted).astype(np.int32))


def slow_cell(answers, label, predicted):
    rows = zip(answers.label, answers.predicted, answers.loss, answers.index, strict=True)
    return sorted(
        ((loss, index) for true, net, loss, index in rows if (true, net) == (label, predicted)),
        key=lambda sample: (-sample[0], sample[1]),
    )


def test_a_cell_has_its_samples_with_the_largest_loss_first():
    answers = make_answers()
    cells = confused_cells(answers, most=10_000)
    assert {(cell.label, cell.predicted) for cell in cells} == {(k, j) for k in range(7) for j in range(7) if k != j}
    assert [cell.count for cell in cells] == sorted((cell.count for cell in cells), reverse=True)
    for cell in cells:
        samples = slow_cell(answers, cell.label, cell.predicted)
        assert cell.count == len(samples)
        assert [sample.index for sample in cell.samples] == [index for _, index in samples[:MOST_PER_CELL]]
        assert [sample.label_probability for sample in cell.samples] == pytest.approx(
            [2.718281828459045**-loss for loss, _ in samples[:MOST_PER_CELL]]
        )


@pytest.mark.parametrize(("most", "n_cells", "n_samples"), [(336, 42, 336), (335, 42, 294), (41, 41, 41), (1, 1, 1)])
def test_cells_share_a_limited_number_of_samples(most, n_cells, n_samples):
    cells = confused_cells(make_answers(), most=most)
    assert (len(cells), sum(len(cell.samples) for cell in cells)) == (n_cells, n_samples)


def test_a_net_without_mistakes_has_no_cell():
    label = np.arange(4, dtype=np.int32)
    assert confused_cells(Answers(np.arange(4), np.zeros(4), label, label, np.zeros(4, np.int32))) == ()
