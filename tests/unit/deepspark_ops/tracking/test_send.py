"""Order of the requests to a small tracking server, and the state after an interrupted send."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.tracking import send
from deepspark_ops.tracking.model_plan import DIGEST_TAG, ModelPlan, ModelVersion, NumbersDiffer, Registered
from deepspark_ops.tracking.points import MetricPoint
from deepspark_ops.tracking.run_plan import RunHead
from deepspark_ops.tracking.send import OpenRun, TrackingFailed, send_model, send_run
from deepspark_ops.tracking.transfer import TransferState, read_transfer
from tests.reference.evaluations import evaluation, write_evaluation
from tests.unit.deepspark_ops.run_view.run_events import RUN, lines, loss, stage, started


class FakeServer:
    """Stores requests as MLflow does: parameters never change, and the server numbers versions."""

    def __init__(self, *, fail_at: str = "") -> None:
        self.runs: dict[str, dict] = {}
        self.ids: dict[str, str] = {}
        self.fail_at = fail_at
        self.versions: dict[int, str] = {}
        self.next_number = 1
        self.highest: int | None = None
        self.production: int | None = None

    def _may_fail(self, call: str) -> None:
        if call == self.fail_at:
            self.fail_at = ""
            msg = "connection reset"
            raise TrackingFailed(msg)

    def open_run(self, head: RunHead, state: TransferState) -> OpenRun:
        run_id = self.ids.setdefault(state.id, f"run{len(self.ids)}-{id(self):x}")
        run = self.runs.setdefault(run_id, {"params": {}, "tags": {}, "points": [], "files": {}, "batches": []})
        self._may_fail("open_run")
        return OpenRun(run_id, dict(run["params"]), dict(run["tags"]))

    def log_settings(self, run_id: str, params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        run = self.runs[run_id]
        assert not params.keys() & run["params"].keys()
        run["params"].update(params)
        run["tags"].update(tags)
        self._may_fail("log_settings")

    def log_points(self, run_id: str, points: Sequence[MetricPoint]) -> None:
        self._may_fail("log_points")
        self._may_fail(f"log_points {len(self.runs[run_id]['batches'])}")
        self.runs[run_id]["points"] += points
        self.runs[run_id]["batches"].append(len(points))

    def log_file(self, run_id: str, path: Path, folder: str) -> None:
        name = f"{folder}/{path.name}".lstrip("/")
        self.runs[run_id]["files"].setdefault(name, []).append(path.read_bytes())
        self._may_fail(f"log_file {name}")

    def set_status(self, run_id: str, head: RunHead) -> None:
        self.runs[run_id]["status"] = head.status

    def read_model(self, name: str) -> Registered:
        return Registered(self.highest, self.versions, self.production)

    def register(self, model: str, version: ModelVersion) -> int:
        number, self.next_number = self.next_number, self.next_number + 1
        self.versions[number] = version.digest
        self._may_fail("register")
        self.highest = number
        return number

    def set_production(self, model: str, number: int | None) -> None:
        self.production = number


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "first"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"strategy": "easgd"}))
    (folder / "events.jsonl").write_bytes(lines((*RUN, stage("finished", 1000, 1100.0))))
    return folder


def the_run(server: FakeServer) -> dict:
    (run,) = server.runs.values()
    return run


def test_a_run_is_told_once_however_often_its_stages_end(run_dir: Path) -> None:
    server = FakeServer()
    send_run(server, run_dir, over=True)
    run = the_run(server)
    n_points = len(run["points"])
    assert (run["params"]["strategy"], run["status"], n_points > 20) == ("easgd", "FINISHED", True)
    write_evaluation(run_dir / "evaluation", evaluation([0, 1], [0, 1]))
    message = send_run(server, run_dir, over=True)
    assert "7 numbers and 1 files sent" in message
    assert {point.key.partition("/")[0] for point in run["points"][n_points:]} == {"evaluation"}
    assert run["files"]["evaluation/metrics.json"] == [(run_dir / "evaluation" / "metrics.json").read_bytes()]
    assert len(run["files"]["config.json"]) == 1


@pytest.mark.parametrize("call", ["open_run", "log_settings", "log_points", "log_file config.json"])
def test_a_telling_that_was_cut_off_goes_on_with_the_same_run(run_dir: Path, call: str) -> None:
    server, uninterrupted = FakeServer(fail_at=call), FakeServer()
    with pytest.raises(TrackingFailed):
        send_run(server, run_dir, over=True)
    send_run(server, run_dir, over=True)
    send_run(uninterrupted, run_dir, over=True)
    assert the_run(server)["points"] == the_run(uninterrupted)["points"]
    assert the_run(server)["params"] == the_run(uninterrupted)["params"]
    assert the_run(server)["files"].keys() == the_run(uninterrupted)["files"].keys()


def test_a_retry_adds_its_numbers_to_the_run_and_changes_no_parameter(run_dir: Path) -> None:
    server = FakeServer()
    send_run(server, run_dir, over=True)
    run = the_run(server)
    n_points = len(run["points"])
    with (run_dir / "events.jsonl").open("ab") as events:
        events.write(lines([started(900, 2000.0), loss(0, 950, 2001.0, loss=0.125), stage("failed", 960, 2002.0)]))
    (run_dir / "config.json").write_text(json.dumps({"strategy": "easgd", "n_servers": 2, "lock": "full"}))
    send_run(server, run_dir, over=True)
    new = run["points"][n_points:]
    assert MetricPoint("worker_loss/worker_0", 0.125, 950, 2_001_000) in new
    assert {point.step for point in new} == {950}
    assert run["status"] == "FAILED"
    (run_dir / "config.json").write_text(json.dumps({"strategy": "downpour", "n_servers": 2}))
    send_run(server, run_dir, over=True)
    assert (run["params"]["strategy"], run["tags"]["now.strategy"]) == ("easgd", "downpour")
    assert "now.n_servers" not in run["tags"]


def test_an_error_is_gone_from_mlflow_when_the_retry_goes_well(run_dir: Path) -> None:
    server = FakeServer()
    (run_dir / "events.jsonl").write_bytes(lines((*RUN, stage("failed", 400, 1050.0, reason="loss is nan"))))
    send_run(server, run_dir, over=True)
    tags = the_run(server)["tags"]
    assert (tags["deepspark.error"], "deepspark.decision" in tags) == ("train: loss is nan", False)
    with (run_dir / "events.jsonl").open("ab") as events:
        events.write(lines([started(400, 2000.0), stage("finished", 1000, 2002.0)]))
    send_run(server, run_dir, over=True)
    assert (tags["deepspark.error"], the_run(server)["status"]) == ("", "FINISHED")


def test_another_server_gets_everything(run_dir: Path) -> None:
    first, second = FakeServer(), FakeServer()
    send_run(first, run_dir, over=True)
    send_run(second, run_dir, over=True)
    assert the_run(first)["points"] == the_run(second)["points"]
    assert the_run(second)["files"].keys() == {"config.json"}


def test_numbers_that_have_arrived_are_not_sent_again_and_no_request_has_too_many(run_dir: Path) -> None:
    events = [started(0, 0.0), *(loss(at % 2, at, at * 0.5) for at in range(1, 3_000)), stage("finished", 3000, 2e3)]
    (run_dir / "events.jsonl").write_bytes(lines(events))
    server, uninterrupted = FakeServer(fail_at="log_points 2"), FakeServer()
    with pytest.raises(TrackingFailed):
        send_run(server, run_dir, over=True)
    write_evaluation(run_dir / "evaluation", evaluation([0, 1], [0, 1]))
    send_run(server, run_dir, over=True)
    send_run(uninterrupted, run_dir, over=True)
    assert the_run(server)["points"] == the_run(uninterrupted)["points"]
    batches = the_run(server)["batches"]
    assert batches[:-1] == [1_000] * (len(batches) - 1)
    assert sum(batches) > 3_000


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The model's versions and the one in production."""
    state = {"versions": 2, "production": 2}

    def planned(_: ModelFolder) -> ModelPlan:
        versions = [ModelVersion(n, "", {DIGEST_TAG: f"sha256:{n}"}) for n in range(1, state["versions"] + 1)]
        return ModelPlan("digits", tuple(versions), state["production"])

    monkeypatch.setattr(send, "plan_model", planned)
    return state


