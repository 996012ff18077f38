"""The table of a comparison, made from folders of trials: finished trials, and trials that failed in each way."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from deepspark_ops.config.compare import CompareConfig
from deepspark_ops.events import DRIVER, Event, append_event, make_event
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.stage_status import NO_MESSAGE, Status, StatusFile
from deepspark_ops.trials.page import render_page
from deepspark_ops.trials.plan import Plan, make_plan
from deepspark_ops.trials.table import Table, make_table, read_courses
from tests.reference.evaluations import answers_with, evaluation, of_task, write_evaluation

LABELS = [0, 1] * 10


def trial_plan(folder: Path, target: float | None = None) -> Plan:
    config = CompareConfig(strategies=("easgd", "sync", "lbfgs", "downpour"), target_accuracy=target)
    return make_plan(config, "deepspark_compare", "run", lambda run: folder / run)


def note(run_dir: Path, stage: str, status: Status, message: str = "") -> None:
    StatusFile(run_dir, stage).end(status, message)


def write_training(run_dir: Path, accuracies: list[float], *, moved_bytes: int = 4_000) -> None:
    """Write the files of a training with a test every 100 minibatches, 2 s each."""
    events = [
        Event("stage", 0, DRIVER, {"status": "started"}, 10.0),
        Event("worker_joined", 0, 0, {}, 20.0),
        *(
            Event("evaluation", 100 * at, 0, {"accuracy": accuracy, "seconds": 0.0}, 20.0 + 2.0 * at)
            for at, accuracy in enumerate(accuracies)
        ),
        Event("stage", 300, DRIVER, {"status": "finished", "exchanges": 5, "moved_bytes": moved_bytes}, 30.0),
    ]
    RunPaths(run_dir).events.write_text("".join(event.to_json() + "\n" for event in events))
    note(run_dir, "train", "finished")


def evaluate(run_dir: Path, *, n_wrong: int) -> None:
    write_evaluation(run_dir / "evaluation", evaluation(answers_with(LABELS, range(n_wrong)), LABELS))
    note(run_dir, "evaluate", "finished")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four trials: two finished, one with a failed training, one killed."""
    runs = [tmp_path / f"run__trial_{number:02d}" for number in (1, 2, 3, 4)]
    for run in runs:
        run.mkdir()
    write_training(runs[0], [0.1, 0.8, 0.9, 0.95])
    evaluate(runs[0], n_wrong=1)
    write_training(runs[1], [0.1, 0.9, 0.92, 0.9], moved_bytes=7_000)
    evaluate(runs[1], n_wrong=3)
    note(runs[2], "train", "failed", "stage train failed: no weight changed\nraise max_iter <b>")
    StatusFile(runs[3], "train")  # begun, no end noted
    return tmp_path


def table_of(plan: Plan) -> Table:
    return make_table(plan, read_courses(plan.trials))


def test_rows_have_accuracy_and_time_of_each_trial(folder: Path) -> None:
    table = table_of(trial_plan(folder))
    # 0.95 and 0.9 were the last accuracies of the tests; the first trial was at 0.9 after 4 s, the second after 2 s.
    assert (table.target_accuracy, table.target_is_given) == (0.9, False)
    rows = [
        (row.name, row.status, row.accuracy, row.seconds_to_target, row.clock_to_target, row.seconds, row.moved_bytes)
        for row in table.rows
    ]
    assert rows == [
        ("easgd", "finished", 0.95, 4.0, 200, 10.0, 4_000),
        ("sync", "finished", 0.85, 2.0, 100, 10.0, 7_000),
        ("lbfgs", "failed", None, None, None, None, None),
        ("downpour", "failed", None, None, None, None, None),
    ]
    assert table.rows[2].reason == "stage train failed: no weight changed\nraise max_iter <b>"
    assert table.rows[3].reason == NO_MESSAGE
    assert Table.model_validate_json(table.to_json()) == table


def test_a_target_that_was_asked_for_need_not_be_reached(folder: Path) -> None:
    table = table_of(trial_plan(folder, target=0.93))
    assert (table.target_accuracy, table.target_is_given) == (0.93, True)
    assert [row.seconds_to_target for row in table.rows] == [6.0, None, None, None]


def test_a_trial_whose_evaluation_failed_has_failed_with_its_reason(folder: Path) -> None:
    note(folder / "run__trial_01", "evaluate", "failed", "no test set")
    row = table_of(trial_plan(folder)).rows[0]
    assert (row.status, row.reason, row.accuracy, row.moved_bytes) == ("failed", "no test set", None, 4_000)


def test_csv_has_a_line_per_trial_and_no_cell_that_a_spreadsheet_would_run(folder: Path) -> None:
    table = table_of(trial_plan(folder))
    cells = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert [line["strategy"] for line in cells] == ["easgd", "sync", "lbfgs", "downpour"]
    assert (cells[0]["accuracy"], cells[0]["moved_bytes"], cells[2]["accuracy"]) == ("0.95", "4000", "")
    assert cells[2]["reason"] == table.rows[2].reason
    odd = table.rows[0].model_copy(update={"name": "=1+1"})
    (line,) = csv.DictReader(io.StringIO(table.model_copy(update={"rows": (odd,)}).to_csv()))
    assert line["name"] == "'=1+1"


