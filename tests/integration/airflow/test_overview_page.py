"""The page over many runs: columns, correlations, and names as text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deepspark_ops.operators.pages.lists import overview
from tests.integration.airflow.page_runs import EVIL, write_run

pytestmark = pytest.mark.airflow

RATES = {"many-0": 0.1, "many-1": 0.01, "many-2": 0.001}
ACCURACIES = {"many-0": 0.7, "many-1": 0.9, "many-2": 0.8}


@pytest.fixture
def client_of_many(client: Any) -> Any:
    """Three more runs with rates and accuracies of their own."""
    for run, rate in RATES.items():
        folder = write_run(client.home, "another", run)
        (folder / "solver.prototxt").write_text(f'net: "n" base_lr: {rate}')
    client.get("/runs")  # writes the indexes
    for run, accuracy in ACCURACIES.items():
        path = client.home / "runs" / "another" / run / "index.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "accuracy": accuracy}))
    return client


def test_columns_are_the_figures_and_the_settings_that_differ_of_the_lists_runs(client_of_many: Any) -> None:
    answer = client_of_many.get("/runs/overview?dag=another&sort=run&format=json").json()
    assert [run["run"] for run in answer["runs"]] == list(RATES)
    columns = {column["name"]: column["values"] for column in answer["columns"]}
    assert columns["accuracy"] == list(ACCURACIES.values())
    assert columns["solver: base_lr"] == pytest.approx(list(RATES.values()))
    assert "comm_period" not in columns  # the same in all
    assert answer["runs"][0]["path"] == "/deepspark/runs/another/many-0/training"
    # Ranks 3, 2, 1 and 1, 3, 2: Spearman is 1 - 6 (4 + 1 + 1) / (3 * 8).
    (correlation,) = answer["correlations"]
    assert (correlation["setting"], correlation["measure"], correlation["n_runs"]) == ("solver: base_lr", "rank", 3)
    assert correlation["value"] == pytest.approx(1 - 6 * (4 + 1 + 1) / 24)
    page = client_of_many.get("/runs/overview?dag=another").text
    assert "-0.50" in page
    assert "overview.js" in page


def test_a_filter_and_rights_choose_the_runs(client_of_many: Any) -> None:
    runs = client_of_many.get("/runs/overview?filter=accuracy%3E0.75+and+run~many&format=json").json()["runs"]
    assert {run["run"] for run in runs} == {"many-1", "many-2"}
    assert "run-c" not in client_of_many.get("/runs/overview?format=json").text
    assert client_of_many.get("/runs/overview?filter=x&format=json").status_code == 400
    assert "is no condition" in client_of_many.get("/runs/overview?filter=x").text


def test_at_most_so_many_runs_are_looked_over(client_of_many: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(overview, "MOST_RUNS", 2)
    answer = client_of_many.get("/runs/overview?format=json").json()
    assert (len(answer["runs"]), answer["found"]) == (2, 6)
    assert "the first of 6" in client_of_many.get("/runs/overview").text


def test_names_are_text_and_a_changed_solver_is_read_again(client_of_many: Any) -> None:
    solver = client_of_many.home / "runs" / "another" / "many-0" / "solver.prototxt"
    solver.write_text(f'net: "n" base_lr: 0.5 lr_policy: "{EVIL}"')
    (solver.parent / "config.json").write_text('{"comm_period": 9}')  # as at each start of a run
    page = client_of_many.get("/runs/overview?dag=another").text
    assert EVIL not in page
    columns = client_of_many.get("/runs/overview?dag=another&sort=run&format=json").json()["columns"]
    (rates,) = [column["values"] for column in columns if column["name"] == "solver: base_lr"]
    assert rates[0] == pytest.approx(0.5)
