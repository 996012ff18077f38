from types import SimpleNamespace

import numpy as np
import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.predict.record import Inputs
from deepspark_ops.predict.samples import BundleForm, Sample
from deepspark_ops.predict.stream import Progress, answer_all, answer_chunk, refuse_errors

CHUNK = [
    Sample("a", (np.float32([1.0]),)),
    Sample("b", None, "damaged"),
    Sample("c\udce9", (np.float32([3.0]),)),
]


def test_answers_stand_in_the_rows_of_their_inputs():
    rows = answer_chunk(
        CHUNK, lambda samples: {"doubled": [2 * float(values[0]) for (values,) in samples]}, ["doubled"]
    )
    assert rows == {"doubled": [2.0, None, 6.0], "id": ["a", "b", "c\udce9"], "error": [None, "damaged", None]}


def test_a_chunk_without_anything_usable_is_not_computed():
    def answer(samples):
        raise AssertionError

    assert answer_chunk(CHUNK[1:2], answer, ["x"]) == {"x": [None], "id": ["b"], "error": ["damaged"]}


def test_progress_and_summary(tmp_path):
    messages, now = [], iter([0.0, 1.0, 4.0, 5.0])
    progress = Progress(12, messages.append, BundleForm(()), clock=lambda: next(now))
    progress.add(CHUNK)
    progress.add(CHUNK)
    assert messages == ["answered 6/12 inputs, 2/s"]
    summary = progress.summary(tmp_path)
    assert summary.text() == f"output={tmp_path} rows=6 errors=2 rows_per_s=1"
    assert summary.warnings() == [
        "2 of 6 inputs cannot be used; column error of their rows says why\n  b: damaged\n  b: damaged"
    ]


def test_inputs_without_any_answer_are_refused(tmp_path):
    progress = Progress(2, lambda line: None, BundleForm(()))
    progress.add(CHUNK[1:2])
    with pytest.raises(DataError, match=r"^no input can be used \(1 of 1 failed\):\n  b: damaged$"):
        progress.summary(tmp_path).require_answer()
    progress.add(CHUNK[:1])
    progress.summary(tmp_path).require_answer()


def test_strict_names_the_first_one():
    refuse_errors(CHUNK[:1])
    with pytest.raises(DataError) as caught:
        refuse_errors(CHUNK)
    assert str(caught.value).startswith("b: damaged; nothing was written")


def test_vectors_stand_in_the_rows_of_their_inputs():
    def answer(samples):
        return {"x": np.float32([[1, 2], [3, 4]])}

    rows = answer_chunk(CHUNK, answer, ["x"])["x"]
    assert [None if row is None else row.tolist() for row in rows] == [[1, 2], None, [3, 4]]
    valid_samples = [CHUNK[0], CHUNK[2]]
    np.testing.assert_array_equal(answer_chunk(valid_samples, answer, ["x"])["x"], [[1, 2], [3, 4]])


def test_errors_and_order_stay_where_chunks_are_answered_at_the_same_time():
    chunks = [
        [Sample(f"{at}", (np.float32([at]),) if at % 5 else None, "bad" if not at % 5 else "")] for at in range(40)
    ]
    written = SimpleNamespace(rows=[], add=lambda rows: written.rows.append(rows))
    inputs = Inputs("list", lambda: 40, lambda start=0, stop=None: iter(()))
    progress = Progress(40, lambda line: None, BundleForm(()))

    def answer(samples):
        return {"x": [float(values[0]) for (values,) in samples]}

    answer_all(inputs, lambda _: iter(chunks), answer, written, ["x"], strict=False, progress=progress, n_at_once=3)
    assert [row["id"] for row in written.rows] == [[f"{at}"] for at in range(40)]
    assert [row["x"] for row in written.rows] == [[float(at)] if at % 5 else [None] for at in range(40)]
    assert (progress.count.n_records, progress.count.n_errors) == (40, 8)
    with pytest.raises(DataError, match="0: bad; nothing was written"):
        answer_all(inputs, lambda _: iter(chunks), answer, written, ["x"], strict=True, progress=progress, n_at_once=3)
