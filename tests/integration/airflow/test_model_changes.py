"""The forms of a model's page: changes, history, and refused users."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.registry.changes import Author, promote
from deepspark_ops.registry.gate import decide
from deepspark_ops.registry.model_folder import ModelFolder
from deepspark_ops.registry.production import read_pointer
from tests.integration.airflow.asking_person import SITE, asking_client, send_form, text_of, token_of
from tests.processes import wait_until
from tests.reference.bundles import make_bundle
from tests.reference.evaluations import answers_with, evaluation, write_evaluation

pytestmark = pytest.mark.airflow

RETRAIN, OTHER = "deepspark_retrain", "secret_dag"
LABELS = [0, 1] * 20
PAGE = "/models/digits"


class Team:
    """An installation with a model of two versions, and a person whose rights a test may change."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.name = "anna"
        self.triggers = {RETRAIN}
        self.readable = {RETRAIN}
        self.audit: list[tuple[str, str, str, dict[str, Any]]] = []
        for number, wrong in ((1, range(20)), (2, range(10))):
            run = self.write_run(RETRAIN, f"run-{number}", wrong)
            decision = decide(evaluation(LABELS, LABELS), None, self.config(), against=f"v{number - 1}")
            if number == 1:
                decision = decision.model_copy(update={"against": None})
            promote(run / "bundle", decision, self.config(), Author("schedule"), run_dir=run)

    def config(self) -> PromoteConfig:
        return PromoteConfig(models=self.home / "models", model="digits")

    @property
    def model(self) -> ModelFolder:
        return ModelFolder(self.home / "models" / "digits")

    def write_run(self, dag: str, name: str, wrong: Any, *, data: str = "same") -> Path:
        """Write a run that answers wrongly at some places."""
        run = self.home / "runs" / dag / name
        scored = evaluation(answers_with(LABELS, wrong), LABELS, data=data, weights=name)
        make_bundle(run / "bundle", name.encode(), evaluated=scored, run=name, weights_digest=f"sha256:{name}")
        (run / "config.json").write_text("{}")
        write_evaluation(run / "evaluation", scored)
        return run

    def production(self) -> str:
        pointer = read_pointer(self.model)
        assert pointer is not None
        return pointer.version

    def journal(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.model.journal.read_text().splitlines()]


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return Team(tmp_path)


@pytest.fixture
def client(team: Team) -> Iterator[Any]:
    from deepspark_ops.operators.pages.app import get_user

    with asking_client(
        team.home, dags={RETRAIN, OTHER}, follow_redirects=False, name=lambda: team.name,
        readable=lambda: team.readable, may_trigger=lambda dags: set(dags) <= team.triggers,
        audit=lambda *entry: team.audit.append(entry), reads_runs=False,
    ) as test_client:  # fmt: skip
        test_client.get_user = get_user
        yield test_client


def send(client: Any, action: str, *, headers: dict[str, str] | None = None, query: str = "", **fields: Any) -> Any:
    return send_form(client, PAGE, f"{PAGE}/{action}{query}", headers, **fields)


def test_a_rollback_by_the_form_is_kept_in_history_and_audit_log(client: Any, team: Team) -> None:
    answer = send(client, "rollback", to="v1", was="v2", reason="misreads  sevens")
    assert (answer.status_code, answer.headers["location"]) == (303, "/deepspark/models/digits?done=3")
    assert team.production() == "v1"
    last = team.journal()[-1]
    assert (last["action"], last["version"], last["previous"]) == ("rolled back", "v1", "v2")
    assert (last["who"], last["comment"]) == ("anna", "misreads sevens")
    ((event, dag, user, extra),) = team.audit
    assert (event, dag, user) == ("deepspark.rollback", RETRAIN, "anna")
    assert (extra["model"], extra["result"]["version"], extra["result"]["previous"]) == ("digits", "v1", "v2")
    assert "v1 is in production: rolled back by anna" in text_of(client.get("/models/digits?done=3").text)
    assert "rolled back by" not in text_of(client.get("/models/digits").text)


