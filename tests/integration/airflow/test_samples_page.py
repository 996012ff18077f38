"""The page "Samples" of a run: the samples behind a figure, filtered by the address, as page, JSON and CSV."""

from __future__ import annotations

import csv
import html
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deepspark_ops.evaluate.comparison.mistake_pictures import write_mistake_pictures
from deepspark_ops.shards.thumbnail import small_picture
from tests.reference.evaluations import evaluation, of_task, write_evaluation

pytestmark = pytest.mark.airflow

LABELS = [0, 0, 1, 1, 1, 0] * 30
ANSWERS = [0, 1, 1, 0, 1, 0] * 30
OTHER_ANSWERS = [0, 0, 0, 0, 1, 0] * 30
"""Right alone at 1, wrong alone at 2, wrong as run-a at 3, of each six samples."""
URL = "/runs/deepspark_train/run-a/samples"
PAIR = f"{URL}?with=deepspark_train/run-b"


def write_rows(folder: Path, columns: dict[str, Any]) -> None:
    metadata = {
        "deepspark.weights": "sha256:w",
        "deepspark.results": '[{"prefix": "", "task": "t", "outputs": ["ip"], "target": "y"}]',
    }
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), folder / "samples.parquet")


@pytest.fixture
def folder(client: Any) -> Path:
    """The evaluation of run-a: 180 samples of two classes, 60 of them wrong, with a picture of sample 1."""
    return evaluate(client, "deepspark_train/run-a", ANSWERS, pictured=1)


@pytest.fixture
def other_folder(client: Any) -> Path:
    """The evaluation of run-b, on the same samples, with a picture of sample 2."""
    return evaluate(client, "deepspark_train/run-b", OTHER_ANSWERS, pictured=2)


def evaluate(client: Any, run: str, answers: list[int], *, pictured: int, **options: Any) -> Path:
    evaluated = evaluation(answers, LABELS, **{"names": ("cat", "<dog>"), **options})
    folder: Path = write_evaluation(client.home / "runs" / run / "evaluation", evaluated)
    n = len(LABELS)
    write_rows(
        folder,
        {
            "index": list(range(n)),
            "name": [f"a/<{at}>.png" for at in range(n)],
            "content": list(range(n)),
            "loss": np.where(np.equal(answers, LABELS), 0.1, 2.1),
            "label": LABELS,
            "predicted": answers,
            "probability": [0.9] * n,
            "label_probability": [
                0.9 if answer == label else 0.1 for answer, label in zip(answers, LABELS, strict=True)
            ],
        },
    )
    write_mistake_pictures(folder, evaluated.samples, {pictured: small_picture(np.full((8, 8), 90, np.uint8), 16)})
    return folder


def shown_names(page: str) -> list[str]:
    return re.findall(r"<td>(a/[^<]*)</td>", page)


def test_a_cell_shows_its_samples_with_pictures_and_leads_on(client: Any, folder: Path) -> None:
    answer = client.get(f"{URL}?true=0&predicted=1")
    assert answer.status_code == 200
    assert shown_names(answer.text) == [f"a/&lt;{at}&gt;.png" for at in range(1, 180, 6)]
    assert "30 of 180 samples" in answer.text
    assert "<h1>Samples of LeNet, easgd x2, 1,000 minibatches</h1>" in answer.text  # the run's name in lists
    assert answer.text.count("<img") == 1
    assert "Pictures are kept of the worst wrong answers alone." in answer.text
    assert "Pictures are kept" not in client.get(f"{URL}?true=0&predicted=0").text  # the table has no such column
    assert '<option value="1" selected>&lt;dog&gt;</option>' in answer.text
    assert '<a href="/deepspark/runs/deepspark_train/run-a/report">report</a>' in answer.text


def test_pages_of_sixty_samples_keep_the_conditions(client: Any, folder: Path) -> None:
    texts = [client.get(f"{URL}?sort=index&page={page}").text for page in (1, 2, 3)]
    names = [name for text in texts for name in shown_names(text)]
    assert names == [f"a/&lt;{at}&gt;.png" for at in range(180)]
    assert f'href="{"/deepspark" + URL}?sort=index&amp;page=3">next</a>' in texts[1]
    assert client.get(f"{URL}?page=99&format=json").json()["page"] == 3


def test_json_and_csv_have_the_same_samples(client: Any, folder: Path) -> None:
    answer = client.get(f"{URL}?wrong=1&format=json").json()
    assert (answer["n_rows"], answer["n_pages"], len(answer["rows"])) == (60, 1, 60)
    table = client.get(f"{URL}?wrong=1&format=csv")
    assert table.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert [int(row["index"]) for row in rows] == [row["index"] for row in answer["rows"]]
    assert rows[0]["name"] == "a/<1>.png"


