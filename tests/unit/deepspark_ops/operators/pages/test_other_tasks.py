"""Pages of runs whose nets are no classifiers: each place that shows an accuracy shows what the task is judged by."""

import json
from pathlib import Path

from deepspark_ops.operators.pages.lists.compared_scores import confusion_of, differences_of, metrics_of, pair_of
from deepspark_ops.operators.pages.run.champion import champion_of
from deepspark_ops.operators.pages.templates import figure, template
from deepspark_ops.operators.tasks.run_plan import Decided
from deepspark_ops.registry.candidate import PRODUCTION_EVALUATION
from deepspark_ops.registry.versions import Figures
from deepspark_ops.tracking.points import evaluation_points
from tests.reference.evaluations import evaluation, of_task, write_evaluation

TRUE = [[0.0], [1.0], [2.0], [3.0]]


def runs_of(tmp_path, *evaluations):
    folders = [tmp_path / f"run{number}" for number in range(len(evaluations))]
    for folder, one in zip(folders, evaluations, strict=True):
        write_evaluation(folder / "evaluation", one)
    return folders


def test_two_regressions_are_compared_by_their_figure(tmp_path):
    folders = runs_of(tmp_path, of_task([[0.5], [1.0], [2.0], [3.0]], TRUE), of_task(TRUE, TRUE))
    metrics = [metrics_of(folder) for folder in folders]
    assert [confusion_of(one) for one in metrics] == [None, None]
    told = "RMSE: a 0.25, b 0, on the same 4 samples; there are no classes to compare"
    assert pair_of(folders, metrics, ("a", "b")) == {"why_not": told}
    assert differences_of(metrics, ("k", "l"), ("a", "b"))[0]["why_not"] == told


def test_a_regression_and_a_classification_are_not_compared(tmp_path):
    folders = runs_of(tmp_path, of_task(TRUE, TRUE), evaluation([0, 1, 0, 1], [0, 1, 0, 1]))
    metrics = [metrics_of(folder) for folder in folders]
    assert pair_of(folders, metrics, ("a", "b")) == {"why_not": "a and b were scored as regression and classification"}


def test_what_is_in_production_is_told_by_its_figure(tmp_path):
    run = tmp_path / "run"
    write_evaluation(run / PRODUCTION_EVALUATION, of_task([[2.0], [1.0], [2.0], [3.0]], TRUE))
    found = champion_of(run, Decided(production=Path("/models/m/versions/v1/weights.caffemodel"), model="m"))
    assert (found["accuracy"], found["is_on_these"]) == (None, True)
    assert figure(found["figure"]) == "RMSE 1"
    run_view = {"name": "r", "run": "r", "net": "n", "production": found, "tests": [], "comparison": None, "trials": []}
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
