from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from deepspark_ops.events import Event
from deepspark_ops.run_index.index_file import SummaryReader, read_index, write_index
from deepspark_ops.run_index.summary import CURVE_POINTS
from tests.reference.dataset_files import put_manifest_text
from tests.reference.evaluations import of_task, write_evaluation
from tests.unit.deepspark_ops.run_view.run_events import RUN, lines, loss, stage, started


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    dataset = tmp_path / "digits-51c4"
    (dataset / "train").mkdir(parents=True)
    put_manifest_text(dataset, "train", "{}")
    config = {"solver": "/s/lenet_solver.prototxt", "strategy": "easgd", "comm_period": 4, "dataset": str(dataset)}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "events.jsonl").write_bytes(lines((*RUN, stage("finished", 1000, 1100.0, images_per_s=812.5))))
    return folder


def test_an_index_holds_what_the_runs_files_say(run_dir: Path) -> None:
    index = write_index(run_dir)
    assert read_index(run_dir) == index
    facts = (index.net, index.solver, index.strategy, index.n_workers, index.tau, index.dataset)
    assert facts == ("LeNet", "lenet_solver.prototxt", "easgd", 2, "4", "digits-51c4")
    # sha256 of "{}"
    assert index.dataset_digest == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert (index.clock, index.max_iter, index.ending, index.images_per_s) == (1000, 1000, "finished", 812.5)
    assert (index.accuracy, index.accuracy_of) == (0.975, "test net")
    assert json.loads(index.curve)[0] == [100.0, 1.7]


def test_another_task_than_classification_has_its_own_figure(run_dir: Path) -> None:
    write_evaluation(run_dir / "evaluation", of_task([[1.0]], [[0.5]]))
    index = write_index(run_dir)
    assert index.figure is not None
    assert (index.figure.name, index.figure.value) == ("rmse", 0.5)
    assert (index.accuracy, index.accuracy_of) == (None, None)
    assert read_index(run_dir) == index


def note_status(run_dir: Path, stage_name: str, status: str, moment: float, message: str = "") -> None:
    fields = {"format_version": 1, "stage": stage_name, "status": status, "began": 1.0, "time": moment, "text": ""}
    path = run_dir / "stages" / f"{stage_name}.status.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**fields, "done": None, "total": None, "message": message, "warnings": []}))


def test_the_first_line_of_the_last_failure_is_kept(run_dir: Path) -> None:
    assert write_index(run_dir).error is None
    note_status(run_dir, "evaluate", "failed", 2.0, "an earlier failure")
    note_status(run_dir, "train", "failed", 3.0, "net: no such file: a.prototxt\nremedy: write it")
    assert read_index(run_dir) is None
    assert write_index(run_dir).error == "net: no such file: a.prototxt"
    note_status(run_dir, "export", "finished", 4.0, "")
    assert write_index(run_dir).error == "net: no such file: a.prototxt"


def test_a_run_without_a_config_has_solver_and_strategy_of_its_tasks(run_dir: Path) -> None:
    (run_dir / "config.json").unlink()
    (run_dir / "stages").mkdir()
    (run_dir / "stages" / "check.json").write_text('{"solver": "/s/a_solver.prototxt", "strategy": "sync"}')
    summary = write_index(run_dir)
    assert (summary.solver, summary.strategy) == ("a_solver.prototxt", "easgd")  # the events have the strategy
    (run_dir / "events.jsonl").unlink()
    summary = write_index(run_dir)
    assert (summary.solver, summary.strategy) == ("a_solver.prototxt", "sync")


def test_a_run_that_has_gone_on_is_read_again(run_dir: Path) -> None:
    write_index(run_dir)
    with (run_dir / "events.jsonl").open("ab") as events:
        test = Event("evaluation", 1000, 0, {"test_net": 0, "accuracy": 0.99}, 1101.0)
        events.write(lines([test]))
    assert read_index(run_dir) is None
    assert write_index(run_dir).accuracy == 0.99


@pytest.mark.parametrize("text", ["", "{", '{"format_version": 2, "made_of": {}}', "[]"])
def test_a_damaged_index_and_one_of_another_version_count_as_missing(run_dir: Path, text: str) -> None:
    write_index(run_dir)
    (run_dir / "index.json").write_text(text)
    assert read_index(run_dir) is None


def test_damaged_files_of_a_run_are_no_reason_for_the_list_to_fail(run_dir: Path) -> None:
    (run_dir / "config.json").write_text("{")
    (run_dir / "evaluation").mkdir()
    (run_dir / "evaluation" / "metrics.json").write_text("[]")
    index = write_index(run_dir)
    assert (index.solver, index.net, index.accuracy_of) == (None, "LeNet", "test net")


def test_a_loss_that_is_no_number_is_no_point_of_the_curve(run_dir: Path) -> None:
    (run_dir / "events.jsonl").write_bytes(lines([started(0, 1.0), loss(0, 1, 2.0, loss="nan"), loss(0, 9, 3.0)]))
    index = write_index(run_dir)
    assert index.curve == "[[9.0,0.5]]"
    losses = [started(0, 1.0), *(loss(0, at, float(at), loss=1.0 / at) for at in range(1, 500))]
    (run_dir / "events.jsonl").write_bytes(lines(losses))
    assert len(json.loads(write_index(run_dir).curve)) <= CURVE_POINTS


def test_only_runs_that_are_over_are_indexed_and_a_list_does_not_read_for_ever(run_dir: Path) -> None:
    now = [0.0]
    reader = SummaryReader(budget_s=1.0, clock=lambda: now[0])
    read = reader.begin()
    assert read(str(run_dir), False).clock == 1000
    assert not (run_dir / "index.json").exists()
    now[0] = 1.0
    assert read(str(run_dir), True) is None  # its turn comes with the next list
    assert reader.begin()(str(run_dir), True).clock == 1000
    now[0] = 9.0
    assert read(str(run_dir), True).clock == 1000  # the index needs no time


def test_240_indexed_runs_of_many_events_are_read_in_under_a_second(run_dir: Path, tmp_path: Path) -> None:
    big = lines([started(0, 1.0), *(loss(at % 2, at, float(at)) for at in range(20_000))])
    (run_dir / "events.jsonl").write_bytes(big)
    write_index(run_dir)
    folders = [tmp_path / f"run-{number}" for number in range(240)]
    for folder in folders:
        folder.mkdir()
        for name in ("config.json", "events.jsonl", "index.json"):
            os.link(run_dir / name, folder / name)
    read = SummaryReader().begin()
    began = time.process_time()  # not what other processes take of the machine
    summaries = [read(str(folder), True) for folder in folders]
    assert time.process_time() - began < 1.0
    assert all(summary is not None and summary.clock == 19_999 for summary in summaries)
