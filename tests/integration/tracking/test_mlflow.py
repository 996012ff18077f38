"""A real MLflow server on SQLite: the sent values, read back by the REST API, against the run's files.

The client and the server have separate environments (``make test-mlflow``); this environment has no MLflow.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tests.processes import http_server
from tests.reference.bundles import make_bundle
from tests.reference.evaluations import answers_with, evaluation, write_evaluation
from tests.unit.deepspark_ops.run_view.run_events import lines, loss, stage, started

pytestmark = pytest.mark.mlflow

ENVIRONMENTS = Path(os.environ.get("DEEPSPARK_MLFLOW_ENVIRONMENTS", ROOT / ".venv"))
CLIENT = ENVIRONMENTS / "mlflow" / "bin" / "python"
SERVER = ENVIRONMENTS / "mlflow-server" / "bin" / "mlflow"
LABELS = [0, 1] * 50


class Mlflow:
    """A tracking server, asked without MLflow's client."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, call: str, body: dict[str, Any] | None = None, **query: object) -> dict[str, Any]:
        address = f"{self.url}/api/2.0/mlflow/{call}?{urllib.parse.urlencode(query)}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return dict(json.load(answer))

    def run(self, run_id: str) -> dict[str, Any]:
        return dict(self.ask("runs/get", run_id=run_id)["run"])

    def history(self, run_id: str, key: str) -> list[tuple[int, float, int]]:
        points = self.ask("metrics/get-history", run_id=run_id, metric_key=key)["metrics"]
        return [(point["step"], point["value"], point["timestamp"]) for point in points]

    def file(self, run: dict[str, Any], name: str) -> bytes:
        where = run["info"]["artifact_uri"].removeprefix("mlflow-artifacts:/")
        address = f"{self.url}/api/2.0/mlflow-artifacts/artifacts/{where}/{name}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return bytes(answer.read())

    def experiment(self, name: str) -> list[dict[str, Any]]:
        number = self.ask("experiments/get-by-name", experiment_name=name)["experiment"]["experiment_id"]
        return list(self.ask("runs/search", {"experiment_ids": [number]}).get("runs", []))

    def versions(self, model: str) -> dict[int, dict[str, Any]]:
        versions = self.ask("model-versions/search", filter=f"name='{model}'").get("model_versions", [])
        return {int(version["version"]): version for version in versions}

    def alias(self, model: str) -> int | None:
        aliases = self.ask("registered-models/get", name=model)["registered_model"].get("aliases", [])
        return next((int(alias["version"]) for alias in aliases if alias["alias"] == "production"), None)


@pytest.fixture(scope="session")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mlflow]:
    if not CLIENT.exists() or not SERVER.exists():
        pytest.fail(f"{CLIENT} or {SERVER} is missing: make test-mlflow brings both")
    folder = tmp_path_factory.mktemp("mlflow")
    store = ["--backend-store-uri", f"sqlite:///{folder}/store.db", "--artifacts-destination", f"{folder}/artefacts"]
    with http_server(
        lambda port: [SERVER, "server", *store, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"],
        log=folder / "log",
        answers_at="/health",
        server_name="MLflow's server",
        cwd=folder,
        env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "HOME": str(folder)},
    ) as url:
        yield Mlflow(url)


def deepspark(*arguments: str, url: str, folder: Path, code: int = 0, **variables: str) -> str:
    """Run the command where MLflow's client is installed; return what it says on stderr."""
    patient = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "50"}  # a server on a busy machine is no finding
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MLFLOW_TRACKING_URI": url, **patient, **variables}
    command = [CLIENT, "-m", "deepspark_ops.command.cli", *arguments]
    completed = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=180
    )
    assert completed.returncode == code, completed.stderr
    assert "Traceback" not in completed.stderr
    return " ".join(completed.stderr.split())


EVENTS = [
    started(0, 1000.0),
    *(
        loss(
            clock % 2, clock, 1000.0 + clock / 3, loss=2.5 / (1 + clock), learning_rate=0.01, staleness=clock % 5 * 0.1
        )
        for clock in range(1, 60)
    ),
    stage("finished", 60, 1100.0),
]


def make_run(folder: Path, name: str = "first", n_wrong: int = 9) -> Path:
    """Make the folder of a run that has trained, was scored and was exported."""
    run = folder / "runs" / name
    evaluated = evaluation(answers_with(LABELS, range(n_wrong)), LABELS, weights=name)
    make_bundle(run / "bundle", name.encode(), run=name, evaluated=evaluated, weights_digest=f"sha256:{name}")
    (run / "config.json").write_text(json.dumps({"strategy": "easgd", "n_workers": 2, "comm_period": 4}))
    (run / "solver.prototxt").write_text('net: "n" base_lr: 0.01 lr_policy: "fixed"')
    (run / "events.jsonl").write_bytes(lines(EVENTS))
    write_evaluation(run / "evaluation", evaluated)
    (run / "evaluation" / "report.html").write_text("<p>all of it</p>")
    return run


