"""A run's pages show bundle, snapshots and production, and give files; tasks have links."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deepspark_ops.events import DRIVER, Event, append_event
from deepspark_ops.operators.pages import plugin
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.run_view.state import AirflowRun, TaskState
from tests.integration.airflow.asking_person import asking_client, text_of
from tests.reference.bundles import make_bundle
from tests.reference.evaluations import answers_with, evaluation, write_evaluation
from tests.unit.deepspark_ops.run_view.run_events import RUN, lines

pytestmark = pytest.mark.airflow

DAG, RUN_ID = "deepspark_retrain", "run-1"
URL = f"/runs/{DAG}/{RUN_ID}"
TRAINS = AirflowRun("running", {"train": TaskState("running", 999.0)})
SPARK = Event(
    "note", 0, DRIVER, {"text": "Spark UI: http://127.0.0.1:4040", "spark_ui": "http://127.0.0.1:4040"}, 1001.0
)
LABELS = [0, 1] * 20


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Any]:
    """A reader of a training run with one snapshot; the tests bring the values to compare."""
    folder = tmp_path / "runs" / DAG / RUN_ID
    (folder / "snapshots").mkdir(parents=True)
    (folder / "snapshots" / "lenet_iter_250.caffemodel").write_bytes(b"x" * 1_500_000)
    (folder / "events.jsonl").write_bytes(lines((*RUN[:1], SPARK, *RUN[1:])))
    with asking_client(tmp_path, airflow=lambda dag, run: TRAINS) as test_client:
        test_client.folder = folder
        yield test_client


def decide(client: Any, production: Path | None) -> None:
    (client.folder / "stages").mkdir()
    decided = {"format_version": 1, "dataset": None, "production": None if production is None else str(production)}
    (client.folder / "stages" / "decided.json").write_text(json.dumps(decided | {"model": "digits/5"}))


def test_a_snapshot_is_fetched_from_the_page_byte_by_byte(client: Any) -> None:
    page = client.get(f"{URL}/training").text
    assert "snapshot lenet_iter_250, written in 0.1 s caffemodel 1.4 MiB" in text_of(page)
    (address,) = re.findall(r'class="fetch" href="/deepspark([^"]+)"', page)
    answer = client.get(address)
    assert answer.content == b"x" * 1_500_000
    assert answer.headers["content-disposition"] == 'attachment; filename="lenet_iter_250.caffemodel"'
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize(
    "name",
    [
        "events.jsonl", "stages/decided.json", "snapshots/..%2Fevents.jsonl", "..%2F..%2Fsecret", "%2Fetc%2Fpasswd",
        "bundle/%00", "bundle",
    ],
)  # fmt: skip
def test_nothing_else_of_the_machine_is(client: Any, name: str) -> None:
    (client.home / "runs" / "secret").write_text("secret")
    answer = client.get(f"{URL}/files/{name}")
    assert (answer.status_code, "secret" in answer.text) == (404, "secret" in name)
    assert client.get(f"/runs/{DAG}/..%2Fother/files/snapshots/x_iter_1.caffemodel").status_code == 404


def test_the_bundles_page_lists_its_files_with_digests_to_fetch(client: Any) -> None:
    missing = client.get(f"{URL}/bundle")
    assert (missing.status_code, "this run has no bundle" in missing.text) == (404, True)
    assert client.get(f"{URL}/bundle?format=json").status_code == 404
    make_bundle(client.folder / "bundle", b"weights", code_version="<script>alert(1)</script>")
    page = client.get(f"{URL}/bundle")
    assert "<h1>Bundle of LeNet, easgd x2" in page.text
    assert page.status_code == 200
    assert "by DeepSpark &lt;script&gt;alert(1)" in page.text
    assert "<script>alert" not in page.text
    assert "unsafe" not in page.headers["content-security-policy"]
    files = {file["name"]: file for file in client.get(f"{URL}/bundle?format=json").json()["files"]}
    assert files["weights.caffemodel"]["n_bytes"] == 7
    assert files["weights.caffemodel"]["digest"][7:23] in page.text
    addresses = re.findall(r'href="/deepspark([^"]+)" download', page.text)
    for address in addresses:
        name = address.partition("/files/bundle/")[2]
        assert client.get(address).content == (client.folder / "bundle" / name).read_bytes()
    assert {address.partition("/files/bundle/")[2] for address in addresses} == {*files, "manifest.json"}
    (client.folder / "bundle" / "manifest.json").write_text("{}")
    assert client.get(f"{URL}/bundle").status_code == 404


def test_a_bundle_that_is_a_link_out_of_the_run_gives_nothing_away(client: Any) -> None:
    (client.folder / "bundle").symlink_to(make_bundle(client.home / "elsewhere"))
    assert client.get(f"{URL}/files/bundle/weights.caffemodel").status_code == 404


def test_the_model_in_production_stands_beside_the_runs_own_accuracy(client: Any) -> None:
    assert client.get(f"{URL}/training?format=json").json()["production"] is None
    was = evaluation(answers_with(LABELS, [3, 5]), LABELS, data="older")
    bundle = make_bundle(client.home / "models" / "digits" / "versions" / "v7", evaluated=was)
    decide(client, bundle / "weights.caffemodel")
    text = text_of(client.get(f"{URL}/training").text)
    assert "97.5 % (production 95.0 %)" in text
    assert "in production: v7 with 95.0 %, as it scored before" in text
    assert 'href="/deepspark/models/digits%2F5"' in client.get(f"{URL}/training").text
    write_evaluation(client.folder / "evaluation_production", evaluation(answers_with(LABELS, [3]), LABELS))
    assert "in production: v7 with 97.5 % on this run's test samples" in text_of(client.get(f"{URL}/training").text)
    answer = client.get(f"{URL}/training?format=json").json()["production"]
    assert (answer["version"], answer["accuracy"], answer["is_on_these"]) == ("v7", 0.975, True)
    (client.folder / "evaluation_production" / "metrics.json").write_text("{}")  # damaged: what it was stands in
    assert client.get(f"{URL}/training?format=json").json()["production"]["is_on_these"] is False


def test_links_of_model_and_spark_are_there_while_they_lead_somewhere(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "_installation", lambda: Places(client.home, client.home))
    monkeypatch.setattr(plugin, "_training", lambda: client.training)
    links = {link.name: link for link in plugin.DeepSparkPlugin.operator_extra_links}
    key = SimpleNamespace(dag_id=DAG, run_id=RUN_ID, task_id="train", map_index=-1)

    def address(name: str) -> str:
        return links[name].get_link(None, ti_key=key)

    assert (address("Model"), address("Spark UI")) == ("", "http://127.0.0.1:4040")
    assert "http://127.0.0.1:4040" in client.get(f"{URL}/training").text
    decide(client, None)
    assert address("Model") == "/deepspark/models/digits%2F5"
    monkeypatch.setattr(
        client.training, "_airflow_run", lambda dag, run: AirflowRun("failed", {"train": TaskState("failed")})
    )
    assert address("Spark UI") == ""
    assert address("Bundle") == f"/deepspark/runs/{DAG}/{RUN_ID}/bundle"
    assert links["Model"].get_link(None, ti_key=SimpleNamespace(dag_id="..", run_id="..")) == ""


def test_every_operator_of_ours_has_a_link_to_its_run() -> None:
    import deepspark_ops.operators as package

    package_folder = Path(package.__file__).parent
    operator_names = {
        name
        for file in package_folder.glob("*.py")
        for name in re.findall(r"^class (\w+Operator)\(", file.read_text(), re.M)
    }
    linked = {
        operator.__name__
        for link in plugin.DeepSparkPlugin.operator_extra_links
        if link.name in ("Training", "Run")
        for operator in link.operators
    }
    assert operator_names == linked


def test_the_weights_of_a_watched_run_are_told_by_layer_and_of_no_other_run(client: Any) -> None:
    assert client.get(f"{URL}/training?format=json").json()["has_weights"] is False
    assert client.get(f"{URL}/weights").status_code == 404
    named = {"every": 50, "blobs": ["ip[0]"]}
    center = {**named, "norm": [2.0], "distance": [0.5], "values": [[0.0, 1.0, [3, 1]]]}
    append_event(client.folder / "events.jsonl", Event("watch", 51, 0, center, 1100.0))
    append_event(client.folder / "events.jsonl", Event("watch", 54, 1, {**named, "distance": [1.5]}, 1100.0))
    assert client.get(f"{URL}/training?format=json").json()["has_weights"] is True
    assert f'data-url="/deepspark{URL}/weights"' in client.get(f"{URL}/training").text
    answer = client.get(f"{URL}/weights").json()
    assert (answer["clock"], answer["size"], answer["distance"]) == ([51], [[2.0]], [[0.5]])
    assert client.get(f"{URL}/weights?blob=ip[0]").json()["values"] == [[0.0, 1.0, [3, 1]]]
    assert client.get(f"{URL}/weights?blob=ip[1]").status_code == 404
    assert client.get("/runs/deepspark_retrain/..%2Fother/weights").status_code == 404
