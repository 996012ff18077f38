"""Pages of runs whose nets are no classifiers: each place that shows an accuracy shows what the task is judged by."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deepspark_ops.evaluate.evaluation_folder import Evaluated
from deepspark_ops.operators.pages.lists.compare import ComparePage
from deepspark_ops.operators.pages.lists.compared_scores import (
    answers_in_words,
    confusion_of,
    differences_of,
    figures_of,
    metrics_of,
    pair_of,
)
from deepspark_ops.operators.pages.run.champion import champion_of
from deepspark_ops.operators.pages.templates import figure, template
from deepspark_ops.operators.tasks.run_plan import Decided
from deepspark_ops.registry.candidate import PRODUCTION_EVALUATION
from deepspark_ops.registry.versions import Figures
from deepspark_ops.tracking.points import evaluation_points
from tests.reference.evaluations import evaluation, of_pairs, of_task, write_evaluation

TRUE = [[0.0], [1.0], [2.0], [3.0]]


def runs_of(tmp_path, *evaluations):
    folders = [tmp_path / f"run{number}" for number in range(len(evaluations))]
    for folder, scored in zip(folders, evaluations, strict=True):
        write_evaluation(folder / "evaluation", scored)
    return folders


def test_two_regressions_are_compared_by_their_errors(tmp_path):
    first, second = (
        of_task([[0.5], [1.0], [2.0], [3.25]], TRUE),
        of_task([[0.0], [3.0], [2.0], [3.0]], TRUE, weights="v"),
    )
    folders = runs_of(tmp_path, first, second)
    metrics = [metrics_of(folder) for folder in folders]
    assert [confusion_of(run_metrics) for run_metrics in metrics] == [None, None]
    assert differences_of(metrics, ("k", "l"), ("a", "b"))[0]["why_not"] == "there are no classes to compare"
    pair = pair_of(folders, metrics, ("a", "b"))
    assert (pair["kind"], pair["n_samples"], pair["n_first"], pair["n_second"]) == ("errors", 4, 1, 2)
    assert [(sample["index"], sample["errors"]) for sample in pair["first_better"]] == [(1, [0.0, 4.0])]
    assert [(sample["index"], sample["errors"]) for sample in pair["second_better"]] == [
        (0, [0.25, 0.0]),
        (3, [0.0625, 0.0]),
    ]
    assert (pair["first"], pair["second"]) == (0.3125 / 4, 1.0)
    assert (pair["error"], pair["pictured"], pair["n_same"]) == ("its mean squared residual", "", 1)
    assert pair["first_better"][0]["pictures"] == [None, None]
    assert json.loads(json.dumps(pair))["p"] == 1.0


def test_the_page_says_what_an_error_is_of_vectors_and_what_pictures_show(tmp_path):
    alike = [[1.0], [1.0], [0.0], [0.0]]
    folders = runs_of(
        tmp_path, of_pairs([0.5, 0.5, 3.0, 0.25], alike), of_pairs([0.25, 2e13, 3.0, 0.5], alike, weights="v")
    )
    metrics = [metrics_of(folder) for folder in folders]
    pair = pair_of(folders, metrics, ("a", "b"))
    assert (pair["n_first"], pair["n_second"], pair["n_same"]) == (1, 2, 1)
    page = compared_page(metrics, pair)
    assert (
        "The error of a sample is the contrastive loss of the pair. Of 4 samples a has the smaller error on 1" in page
    )
    assert "b on 2; on 1 they are equal." in page
    assert "2e+26" in page  # half the squared distance, of a net that diverges
    pictured = {**pair, "pictured": "Pictures: left, right."}
    assert "left, right" not in compared_page(metrics, pictured), "there are none"
    pictured["first_better"] = [{**pair["first_better"][0], "pictures": ["data:x", None]}]
    assert "Pictures: left, right." in compared_page(metrics, pictured)


def compared_page(metrics, pair) -> str:
    numbers = dict.fromkeys(
        ("accuracy", "accuracy_of", "figure", "n_samples", "loss", "images_per_s", "clock", "seconds", "when", "who")
    )
    rows = [
        {"label": label, "name": label, "run": label, "key": label, "dag": "d", "state": "waiting", **numbers}
        for label in "ab"
    ]
    compared = {"settings": [], "differences": [], "confusions": [None, None]}
    answer = {**compared, "runs": rows, "figures": figures_of(metrics), "pair": pair}
    return ComparePage(None, None).page(answer, nonce="n")


def test_the_rows_of_two_evaluations_say_what_was_answered(tmp_path):
    folders = runs_of(
        tmp_path, of_task([[0.5], [1.0], [2.0], [3.0]], TRUE), of_task([[0], [3], [2], [3]], TRUE, weights="v")
    )
    for folder, weights, answers in ((folders[0], "w", [0.5, 1, 2, 3]), (folders[1], "v", [0, 3, 2, 3])):
        rows = {
            "index": pa.array(range(4), pa.int64()), "name": [f"row {at}" for at in range(4)],
            "true": [row for row in TRUE], "predicted": [[float(value)] for value in answers],
        }  # fmt: skip
        table = pa.table(rows).replace_schema_metadata({"deepspark.weights": f"sha256:{weights}"})
        pq.write_table(table, folder / "evaluation" / "samples.parquet", row_group_size=3)
    pair = pair_of(folders, [metrics_of(folder) for folder in folders], ("a", "b"))
    (sample,) = pair["first_better"]
    assert (sample["name"], sample["true"], sample["answers"]) == ("row 1", "1", ["1", "3"])
    pq.write_table(table, folders[0] / "evaluation" / "samples.parquet")  # of other weights
    (sample,) = pair_of(folders, [metrics_of(folder) for folder in folders], ("a", "b"))["first_better"]
    assert (sample["true"], sample["answers"]) == ("1", ["", "3"])


def test_answers_of_each_task_are_told_in_words():
    tags = [
        {"labels": [0, 2], "probabilities": [0.75, 0.5, 0.875]},
        {"labels": [0, 2], "probabilities": [0.0, 0.0, 0.0]},
    ]
    assert answers_in_words("multi_label", tags) == {"true": "0, 2", "answers": ["0, 2", "none"]}
    pairs = [{"is_same": False, "distance": 0.125}, {}]
    assert answers_in_words("embedding", pairs) == {"true": "different", "answers": ["distance 0.125", ""]}
    pixels = {"true": [1.0] * 9, "predicted": None}
    assert answers_in_words("regression", [pixels, {}]) == {"true": "1, 1, 1, 1, ...", "answers": ["", ""]}
    assert answers_in_words("reconstruction", [{"mae": 1.0}, {}]) == {"true": "", "answers": ["", ""]}


def test_every_figure_of_every_result_is_a_row():
    main = of_task(TRUE, TRUE).metrics
    other = evaluation([0, 1, 1], [0, 1, 0]).metrics
    rows = figures_of([main.model_copy(update={"others": (other,)}), None, of_task([[2.0]], [[0.0]]).metrics])
    values = {(row["label"], row["of"]): row["values"] for row in rows}
    assert values["RMSE", ""] == ["0", None, "2"]
    assert values["Top-1 accuracy", "ip"] == ["66.7 %", None, None]


def test_a_regression_and_a_classification_are_not_compared(tmp_path):
    folders = runs_of(tmp_path, of_task(TRUE, TRUE), evaluation([0, 1, 0, 1], [0, 1, 0, 1]))
    metrics = [metrics_of(folder) for folder in folders]
    assert pair_of(folders, metrics, ("a", "b")) == {"why_not": "a and b were scored as regression and classification"}


def test_production_is_described_by_its_figure(tmp_path):
    run = tmp_path / "run"
    write_evaluation(run / PRODUCTION_EVALUATION, of_task([[2.0], [1.0], [2.0], [3.0]], TRUE))
    champion = champion_of(run, Decided(production=Path("/models/m/versions/v1/weights.caffemodel"), model="m"))
    assert (champion["accuracy"], champion["is_on_these"]) == (None, True)
    assert figure(champion["figure"]) == "RMSE 1"
    run_view = {
        "name": "r",
        "run": "r",
        "net": "n",
        "production": champion,
        "tests": [],
        "comparison": None,
        "trials": [],
    }
    assert json.loads(json.dumps(run_view)) == run_view


def test_models_versions_keep_and_show_the_figure():
    figures = Figures.of(of_task([[2.0], [1.0], [2.0], [3.0]], TRUE).metrics)
    assert (figures.top1, figures.judged_by().name, figures.judged_by().value) == (None, "rmse", 1.0)
    old = Figures.model_validate(
        {"top1": 0.9, "top1_interval": [0.8, 0.95], "top5": None, "loss": 0.1, "n_samples": 5, "dataset": "d",
         "dataset_digest": "sha256:1"}
    )  # fmt: skip
    assert (old.judged_by().name, old.judged_by().interval) == ("top1", (0.8, 0.95))
    page = template("models.html.jinja")
    judged = figures.judged_by().model_dump(mode="json")
    current = {"judged": judged}
    model = {
        "name": "m", "url": "/m", "error": None, "current": current, "production": None, "versions": [],
        "curve": [(0, 2.0), (1, 1.0)], "curve_label": "RMSE 2 to 1",
    }  # fmt: skip
    shown = page.render(title="Models", models=[model], judged_by="RMSE", nonce="n", site="", here="models")
    assert '<th class="n">RMSE</th>' in shown
    assert '<td class="n">1</td>' in shown


def test_mlflow_gets_the_figures_of_every_result():
    main = evaluation([0, 1, 1], [0, 1, 0]).metrics
    metrics = main.model_copy(update={"others": (of_task([[2.0]], [[0.0]]).metrics,)})
    points = {point.key: point.value for point in evaluation_points(metrics, "evaluation", 7, 0)}
    assert points["evaluation/top1"] == main.top1
    assert points["evaluation/top1_low"] == main.top1_interval[0]
    assert points["evaluation/ip/rmse"] == 2.0


def in_groups(evaluated, groups):
    return Evaluated(evaluated.metrics, replace(evaluated.samples, group=np.asarray(groups, np.uint64)))


def test_groups_of_samples_count_as_one_observation_each(tmp_path):
    """Six groups of four samples; the second net errs on all of two groups."""
    groups = np.repeat(np.arange(6), 4)
    labels = np.arange(24) % 2
    wrong = groups >= 4
    second = evaluation(np.where(wrong, 1 - labels, labels), labels, weights="v")
    zeros, answers = np.zeros((24, 1)), np.where(wrong, 1.0, 0.0)[:, None]
    pairs = {
        "classes": (evaluation(labels, labels), second, 2 * 0.5**8),
        "errors": (of_task(zeros, zeros), of_task(answers, zeros, weights="v"), 2 * 0.5**8),
    }
    for kind, (first, other, p_by_sample) in pairs.items():
        for names, p_value in ((None, p_by_sample), (groups, 0.5)):
            both = [evaluated if names is None else in_groups(evaluated, names) for evaluated in (first, other)]
            folders = runs_of(tmp_path / f"{kind}-{names is None}", *both)
            metrics = [metrics_of(folder) for folder in folders]
            pair = pair_of(folders, metrics, ("a", "b"))
            assert (pair["kind"], pair["n_groups"]) == (kind, None if names is None else 6)
            assert pair["p"] == pytest.approx(p_value)
            json.dumps(pair)
            if kind == "errors":
                assert ("6 groups of samples" in compared_page(metrics, pair)) == (names is not None)
    assert pair["interval"][0] <= 0 <= pair["interval"][1]