@pytest.fixture
def model(tmp_path: Path, now: dict[str, int]) -> ModelFolder:
    folder = ModelFolder(tmp_path / "models" / "digits")
    folder.versions.mkdir(parents=True)
    return folder


def test_versions_keep_their_numbers_and_the_alias_follows_promotion_and_rollback(model, now) -> None:
    server = FakeServer()
    assert send_model(server, model) == 'model "digits": 2 of 2 versions registered; production is version 2'
    assert (server.versions, server.production) == ({1: "sha256:1", 2: "sha256:2"}, 2)
    now["production"] = 1
    assert send_model(server, model) == 'model "digits": 0 of 2 versions registered; production is version 1'
    assert server.production == 1
    del server.versions[2]  # by hand, in MLflow, which does not use the number again
    now |= {"versions": 3, "production": 3}
    send_model(server, model)
    assert (server.versions, server.production) == ({1: "sha256:1", 3: "sha256:3"}, 3)


def test_a_version_whose_note_was_lost_is_not_registered_twice(model) -> None:
    server = FakeServer(fail_at="register")
    with pytest.raises(TrackingFailed):
        send_model(server, model)
    send_model(server, model)
    assert server.versions == {1: "sha256:1", 2: "sha256:2"}


def test_a_model_of_somebody_else_is_left_alone(model) -> None:
    server = FakeServer()
    server.versions, server.next_number, server.production = {1: ""}, 2, 1
    with pytest.raises(NumbersDiffer):
        send_model(server, model)
    assert (server.versions, server.production) == ({1: ""}, 1)


def test_a_number_that_differs_all_the_same_is_an_error(model) -> None:
    server = FakeServer()
    server.next_number = 4  # versions 1 to 3 were somebody's and are deleted, which nobody can see
    with pytest.raises(TrackingFailed, match="v1 became version 4 in MLflow"):
        send_model(server, model)


def test_registering_waits_for_another_process_but_not_for_ever(model) -> None:
    with (model.root / ".mlflow.lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(TrackingFailed, match=r"another process has been registering versions for 0\.1 s"):
            send_model(FakeServer(), model, lock_timeout_s=0.1)
    send_model(FakeServer(), model)


def test_a_run_keeps_the_id_that_its_mlflow_run_is_found_by(run_dir: Path) -> None:
    server = FakeServer(fail_at="open_run")
    with pytest.raises(TrackingFailed):
        send_run(server, run_dir, over=True)
    assert list(server.ids) == [read_transfer(run_dir).id]