def test_mlflow_is_told_of_a_rollback_and_the_person_does_not_wait_for_it(
    client: Any, team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deepspark_ops.operators.pages.models import changes

    notified_models, may_go_on = [], threading.Event()

    def tell(model: Path, _: object) -> None:
        assert may_go_on.wait(60)
        notified_models.append(model)

    monkeypatch.setattr(changes, "tell_model", tell)
    send(client, "rollback", to="v1", was="v2", reason="misreads sevens")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert send(client, "rollback", to="v2", was="v1", reason="or not").status_code == 303
    assert notified_models == []
    may_go_on.set()
    wait_until(lambda: notified_models, "MLflow being told")
    assert notified_models == [team.model.root]


def test_the_form_offers_the_previous_and_every_existing_version(client: Any) -> None:
    page = client.get("/models/digits").text
    assert "roll back to v1" in page
    assert '<option value="v1" selected>' in page
    assert '<option value="v2"' not in page.split("</select>")[0]
    policy = client.get("/models/digits").headers["content-security-policy"]
    assert "form-action 'self'" in policy
    assert "unsafe" not in policy


def wrong_token(client: Any, team: Team) -> dict[str, Any]:
    from deepspark_ops.operators.pages.access import form_guard

    return {"token": form_guard.make_token(form_guard._key(), "bob", time.time())}


def old_token(client: Any, team: Team) -> dict[str, Any]:
    from deepspark_ops.operators.pages.access import form_guard

    two_days_ago = time.time() - 2 * form_guard.TOKEN_LIFE_S
    return {"token": form_guard.make_token(form_guard._key(), "anna", two_days_ago)}


def longer_lived_token(client: Any, team: Team) -> dict[str, Any]:
    until, signature = token_of(client, PAGE).split(".")
    return {"token": f"{int(until) + 1}.{signature}"}


def no_right(client: Any, team: Team) -> dict[str, Any]:
    token = token_of(client, PAGE)
    team.triggers = set()
    return {"token": token}


def no_sight(client: Any, team: Team) -> dict[str, Any]:
    token = token_of(client, PAGE)
    team.readable = {OTHER}
    return {"token": token}


def no_login(client: Any, team: Team) -> dict[str, Any]:
    token = token_of(client, PAGE)
    del client.app.dependency_overrides[client.get_user]
    return {"token": token}


def from_elsewhere(**headers: str) -> Any:
    return lambda client, team: {"token": token_of(client, PAGE), "headers": headers}


@pytest.mark.parametrize(
    ("sender", "status"),
    [
        (lambda client, team: {"token": ""}, 403),
        (lambda client, team: {"token": "1.x"}, 403),
        (wrong_token, 403),
        (old_token, 403),
        (longer_lived_token, 403),
        (from_elsewhere(Origin="http://evil.example"), 403),
        (from_elsewhere(Origin="null"), 403),
        (from_elsewhere(**{"Sec-Fetch-Site": "cross-site"}), 403),
        (from_elsewhere(**{"Sec-Fetch-Site": "same-site", "Origin": SITE}), 403),
        (no_right, 403),
        (no_sight, 404),
        (no_login, 401),
    ],
)
def test_whoever_may_not_change_a_model_changes_nothing(client: Any, team: Team, sender: Any, status: int) -> None:
    old_files = team.model.journal.read_bytes(), team.model.production.read_bytes()
    sent = sender(client, team)
    headers = {"Origin": SITE} | sent.get("headers", {})
    fields = {"token": sent["token"], "to": "v1", "what": "v1", "reason": "r", "force": "true"}
    for action in ("rollback", "promote", "verify"):
        assert client.post(f"/models/digits/{action}", data=fields, headers=headers).status_code == status
    assert (team.model.journal.read_bytes(), team.model.production.read_bytes()) == old_files
    assert team.audit == []


@pytest.mark.parametrize("action", ["rollback", "promote", "verify"])
def test_nothing_is_changed_by_an_address_alone(client: Any, team: Team, action: str) -> None:
    query = f"?to=v1&what=v1&force=true&reason=r&token={token_of(client, PAGE)}"
    assert client.get(f"/models/digits/{action}{query}").status_code == 405
    assert (team.production(), team.audit) == ("v2", [])


def test_a_program_that_sends_its_login_itself_needs_no_token(client: Any, team: Team) -> None:
    answer = client.post(
        "/models/digits/rollback?format=json", data={"reason": "r"}, headers={"Authorization": "Bearer x"}
    )
    assert answer.json()["result"] == {
        "model": "digits", "version": "v1", "who": "anna", "previous": "v2", "change": 3,
        "reason": "rolled back from v2 to v1: r",
    }  # fmt: skip
    assert team.production() == "v1"


def test_a_reader_sees_no_buttons_and_the_missing_right(client: Any, team: Team) -> None:
    team.triggers = set()
    answer = client.get("/models/digits")
    assert answer.status_code == 200
    assert "<form" not in answer.text
    assert "Who may trigger deepspark_retrain can roll back" in answer.text
    assert client.get("/models/digits?format=json").json()["may_change"] is False


def test_without_a_login_a_form_leads_to_it_and_back_to_the_page(client: Any) -> None:
    del client.app.dependency_overrides[client.get_user]
    answer = client.post("/models/digits/rollback", headers={"Accept": "text/html"})
    assert answer.status_code == 303
    assert answer.headers["location"].endswith("/api/v2/auth/login?next=http%3A%2F%2Ftestserver%2Fmodels%2Fdigits")


@pytest.mark.parametrize("reason", ["", "  ", "x" * 501])
def test_a_change_needs_a_reason(client: Any, team: Team, reason: str) -> None:
    for action in ("rollback", "promote"):
        answer = send(client, action, to="v1", what="v1", force="true", reason=reason)
        assert answer.status_code == 409
        assert "say why in at most 500 characters" in answer.text
    assert team.production() == "v2"
    assert ["refused" in extra for _, _, _, extra in team.audit] == [True, True]


def test_a_page_that_is_out_of_date_moves_nothing(client: Any, team: Team) -> None:
    send(client, "rollback", to="v1", was="v2", reason="first")
    answer = send(client, "rollback", to="v2", was="v2", reason="of a page from before")
    assert answer.status_code == 409
    assert "v1 is in production by now, no more v2" in answer.text
    assert 'value="of a page from before"' in answer.text  # is not to be typed again
    assert team.production() == "v1"


def test_the_gate_decides_about_a_candidate_and_a_tick_goes_past_it(client: Any, team: Team) -> None:
    team.write_run(RETRAIN, "worse", range(30))
    candidate = f"{RETRAIN}/worse"
    assert f'value="{candidate}"' in client.get("/models/digits").text
    answer = send(client, "promote", what=candidate, reason="try it")
    assert answer.status_code == 409
    assert "only a better model goes in" in answer.text
    assert "do not ask the gate" in answer.text
    assert (team.production(), team.journal()[-1]["action"]) == ("v2", "kept")
    page = client.get("/models/digits").text
    assert re.search(rf'"candidates that stayed out">\s*<option value="{candidate}"', page)
    assert send(client, "promote", what=candidate, reason="we know better", force="true").status_code == 303
    assert team.production() == "v3"
    last = team.journal()[-1]
    assert (last["who"], last["reason"]) == ("anna", "promoted by hand without a comparison: we know better")
    assert [(event, extra["force"], "refused" in extra) for event, _, _, extra in team.audit] == [
        ("deepspark.promote", False, True),
        ("deepspark.promote", True, False),
    ]


def test_a_better_run_and_an_old_version_go_in_by_the_gate(client: Any, team: Team) -> None:
    team.write_run(RETRAIN, "better", ())
    assert send(client, "promote", what=f"{RETRAIN}/better", reason="better").status_code == 303
    assert team.production() == "v3"
    send(client, "rollback", to="v1", reason="look at something")
    assert send(client, "promote", what="v3", reason="done").status_code == 303
    assert (team.production(), team.journal()[-1]["action"]) == ("v3", "promoted")


def test_what_needs_scoring_is_left_to_the_command(client: Any, team: Team) -> None:
    run = team.write_run(RETRAIN, "elsewhere", (), data="other")
    answer = send(client, "promote", what=f"{RETRAIN}/elsewhere", reason="r")
    assert answer.status_code == 409
    assert f"deepspark models promote digits {run} --reason TEXT" in answer.text
    assert team.production() == "v2"


def test_runs_of_dags_that_one_may_not_trigger_are_not_theirs_to_promote(client: Any, team: Team) -> None:
    team.write_run(OTHER, "unseen", ())
    team.readable = {RETRAIN, OTHER}
    assert "unseen" not in client.get("/models/digits").text
    whats = (f"{OTHER}/unseen", "../x", f"{RETRAIN}/..", f"{RETRAIN}/", f"{RETRAIN}/../{OTHER}/unseen", "v9", "")
    for candidate in whats:
        answer = send(client, "promote", what=candidate, reason="r", force="true")
        assert answer.status_code == 409, candidate
    assert team.production() == "v2"


def test_verification_reads_every_file_and_names_damage(client: Any, team: Team) -> None:
    answer = send(client, "verify")
    assert answer.status_code == 200
    assert "2 versions, 6 files," in text_of(answer.text)
    assert [entry[0] for entry in team.audit] == ["deepspark.verify"]
    (team.model.bundle("v1") / "weights.caffemodel").write_bytes(b"other")
    answer = send(client, "verify", query="?format=json")
    assert answer.status_code == 409
    assert "weights.caffemodel has changed" in answer.json()["error"]


def test_verification_has_bounds(client: Any, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    from deepspark_ops.operators.pages.models import changes

    with changes._VERIFYING:
        assert "another model is being verified" in send(client, "verify").text
    monkeypatch.setattr(changes, "VERIFY_BYTES", 10)
    answer = send(client, "verify")
    assert answer.status_code == 409
    assert "deepspark models verify digits" in answer.text


def test_files_of_a_bundle_are_for_readers_and_no_address_leads_out_of_it(client: Any, team: Team) -> None:
    team.triggers = set()
    start = "/models/digits/versions"
    answer = client.get(f"{start}/v1/weights.caffemodel")
    assert answer.content == b"run-1"
    assert "attachment" in answer.headers["content-disposition"]
    assert "sandbox" in answer.headers["content-security-policy"]
    assert client.get(f"{start}/v1/manifest.json").status_code == 200
    (team.model.bundle("v1") / "unlisted").write_text("x")
    secret = team.home / "secret"
    secret.write_text("x")
    (team.model.bundle("v2") / "metrics.json").unlink()
    (team.model.bundle("v2") / "metrics.json").symlink_to(secret)
    for path in (
        "v1/unlisted",
        "v1/..%2Fv1.json",
        "v1/%2e%2e/v1.json",
        "v1/",
        "v9/weights.caffemodel",
        "v2/metrics.json",
    ):
        assert client.get(f"{start}/{path}").status_code == 404, path
    team.readable = {OTHER}
    assert client.get(f"{start}/v1/weights.caffemodel").status_code == 404


def test_a_version_is_shown_with_its_files_and_where_it_comes_from(client: Any, team: Team) -> None:
    page = client.get("/models/digits?version=v1")
    assert "/deepspark/models/digits/versions/v1/weights.caffemodel" in page.text
    assert "v2 is in production" in page.text
    assert '<circle cx="34.0"' in page.text  # accuracy over versions
    answer = client.get("/models/digits?version=v1&format=json").json()
    assert answer["bundle"]["version"] == "v1"
    sizes = {file["name"]: file["n_bytes"] for file in answer["bundle"]["files"]}
    assert sizes["weights.caffemodel"] == 5
    assert client.get("/models/digits?version=v7").status_code == 404
    assert client.get("/models/digits?format=json").json()["bundle"]["version"] == "v2"


def test_labels_names_and_reasons_are_text_and_no_markup(client: Any, team: Team) -> None:
    evil = "<script>alert(1)</script>"
    run = team.home / "runs" / RETRAIN / "evil"
    make_bundle(run / "bundle", labels=(evil, '"><b>'), run=evil)
    send(client, "promote", what=f"{RETRAIN}/evil", reason=evil, force="true")
    answer = send(client, "rollback", to=evil, reason=evil)
    for text in (client.get("/models/digits").text, answer.text, client.get(f"/models/digits?version={evil}").text):
        assert "<script>alert" not in text
        assert '"><b>' not in text
    assert team.production() == "v3"
