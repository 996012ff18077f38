from __future__ import annotations

import pytest

from deepspark_ops.evaluate.tasks.metrics_head import MainFigure
from deepspark_ops.run_index.listing import KnownRun, RunQuery, choices, chosen, row_of
from deepspark_ops.run_index.summary import RunSummary


def row(run, *, dag="deepspark_train", state="success", user=None, **fields):
    known_run = KnownRun(dag, run, state, when=float(len(run)), began=100.0, ended=160.0, kind="manual", user=user)
    return row_of(known_run, RunSummary(**fields), now=500.0)


ROWS = [
    row("a", net="LeNet", strategy="easgd", accuracy=0.9, tau="4", user="Ada"),
    row("bb", net="AlexNet", strategy="downpour", accuracy=0.95, tau="10", dag="mine"),
    row("ccc", net="LeNet", strategy="easgd", state="failed", tau="auto"),
]


def chosen_runs(query):
    return [listed["run"] for listed in chosen(ROWS, query)]


@pytest.mark.parametrize(
    ("query", "run_names"),
    [
        (RunQuery(), ["ccc", "bb", "a"]),
        (RunQuery(sort="-accuracy"), ["bb", "a", "ccc"]),
        (RunQuery(sort="accuracy"), ["a", "bb", "ccc"]),  # what has none comes last either way
        (RunQuery(sort="tau"), ["a", "bb", "ccc"]),  # 4 before 10 before auto
        (RunQuery(sort="net"), ["bb", "a", "ccc"]),
        (RunQuery(sort="__class__"), ["a", "bb", "ccc"]),
        (RunQuery(search="lenet EASGD"), ["ccc", "a"]),
        (RunQuery(search="ada"), ["a"]),
        (RunQuery(filters=(("dag", "mine"),)), ["bb"]),
        (RunQuery(filters=(("strategy", "easgd"), ("state", "finished"))), ["a"]),
        (RunQuery(search="nothing"), []),
    ],
)
def test_rows_are_those_that_the_address_asks_for(query, run_names):
    assert chosen_runs(query) == run_names


def judged(label, value, *, higher):
    figure = {"name": label, "label": label, "value": value, "higher_is_better": higher, "is_share": higher}
    return {"figure": MainFigure(**figure)}


def test_runs_are_sorted_by_what_they_are_judged_by_and_the_better_end_is_the_figures_own():
    rows = [
        row("none"),
        row("rmse 3", **judged("RMSE", 3.0, higher=False)),
        row("iou 40", **judged("Mean IoU", 0.4, higher=True)),
        row("right 80", accuracy=0.8),
        row("rmse 1", **judged("RMSE", 1.0, higher=False)),
        row("iou 60", **judged("Mean IoU", 0.6, higher=True)),
        row("right 90", accuracy=0.9),
    ]
    best = ["right 90", "right 80", "iou 60", "iou 40", "rmse 1", "rmse 3", "none"]
    worst = ["right 80", "right 90", "iou 40", "iou 60", "rmse 3", "rmse 1", "none"]
    for query, expected in (("-figure", best), ("figure", worst), ("-accuracy", best)):
        assert [listed["run"] for listed in chosen(rows, RunQuery(sort=query))] == expected


def test_each_filter_offers_the_values_there_are():
    assert choices(ROWS)["dag"] == ["deepspark_train", "mine"]
    assert choices(ROWS)["state"] == ["failed", "finished"]
    assert choices(ROWS)["dataset"] == []


@pytest.mark.parametrize(
    ("airflow", "ending", "state"),
    [
        ("success", "finished", "finished"),
        ("failed", "stopped", "stopped"),
        ("failed", "finished", "failed"),
        ("queued", None, "waiting"),
        ("running", "finished", "running"),
        (None, "finished", "finished"),
        (None, None, "unknown"),
    ],
)
def test_state_is_airflows_but_for_what_a_person_stopped(airflow, ending, state):
    assert row("r", state=airflow, ending=ending)["state"] == state


@pytest.mark.parametrize(
    ("error", "state", "shown"),
    [
        ("the task took longer than its execution_timeout, 0:10:00", "failed", "the task took longer than its"),
        ("stage train was ended: its task received SIGTERM", "stopped", "None"),
    ],
)
def test_a_training_that_its_time_limit_stopped_has_failed_with_the_limit_as_its_error(error, state, shown):
    stopped = row("r", state="failed", ending="stopped", error=error)
    assert (stopped["state"], str(stopped["error"])[: len(shown)]) == (state, shown)


