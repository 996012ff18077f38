"""The pages about models: versions, production and history from the registry, and rights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.export.manifest import Origin
from deepspark_ops.registry.journal import HistoryEntry, append_entry
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.registry.production import Production, write_pointer
from deepspark_ops.registry.versions import Figures, VersionRecord, write_record
from tests.integration.airflow.asking_person import asking_client

pytestmark = pytest.mark.airflow

EVIL = "<script>alert(1)</script>"
DIGEST = "sha256:0123456789abcdef"


def write_version(
    model: ModelFolder, number: int, run_dir: str | None, top1: float, *, has_dataset: bool = True
) -> None:
    datasets = {"train": DIGEST} if has_dataset else {}
    origin = Origin(
        run=EVIL, iteration=1000, weights="w.caffemodel", weights_digest=DIGEST, net_digest=DIGEST,
        solver_digest=DIGEST, config_digest=DIGEST, started_from=None, datasets=datasets,
        started_from_digest=None, split_rule=None, code_version="0.2.0",
    )  # fmt: skip
    figures = Figures(
        top1=top1, top1_interval=(top1 - 0.01, top1 + 0.01), top5=None, loss=0.1, n_samples=359, dataset="d",
        dataset_digest=DIGEST,
    )  # fmt: skip
    record = VersionRecord(
        format_version=1, version=f"v{number}", folder=f"v{number}", created="2026-11-22T03:04:05+00:00",
        manifest_digest=DIGEST, weights_digest=DIGEST, run_dir=run_dir, origin=origin,
        started_from="v1" if number > 1 else None, figures=figures,
    )  # fmt: skip
    model.bundle(record.folder).mkdir(parents=True)
    write_record(model, record)


def write_model(home: Path, name: str, dag: str | None, *, has_dataset: bool = True) -> None:
    model = ModelFolder(home / "models" / name)
    for number, top1 in ((1, 0.976), (2, 0.983)):
        write_version(
            model, number, None if dag is None else f"/h/runs/{dag}/run-{number}", top1, has_dataset=has_dataset
        )
    reason = f"better by 0.7 points {EVIL}"
    entry = HistoryEntry(
        format_version=1, at="2026-11-22T03:04:05+00:00", who="schedule", action="promoted", version="v2",
        previous="v1", reason=reason, run="run-2", change=2, gain=0.007, p_value=0.03,
    )  # fmt: skip
    kept_entry = entry.model_copy(
        update={"action": "kept", "version": None, "change": None, "reason": "not better", "at": "2026-11-23T03:04:05"}
    )
    append_entry(model, entry)
    append_entry(model, kept_entry)
    write_pointer(
        model,
        Production(
            format_version=2, model=name, version="v2", folder="v2", promoted="2026-11-22T03:04:05+00:00",
            who="schedule", manifest_digest=DIGEST, previous="v1", change=2, decision=None, reason=reason,
        ),
    )  # fmt: skip


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Any]:
    """A person who may read ``deepspark_retrain``, of two DAGs that are ours."""
    from deepspark_ops.operators.pages.access.person import readable_dags

    write_model(tmp_path, "digits", "deepspark_retrain")
    write_model(tmp_path, "hidden", "secret_dag")
    write_model(tmp_path, "by-hand", None)
    person: dict[str, Any] = {"name": lambda: "anna", "readable": lambda: {"deepspark_retrain"}, "reads_runs": False}
    with asking_client(tmp_path, dags={"deepspark_retrain", "secret_dag"}, **person) as test_client:
        test_client.rights = readable_dags
        yield test_client


def model_names(client: Any) -> list[str]:
    return [model["name"] for model in client.get("/models?format=json").json()["models"]]


def test_a_person_sees_models_whose_dags_he_may_read(client: Any) -> None:
    assert model_names(client) == ["by-hand", "digits"]
    assert not re.search(r"/models/hidden|>\s*hidden", client.get("/models").text)
    answers = [client.get(f"/models/{name}?format=json") for name in ("hidden", "nothing")]
    assert [response.status_code for response in answers] == [404, 404]
    assert answers[0].json()["error"].replace("hidden", "nothing") == answers[1].json()["error"]
    client.app.dependency_overrides[client.rights] = lambda: set()
    assert model_names(client) == []
    assert client.get("/models/by-hand").status_code == 404


def test_a_models_page_says_what_is_in_production_why_and_where_it_comes_from(client: Any) -> None:
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", client.get("/models/digits").text))
    passages = (
        "v2 in production",
        "better by 0.7 points",
        "98.3 %",
        "97.3 % to 99.3 %",
        "started from v1",
        "iteration 1,000",
    )
    for part in (*passages, "kept v1", "not better", "01234567", "deepspark models rollback digits"):
        assert part in text, part
    page = client.get("/models/digits").text
    assert "/deepspark/runs/deepspark_retrain/run-2/report" in page
    assert page.index("run-2/training") < page.index("run-1/training")  # the newest first
    answer = client.get("/models/digits?format=json").json()
    assert [version["is_production"] for version in answer["versions"]] == [False, True]
    assert [entry["action"] for entry in answer["history"]] == ["promoted", "kept"]
    assert answer["production"]["version"] == "v2"


def test_a_dataset_has_a_link_and_a_nets_own_source_none(client: Any) -> None:
    write_model(client.home, "own", "deepspark_retrain", has_dataset=False)
    assert 'href="/deepspark/datasets/d"' in client.get("/models/digits").text
    page = client.get("/models/own").text
    assert "/deepspark/datasets/d" not in page
    assert "</span> the net's own sources" in page


def test_names_and_reasons_are_text_and_no_markup(client: Any) -> None:
    for address in ("/models", "/models/digits", f"/models/{EVIL.replace('/', '%2F')}"):
        text = client.get(address).text
        assert EVIL not in text
        assert not re.search(r"\son\w+=|\sstyle=|javascript:", text)
    assert "&lt;script&gt;" in client.get("/models/digits").text


def test_no_address_leads_out_of_the_folder_of_models(client: Any) -> None:
    for name in ("..", "%2E%2E", "..%2Fmodels", ".lock"):
        assert client.get(f"/models/{name}").status_code == 404


def test_a_damaged_model_says_so_to_whom_may_read_all_of_ours_and_the_others_stay(client: Any) -> None:
    (client.home / "models" / "digits" / "production.json").write_text("{")
    assert model_names(client) == ["by-hand"]
    client.app.dependency_overrides[client.rights] = lambda: {"deepspark_retrain", "secret_dag"}
    assert model_names(client) == ["by-hand", "digits", "hidden"]
    assert "production.json" in client.get("/models").text
    assert "damaged" in client.get("/models/digits").text


def test_models_ask_for_a_login(client: Any) -> None:
    from deepspark_ops.operators.pages import app as pages

    del client.app.dependency_overrides[pages.get_user]
    for address in ("/models", "/models/digits", "/models?format=json"):
        assert client.get(address).status_code == 401
