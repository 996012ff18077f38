"""Rights of users on models in a real Airflow, and a rollback by a click."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.registry.changes import Author, promote
from deepspark_ops.registry.gate import decide
from deepspark_ops.registry.overview import ModelOverview, read_model
from tests.browser import browser_page
from tests.e2e.airflow_instance import AirflowInstance, log_in
from tests.reference.bundles import make_bundle
from tests.reference.evaluations import evaluation

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(1800)]

DAG = "deepspark_retrain"
FORM = "details.act form"
TIMEOUT_S = 60.0
"""For an answer: httpx waits 5 s by default, and other tests' runs of DAGs may keep the machine busy."""


def write_model(airflow: AirflowInstance, folder: Path, name: str) -> None:
    """Write a model of two versions of a few bytes, as if runs of ``DAG`` had made them."""
    config = PromoteConfig(models=airflow.home / "models", model=name)
    for number in (1, 2):
        scored = evaluation([0, 1], [0, 1])
        run = folder / "runs" / DAG / f"run-{number}"
        bundle = make_bundle(run / "bundle", f"{name} {number}".encode(), evaluated=scored, run=run.name)
        decision = decide(scored, None, config, against=None if number == 1 else "v1")
        promote(bundle, decision, config, Author("schedule"), run_dir=run)


def model_overview(airflow: AirflowInstance, name: str) -> ModelOverview:
    return read_model(airflow.home / "models", name)


def login(airflow: AirflowInstance, user: str) -> httpx.Client:
    """Return a client with the cookie that Airflow's UI gives a user."""
    body = {"username": user, "password": airflow.api(user).password}
    token = httpx.post(f"{airflow.site}/auth/token", json=body, timeout=TIMEOUT_S).json()["access_token"]
    return httpx.Client(base_url=airflow.site, cookies={"_token": token}, timeout=TIMEOUT_S)


def form_of(client: httpx.Client, page: str) -> dict[str, str]:
    token = re.search(r'name="token" value="([^"]+)"', client.get(page).text)
    return {"token": token[1] if token else "", "to": "v1", "was": "v2", "reason": "by a test"}


def audit_of(airflow: AirflowInstance, name: str) -> list[Any]:
    entries = airflow.api().call("GET", f"/eventLogs?dag_id={DAG}&order_by=-when&limit=100")["event_logs"]
    return [(entry["event"], entry["owner"]) for entry in entries if f'"{name}"' in str(entry["extra"])]


@pytest.mark.long
def test_only_users_who_may_trigger_the_models_dag_change_the_model(airflow: AirflowInstance, tmp_path: Path) -> None:
    name = "rights"
    write_model(airflow, tmp_path, name)
    page = f"/deepspark/models/{name}"
    with (
        login(airflow, "user") as user,
        login(airflow, "viewer") as viewer,
        httpx.Client(base_url=airflow.site, timeout=TIMEOUT_S) as nobody,
    ):
        assert viewer.get(page).status_code == 200
        assert "<form" not in viewer.get(page).text
        assert viewer.get(f"{page}/versions/v2/weights.caffemodel").content == b"rights 2"
        good = form_of(user, page)
        html = {"Accept": "text/html"}
        for action in ("rollback", "promote", "verify"):
            assert viewer.post(f"{page}/{action}", data=good).status_code == 403
            bearer = {"Authorization": f"Bearer {viewer.cookies['_token']}"}
            assert nobody.post(f"{page}/{action}", data=good, headers=bearer).status_code == 403
            assert nobody.post(f"{page}/{action}", data=good).status_code == 401
            assert (
                nobody.post(f"{page}/{action}", data=good, headers=html).headers["location"].startswith("/api/v2/auth")
            )
            assert user.post(f"{page}/{action}", data=good | {"token": ""}).status_code == 403
            elsewhere = {"Origin": "http://evil.example"}
            assert user.post(f"{page}/{action}", data=good, headers=elsewhere).status_code == 403
            assert user.get(f"{page}/{action}", params=good).status_code == 405
        assert nobody.get(page, headers=html).headers["location"].startswith("/api/v2/auth/login?next=")
        assert len(model_overview(airflow, name).history) == 2
        assert audit_of(airflow, name) == []

        response = user.post(
            f"{page}/rollback", data=good, headers={"Origin": airflow.site, "Sec-Fetch-Site": "same-origin"}
        )
        assert (response.status_code, response.headers["location"]) == (303, f"{page}?done=3")
        last = model_overview(airflow, name).history[-1]
        assert (last.action, last.version, last.who, last.comment) == ("rolled back", "v1", "user", "by a test")
        assert audit_of(airflow, name) == [("deepspark.rollback", "user")]


@pytest.mark.browser
def test_a_model_is_rolled_back_by_a_click_inside_airflow(airflow: AirflowInstance, tmp_path: Path) -> None:
    name = "clicked"
    write_model(airflow, tmp_path, name)
    inside = "document.querySelector('iframe')?.contentDocument"
    with browser_page() as page:
        log_in(page, airflow, f"{airflow.site}/deepspark/models")
        page.goto(f"{airflow.site}/plugin/deepspark")
        page.wait_until(f"{inside}?.querySelectorAll('nav a').length > 1")
        page.evaluate(f"{inside}.querySelectorAll('nav a')[1].click()")
        link = f"[...({inside}?.querySelectorAll('th a') || [])].find(a => a.innerText === '{name}')"
        page.wait_until(f"{link} != null")
        page.evaluate(f"{link}.click()")
        page.wait_until(f"{inside}?.querySelector('{FORM}') != null")
        page.evaluate(f"{inside}.querySelector('details.act summary').click()")
        page.evaluate(f"{inside}.querySelector('{FORM} button').click()")  # without a reason the browser sends nothing
        assert page.evaluate(f"{inside}.querySelector('{FORM} input:invalid') != null")
        page.evaluate(f"{inside}.querySelector('{FORM} input[name=reason]').focus()")
        page.call("Input.insertText", text="by a click")
        page.evaluate(f"{inside}.querySelector('{FORM} button').click()")
        page.wait_until(f"{inside}?.body?.innerText.includes('v1 is in production: rolled back by admin')")
        page.resize(390, 844)
        page.goto(f"{airflow.site}/deepspark/models/{name}")
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.resize(1280, 900)
        page.goto(f"{airflow.site}/dags/{DAG}/events")
        page.wait_until("document.body.innerText.includes('deepspark.rollback')")
        assert page.troubles == []
    assert model_overview(airflow, name).history[-1].comment == "by a click"
