import json

import numpy as np
import pytest

from deepspark_ops.errors import DataError
from deepspark_ops.evaluate.figures.confusion import Confusion
from deepspark_ops.evaluate.metrics import read_metrics
from deepspark_ops.evaluate.scores import Answers, Scores
from deepspark_ops.evaluate.tasks.classification import build_metrics
from deepspark_ops.evaluate.tasks.metrics_head import ScoredOn

NO_ANSWERS = Answers(*(np.zeros(0, dtype) for dtype in (np.int64, np.float64, np.int32, np.int32, np.int32)))

SCORED = ScoredOn(
    net="n",
    run="r",
    iteration=None,
    weights="w",
    weights_digest="sha256:1",
    dataset="d",
    dataset_digest="sha256:2",
    split="test",
    score_blob="s",
)


def scores_of(matrix):
    labels, answers = (
        np.repeat(classes, np.ravel(matrix)) for classes in np.divmod(np.arange(np.size(matrix)), len(matrix))
    )
    share = float(np.mean(labels == answers))
    return Scores(len(labels), 0, share, None, 0.5, Confusion.of(labels, answers, len(matrix)), (), NO_ANSWERS)


def test_class_figures_by_hand():
    # Class 0: 4 samples, 3 right; 5 answers "0", so precision 3/5. Class 2 has no sample and no answer.
    report = build_metrics(scores_of([[3, 1, 0], [2, 4, 0], [0, 0, 0]]), SCORED, ("cat", "dog"))
    first, second, third = report.classes
    assert (first.name, first.support, first.predicted, first.correct) == ("cat", 4, 5, 3)
    assert (first.accuracy, first.precision) == (0.75, 0.6)
    assert first.f1 == pytest.approx(2 * 0.75 * 0.6 / (0.75 + 0.6))
    assert (second.accuracy, second.precision) == (4 / 6, 4 / 5)
    assert (third.name, third.accuracy, third.precision, third.f1) == ("2", None, None, None)


def test_file_reads_back_equal(tmp_path):
    report = build_metrics(scores_of([[3, 1], [2, 4]]), SCORED, ())
    (tmp_path / "metrics.json").write_text(report.to_json())
    assert read_metrics(tmp_path / "metrics.json") == report


def test_missing_file_names_the_command(tmp_path):
    with pytest.raises(DataError) as caught:
        read_metrics(tmp_path / "metrics.json")
    assert str(caught.value) == f'{tmp_path}/metrics.json: no metrics there; run "deepspark evaluate" first'


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (('"format_version": 3', '"format_version": 4'), r"format_version is 4, allowed: 1, 2, 3"),
        (('"task": "classification"', '"task": "guessing"'), r"task.*guessing|guessing.*task"),
        (('"loss": 0.5', '"loss": "much"'), r"classification.loss: Input should be a valid number"),
        (('"format_version": 3', '"format_version"'), "damaged"),
    ],
)
def test_other_version_and_damage_are_refused(tmp_path, change, finding):
    text = build_metrics(scores_of([[3, 1], [2, 4]]), SCORED, ()).to_json()
    assert change[0] in text
    (tmp_path / "metrics.json").write_text(text.replace(*change))
    with pytest.raises(DataError, match=rf'metrics.json: .*({finding}).*; run "deepspark evaluate" again'):
        read_metrics(tmp_path / "metrics.json")


@pytest.mark.parametrize("version", [1, 2])
def test_files_of_the_versions_before_are_read_as_classifications(tmp_path, version):
    report = build_metrics(scores_of([[3, 1], [2, 4]]), SCORED, ())
    values = json.loads(report.to_json())
    for name in ("task", "main", "others", *(("speed",) if version == 1 else ())):
        del values[name]
    for name in ("target_blob", *(("split_rule",) if version == 1 else ())):
        del values["scored"][name]
    (tmp_path / "metrics.json").write_text(json.dumps({**values, "format_version": version}))
    metrics = read_metrics(tmp_path / "metrics.json")
    assert metrics == report
    assert (metrics.main.name, metrics.main.value, metrics.main.interval) == ("top1", 0.7, report.top1_interval)