@pytest.mark.parametrize(
    "address",
    ["true=x", "true=1.5", "predicted=-1", "min_loss=nan", "max_probability=inf", "wrong=2", "sort=name", "page=0"],
)
def test_an_address_that_makes_no_sense_is_refused(client: Any, folder: Path, address: str) -> None:
    name, _, value = address.partition("=")
    answer = client.get(f"{URL}?{address}&format=json")
    assert answer.status_code == 400
    assert f'{name}="{value}"' in answer.json()["error"]


def test_a_regression_has_no_classes(client: Any) -> None:
    folder = client.home / "runs" / "deepspark_train" / "run-a" / "evaluation"
    write_evaluation(folder, of_task([[0.5], [1.0]], [[0.0], [1.0]]))
    write_rows(folder, {"index": [0, 1], "name": [None, None], "content": [1, 2], "loss": [0.25, 0.0]})
    page = client.get(URL).text
    assert "true class" not in page
    assert "0.25" in page


def evaluate_regression(client: Any) -> None:
    folder = client.home / "runs" / "deepspark_train" / "run-a" / "evaluation"
    true = np.arange(8.0)
    predicted = true + np.array([0.0, 0.0, 0.5, 0.5, 0.5, -1.0, 2.0, 0.25])
    write_evaluation(folder, of_task(predicted[:, None].tolist(), true[:, None].tolist()))
    columns = {"index": list(range(8)), "name": [f"a/<{at}>.png" for at in range(8)], "content": list(range(8))}
    lists = {"true": true, "predicted": predicted}
    numbers = {name: pa.array([[value] for value in values], pa.list_(pa.float32())) for name, values in lists.items()}
    write_rows(folder, {**columns, "loss": (predicted - true) ** 2, **numbers})


def test_a_bar_of_residuals_leads_to_its_samples(client: Any) -> None:
    evaluate_regression(client)
    page = client.get(URL).text
    links = {title: html.unescape(url) for url, title in re.findall(r'<a href="([^"]*)" aria-label="([^"]*)"', page)}
    (address,) = [url for title, url in links.items() if title.endswith(": 3 samples")]
    bar = client.get(address.removeprefix("/deepspark"))
    assert shown_names(bar.text) == [f"a/&lt;{at}&gt;.png" for at in (2, 3, 4)]
    counts = [int(title.split()[-2]) for title in links]
    assert sum(counts) == 8
    rows = client.get(f"{URL}?sort=-residual&format=json").json()["rows"]
    assert [(row["true"], row["predicted"], row["residual"]) for row in rows[:2]] == [(6.0, 8.0, 2.0), (2.0, 2.5, 0.5)]
    assert '<option value="-residual">largest residual first</option>' in page


def test_a_bar_of_the_distances_leads_to_its_pairs(client: Any) -> None:
    folder = client.home / "runs" / "deepspark_train" / "run-a" / "evaluation"
    distances, same = [0.1, 0.2, 1.0, 1.5, 1.6, 1.7, 0.3, 1.8], [1, 1, 1, 0, 0, 0, 0, 0]
    write_evaluation(folder, of_task([[distance] for distance in distances], same, task="embedding"))
    columns = {"index": list(range(8)), "name": [f"a/<{at}>.png" for at in range(8)], "content": list(range(8))}
    pairs = {"is_same": [label == 1 for label in same], "distance": pa.array(distances, pa.float32())}
    write_rows(folder, {**columns, "loss": [0.5] * 8, **pairs})
    page = client.get(URL).text
    links = {title: html.unescape(url) for url, title in re.findall(r'<a href="([^"]*)" aria-label="([^"]*)"', page)}
    shown = {
        title: {int(name[6:-8]) for name in shown_names(client.get(url.removeprefix("/deepspark")).text)}
        for title, url in links.items()
    }
    for kind, value in (("alike", 1), ("other", 0)):
        of_kind = [indices for title, indices in shown.items() if f" {kind} pair" in title]
        assert set().union(*of_kind) == {at for at in range(8) if same[at] == value}
        counts = [int(title.split()[-3]) for title in shown if f" {kind} pair" in title]
        assert counts == [len(indices) for indices in of_kind]
    rows = client.get(f"{URL}?same=0&min_distance=0.2&max_distance=1.7&sort=-distance&format=json").json()["rows"]
    assert [row["index"] for row in rows] == [4, 3, 6]
    assert client.get(f"{URL}?same=2&format=json").status_code == 400
    assert '<option value="-distance">farthest pairs first</option>' in page
    assert '<td class="n">yes</td>' in page


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("min_residual=x", 'min_residual="x" is not a number'),
        ("max_residual=nan", 'max_residual="nan" is not a number'),
        ("output=1", "output=1 is no output with residuals"),
    ],
)
def test_a_range_of_residuals_that_makes_no_sense_is_refused(client: Any, address: str, message: str) -> None:
    evaluate_regression(client)
    answer = client.get(f"{URL}?{address}&format=json")
    assert answer.status_code == 400
    assert message in answer.json()["error"]