def id_of(run: Path) -> str:
    return str(json.loads((run / "mlflow.json").read_text())["run_id"])


def test_mlflow_has_the_values_of_a_finished_runs_files(mlflow: Mlflow, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    output = deepspark("track", str(run), url=mlflow.url, folder=tmp_path, MLFLOW_EXPERIMENT_NAME="digits nightly")
    sent_run = mlflow.run(id_of(run))
    assert (sent_run["info"]["status"], sent_run["info"]["run_name"]) == (
        "FINISHED",
        "LeNet, easgd x2, 1,000 minibatches",
    )
    assert (sent_run["info"]["start_time"], sent_run["info"]["end_time"]) == (1_000_000, 1_100_000)
    params = {param["key"]: param["value"] for param in sent_run["data"]["params"]}
    expected = {"strategy": "easgd", "n_workers": "2", "comm_period": "4", "solver.base_lr": "0.01", "net": "LeNet"}
    assert {name: params[name] for name in expected} == expected
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    for worker in (0, 1):
        for name in ("loss", "staleness"):
            losses = [
                (event["clock"], event[name], int(event["time"] * 1000))
                for event in events
                if event["kind"] == "loss" and event["worker"] == worker
            ]
            assert mlflow.history(sent_run["info"]["run_id"], f"worker_{name}/worker_{worker}") == losses
            assert len(losses) > 28
    metrics = json.loads((run / "evaluation" / "metrics.json").read_text())
    assert mlflow.history(sent_run["info"]["run_id"], "evaluation/top1")[0][:2] == (1, metrics["top1"])
    for name in ("evaluation/report.html", "evaluation/metrics.json", "bundle/manifest.json", "config.json"):
        assert mlflow.file(sent_run, name) == (run / name).read_bytes()
    with pytest.raises(urllib.error.HTTPError):
        mlflow.file(sent_run, "bundle/weights.caffemodel")
    assert "6 files sent" in output
    assert [sent_run["info"]["run_id"] for sent_run in mlflow.experiment("digits nightly")] == [id_of(run)]


def test_a_retry_goes_on_with_the_same_run(mlflow: Mlflow, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "events.jsonl").write_bytes(lines([*EVENTS[:40], stage("failed", 40, 1050.0, reason="loss is nan")]))
    deepspark("track", str(run), url=mlflow.url, folder=tmp_path, MLFLOW_EXPERIMENT_NAME="retried")
    first = mlflow.run(id_of(run))
    assert first["info"]["status"] == "FAILED"
    tags = {tag["key"]: tag["value"] for tag in first["data"]["tags"]}
    assert tags["deepspark.error"] == "train: loss is nan"
    with (run / "events.jsonl").open("ab") as events:
        retried = [loss(0, clock, 2000.0 + clock, loss=0.5) for clock in range(36, 60, 2)]
        events.write(lines([started(34, 2000.0), *retried, stage("finished", 60, 2100.0)]))
    (run / "config.json").write_text(json.dumps({"strategy": "easgd", "n_workers": 3, "comm_period": 4}))
    deepspark("track", str(run), url=mlflow.url, folder=tmp_path, MLFLOW_EXPERIMENT_NAME="retried")
    assert len(mlflow.experiment("retried")) == 1
    sent_run = mlflow.run(id_of(run))
    assert (sent_run["info"]["run_id"], sent_run["info"]["status"]) == (first["info"]["run_id"], "FINISHED")
    history = mlflow.history(id_of(run), "worker_loss/worker_0")
    assert [point for point in history if point[2] >= 2_000_000] == [
        (clock, 0.5, (2000 + clock) * 1000) for clock in range(36, 60, 2)
    ]
    assert {tag["key"]: tag["value"] for tag in sent_run["data"]["tags"]}["now.n_workers"] == "3"
    (run / "mlflow.json").write_text(json.dumps({"format_version": 1, "id": tags["deepspark.id"]}))
    deepspark("track", str(run), url=mlflow.url, folder=tmp_path, MLFLOW_EXPERIMENT_NAME="retried")
    assert len(mlflow.experiment("retried")) == 1, "found again by its tag"
    assert mlflow.history(id_of(run), "worker_loss/worker_0") == history


def promote(mlflow: Mlflow, folder: Path, model: str, name: str, n_wrong: int) -> Path:
    run = make_run(folder, name, n_wrong)
    deepspark("track", str(run), url=mlflow.url, folder=folder)
    deepspark("models", "promote", model, f"runs/{name}", "--reason", "better", url=mlflow.url, folder=folder)
    return run


def test_versions_have_the_same_numbers_and_the_alias_moves(mlflow: Mlflow, tmp_path: Path) -> None:
    runs = [promote(mlflow, tmp_path, "digits", name, n_wrong) for name, n_wrong in (("first", 20), ("second", 9))]
    model = tmp_path / "models" / "digits"
    versions = mlflow.versions("digits")
    records = {number: json.loads((model / "versions" / f"v{number}.json").read_text()) for number in (1, 2)}
    digests = {
        number: {tag["key"]: tag["value"] for tag in version["tags"]}["deepspark.manifest_digest"]
        for number, version in versions.items()
    }
    assert digests == {number: record["manifest_digest"] for number, record in records.items()}
    assert {number: version["run_id"] for number, version in versions.items()} == {1: id_of(runs[0]), 2: id_of(runs[1])}
    assert mlflow.alias("digits") == 2
    deepspark("models", "rollback", "digits", "--reason", "drift", url=mlflow.url, folder=tmp_path)
    assert mlflow.alias("digits") == 1
    mlflow_deletes(mlflow, "digits", 2)
    promote(mlflow, tmp_path, "digits", "third", 0)
    assert json.loads((model / "production.json").read_text())["version"] == "v3"
    assert (sorted(mlflow.versions("digits")), mlflow.alias("digits")) == ([1, 3], 3)


def mlflow_deletes(mlflow: Mlflow, model: str, number: int) -> None:
    address = f"{mlflow.url}/api/2.0/mlflow/model-versions/delete"
    body = json.dumps({"name": model, "version": str(number)}).encode()
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(address, body, headers, method="DELETE"), timeout=30).close()


