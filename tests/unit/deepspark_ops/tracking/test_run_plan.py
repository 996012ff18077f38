from __future__ import annotations

import json
from pathlib import Path

import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.run_view.stage_status import StatusFile
from deepspark_ops.tracking.run_plan import MAX_FILE_BYTES, plan_artefacts, plan_head, plan_points, read_run, run_params
from deepspark_ops.tracking.transfer import TransferState, read_transfer, write_transfer
from tests.reference.evaluations import evaluation, write_evaluation
from tests.unit.deepspark_ops.run_view.run_events import RUN, lines, stage

ENDED = stage("finished", 1000, 1100.0)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "deepspark_train" / "first"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(
        json.dumps({"strategy": "easgd", "comm_period": 4, "run_dir": "/r", "tf32": False})
    )
    (folder / "events.jsonl").write_bytes(lines((*RUN, ENDED)))
    return folder


def head(run_dir: Path, *, over: bool = True):
    return plan_head(run_dir, read_run(run_dir), TransferState(id="abc"), over=over)


@pytest.mark.parametrize(
    ("last", "over", "status"),
    [
        (ENDED, True, "FINISHED"),
        (stage("failed", 400, 1100.0, reason="loss is nan"), True, "FAILED"),
        (stage("stopped", 400, 1100.0, signal="SIGINT"), True, "KILLED"),
        (None, True, "FAILED"),
        (None, False, "RUNNING"),
    ],
)
def test_a_runs_status_is_in_mlflows_words(run_dir: Path, last, over: bool, status: str) -> None:
    (run_dir / "events.jsonl").write_bytes(lines(RUN if last is None else (*RUN, last)))
    run_head = head(run_dir, over=over)
    assert run_head.status == status
    assert (run_head.start_ms, run_head.end_ms is None) == (int(RUN[0].time * 1000), status == "RUNNING")


def test_a_later_stage_that_failed_makes_a_failed_run_until_it_goes_well(run_dir: Path) -> None:
    StatusFile(run_dir, "train", clock=lambda: 1100.0).end("finished")
    StatusFile(run_dir, "evaluate", clock=lambda: 1200.0).end("failed", "no test set")
    failed = head(run_dir)
    assert (failed.status, failed.end_ms) == ("FAILED", 1_200_000)
    assert failed.tags["deepspark.error"] == "evaluate: no test set"
    assert failed.tags["deepspark.stages"] == "evaluate=failed train=finished"
    StatusFile(run_dir, "evaluate", clock=lambda: 1300.0).end("finished")
    assert (head(run_dir).status, head(run_dir).tags["deepspark.error"]) == ("FINISHED", "")


def test_what_a_run_was_started_with_are_its_parameters(run_dir: Path) -> None:
    (run_dir / "solver.prototxt").write_text('net: "n" base_lr: 0.01 lr_policy: "step"')
    run_head = head(run_dir)
    expected = {"strategy": "easgd", "comm_period": "4", "tf32": "false", "net": "LeNet", "solver.base_lr": "0.01"}
    assert {name: run_head.params[name] for name in expected} == expected
    assert "run_dir" not in run_head.params
    assert (run_head.name, run_head.tags["deepspark.id"], run_head.tags["deepspark.run"]) == (
        "LeNet, easgd x2, 1,000 minibatches",
        "abc",
        "deepspark_train/first",
    )


def test_a_parameter_that_is_too_long_is_cut() -> None:
    assert len(run_params({"overrides": "x" * 7_000})["overrides"]) == 6_000


def test_small_files_are_sent_once_and_again_when_they_change(run_dir: Path) -> None:
    (run_dir / "bundle").mkdir()
    (run_dir / "bundle" / "manifest.json").write_text("{}")
    (run_dir / "bundle" / "weights.caffemodel").write_bytes(b"not sent: the manifest has its digest")
    (run_dir / "net.prototxt").write_bytes(b" " * (MAX_FILE_BYTES + 1))
    first = plan_artefacts(run_dir, TransferState())
    assert [(file.name, file.folder) for file in first] == [("config.json", ""), ("bundle/manifest.json", "bundle")]
    transfer_state = TransferState(files={file.name: file.digest for file in first})
    assert plan_artefacts(run_dir, transfer_state) == []
    (run_dir / "bundle" / "manifest.json").write_text("{ }")
    (changed_file,) = plan_artefacts(run_dir, transfer_state)
    assert (changed_file.name, changed_file.digest) == (
        "bundle/manifest.json",
        file_digest(run_dir / "bundle" / "manifest.json"),
    )


def test_an_evaluations_figures_are_sent_once_and_those_of_production_beside_them(run_dir: Path) -> None:
    write_evaluation(run_dir / "evaluation", evaluation([0, 1], [0, 1]))
    write_evaluation(run_dir / "evaluation_production", evaluation([0, 0], [0, 1]))
    reading = read_run(run_dir)
    transfer_state = TransferState(events=reading.token)
    points = {point.key: point.value for point in plan_points(run_dir, reading, transfer_state)}
    assert (points["evaluation/top1"], points["production/top1"]) == (1.0, 0.5)
    digests = {file.name: file.digest for file in plan_artefacts(run_dir, transfer_state)}
    assert plan_points(run_dir, reading, transfer_state.model_copy(update={"files": digests})) == []


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no run that has trained, nor a model; give a folder with events\.jsonl"):
        read_run(tmp_path)


def test_another_mlflow_run_has_been_told_nothing() -> None:
    transfer_state = TransferState(id="abc", run_id="r1", events="00000001.50", files={"a": "b"})
    assert transfer_state.of_run("r1") is transfer_state
    assert transfer_state.of_run("r2") == TransferState(id="abc", run_id="r2")


@pytest.mark.parametrize(
    ("now", "offset"), [("00000001.80", 50), ("00000001.50", 50), ("00000001.40", -1), ("00000002.80", -1)]
)
def test_a_file_of_events_that_was_replaced_is_told_from_its_beginning(now: str, offset: int) -> None:
    assert TransferState(events="00000001.50").offset(now) == offset
    assert TransferState().offset(now) == -1


@pytest.mark.parametrize("text", ["", "{", '{"format_version": 2, "id": "a"}'])
def test_a_damaged_note_counts_as_missing_and_is_told_of(tmp_path: Path, text: str, caplog) -> None:
    write_transfer(tmp_path, TransferState(id="abc"))
    assert read_transfer(tmp_path).id == "abc"
    (tmp_path / "mlflow.json").write_text(text)
    assert read_transfer(tmp_path).id != "abc"
    assert "MLflow gets the run as a new one" in caplog.text
