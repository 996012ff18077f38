import json

from hypothesis import given, settings
from hypothesis import strategies as st

from deepspark_ops.events import DRIVER, Event
from deepspark_ops.run_view.answer import training_answer
from deepspark_ops.run_view.chart_lines import CHARTS, chart_lines
from deepspark_ops.run_view.progress import RunProgress
from deepspark_ops.run_view.reading import RunReading, RunReadings
from deepspark_ops.run_view.state import RunState, state_of
from tests.unit.deepspark_ops.run_view.run_events import RUN, lines, loss, stage, started

RUNNING = RunState("running", "2 of 2 workers train")


def answered(reading, since=""):
    reading.refresh()
    return training_answer(reading, RUNNING, statuses={}, airflow=None, now=1050.0, since=since)


def lines_of_answers(answers):
    """Return a page's lines after the answers: a whole answer replaces the lines, any other answer extends them."""
    lines = {}
    for answer in answers:
        if answer["is_whole"]:
            lines = {}
        for line in answer["lines"]:
            columns = lines.setdefault((line["chart"], line["name"]), {"clock": [], "time": [], "value": []})
            for name, values in columns.items():
                values += line[name]
    return lines


RESUMED_RUN = (*RUN, started(250, 2000.0), loss(0, 300, 2010.0, loss=0.2), loss(1, 350, 2011.0))


@given(cuts=st.lists(st.integers(0, len(lines(RESUMED_RUN))), max_size=5))
@settings(max_examples=50, deadline=None)
def test_a_page_that_asks_for_new_events_has_the_lines_of_a_page_that_asks_once(tmp_path_factory, cuts) -> None:
    run_dir = tmp_path_factory.mktemp("run")
    content, reading, answers, since = lines(RESUMED_RUN), RunReading(run_dir), [], ""
    for cut in [*sorted(cuts), len(content)]:
        (run_dir / "events.jsonl").write_bytes(content[:cut])
        answers.append(answered(reading, since))
        since = answers[-1]["cursor"]
    once = answered(RunReading(run_dir))
    assert lines_of_answers(answers) == lines_of_answers([once])
    last = answers[-1]
    for name in ("clock", "workers", "marks", "events", "warnings", "tests", "images_per_s", "seconds_left", "cursor"):
        assert last[name] == once[name], name
    assert answered(reading, since)["lines"] == []


def test_an_answer_is_json_without_any_number_that_json_has_not(tmp_path) -> None:
    (tmp_path / "events.jsonl").write_bytes(lines())
    answer = answered(RunReading(tmp_path))
    assert json.loads(json.dumps(answer, allow_nan=False)) == json.loads(json.dumps(answer))
    assert (answer["clock"], answer["max_iter"], answer["share"]) == (400, 1000, 0.4)
    assert (answer["loss"], answer["seconds_left"], answer["images_per_s"]) == (None, 60.0, 200.0)  # one loss is NaN
    assert answer["tests"] == [{"net": 0, "clock": 400, "n_samples": 90, "outputs": {"accuracy": 0.975, "loss": 0.08}}]
    drawn = {(line["chart"], line["name"]): line for line in answer["lines"]}
    assert drawn["loss", "worker 0"]["value"] == [2.4, 0.6, None]
    assert drawn["loss", "worker 1"]["clock"] == [100, 260, 400]
    assert drawn["loss", "worker 1"]["time"] == [14.0, 30.0, 44.0]
    assert drawn["test_accuracy", "accuracy"]["value"] == [0.1, 0.975]
    assert drawn["megabytes_per_s", "all workers"]["value"] == [1.0]
    assert {line["chart"] for line in answer["lines"]} <= {chart.name for chart in CHARTS}


def test_events_of_a_page_are_newest_first_and_a_snapshot_names_the_files_that_are_there(tmp_path) -> None:
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / "lenet_iter_250.caffemodel").write_bytes(b"12345")
    (tmp_path / "events.jsonl").write_bytes(lines())
    reading = RunReading(tmp_path)
    reading.refresh()
    answer = training_answer(reading, RUNNING, statuses={}, airflow=None, now=1050.0, run_dir=tmp_path)
    assert [(event["kind"], event["clock"]) for event in answer["events"]] == [
        ("restarted", 310), ("snapshot", 250), ("joined", 0), ("joined", 0), ("note", 0),
    ]  # fmt: skip
    snapshot = answer["events"][1]
    assert (snapshot["text"], snapshot["seconds"]) == ("snapshot lenet_iter_250", 0.1)
    file = {"name": "snapshots/lenet_iter_250.caffemodel", "kind": "caffemodel", "bytes": 5}
    assert snapshot["files"] == [file]
    assert answer["last_snapshot"] == "/r/snapshots/lenet_iter_250.caffemodel"


def test_sparks_own_pages_are_named_while_the_training_lives(tmp_path) -> None:
    def named(*events, state=RUNNING):
        (tmp_path / "events.jsonl").write_bytes(lines((*RUN[:2], *events)))
        reading = RunReading(tmp_path)
        reading.refresh()
        return training_answer(reading, state, statuses={}, airflow=None, now=1050.0, has_lines=False)["spark_ui"]

    note = Event("note", 0, DRIVER, {"text": "Spark UI", "spark_ui": "http://127.0.0.1:4041"}, 1002.0)
    assert named(note) == "http://127.0.0.1:4041"
    assert named(note, Event("note", 5, 0, {"text": "something else"}, 1003.0)) == "http://127.0.0.1:4041"
    assert named() == ""
    assert named(note, started(0, 2000.0)) == ""  # of a driver that is gone
    assert named(note, state=RunState("finished", "training has ended")) == ""
    assert named(Event("note", 0, DRIVER, {"spark_ui": "javascript:alert(1)"}, 1002.0)) == ""


