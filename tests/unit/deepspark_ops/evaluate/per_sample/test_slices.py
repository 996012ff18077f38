import re

import numpy as np
import pytest

from deepspark_ops.config.shared_options.task import TASK_NAMES
from deepspark_ops.errors import ConfigError
from deepspark_ops.evaluate.per_sample.slices import MAX_VALUES, SliceSums
from deepspark_ops.evaluate.tasks.registry import sum_of
from deepspark_ops.evaluate.tasks.task_sum import ReportHead
from tests.unit.deepspark_ops.evaluate.tasks.test_merge import SCORED, N, task_answers

KINDS = ["b", "a", "c"]


def kind_of(rows):
    return [KINDS[at * at % 7 % 3] for at in rows]


def sliced(chosen, values, targets, rows, *, batch=11):
    total = SliceSums(("kind", "half"), chosen)
    for start in range(rows.start, rows.stop, batch):
        part = range(start, min(start + batch, rows.stop))
        columns = {"kind": kind_of(part), "half": ["first" if at < N // 2 else "second" for at in part]}
        at = slice(part.start, part.stop)
        total.add(columns, [value[at] for value in values], targets[at], start=start)
    return total


@pytest.mark.parametrize("task", TASK_NAMES)
def test_a_slice_has_the_figures_of_its_samples_alone(task):
    chosen, values, targets = task_answers(task)
    result = sliced(chosen, values, targets, range(N)).result(ReportHead(SCORED))
    keys = [(row.column, row.value) for row in result]
    assert keys == [*(("kind", kind) for kind in "abc"), ("half", "first"), ("half", "second")]
    for slice_row in result[:3]:
        rows = [at for at, kind in enumerate(kind_of(range(N))) if kind == slice_row.value]
        expected_sum = sum_of(chosen)
        expected_sum.add([value[rows] for value in values], targets[rows], start=0)
        expected = expected_sum.metrics(ReportHead(SCORED))
        assert (slice_row.n_samples, slice_row.main) == (len(rows), expected.main)
        figures = [np.nan if row.value is None else row.value for row in slice_row.rows]
        expected_figures = [np.nan if row.value is None else row.value for row in expected.rows()]
        np.testing.assert_allclose(figures, expected_figures, rtol=1e-12)


def test_slices_of_parts_are_put_together():
    chosen, values, targets = task_answers("regression")
    undivided = sliced(chosen, values, targets, range(N)).result(ReportHead(SCORED))
    first = sliced(chosen, values, targets, range(55, N))
    first.merge(sliced(chosen, values, targets, range(55)))
    assert [(row.value, row.main.value) for row in first.result(ReportHead(SCORED))] == [
        (row.value, row.main.value) for row in undivided
    ]


def test_values_without_a_sample_that_counts_are_left_out():
    chosen, values, targets = task_answers("segmentation")
    chosen = type(chosen)(**{**vars(chosen), "ignore_label": 9})
    targets[:] = 9
    targets[5] = 1
    total = SliceSums(("kind",), chosen)
    total.add({"kind": ["x"] * 5 + ["y"] * 5}, [values[0][:10]], targets[:10], start=0)
    assert [row.value for row in total.result(ReportHead(SCORED))] == ["y"]


def test_a_property_that_names_samples_is_refused():
    chosen, *_ = task_answers("regression")
    total = SliceSums(("id",), chosen)
    n = MAX_VALUES + 1
    with pytest.raises(ConfigError, match=re.escape("slices=id: more than 1,000 values, the last ")):
        total.add({"id": [f"{at:06d}" for at in range(n)]}, [np.zeros((n, 3))], np.zeros((n, 3)), start=0)
