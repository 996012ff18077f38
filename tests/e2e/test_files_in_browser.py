"""Pages outside Airflow in a real browser: the files that stages write, and the page of ``deepspark serve``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.evaluate.report import render_report as evaluation_page
from deepspark_ops.evaluate.task_pages.sample_groups import SampleGroup, SampleGroups
from deepspark_ops.ingest.report.page import render_report as dataset_page
from deepspark_ops.operators.pages.answers import REPORT_HEADERS
from deepspark_ops.run_view.curves import read_curves
from deepspark_ops.serve.app import make_app
from deepspark_ops.serve.guard import LOOPBACK_NAMES, Limits
from deepspark_ops.serve.service import Service
from deepspark_ops.simulation.page import render_page as simulation_page
from deepspark_ops.trials.page import render_page as comparison_page
from deepspark_ops.trials.table import make_table, read_courses
from tests.browser import Page, browser_page
from tests.e2e.http_server import serving
from tests.e2e.looks import assert_accessible
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images
from tests.unit.deepspark_ops.evaluate.test_report import make_events, make_metrics, pictures_of
from tests.unit.deepspark_ops.serve.fake_model import LABELS, FakeModel, serve_config
from tests.unit.deepspark_ops.simulation.test_report import RUNS, simulation_report
from tests.unit.deepspark_ops.trials.test_table import evaluate, trial_plan, write_training

pytestmark = [pytest.mark.slow, pytest.mark.browser]

WIDTHS = (1280, 390)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """A page; the console must stay free of errors."""
    with browser_page() as page:
        yield page
        assert page.troubles == []


def report(_: Path) -> str:
    metrics = make_metrics()
    settings = {"base_lr": "0.01"}
    pictures = pictures_of(metrics)
    first, second = list(pictures)[:2]
    texts: dict[int, tuple[str, ...]] = {first: ("a taken for b", "true class 1 %"), second: ("a", "true class 99 %")}
    groups = SampleGroups(
        (SampleGroup("class-0", "All of class a", 40, (first, second)), SampleGroup("class-1", "b", 3, (second,))),
        texts,
    )
    return evaluation_page(
        metrics, curves=read_curves(make_events()), pictures=pictures, settings=settings, groups=groups, tags=("paper",)
    )


def dataset(folder: Path) -> str:
    source = write_images(folder / "raw", 30)
    source.write_text("".join(f"img/{i}.png class{i % 3}\n" for i in range(30)))
    config = IngestConfig(source=source, output=folder / "out", samples_per_shard=20)
    ingest(config, folder / "work")
    return dataset_page(config.output, None)


def simulation(_: Path) -> str:
    return simulation_page(simulation_report(RUNS, target=0.8))


def comparison(folder: Path) -> str:
    for number, accuracies in ((1, [0.1, 0.8, 0.95]), (2, [0.1, 0.9, 0.92])):
        run = folder / f"run__trial_{number:02d}"
        run.mkdir()
        write_training(run, accuracies)
        evaluate(run, n_wrong=number)
    plan = trial_plan(folder)
    courses = read_courses(plan.trials)
    return comparison_page(make_table(plan, courses), courses, {"overrides": "max_iter: 300"})


@pytest.mark.parametrize("render", [report, dataset, simulation, comparison])
def test_a_file_is_accessible_at_two_widths(page: Page, tmp_path: Path, render: Callable[[Path], str]) -> None:
    file = tmp_path / "page.html"
    file.write_text(render(tmp_path), encoding="utf-8")
    page.goto(file.as_uri())
    for width in WIDTHS:
        page.resize(width, 900)
        page.wait_until(f"window.innerWidth === {width}")
        assert_accessible(page)


def test_a_figure_of_the_report_opens_its_samples_in_a_sandbox_without_scripts(page: Page, tmp_path: Path) -> None:
    """The server's headers of the report: no script runs, and the page keeps its scroll position."""
    app = FastAPI()
    app.get("/report")(lambda: HTMLResponse(report(tmp_path), headers=REPORT_HEADERS))
    shown = "[...document.querySelectorAll('.samples figure')].filter((one) => one.getClientRects().length).length"
    with serving(app) as address:
        page.goto(f"{address}/report")
        page.wait_until("document.querySelector('h1')")
        assert page.evaluate(shown) == 0
        page.evaluate("document.querySelector('a[href=\"#class-0\"]').scrollIntoView({ block: 'center' })")
        top = page.evaluate("scrollY")
        for name, n_samples in (("class-0", 2), ("class-1", 1)):
            page.click(f"a[href='#{name}']")
            page.wait_until(f"{shown} === {n_samples}")
            assert page.evaluate("scrollY") == top
        page.click(f"#{name} a")
        page.wait_until(f"{shown} === 0")
        assert page.evaluate("scrollY") == top
    file = tmp_path / "report.html"  # axe-core is a script, so the sandbox has no place for it
    file.write_text(report(tmp_path), encoding="utf-8")
    page.goto(f"{file.as_uri()}#class-0")
    page.wait_until(f"{shown} === 2")
    for width in WIDTHS:
        page.resize(width, 900)
        page.wait_until(f"window.innerWidth === {width}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert_accessible(page)


@contextmanager
def served_page(page: Page, model: FakeModel) -> Iterator[None]:
    """Show the page of ``deepspark serve`` when it is ready for a picture."""
    config = serve_config(model)
    app = make_app(Service.of(model, config), config, Limits(100_000, 8, hosts=LOOPBACK_NAMES))
    with serving(app) as address:
        page.goto(address)
        page.wait_until("!document.getElementById('ask').hidden")
        yield


def attach_picture(page: Page, folder: Path) -> None:
    """Give the page of ``deepspark serve`` a blue picture and wait for the answer."""
    picture = folder / "blue.png"
    picture.write_bytes(cv2.imencode(".png", np.full((2, 3, 3), (255, 0, 0), np.uint8))[1].tobytes())
    page.attach("#picture", picture)
    page.wait_until("!document.getElementById('result').hidden")


def test_the_page_of_serve_names_a_class_without_a_name_by_its_number(page: Page, tmp_path: Path) -> None:
    model = FakeModel(tmp_path)
    output = model.manifest.output.model_copy(update={"labels": ()})
    model.manifest = model.manifest.model_copy(update={"output": output})
    with served_page(page, model):
        attach_picture(page, tmp_path)
        assert page.evaluate("document.getElementById('winner').innerText") == "1"
        assert page.evaluate("[...document.querySelectorAll('#classes .name')].map((one) => one.innerText)") == [
            "1",
            "0",
        ]
        page.click("[data-method=occlusion]")
        page.wait_until("!document.getElementById('map').hidden")
        assert page.evaluate("document.getElementById('map_caption').innerText").startswith("Occlusion for class 1,")


def test_the_page_of_serve_answers_a_picture_and_is_accessible(page: Page, tmp_path: Path) -> None:
    with served_page(page, FakeModel(tmp_path)):
        assert_accessible(page)
        attach_picture(page, tmp_path)
        assert page.evaluate("document.getElementById('winner').innerText") == LABELS[1]
        for width in WIDTHS:
            page.resize(width, 900)
            page.wait_until(f"window.innerWidth === {width}")
            assert_accessible(page)
