"""The start of a run in words, and runs of the timetable in the past."""

import json
import os
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.operators.tasks.run_start import DataEvent, data_events, missed_text, start_text

SLOT = datetime(2026, 11, 25, 3, 0, tzinfo=UTC)


def dag_run(kind="scheduled", *, late_min=0.0, user=None, clear_number=0):
    return SimpleNamespace(
        run_type=kind,
        run_after=SLOT,
        start_date=SLOT + timedelta(minutes=late_min),
        clear_number=clear_number,
        triggering_user_name=user,
    )


def asset_event(source, *, dataset="/h/datasets/pets-1f", dag="deepspark_train", run="manual__1"):
    extra = {"source": source, "dataset": dataset} if source else {}
    return SimpleNamespace(extra=extra, source_dag_id=dag, source_run_id=run)


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (dag_run(), "started by the timetable, for 2026-11-25 03:00 UTC"),
        (dag_run("manual", user="ada"), "started by ada"),
        (dag_run("manual"), "started by hand"),
        (dag_run("backfill", user="ada"), "started as backfill run by ada"),
        (dag_run("asset_triggered"), "started by data: an event that names no source"),
    ],
)
def test_what_started_a_run_is_one_sentence(run, text):
    assert start_text(run, []) == text


def test_a_run_by_data_names_the_newest_events_and_who_sent_them():
    events = data_events([asset_event("/d/digits"), asset_event(None), asset_event("/d/cats", run="manual__2")])
    assert events[0] == DataEvent("/d/digits", "/h/datasets/pets-1f", "deepspark_train", "manual__1")
    assert start_text(dag_run("asset_triggered"), events) == (
        "started by data: deepspark_train, run manual__2, ingested /d/cats (pets-1f); "
        "deepspark_train, run manual__1, ingested /d/digits (pets-1f)"
    )
    five_events = data_events([asset_event(f"/d/{number}", dataset="", dag=None) for number in range(5)])
    assert (
        start_text(dag_run("asset_triggered"), five_events) == "started by data: /d/4; /d/3; /d/2; and 2 events before"
    )


def live(runs, name, first_min, last_min):
    """Write the status of a run of the same DAG that lived between two moments, in minutes after the slot."""
    stages = runs / name / "stages"
    stages.mkdir(parents=True)
    began, ended = (SLOT.timestamp() + 60 * minute for minute in (first_min, last_min))
    fields = {"stage": "train", "status": "finished", "began": began, "time": ended, "warnings": []}
    (stages / "train.status.json").write_text(json.dumps({"format_version": 1, **fields}))
    os.utime(stages / "train.status.json", (ended, ended))


def test_a_run_whose_time_passed_while_the_dag_was_paused_is_missed(tmp_path):
    run_folder = tmp_path / "own"
    live(tmp_path, "own", 479, 480)
    assert missed_text(dag_run(late_min=14), run_folder, {}) is None
    missed = missed_text(dag_run(late_min=480), run_folder, {})
    assert missed.startswith("it began 480 minutes after its time, 2026-11-25 03:00 UTC; after more than 15 minutes ")
    assert "(DEEPSPARK_RETRAIN_LATEST_START) a run by the timetable is not made up" in missed
    assert missed_text(dag_run(late_min=480), run_folder, {"DEEPSPARK_RETRAIN_LATEST_START": "600"}) is None
    assert missed_text(dag_run("manual", late_min=480), run_folder, {}) is None
    assert missed_text(dag_run(late_min=480, clear_number=1), run_folder, {}) is None, "a person wants it"


def test_a_run_that_waited_for_earlier_runs_is_not_missed(tmp_path):
    live(tmp_path, "long", -30, 200)
    live(tmp_path, "next", 201, 475)
    assert missed_text(dag_run(late_min=480), tmp_path / "own", {}) is None
    assert missed_text(dag_run(late_min=520), tmp_path / "own", {}) is not None, "nothing was at work for 45 minutes"


def test_a_run_that_was_triggered_after_the_pause_excuses_no_missed_time(tmp_path):
    live(tmp_path, "by_hand", 420, 475)
    assert missed_text(dag_run(late_min=480), tmp_path / "own", {}) is not None


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan"])
def test_a_wrong_bound_is_refused(tmp_path, text):
    with pytest.raises(ConfigError, match=rf"DEEPSPARK_RETRAIN_LATEST_START={text}: give the minutes"):
        missed_text(dag_run(), tmp_path / "own", {"DEEPSPARK_RETRAIN_LATEST_START": text})
