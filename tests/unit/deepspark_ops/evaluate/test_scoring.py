"""Batches counted together give the sums of single batches, and no more batches wait than allowed."""

from types import SimpleNamespace

import numpy as np
import pytest

from deepspark_ops.config.shared_options.task import TASK_NAMES
from deepspark_ops.errors import DataError
from deepspark_ops.evaluate import scoring
from deepspark_ops.evaluate.samples import Batch
from deepspark_ops.evaluate.scores import SampleLosses
from deepspark_ops.evaluate.scoring import Answer, measure_speed, score_samples, scored_samples
from deepspark_ops.evaluate.tasks.task_sum import ReportHead
from tests.unit.deepspark_ops.evaluate.tasks.test_merge import SCORED, N, task_answers

CREATED = {"created"}


def samples_of(targets, *, batch=7):
    """Return samples whose stored values are their positions and targets."""
    stored = {"at": np.arange(N, dtype=np.int64), "t": targets}

    def batches(start=0, stop=None):
        end = N if stop is None else min(stop, N)
        for first in range(start, end, batch):
            rows = slice(first, min(first + batch, end))
            columns = {name: values[rows] for name, values in stored.items()}
            yield Batch(first, rows.stop - rows.start, columns, columns)

    return SimpleNamespace(batches=batches, n_samples=N)


def answer_of(chosen, values, **options):
    return Answer(
        lambda batch: {
            name: value[batch.start : batch.start + batch.count]
            for name, value in zip(chosen.outputs, values, strict=True)
        },
        **options,
    )


