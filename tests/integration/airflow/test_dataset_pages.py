"""The pages about datasets: content, a look at samples, the runs that used a dataset, and rights."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.run_view.stage_status import StatusFile
from deepspark_ops.shards.files.picture_archive import EncodedPicture, write_pictures
from deepspark_ops.shards.manifest import manifest_path, split_digests
from deepspark_ops.sizes import size_text
from tests.integration.airflow.page_runs import EVIL
from tests.reference.dataset_files import put_manifest_text

pytestmark = pytest.mark.airflow


SHEET = {0: EncodedPicture("image/png", b"zeros"), 1: EncodedPicture("image/png", b"ones")}


def write_dataset(client: Any, name: str, dag: str, run: str) -> Path:
    """Write a dataset with a run that used the dataset; return the folder."""
    folder = client.home / "datasets" / name
    for split, counts in (("train", [5, 3]), ("test", [1, 1])):
        n = sum(counts)
        fields = {
            "split": split, "shard_format": "lmdb", "encoded": False, "recipe_sha256": "1", "sample_shape": [1, 8, 8],
            "source": {"path": "/data/digits.gz", "format": "idx", "sha256": "2"}, "n_samples": n, "n_classes": 2,
            "class_names": [EVIL, "one"], "label_histogram": counts, "mean_values": [1.0], "n_rejected": 0,
            "mean_file": {"file": "mean", "sha256": "3"}, "n_bytes": 8,
            "shards": [{"file": "s", "sha256": "4", "n_samples": n, "n_bytes": 8}],
        }  # fmt: skip
        (folder / split).mkdir(parents=True)
        put_manifest_text(folder, split, json.dumps(fields))
    write_pictures(folder / "contact_sheet.zip", SHEET, "1")
    (client.home / "runs" / dag / run / "config.json").write_text(json.dumps({"dataset": str(folder)}))
    return folder


def test_the_list_has_the_datasets_of_runs_that_one_may_read(client: Any) -> None:
    folder = write_dataset(client, "digits-1", "deepspark_train", "run-a")
    write_dataset(client, "hidden-2", "secret_dag", "run-c")
    (listed,) = client.get("/datasets?format=json").json()["datasets"]
    assert (listed["name"], [run["run"] for run in listed["runs"]], listed["error"]) == ("digits-1", ["run-a"], None)
    assert [listed["splits"][split]["label_histogram"] for split in ("train", "test")] == [[5, 3], [1, 1]]
    page = client.get("/datasets").text
    assert "hidden-2" not in page
    assert 'href="/deepspark/datasets/digits-1"' in page
    manifest_path(folder, "test").write_text("{")
    assert "run DeepSparkIngestOperator again" in client.get("/datasets").text
    assert "run DeepSparkIngestOperator again" in client.get("/datasets/digits-1").text


def test_an_ingestion_alone_leads_to_its_dataset(client: Any) -> None:
    folder = write_dataset(client, "digits-1", "deepspark_train", "run-a")
    (client.home / "runs" / "deepspark_train" / "run-a" / "config.json").unlink()
    ingestion = client.home / "runs" / "deepspark_train" / "run-d"
    status = StatusFile(ingestion, "ingest")
    (ingestion / "stages" / "ingest.json").write_text(json.dumps({"output": str(folder)}))
    assert client.get("/datasets?format=json").json()["datasets"] == []
    status.end("finished")
    (listed,) = client.get("/datasets?format=json").json()["datasets"]
    assert [(run["run"], run["is_same"]) for run in listed["runs"]] == [("run-d", True)]
    assert 'href="/deepspark/datasets/digits-1"' in client.get("/runs?work=all").text


def test_a_datasets_page_shows_its_manifest_classes_samples_and_runs(client: Any) -> None:
    folder = write_dataset(client, "digits-1", "deepspark_train", "run-a")
    os.utime(manifest_path(folder, "test"), (1769832306, 1769832306))
    os.utime(manifest_path(folder, "train"), (1769832300, 1769832300))
    shown = client.get("/datasets/digits-1?format=json").json()["dataset"]
    digest = split_digests(folder)["train"]
    assert (shown["splits"]["train"]["digest"], shown["made"]) == (digest, 1769832306)
    assert shown["samples"] == {"0": SHEET[0].data_uri(), "1": SHEET[1].data_uri()}
    page = client.get("/datasets/digits-1").text
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    for part in ("/data/digits.gz", "sha256:2", digest, "1 x 8 x 8", "made 2026-01-31 04:05 UTC", "run-a", "LeNet"):
        assert part in text, part
    rows = re.findall(r'<tr><th scope="row">([^<]*)</th>.*?<span>(\d+)</span>.*?<span>(\d+)</span>', page)
    assert rows == [("&lt;script&gt;alert(1)&lt;/script&gt;", "5", "1"), ("one", "3", "1")]
    assert re.findall(r'class="part-0" height="8" width="([\d.]+)"', page) == ["100.0", "60.0"]  # of the largest class
    assert [page.count(f'src="{picture.data_uri()}"') for picture in SHEET.values()] == [1, 1]
    assert EVIL not in page
    assert not re.search(r"\son\w+=|\sstyle=|javascript:", page)
    assert "before it was made again" not in text
    size = size_text(shown["splits"]["train"]["n_bytes"])
    assert all(
        size in page and ">MB<" not in page and " MB" not in page for page in (text, client.get("/datasets").text)
    )


def test_a_dataset_that_an_ingestion_writes_anew_is_said_to_be_unfinished(client: Any) -> None:
    folder = write_dataset(client, "digits-1", "deepspark_train", "run-a")
    client.get("/datasets/digits-1")  # which indexes the run
    (folder / "dataset.json").unlink()
    for split in ("train", "test"):
        manifest_path(folder, split).unlink(missing_ok=True)
    for page in (client.get("/datasets").text, client.get("/datasets/digits-1").text):
        assert f"{folder}: no ingestion has finished this dataset: task ingest runs or has failed" in page
        assert "made again" not in page


def test_a_run_of_an_earlier_content_is_marked_and_a_sheet_of_it_not_shown(client: Any) -> None:
    folder = write_dataset(client, "digits-1", "deepspark_train", "run-a")
    client.get("/datasets/digits-1")  # which indexes the run
    fields = json.loads(manifest_path(folder, "train").read_text())
    put_manifest_text(folder, "train", json.dumps({**fields, "recipe_sha256": "another"}))
    answer = client.get("/datasets/digits-1?format=json").json()["dataset"]
    assert ([run["is_same"] for run in answer["runs"]], answer["samples"]) == ([False], {})
    page = client.get("/datasets/digits-1").text
    assert "used it as it was before it was made again" in page
    assert "No pictures are kept" in page


def test_no_address_leads_to_what_one_may_not_see_or_out_of_the_folder(client: Any) -> None:
    write_dataset(client, "hidden-2", "secret_dag", "run-c")
    answers = {name: client.get(f"/datasets/{name}?format=json") for name in ("hidden-2", "nothing", "..", "%2E%2E")}
    assert {response.status_code for response in answers.values()} == {404}
    errors = [answers[name].json()["error"].replace(name, "") for name in ("hidden-2", "nothing")]
    assert errors[0] == errors[1]
    assert EVIL not in client.get(f"/datasets/{EVIL.replace('/', '%2F')}").text


def test_readers_of_a_run_may_read_the_report_of_the_dataset(client: Any) -> None:
    folder = write_dataset(client, "digits-1", "deepspark_train", "run-a")
    hidden = write_dataset(client, "hidden-2", "secret_dag", "run-c")
    assert "digits-1/report" not in client.get("/datasets/digits-1").text
    assert client.get("/datasets/digits-1/report").status_code == 404
    for path in (folder, hidden):
        (path / "report.html").write_text("<h1>What is in it</h1>")
    assert 'href="/deepspark/datasets/digits-1/report"' in client.get("/datasets/digits-1").text
    response = client.get("/datasets/digits-1/report")
    assert (response.status_code, response.text) == (200, "<h1>What is in it</h1>")
    assert "sandbox" in response.headers["content-security-policy"]
    assert "script" not in response.headers["content-security-policy"]
    assert client.get("/datasets/hidden-2/report").status_code == 404