def test_memory_of_each_worker_is_a_line_in_mib(tmp_path) -> None:
    (tmp_path / "events.jsonl").write_bytes(lines((loss(0, 5, 1.0, memory_bytes=3 << 20), loss(1, 6, 2.0))))
    drawn = {(line["chart"], line["name"]): line["value"] for line in answered(RunReading(tmp_path))["lines"]}
    assert drawn["memory", "worker 0"] == [3.0]
    assert ("memory", "worker 1") not in drawn


def test_a_cursor_of_another_file_or_of_nonsense_gets_the_whole(tmp_path) -> None:
    (tmp_path / "events.jsonl").write_bytes(lines())
    reading = RunReading(tmp_path)
    cursor = answered(reading)["cursor"]
    assert not answered(reading, cursor)["is_whole"]
    for wrong in ("x", "00000000.5", f"{cursor}0", cursor.replace(".", ".-"), "."):
        assert answered(reading, wrong)["is_whole"], wrong
    (tmp_path / "events.jsonl").write_bytes(lines(RESUMED_RUN[1:]))
    assert answered(reading, cursor)["is_whole"]


def test_a_long_run_is_thinned_out_to_what_a_screen_shows_and_says_so(tmp_path) -> None:
    events = [started(0, 0.0, max_iter=10_000)]
    events += [loss(worker, clock, float(clock), loss=100.0 if clock == 3333 else 1.0)
             for clock in range(5000) for worker in (0, 1)]  # fmt: skip
    (tmp_path / "events.jsonl").write_bytes(lines(events))
    answer = answered(RunReading(tmp_path))
    assert answer["points"] < 20_000 < answer["points_of"]
    for line in answer["lines"]:
        assert len(line["clock"]) <= 802
        if line["chart"] == "loss" and line["name"] == "worker 0":
            assert max(line["value"]) == 100.0  # the one peak is not lost


def test_lines_of_many_workers_share_the_points_of_a_chart(tmp_path) -> None:
    events = [loss(worker, clock, float(clock)) for clock in range(0, 3000, 10) for worker in range(40)]
    (tmp_path / "events.jsonl").write_bytes(lines(events))
    reading = RunReading(tmp_path)
    reading.refresh()
    drawn_lines = chart_lines(reading.series, 0.0)
    assert sum(len(line["clock"]) for line in drawn_lines if line["chart"] == "loss") < 8_000
    assert sum(len(line["clock"]) for line in drawn_lines) < 40_000


def test_only_the_last_runs_stay_in_memory(tmp_path) -> None:
    readings = RunReadings(n_kept=2)
    first = readings.of(tmp_path / "1")
    second = readings.of(tmp_path / "2")
    assert readings.of(tmp_path / "1") is first
    readings.of(tmp_path / "3")
    assert readings.of(tmp_path / "1") is first
    assert readings.of(tmp_path / "2") is not second


def test_before_anything_is_written(tmp_path) -> None:
    reading = RunReading(tmp_path)
    reading.refresh()
    state = state_of(RunProgress(), {}, None, exists=True)
    answer = training_answer(reading, state, statuses={}, airflow=None, now=5.0)
    assert (answer["lines"], answer["clock"], answer["news"], answer["cursor"]) == ([], 0, None, "00000000.0")


def test_the_load_of_each_host_is_drawn(tmp_path) -> None:
    loads = [
        Event("host", 10, 0, {"host": "b", "cpu": 0.5, "memory": 0.25, "network_bytes_per_s": 3e6}, 1005.0),
        Event("host", 10, 1, {"host": "a", "cpu": 0.9, "memory": 0.5, "gpu": 0.75}, 1006.0),
        Event("host", 90, 0, {"host": "b", "cpu": 0.75, "memory": 0.25, "network_bytes_per_s": 0.0}, 1010.0),
    ]
    (tmp_path / "events.jsonl").write_bytes(lines([RUN[0], *loads]))
    answer = answered(RunReading(tmp_path))
    drawn = {(line["chart"], line["name"]): (line["kind"], line["clock"], line["value"]) for line in answer["lines"]}
    assert drawn == {
        ("cpu", "a"): ("host", [10], [0.9]),
        ("cpu", "b"): ("host", [10, 90], [0.5, 0.75]),
        ("host_memory", "a"): ("host", [10], [0.5]),
        ("host_memory", "b"): ("host", [10, 90], [0.25, 0.25]),
        ("gpu", "a"): ("host", [10], [0.75]),
        ("network", "b"): ("host", [10, 90], [3.0, 0.0]),
    }


def test_workers_of_an_ended_training_have_ended(tmp_path) -> None:
    def worker_states(name, events):
        (tmp_path / name).mkdir()
        (tmp_path / name / "events.jsonl").write_bytes(lines(events))
        return [worker["state"] for worker in answered(RunReading(tmp_path / name))["workers"]]

    assert worker_states("live", RUN) == ["training", "training"]
    assert worker_states("ended", [*RUN[:14], stage("finished", 330, 1100.0)]) == ["ended", "lost"]
