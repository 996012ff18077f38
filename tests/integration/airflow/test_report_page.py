"""The page that serves a run's report: who may see it, and which files it can reach."""

from __future__ import annotations

import runpy
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from deepspark_ops.operators.report_page import plugin
from deepspark_ops.operators.run_plan import Places
from tests.paths import ROOT

pytestmark = pytest.mark.airflow

RUN_ID = "manual__2026-01-31T04:05:06.789+00:00"


@pytest.fixture
def page() -> ModuleType:
    """The page's module; its import warns, which only tests may filter."""
    from deepspark_ops.operators.report_page import page

    return page


@pytest.fixture
def home(tmp_path: Path) -> Path:
    report = tmp_path / "runs" / "deepspark_train" / "manual__2026-01-31T04-05-06.789_00-00" / "evaluation"
    report.mkdir(parents=True)
    (report / "report.html").write_text("<p>98 %</p>")
    secret = tmp_path / "evaluation"
    secret.mkdir()
    (secret / "report.html").write_text("secret")
    return tmp_path


def test_report_is_found_by_the_runs_own_id(page: ModuleType, home: Path) -> None:
    places = Places(home, home)
    assert page.find_report(places, "deepspark_train", RUN_ID).read_text() == "<p>98 %</p>"
    assert page.find_report(places, "deepspark_train", "another") is None


@pytest.mark.parametrize(
    ("dag_id", "run_id"), [("..", ".."), ("deepspark_train", "../.."), ("../..", "x"), ("~", "x"), ("", "")]
)
def test_no_path_leads_out_of_the_folder_of_runs(page: ModuleType, home: Path, dag_id: str, run_id: str) -> None:
    assert page.find_report(Places(home, home), dag_id, run_id) is None


def test_a_link_out_of_the_folder_of_runs_is_not_followed(page: ModuleType, home: Path) -> None:
    (home / "runs" / "deepspark_train" / "linked").symlink_to(home)
    assert page.find_report(Places(home, home), "deepspark_train", "linked") is None


def test_nobody_reads_without_a_login_and_readers_get_a_page_without_scripts(page: ModuleType, home: Path) -> None:
    from fastapi.testclient import TestClient

    app = page.build_app(Places(home, home))
    url = f"/runs/deepspark_train/{RUN_ID.replace('+', '%2B')}/report"
    assert TestClient(app).get(url).status_code == 401

    app.dependency_overrides[page.get_user] = lambda: None
    (route,) = [route for route in app.routes if getattr(route, "path", "").endswith("/report")]
    (may_read_dag,) = [
        dependency.dependency for dependency in route.dependencies if dependency.dependency is not page.get_user
    ]
    app.dependency_overrides[may_read_dag] = lambda: None
    answer = TestClient(app).get(url)
    assert (answer.status_code, answer.text) == (200, "<p>98 %</p>")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    missing = TestClient(app).get("/runs/deepspark_train/%3Cb%3E/report")
    assert missing.status_code == 404
    assert "<b>" not in missing.text


def test_links_encode_what_a_url_would_read_otherwise() -> None:
    assert plugin.report_url("deepspark_train", RUN_ID) == (
        "/deepspark/runs/deepspark_train/manual__2026-01-31T04%3A05%3A06.789%2B00%3A00/report"
    )


@pytest.mark.parametrize("is_installed", [False, True])
def test_the_plugins_folder_registers_what_no_installed_package_does(
    monkeypatch: pytest.MonkeyPatch, is_installed: bool
) -> None:
    own = EntryPoint("deepspark", "deepspark_ops.operators.report_page.plugin:DeepSparkPlugin", "airflow.plugins")
    monkeypatch.setattr(plugin, "entry_points", lambda **wanted: [own] if is_installed else [])
    found = runpy.run_path(str(ROOT / "plugins" / "deepspark_plugin.py"))
    classes = [value for value in found.values() if isinstance(value, type)]
    assert classes == ([] if is_installed else [plugin.DeepSparkPlugin])
    assert own.load() is plugin.DeepSparkPlugin
