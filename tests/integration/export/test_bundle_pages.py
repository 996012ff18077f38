"""Bundles of every task, from stage convert: the pages of a run's bundle and of a model show each bundle."""

from __future__ import annotations

import html
import re
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from caffe_import.files.caffemodel import write_caffemodel
from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import build_net_spec
from deepspark_ops.config.convert import ConvertConfig
from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.config.shared_options.task import TASK_NAMES
from deepspark_ops.export.bundle import write_model
from deepspark_ops.export.convert.from_files import parts_of_files
from deepspark_ops.export.manifest import BundleManifest
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.registry.changes import Author, promote
from deepspark_ops.registry.gate import Decision
from tests.integration.airflow.asking_person import let_ask
from tests.reference.exported_models import params_of
from tests.reference.task_nets import SEVERAL_RESULTS, TASK_NETS

pytestmark = [pytest.mark.tf, pytest.mark.airflow]

DAG = "deepspark_convert"


def converted(run: Path, net_text: str, seed: int) -> BundleManifest:
    """Write the bundle of a run from a net with drawn parameters."""
    run.mkdir(parents=True)
    net = build_net_spec(parse_net(net_text), phase="TEST")
    (run / "net.prototxt").write_text(net_text)
    write_caffemodel(run / "w.caffemodel", net, params_of(net, seed))
    config = ConvertConfig(
        net=run / "net.prototxt", weights=run / "w.caffemodel", output=run / "bundle", formats="caffe,saved_model"
    )
    with parts_of_files(config) as model:
        return write_model(model, config.output, on_step=lambda _: None).manifest


def facts_of(page: str) -> list[str]:
    """Return what a page gives as the bundle's results, without markup."""
    entries = re.findall(r"<dt>gives</dt><dd>(.*?)</dd>", page)
    return [html.unescape(re.sub(r"<[^>]+>", "", entry)) for entry in entries]


@contextmanager
def pages_client(home: Path) -> Iterator[Any]:
    """Yield a client of the pages, for a person who may read and trigger the DAG."""
    from fastapi.testclient import TestClient

    from deepspark_ops.operators.pages import app as pages
    from deepspark_ops.operators.pages.lists.runs import RunsPage

    locations = Places(home, home)
    app = pages.build_app(locations, runs=RunsPage(locations, lambda dags: [], lambda: {DAG}))
    let_ask(
        app, lambda: "anna", readable=lambda: {DAG}, may_trigger=lambda dags: True, audit=lambda *entry: None,
        checks_forms=True,
    )  # fmt: skip
    with TestClient(app) as client:
        yield client


def send(client: Any, action: str, **fields: str) -> str:
    """Send a form of the model's page; return the page that the browser is led to."""
    page = client.get("/models/m").text
    token = re.search(r'name="token" value="([^"]+)"', page)
    assert token is not None
    answer = client.post(
        f"/models/m/{action}", data={"token": token[1], **fields}, headers={"Origin": "http://testserver"},
        follow_redirects=False,
    )  # fmt: skip
    assert answer.status_code == 303, answer.text
    return page_of(client, answer.headers["location"].removeprefix("/deepspark"))


def page_of(client: Any, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer.text
    return answer.text


@pytest.mark.parametrize(
    "net_name",
    [
        pytest.param(name, marks=[] if name in ("classification", "embedding", "several") else pytest.mark.long)
        for name in (*TASK_NAMES, "several")
    ],
)
def test_the_pages_show_a_bundle_of_each_task(net_name: str, tmp_path: Path) -> None:
    net_text = {**TASK_NETS, "several": SEVERAL_RESULTS}[net_name]
    runs = [tmp_path / "runs" / DAG / f"run-{seed}" for seed in (1, 2)]
    manifest, _ = (converted(run, net_text, seed) for seed, run in enumerate(runs))
    config = PromoteConfig(models=tmp_path / "models", model="m")
    first = Decision(
        promotes=True, metric="main", candidate=None, production=None, dataset_digest=None, reason="the first one"
    )
    promote(runs[0] / "bundle", first, config, Author("anna"), run_dir=runs[0])
    with pages_client(tmp_path) as client:
        shown = [page_of(client, f"/runs/{DAG}/run-1/bundle"), page_of(client, "/models/m")]
        promoted = send(client, "promote", what=f"{DAG}/run-2", reason="a person's word", force="true")
        rolled_back = send(client, "rollback", to="v1", was="v2", reason="another word")
        page_of(client, "/models")

    main, *other_outputs = manifest.outputs
    expected = [f"{output.name} ({', '.join(map(str, output.shape))}): {output.task}" for output in other_outputs]
    if manifest.is_classifier:
        expected.insert(0, "scores probabilities of 4 classes, classes the most probable")
    else:
        expected.insert(0, f"{main.name} ({', '.join(map(str, main.shape))}): {main.task}")
    expected = [text.replace("-1", "any").replace("_", " ") for text in expected]
    for page in shown:
        assert [text.replace("_", " ") for text in facts_of(page)] == expected
        assert all(f"/{urllib.parse.quote(name)}" in page for name in manifest.files)
        assert "load it with" in page
    assert "v2 is in production: promoted by anna" in promoted
    assert "v1 is in production: rolled back by anna" in rolled_back
    assert facts_of(rolled_back) == facts_of(shown[1])