def score_with(
    monkeypatch, chosen, values, targets, *, rows_at_once, bytes_at_once=2**24, n_at_once=2, each=None, **options
):
    monkeypatch.setattr(scoring, "ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr(scoring, "BYTES_AT_ONCE", bytes_at_once)
    answer = answer_of(chosen, values, n_at_once=n_at_once)
    (total,), digest = score_samples(answer, samples_of(targets), [chosen], worst=4, each=each, **options)
    return total, digest


@pytest.mark.parametrize("task", TASK_NAMES)
def test_figures_are_the_same_bits_however_many_batches_are_counted_at_once(task, monkeypatch):
    chosen, values, targets = task_answers(task)
    one_by_one = score_with(monkeypatch, chosen, values, targets, rows_at_once=1, n_at_once=1)
    for rows_at_once, bytes_at_once in ((40, 2**24), (1_000, 2**24), (1_000, 1), (1_000, 2_000)):
        together = score_with(
            monkeypatch, chosen, values, targets, rows_at_once=rows_at_once, bytes_at_once=bytes_at_once
        )
        mine, expected = (total.metrics(ReportHead(SCORED)) for total, _ in (together, one_by_one))
        assert mine.model_dump(exclude=CREATED) == expected.model_dump(exclude=CREATED)
        assert together[1].text() == one_by_one[1].text()
        for name, column in vars(one_by_one[0].samples()).items():
            np.testing.assert_array_equal(vars(together[0].samples())[name], column)


@pytest.mark.parametrize(("rows_at_once", "bytes_at_once", "most"), [(30, 2**24, 35), (1_000, 500, 14), (1, 1, 7)])
def test_no_more_waits_than_allowed_and_each_sample_comes_once_in_order(rows_at_once, bytes_at_once, most, monkeypatch):
    chosen, values, targets = task_answers("regression")  # 24 bytes a sample
    scored_batches = []
    _, digest = score_with(
        monkeypatch,
        chosen,
        values,
        targets,
        rows_at_once=rows_at_once,
        bytes_at_once=bytes_at_once,
        each=scored_batches.append,
    )
    assert max(len(batch.content) for batch in scored_batches) <= most + 7
    assert [batch.start for batch in scored_batches] == np.cumsum(
        [0, *(len(batch.content) for batch in scored_batches[:-1])]
    ).tolist()
    assert sum(len(batch.content) for batch in scored_batches) == N
    assert np.concatenate([batch.content for batch in scored_batches]).tolist() == digest.content().tolist()
    np.testing.assert_array_equal(np.concatenate([batch.results[0].targets for batch in scored_batches]), targets)
    np.testing.assert_array_equal(np.concatenate([batch.results[0].answers[0] for batch in scored_batches]), values[0])


def test_each_result_is_given_on(monkeypatch):
    first, second = task_answers("classification"), task_answers("regression")
    chosen = [first[0], type(second[0])(**{**vars(second[0]), "outputs": ("b",), "target": "numbers"})]
    samples = samples_of(first[2])
    batches = samples.batches
    numbers = second[2]

    def with_numbers(*arguments):
        for batch in batches(*arguments):
            rows = slice(batch.start, batch.start + batch.count)
            yield Batch(batch.start, batch.count, batch.stored, {**batch.feeds, "numbers": numbers[rows]})

    samples.batches = with_numbers
    values = {"a": first[1][0], "b": second[1][0]}
    answer = Answer(
        lambda batch: {name: value[batch.start : batch.start + batch.count] for name, value in values.items()}
    )
    scored_batches = []
    sums, _ = score_samples(answer, samples, chosen, worst=0, each=scored_batches.append)
    (batch,) = scored_batches
    np.testing.assert_array_equal(batch.results[0].targets, first[2])
    np.testing.assert_array_equal(batch.results[1].targets, numbers)
    assert batch.results[1].losses.loss.tolist() == sums[1].samples().loss.tolist()


def test_a_bad_sample_is_named_by_its_position(monkeypatch):
    chosen, values, targets = task_answers("classification")
    targets[83] = 7
    with pytest.raises(DataError, match="sample 83: label 7 outside"):
        score_with(monkeypatch, chosen, values, targets, rows_at_once=40)


def test_a_part_is_scored_by_itself(monkeypatch):
    chosen, values, targets = task_answers("regression")
    total, _ = score_with(monkeypatch, chosen, values, targets, rows_at_once=20, start=49, stop=90)
    assert total.samples().index.tolist() == list(range(49, 90))


class Passes:
    """A clock advanced by the time of each forward pass."""

    def __init__(self, *seconds):
        self._seconds = iter(seconds)
        self.now = 0.0

    def forward(self):
        self.now += next(self._seconds)

    def clock(self):
        return self.now


def test_speed_is_of_the_fastest_pass_and_knows_its_slowest_stretch():
    # Stretches of 0.1 s: undisturbed, disturbed all along, and three more.
    quick, slow = [1 / 32] * 4, [1 / 16] * 2
    passes = Passes(*quick, *slow, 1 / 32, 1 / 64, 1 / 32, 1 / 32, *slow, *quick)
    speed = measure_speed(passes.forward, batch_size=10, device="CPU", clock=passes.clock)
    assert (speed.images_per_s, speed.slowest_images_per_s) == (640.0, 160.0)


@pytest.mark.parametrize(("seconds", "n_passes"), [(3.0, 1), (0.9, 3), (0.0005, 1_000)])
def test_a_tiny_net_is_timed_for_half_a_second_and_a_large_one_not_for_long(seconds, n_passes):
    passes = Passes(*[seconds] * 3_000)
    speed = measure_speed(passes.forward, batch_size=1_000, device="CPU", clock=passes.clock)
    assert passes.now == pytest.approx(seconds * n_passes, rel=0.01)
    assert speed.images_per_s == pytest.approx(1_000 / seconds, rel=1e-3)


def test_each_sample_that_counts_keeps_its_group():
    answers = SampleLosses(np.array([0, 2]), np.zeros(2))
    total = SimpleNamespace(samples=lambda: answers, chosen=SimpleNamespace(n_classes=0))
    metrics = SimpleNamespace(scored=SimpleNamespace(dataset_digest="d", weights_digest="w"), task="regression")
    digest = SimpleNamespace(content=lambda: np.arange(3, dtype=np.uint64))
    groups = np.array([7, 8, 9], np.uint64)
    assert scored_samples(metrics, total, digest, groups).group.tolist() == [7, 9]
    assert scored_samples(metrics, total, digest, None).group is None
