"""The page that compares runs: curves, settings, matrices and differences, samples as pictures."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.evaluate.comparison.mistake_pictures import kept_errors, kept_mistakes, write_mistake_pictures
from deepspark_ops.run_label.label import RunLabel, write_label
from deepspark_ops.shards.files.picture_archive import EncodedPicture
from tests.integration.airflow.page_runs import EVIL, write_run
from tests.reference.evaluations import evaluation, of_task, write_evaluation

pytestmark = pytest.mark.airflow


COMPARE = "/runs/compare?run=deepspark_train/run-a&run=deepspark_train/run-b"


def test_two_runs_are_drawn_on_one_chart_a_quantity_each_in_its_colour(client: Any) -> None:
    answer = client.get(f"{COMPARE}&format=json").json()
    losses = [line for line in answer["lines"] if line["chart"] == "loss"]
    assert [(line["name"], line["run"]) for line in losses] == [("LeNet", 0), ("AlexNet", 1)]
    lines = client.get("/runs/deepspark_train/run-a/training?format=json").json()["lines"]
    (mean,) = [line for line in lines if (line["chart"], line["name"]) == ("loss", "mean of all")]
    assert (losses[0]["clock"], losses[0]["value"]) == (mean["clock"], mean["value"])
    assert {line["chart"] for line in answer["lines"]} >= {"loss", "test_accuracy", "images_per_s", "learning_rate"}
    assert answer["state"]["is_over"]
    assert answer["points"] == answer["points_of"] > 0  # short runs are drawn whole


def test_settings_are_shown_where_they_differ_and_all_by_a_switch(client: Any) -> None:
    solver = "base_lr: {} max_iter: 1000 type: 'SGD' solver_mode: CPU net: '{}'"
    for run, rate in (("run-a", "0.01"), ("run-b", "0.003")):
        folder = client.home / "runs" / "deepspark_train" / run
        (folder / "solver.prototxt").write_text(solver.format(rate, folder))
    settings = {setting["name"]: setting for setting in client.get(f"{COMPARE}&format=json").json()["settings"]}
    assert settings["solver: base_lr"] == {"name": "solver: base_lr", "values": ["0.01", "0.003"], "differs": True}
    assert settings["solver: solver_mode"]["values"] == ["CPU", "CPU"]
    assert settings["comm_period"]["differs"] is False
    assert "solver: net" not in settings
    differing, every = client.get(COMPARE).text, client.get(f"{COMPARE}&all=1").text
    assert "solver: base_lr" in differing
    assert "comm_period" not in differing
    assert "comm_period" in every


NAMES = (EVIL, "one", "two")
LABELS = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
FIRST = [0, 0, 1, 1, 1, 1, 0, 2, 2, 0]  # wrong at 2, 3, 6 and 9
SECOND = [0, 0, 1, 0, 1, 0, 1, 2, 2, 2]  # wrong at 2 and 5


def evaluate(client: Any, run: str, answers: list[int], labels: list[int] = LABELS, **options: Any) -> Path:
    """Write an evaluation with pictures of the mistakes; each picture shows its position."""
    scored = evaluation(answers, labels, **{"n_classes": 3, "names": NAMES, "weights": run, **options})
    folder = write_evaluation(client.home / "runs" / "deepspark_train" / run / "evaluation", scored)
    pictures = {at: EncodedPicture("image/png", f"{run} {at}".encode()) for at in kept_mistakes(scored.samples.answers)}
    write_mistake_pictures(folder, scored.samples, pictures)
    return folder


def picture(run: str, at: int) -> str:
    return EncodedPicture("image/png", f"{run} {at}".encode()).data_uri()


def words(page: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


def test_confusion_matrices_and_their_difference_stand_side_by_side_and_classes_are_text(client: Any) -> None:
    evaluate(client, "run-a", FIRST)
    evaluate(client, "run-b", SECOND)
    answer = client.get(f"{COMPARE}&format=json").json()
    first, second = ([[2, 2, 0], [1, 2, 0], [1, 0, 2]], [[3, 1, 0], [1, 2, 0], [0, 0, 3]])
    assert [matrix["counts"] for matrix in answer["confusions"]] == [first, second]
    (difference,) = answer["differences"]
    assert difference["counts"] == [[1, -1, 0], [0, 0, 0], [-1, 0, 1]]
    assert (difference["first"], difference["second"]) == ("deepspark_train/run-a", "deepspark_train/run-b")
    page = client.get(COMPARE).text
    assert page.count('<svg class="confusion"') == 3
    assert "AlexNet minus LeNet" in words(page)
    assert page.count('class="more"') == 3  # two cells and the legend
    assert EVIL not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"\son\w+=|\sstyle=|javascript:", page)
    assert client.get("/runs?format=json").json()["runs"][1]["accuracy_of"] == "evaluation"


def test_more_than_two_runs_are_each_compared_with_the_first(client: Any) -> None:
    write_run(client.home, "deepspark_train", "run-e")
    evaluate(client, "run-a", FIRST)
    evaluate(client, "run-b", SECOND)
    evaluate(client, "run-e", LABELS)
    answer = client.get(f"{COMPARE}&run=deepspark_train/run-e&format=json").json()
    assert [difference["counts"] for difference in answer["differences"]] == [
        [[1, -1, 0], [0, 0, 0], [-1, 0, 1]],
        [[2, -2, 0], [-1, 1, 0], [-1, 0, 1]],
    ]
    assert answer["pair"] is None
    assert "the other wrong" not in client.get(f"{COMPARE}&run=deepspark_train/run-e").text


def test_samples_right_in_a_single_run_are_pictures_with_mcnemars_counts(client: Any) -> None:
    evaluate(client, "run-a", FIRST)
    evaluate(client, "run-b", SECOND)
    pair = client.get(f"{COMPARE}&format=json").json()["pair"]
    counts = ("n_samples", "n_both_right", "n_both_wrong", "n_only_first", "n_only_second", "p")
    assert tuple(pair[name] for name in counts) == (10, 5, 1, 1, 3, 2 * 5 / 16)
    # A loop over the samples; the wrong run keeps the picture.
    rows = list(enumerate(zip(LABELS, FIRST, SECOND, strict=True)))
    first = [(at, NAMES[k], NAMES[b], picture("run-b", at)) for at, (k, a, b) in rows if a == k != b]
    second = [(at, NAMES[k], NAMES[a], picture("run-a", at)) for at, (k, a, b) in rows if b == k != a]
    columns = ("index", "true", "taken_for", "picture")
    assert [tuple(sample[name] for name in columns) for sample in pair["only_first"]] == first
    assert [tuple(sample[name] for name in columns) for sample in pair["only_second"]] == second
    page = client.get(COMPARE).text
    assert [page.count(f'src="{picture("run-b", 5)}"'), page.count('<img class="picture small"')] == [1, 4]
    text = words(page)
    for part in (
        "Of 10 samples both get 5 right and 1 wrong. Only LeNet gets 1 right, only AlexNet 3.",
        "p = 0.62",
        "Only LeNet is right (1 of 1)",
        "Only AlexNet is right (3 of 3)",
    ):
        assert part in text, part


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ({"data": "other"}, "LeNet and AlexNet were tested on different samples (sha256:same and sha256:other)"),
        ({"names": ("zero", "one", "two")}, 'have different classes (class 0 is "<script>'),
        ({"n_classes": 4, "names": ()}, "have different classes (3 and 4)"),
        ({"answers": SECOND[:9], "labels": LABELS[:9]}, "LeNet and AlexNet count different samples (10 and 9)"),
        (None, "AlexNet: no evaluation yet"),
    ],
)
def test_what_cannot_be_compared_says_why_not(client: Any, second: dict[str, Any] | None, why: str) -> None:
    evaluate(client, "run-a", FIRST)
    if second is not None:
        evaluate(client, "run-b", **{"answers": SECOND, **second})
    answer = client.get(f"{COMPARE}&format=json").json()
    (difference,) = answer["differences"]
    assert difference["counts"] is None
    assert why in difference["why_not"]
    assert answer["pair"] == {"why_not": difference["why_not"]}
    page = client.get(COMPARE).text
    assert words(page).count(f": {why}" if why.startswith("run") else why) >= 2
    assert EVIL not in page


def test_without_pictures_the_counts_stay_and_a_sentence_says_what_makes_them(client: Any) -> None:
    evaluate(client, "run-a", FIRST)
    (evaluate(client, "run-b", SECOND) / "mistakes.zip").unlink()
    pair = client.get(f"{COMPARE}&format=json").json()["pair"]
    assert (pair["n_only_first"], pair["only_first"], len(pair["only_second"])) == (1, [], 3)
    assert "AlexNet was evaluated by an earlier version" in words(client.get(COMPARE).text)


def test_an_evaluation_outside_the_folder_of_the_run_is_not_followed(client: Any) -> None:
    evaluate(client, "run-a", FIRST)
    folder = evaluate(client, "run-b", SECOND)
    folder.rename(client.home / "elsewhere")
    folder.symlink_to(client.home / "elsewhere")
    answer = client.get(f"{COMPARE}&format=json").json()
    assert answer["pair"] == {"why_not": "AlexNet: no evaluation yet"}
    assert answer["confusions"][1] is None


def test_a_comparison_shows_nothing_of_a_dag_that_one_may_not_read(client: Any) -> None:
    secret = client.get("/runs/compare?run=deepspark_train/run-a&run=secret_dag/run-c&format=json")
    missing = client.get("/runs/compare?run=deepspark_train/run-a&run=secret_dag/none&format=json")
    assert (secret.status_code, missing.status_code) == (404, 404)
    assert secret.json()["error"].replace("run-c", "none") == missing.json()["error"]
    outside = client.get("/runs/compare?run=deepspark_train/run-a&run=../../etc&format=json")
    assert outside.status_code == 404


@pytest.mark.parametrize("n_runs", [0, 1, 9])
def test_two_to_eight_runs_are_compared(client: Any, n_runs: int) -> None:
    address = "/runs/compare?" + "&".join(f"run={EVIL}/{number}" for number in range(n_runs))
    answer = client.get(address)
    assert answer.status_code == 400
    assert f"{n_runs} runs are chosen; choose 2 to 8" in answer.text
    assert EVIL not in client.get(f"/runs/compare?run={EVIL}/1&run={EVIL}/2").text


def test_samples_without_classes_are_shown_where_the_errors_differ_most(client: Any) -> None:
    true = [[0.0], [1.0], [2.0], [3.0]]
    for run, answers in (("run-a", [[0.5], [1.0], [2.0], [3.25]]), ("run-b", [[0.0], [3.0], [2.0], [3.0]])):
        scored = of_task(answers, true, weights=run)
        folder = write_evaluation(client.home / "runs" / "deepspark_train" / run / "evaluation", scored)
        indices = kept_errors(scored.samples.answers, 2)
        pictures = {at: EncodedPicture("image/png", f"{run} {at}".encode()) for at in indices}
        write_mistake_pictures(folder, scored.samples, pictures)
    page = client.get(COMPARE).text
    text = words(page)
    for part in (
        "Samples where the errors differ most",
        "Of 4 samples LeNet has the smaller error on 1, AlexNet on 2; on 1 they are equal.",
        "LeNet is better (1 of 1, the largest differences first)",
        "AlexNet is better (2 of 2, the largest differences first)",
        "The mean error is 0.07812 of LeNet and 1 of AlexNet, AlexNet minus LeNet between",
        "LeNet: error 0 AlexNet: error 4",
        "Figures of the evaluations",
        "RMSE 0.2795 1",
    ):
        assert part in text, part
    assert "Confusion matrices" not in text
    # Of each sample the picture of the run that keeps it: its two worst; of sample 1 that is run-b alone.
    assert [page.count(f'src="{picture(run, at)}"') for run, at in (("run-a", 0), ("run-b", 1), ("run-a", 1))] == [
        1,
        1,
        0,
    ]
    assert not re.search(r"\son\w+=|\sstyle=|javascript:", page)
    rows = client.get("/runs?sort=-figure&format=json").json()["runs"]
    assert [row["run"] for row in rows if row["figure"]] == ["run-a", "run-b"]


def test_equal_names_are_told_apart_by_the_run_ids_and_a_name_by_a_person_is_taken_whole(client: Any) -> None:
    folder = client.home / "runs" / "deepspark_train"
    for name, run in (("<i>paper", "run-a"), ("base, line", "run-b")):
        write_label(folder / run, RunLabel(name=name))
    runs = client.get(f"{COMPARE}&format=json").json()["runs"]
    assert [run["label"] for run in runs] == ["<i>paper", "base, line"]
    page = client.get(COMPARE).text
    assert "<i>paper" not in page
    assert "&lt;i&gt;paper" in page
    assert "run-a" in words(page)  # the run id stays as the second line
    write_label(folder / "run-b", RunLabel(name="<i>paper"))
    runs = client.get(f"{COMPARE}&format=json").json()["runs"]
    assert [run["label"] for run in runs] == ["run-a", "run-b"]