def test_page_shows_each_trial_its_reason_and_its_lines_and_loads_nothing(folder: Path) -> None:
    plan = trial_plan(folder)
    courses = read_courses(plan.trials)
    page = render_page(make_table(plan, courses), courses, {"solver": "s.prototxt", "overrides": "<i>"})
    assert "no weight changed\nraise max_iter &lt;b&gt;" in page
    assert "&lt;i&gt;" in page
    assert page.count("<polyline") == 2 * 3  # two charts: a line for each of two trials, and one for the target
    best = re.findall(r'class="number best">([^<]*)<|class="number best">([^<]*) <', page)
    assert [text.strip() for text, _ in best] == ["95.0 %", "3.9 KiB", "2.00 s"]  # of accuracy, bytes and time
    assert "95.0 %" in page
    assert "http" not in page.replace("http-equiv", "")
    assert "<script" not in page


def test_a_trial_that_was_stopped_early_says_why_and_sets_no_target(folder: Path) -> None:
    events = RunPaths(folder / "run__trial_02").events
    data = {"status": "finished", "exchanges": 1, "moved_bytes": 1, "early_stop": "<low>"}
    append_event(events, make_event("stage", clock=40, **data))
    plan = trial_plan(folder)
    courses = read_courses(plan.trials)
    table = make_table(plan, courses)
    assert [(row.early_stop, row.stopped_at) for row in table.rows[:2]] == [("", None), ("<low>", 40)]
    assert table.target_accuracy == 0.95  # the last accuracy of the first trial; the second has 0.9
    page = render_page(table, courses, {})
    assert "stopped early: &lt;low&gt;" in page
    assert 'class="number best"' not in page  # a trial that stopped early has moved the fewest bytes
    assert table.lines()[:2] == [
        "easgd: accuracy 95.0 %, 95.0 % after 6.00 s, 3.9 KiB pushed and pulled",
        "sync (stopped early: <low>): accuracy 85.0 %, 95.0 % not reached, 1 B pushed and pulled",
    ]


def test_a_trial_of_several_combinations_is_a_row_with_their_names(folder: Path) -> None:
    plan = trial_plan(folder)
    first = plan.trials[0].model_copy(update={"same_runs": ("<sync>, 1 worker", "auto, 1 worker")})
    plan = plan.model_copy(update={"trials": (first, *plan.trials[1:])})
    courses = read_courses(plan.trials)
    table = make_table(plan, courses)
    assert [row.same_runs for row in table.rows] == [first.same_runs, (), (), ()]
    assert table.lines()[0] == "easgd: the same run: <sync>, 1 worker; auto, 1 worker"
    cells = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert [line["same_runs"] for line in cells] == ["<sync>, 1 worker; auto, 1 worker", "", "", ""]
    page = render_page(table, courses, {})
    assert "easgd<br><small>the same run: &lt;sync&gt;, 1 worker; auto, 1 worker</small>" in page
    assert "trained once" in page
    assert "trained once" not in render_page(make_table(trial_plan(folder), courses), courses, {})


def test_trials_without_tests_are_compared_all_the_same(folder: Path) -> None:
    for number in (1, 2):
        write_training(folder / f"run__trial_0{number}", [])
    plan = trial_plan(folder)
    courses = read_courses(plan.trials)
    table = make_table(plan, courses)
    assert table.target_accuracy is None
    assert [row.accuracy for row in table.rows] == [0.95, 0.85, None, None]
    page = render_page(table, courses, {})
    assert "so there is no time to an accuracy" in page
    assert "<polyline" not in page
    assert json.loads(table.to_json())["rows"][0]["seconds_to_target"] is None


def test_trials_of_a_regression_are_compared_by_its_own_figure_the_lowest_first(folder: Path) -> None:
    for number, error in ((1, 0.5), (2, 0.25)):
        evaluated = of_task([[error], [1.0]], [[0.0], [1.0]])
        write_evaluation(folder / f"run__trial_0{number}" / "evaluation", evaluated)
    plan = trial_plan(folder)
    courses = read_courses(plan.trials)
    table = make_table(plan, courses)
    values = [None if row.figure is None else row.figure.value for row in table.rows]
    assert values == [pytest.approx(0.5 / 2**0.5), pytest.approx(0.25 / 2**0.5), None, None]
    assert [row.accuracy for row in table.rows] == [None] * 4
    assert Table.model_validate_json(table.to_json()) == table
    assert table.lines()[1].startswith("sync: RMSE 0.1768, ")
    cells = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert [line["rmse"][:6] for line in cells] == ["0.3535", "0.1767", "", ""]
    page = render_page(table, courses, {})
    assert 'class="number best">0.1768<' in page
    assert "Best RMSE" in page
    assert "lower is better" in page