def test_the_folder_of_a_run_that_airflow_forgot_tells_of_a_failure_after_the_training():
    def state(**fields):
        return row("r", state=None, **fields)["state"]

    assert state(ending="finished", error="task evaluate: disk full") == "failed"
    assert state(error="no such file: a.prototxt") == "failed"
    assert state(ending="stopped", error="stage train was ended: its task received SIGTERM") == "stopped"


def test_the_tasks_of_the_dag_tell_the_work_of_a_run_without_a_folder():
    run = KnownRun("mine", "r", "success", work="evaluate")
    works = [row_of(run, summary, now=1.0)["work"] for summary in (None, RunSummary(), RunSummary(work="training"))]
    assert works == ["evaluate", "evaluate", "training"]


def test_a_run_that_goes_on_lasts_until_now_and_a_run_without_a_user_names_its_trigger():
    running = row_of(KnownRun("d", "r", "running", began=100.0, kind="scheduled"), None, now=130.0)
    assert (running["seconds"], running["who"], running["is_read"]) == (30.0, "scheduled", False)
    assert ROWS[0]["seconds"] == 60.0
    assert ROWS[0]["who"] == "Ada"


def test_a_failed_run_alone_has_an_error_and_the_error_is_searched():
    failed = row("f", state="failed", error="no such file: a.prototxt")
    assert failed["error"] == "no such file: a.prototxt"
    assert row("s", state="success", error="of the first try")["error"] is None
    assert chosen([failed, *ROWS], RunQuery(search="a.prototxt")) == [failed]


def test_a_failed_run_without_a_message_has_a_reason_too():
    stopped = KnownRun("d", "s", "failed")
    killed = KnownRun("d", "k", "failed", failed_task="check")
    errors = [row_of(run, summary, now=1.0)["error"] for run in (stopped, killed) for summary in (None, RunSummary())]
    assert errors[0] == errors[1] == "no task failed: a person stopped the run, or the run's time limit ended the run"
    assert errors[2] == errors[3] == "task check failed; the log of the task has the reason"


def test_a_run_without_files_has_name_solver_and_strategy_of_its_form():
    refused = KnownRun("d", "r", "failed", name="paper", solver="a_solver.prototxt", strategy="sync")
    empty = row_of(refused, RunSummary(), now=500.0)
    assert (empty["name"], empty["is_named"]) == ("paper", True)
    renamed = row_of(refused, RunSummary(work="training", net="LeNet"), now=500.0)
    assert (renamed["name"].split(",")[0], renamed["is_named"]) == ("LeNet", False)
    assert (empty["solver"], empty["strategy"]) == ("a_solver.prototxt", "sync")
    trained = row_of(refused, RunSummary(solver="b_solver.prototxt", strategy="easgd"), now=500.0)
    assert (trained["solver"], trained["strategy"]) == ("b_solver.prototxt", "easgd")


def test_a_name_and_tags_by_a_person_are_shown_and_searched_and_else_the_name_is_what_differs():
    named = row("r", name="the paper's", tags=("baseline", "v2"), net="LeNet")
    assert (named["name"], named["is_named"], named["tags"]) == ("the paper's", True, ["baseline", "v2"])
    facts = {"net": "LeNet", "strategy": "easgd", "n_workers": 2, "max_iter": 1500}
    unnamed = row("s", **facts)
    assert (unnamed["name"], unnamed["is_named"]) == ("LeNet, easgd x2, 1,500 minibatches", False)
    assert chosen([named, unnamed], RunQuery(search="PAPER baseline")) == [named]
    assert chosen([named, unnamed], RunQuery(search="x2,")) == [unnamed]
    assert [listed["run"] for listed in chosen([named, unnamed], RunQuery(sort="name"))] == ["s", "r"]
    assert (row("t", dag="deepspark_clean")["name"], row("t", dag="deepspark_clean")["work"]) == ("clean", "clean")


def test_a_run_that_asks_a_person_waits_for_approval():
    known_run = KnownRun("deepspark_retrain", "r", "running", asks="approve")
    listed = row_of(known_run, RunSummary(), now=500.0)
    assert (listed["state"], listed["asks"]) == ("waits for approval", "approve")
    assert row("a")["asks"] is None
    assert chosen([listed, *ROWS], RunQuery(filters=(("state", "waits for approval"),))) == [listed]