def test_a_bar_of_the_calibration_leads_to_its_samples(client: Any, folder: Path) -> None:
    page = client.get(URL).text
    ((address, title),) = re.findall(r'<a href="([^"]*)" aria-label="([^"]*answers with confidence[^"]*)"', page)
    assert title.startswith("180 answers")
    assert "180 of 180 samples" in client.get(html.unescape(address).removeprefix("/deepspark")).text
    assert '<option value="-residual">' not in page


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("/runs/deepspark_train/run-b/samples", "this run has no evaluation"),
        ("/runs/deepspark_train/no-run/samples", "this run has no evaluation"),
        (URL, "has no rows of samples"),
    ],
)
def test_samples_that_are_not_there_are_explained(client: Any, folder: Path, address: str, message: str) -> None:
    (folder / "samples.parquet").unlink()
    answer = client.get(address)
    assert answer.status_code == 404
    assert message in answer.text


def shown_indices(answer: Any) -> list[int]:
    """Return the positions of an answer's samples among each six."""
    return sorted({row["index"] % 6 for row in answer.json()["rows"]})


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ("outcome=this", [2]),
        ("outcome=other", [1]),
        ("outcome=neither", [3]),
        ("outcome=both&true=1", [4]),
        ("other_predicted=0&true=1", [2, 3]),
        ("predicted=1&other_predicted=0", [1, 2]),
    ],
)
def test_two_runs_side_by_side(
    client: Any, folder: Path, other_folder: Path, conditions: str, expected: list[int]
) -> None:
    answer = client.get(f"{PAIR}&{conditions}&format=json")
    assert answer.status_code == 200
    assert shown_indices(answer) == expected
    assert answer.json()["n_rows"] == 30 * len(expected)
    swapped = re.search(r'<a href="/deepspark([^"]*)">Exchange', client.get(f"{PAIR}&{conditions}").text)
    assert swapped is not None
    other_side = client.get(swapped.group(1).replace("&amp;", "&") + "&format=json")
    assert (other_side.json()["run"], shown_indices(other_side)) == ("run-b", expected)


def test_the_page_of_two_runs_has_both_answers_and_pictures_of_either(
    client: Any, folder: Path, other_folder: Path
) -> None:
    page = client.get(f"{PAIR}&sort=index").text
    assert page.count("<img") == 2
    assert '<th class="n">other predicted</th>' in page
    assert '<option value="this">this run alone</option>' in page
    assert f'href="{"/deepspark" + URL}?with=deepspark_train%2Frun-b&amp;sort=index&amp;page=2">next</a>' in page
    rows = list(csv.DictReader(io.StringIO(client.get(f"{PAIR}&outcome=other&format=csv").text)))
    assert len(rows) == 30
    assert {(row["label"], row["predicted"], row["other_predicted"]) for row in rows} == {("0", "1", "0")}


@pytest.mark.parametrize(
    ("address", "status", "message"),
    [
        (f"{URL}?outcome=this", 400, "add with=DAG/RUN"),
        (f"{PAIR}&outcome=mine", 400, 'outcome="mine" is no outcome; allowed: this, other, both, neither'),
        (f"{URL}?with=deepspark_train/none", 404, 'run "deepspark_train/none" has no evaluation'),
        (f"{URL}?with=secret_dag/run-c", 404, 'run "secret_dag/run-c" has no evaluation'),
        (f"{URL}?with=../../etc", 404, "has no evaluation"),
    ],
)
def test_a_second_run_that_cannot_be_shown_is_explained(
    client: Any, folder: Path, other_folder: Path, address: str, status: int, message: str
) -> None:
    evaluate(client, "secret_dag/run-c", ANSWERS, pictured=1)
    answer = client.get(f"{address}&format=json")
    assert (answer.status_code, message in answer.json()["error"]) == (status, True)


def test_runs_with_other_samples_are_not_compared(client: Any, folder: Path) -> None:
    evaluate(client, "deepspark_train/run-b", OTHER_ANSWERS, pictured=2, data="other")
    answer = client.get(f"{PAIR}&format=json")
    assert answer.status_code == 409
    assert "were tested on different samples" in answer.json()["error"]


def test_the_comparison_leads_to_the_samples_of_both_runs(client: Any, folder: Path, other_folder: Path) -> None:
    page = client.get("/runs/compare?run=deepspark_train/run-a&run=deepspark_train/run-b").text
    links = {link.replace("&amp;", "&") for link in re.findall(r'href="/deepspark(/runs/[^"]*/samples[^"]*)"', page)}
    assert len(links) == 4 + 3 + 2  # cells of two matrices, also of their difference; two lists
    counts = {link: client.get(f"{link}&format=json").json()["n_rows"] for link in links}
    assert min(counts.values()) == 30
    cell = "/runs/deepspark_train/run-b/samples?with=deepspark_train%2Frun-a&true=1&predicted=0"
    assert counts[cell] == 60
    assert cell in {link.replace("&amp;", "&") for link in re.findall(r'<a href="/deepspark([^"]*)" aria', page)}