def test_all_versions_of_an_older_model_are_sent_to_mlflow(mlflow: Mlflow, tmp_path: Path) -> None:
    for name, n_wrong in (("first", 20), ("second", 9)):
        make_run(tmp_path, name, n_wrong)
        deepspark("models", "promote", "late", f"runs/{name}", "--reason", "better", url="", folder=tmp_path)
    deepspark("track", "models/late", url=mlflow.url, folder=tmp_path)
    assert (sorted(mlflow.versions("late")), mlflow.alias("late")) == ([1, 2], 2)
    assert mlflow.versions("late")[2]["source"] == "deepspark:/late/v2"


def test_somebody_elses_model_is_left_alone_and_promotes_all_the_same(mlflow: Mlflow, tmp_path: Path) -> None:
    mlflow.ask("registered-models/create", {"name": "theirs"})
    mlflow.ask("model-versions/create", {"name": "theirs", "source": "s3://bucket/model"})
    make_run(tmp_path)
    arguments = ("models", "promote", "theirs", "runs/first", "--reason", "new")
    output = deepspark(*arguments, url=mlflow.url, folder=tmp_path)
    assert 'MLflow has a version 1 of model "theirs" that is not v1 of this one' in output
    assert (list(mlflow.versions("theirs")), mlflow.alias("theirs")) == ([1], None)
    assert (tmp_path / "models" / "theirs" / "production.json").is_file()


@contextmanager
def silent_server() -> Iterator[str]:
    """A server that takes connections, as many as the kernel keeps waiting, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"http://ada:geheim@127.0.0.1:{silent.getsockname()[1]}"


def test_a_server_that_is_down_is_a_warning_without_secrets(tmp_path: Path) -> None:
    with silent_server() as url:
        pass
    make_run(tmp_path)
    output = deepspark("models", "promote", "digits", "runs/first", "--reason", "new", url=url, folder=tmp_path)
    port = url.rpartition(":")[2]
    assert f"models/digits: http://***@127.0.0.1:{port}: Connection refused. Nothing else depends on it" in output
    assert "geheim" not in output


def test_a_server_that_never_answers_holds_nothing_up_for_long(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with silent_server() as url:
        begun = time.monotonic()
        arguments = ("models", "promote", "digits", "runs/first", "--reason", "new")
        output = deepspark(*arguments, url=url, folder=tmp_path, MLFLOW_HTTP_REQUEST_TIMEOUT="2")
        assert time.monotonic() - begun < 60
        assert "gave no answer in 2 s. Nothing else depends on it" in output
        output = deepspark("track", str(run), url=url, folder=tmp_path, code=1, MLFLOW_HTTP_REQUEST_TIMEOUT="1")
        assert output.startswith("error: http://***@127.0.0.1:")
    assert json.loads((tmp_path / "models" / "digits" / "production.json").read_text())["version"] == "v1"
