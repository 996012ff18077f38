"""The pages in a real browser without Airflow: what a reader chooses is in the address, and weights by layer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from caffe_import.net.param_layout import ParamEntry
from deepspark_ops.events import Event
from deepspark_ops.train.worker.loop.center_watch import CenterWatch, WatchPlan
from tests.axe import violations
from tests.browser import Page, browser_page
from tests.e2e.http_server import serving
from tests.e2e.looks import FITS, assert_accessible
from tests.integration.airflow.page_runs import pages_client
from tests.unit.deepspark_ops.run_view.run_events import RUN, lines, stage

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.browser]

TRAINING = "/runs/deepspark_train/run-a/training"
DRAWN = "document.querySelectorAll('#charts .plot .plot-container').length"
BLOBS = (ParamEntry("conv1", 0, 0, (50, 10)), ParamEntry("conv1", 1, 500, (10,)), ParamEntry("ip2", 0, 510, (100,)))
UNREACHABLE = """[...document.querySelectorAll(
    'main a, main button, main input:not([type=hidden]), main select, main summary')]
  .filter((element) => element.checkVisibility() && element.tabIndex < 0)
  .map((element) => element.outerHTML.slice(0, 120))"""


def watched_events() -> list[Event]:
    """Return the events of two workers at four moments; worker 1 is twice as far from the center as worker 0."""
    noise, center = np.random.default_rng(1), np.zeros(610, np.float32)
    watches = [CenterWatch(WatchPlan(50, BLOBS, worker == 0, has_distance=True), 0) for worker in range(2)]
    events = []
    for clock in (50, 100, 150, 200):
        center = center + noise.normal(size=610).astype(np.float32)
        for worker, watch in enumerate(watches):
            data = watch.event_data(clock, center, center * np.float32(1.1 + 0.1 * worker))
            events.append(Event("watch", clock, worker, data, 1000.0 + clock))
    return events


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the pages, served as Airflow serves them, below /deepspark."""
    from fastapi import FastAPI

    with pages_client(tmp_path_factory.mktemp("home")) as client:
        events = [*RUN, *watched_events(), stage("finished", 1000, 1100.0, images_per_s=812.5)]
        (client.home / "runs" / "deepspark_train" / "run-a" / "events.jsonl").write_bytes(lines(events))
        one_test = [event for event in RUN if event.kind != "evaluation" or event.clock == 0]
        (client.home / "runs" / "deepspark_train" / "run-b" / "events.jsonl").write_bytes(lines(one_test))
        outer = FastAPI()
        outer.mount("/deepspark", client.app)
        with serving(outer) as address:
            yield f"{address}/deepspark"


@pytest.fixture(scope="module")
def opened() -> Iterator[Page]:
    with browser_page() as page:
        page.resize(1300, 1000)
        yield page


def test_a_single_test_has_an_axis_from_0_to_100_percent(page: Page, site: str) -> None:
    page.goto(site + TRAINING.replace("run-a", "run-b"))
    accuracy = "[...document.querySelectorAll('#charts .plot')].find(plot => plot.layout?.yaxis?.tickformat === '.2~%')"
    page.wait_until(f"{accuracy}?.querySelector('.plot-container')")
    assert page.evaluate(f"{accuracy}.layout.yaxis.range") == [0, 1]


def test_the_keys_stay_above_the_lines_when_a_narrow_window_is_made_wide(page: Page, site: str) -> None:
    covered = """[...document.querySelectorAll('#charts .plot')].filter((plot) => plot.querySelector('.legend')
      && plot.querySelector('.legend .bg').getBoundingClientRect().bottom
         > plot.querySelector('.nsewdrag').getBoundingClientRect().top + 1).length"""
    page.resize(390, 844)
    try:
        page.goto(site + TRAINING)
        page.wait_until(f"{DRAWN} > 2")
        page.resize(1300, 1000)
        page.wait_until(f"{FITS} && {covered} === 0", timeout_s=10.0)
    finally:
        page.resize(1300, 1000)


def test_in_a_narrow_window_a_checkbox_stands_beside_its_word_and_cells_of_a_row_on_one_line(
    page: Page, site: str
) -> None:
    page.resize(390, 844)
    try:
        page.goto(f"{site}/datasets")
        boxes = page.evaluate("""(() => { document.querySelector('main').innerHTML = `<form class="choose"><label>
          <input type="checkbox"> logarithmic</label></form><table class="settings"><tbody><tr><th scope="row">net</th>
          <td>${'words '.repeat(60)}</td></tr></tbody></table>`;
          const range = document.createRange(), top = (part) => { range.selectNodeContents(part);
            return range.getBoundingClientRect(); };
          const label = document.querySelector('label'), th = document.querySelector('th');
          return [top(label.lastChild).left - label.querySelector('input').getBoundingClientRect().right,
            top(th).top - top(document.querySelector('td')).top]; })()""")
    finally:
        page.resize(1300, 1000)
    assert 0 <= boxes[0] < 20
    assert abs(boxes[1]) < 3


def test_axis_smoothing_scale_and_zoom_are_in_the_address(page: Page, site: str) -> None:
    page.goto(site + TRAINING)
    page.wait_until(f"{DRAWN} >= 3")
    assert page.evaluate("location.search") == ""
    page.click("input[name=axis][value=epoch]")
    page.click("input[name=log]")
    page.evaluate(
        "(box => { box.value = '0.6'; box.dispatchEvent(new Event('input', {bubbles: true})); })"
        "(document.querySelector('input[name=smooth]'))"
    )
    page.evaluate("document.querySelector('.plot').focus()")
    page.press("+")
    page.wait_until("new URLSearchParams(location.search).has('from')")
    page.click("#more summary")
    page.wait_until("new URLSearchParams(location.search).get('more') === '1'")
    address = page.evaluate("location.href")
    plots = "[...document.querySelectorAll('#charts .plot')]"
    ranges = f"{plots}.map(plot => plot.layout.xaxis.range.map(x => x.toFixed(2)).join())"
    shown_ranges = page.evaluate(f"JSON.stringify({ranges})")
    page.goto("about:blank")
    page.goto(address)
    page.wait_until(f"{DRAWN} >= 3")
    assert page.evaluate(f"JSON.stringify({ranges})") == shown_ranges
    assert page.evaluate("document.querySelector('input[name=axis]:checked').value") == "epoch"
    assert page.evaluate("document.querySelector('input[name=smooth]').value") == "0.6"
    assert page.evaluate("document.querySelector('input[name=log]').checked") is ("log=1" in address)
    assert page.evaluate("document.getElementById('more').open") is True
    page.click("button[name=reset]")
    page.wait_until("!new URLSearchParams(location.search).has('from')")


def test_nonsense_in_the_address_is_ignored(page: Page, site: str) -> None:
    page.goto(f"{site}{TRAINING}?axis=moon&smooth=x&from=9&to=1&log=2")
    page.wait_until(f"{DRAWN} >= 3")
    assert page.evaluate("document.querySelector('input[name=axis]:checked').value") == "clock"
    assert page.evaluate("document.querySelector('input[name=smooth]').value") == "0"
    assert page.evaluate("document.querySelector('.plot').layout.xaxis.range[0]") == 0


def test_a_saved_view_brings_back_address_and_columns(page: Page, site: str) -> None:
    page.goto(f"{site}/runs?filter=net~lenet&sort=loss&page=1")
    page.wait_until("!document.querySelector('form.views').hidden")
    page.evaluate("document.querySelector('details.columns').open = true")
    loss_box = "[...document.querySelectorAll('details.columns li')].find(li => li.innerText.includes('loss'))"
    page.evaluate(f"{loss_box}.querySelector('input').click()")
    hidden = "document.querySelector('th[data-column=loss]').hidden"
    assert page.evaluate(hidden) is True
    page.fill("form.views input[name=title]", "LeNet <b>only</b>")
    page.click("form.views button:not([type])")
    page.evaluate(f"{loss_box}.querySelector('input').click()")
    assert page.evaluate(hidden) is False
    page.goto(f"{site}/runs")
    page.choose("form.views select", "LeNet <b>only</b>")
    page.wait_until("location.search.includes('lenet') && document.readyState === 'complete'")
    page.wait_until("!document.querySelector('form.views').hidden")
    assert page.evaluate("new URLSearchParams(location.search).get('sort')") == "loss"
    assert page.evaluate("new URLSearchParams(location.search).has('page')") is False
    assert page.evaluate(hidden) is True
    assert page.evaluate("document.querySelector('form.views select').value") == "LeNet <b>only</b>"
    page.click("form.views button[name=remove_view]")
    assert page.evaluate("document.querySelector('form.views select').options.length") == 1
    page.evaluate("localStorage.clear()")


@pytest.mark.parametrize(
    "address",
    [
        "/runs",
        "/runs/overview",
        "/models",
        "/datasets",
        TRAINING,
        "/runs/compare?run=deepspark_train/run-a&run=deepspark_train/run-b",
    ],
)
def test_axe_core_has_no_objection_and_every_control_a_turn_of_the_keyboard(
    page: Page, site: str, address: str
) -> None:
    page.goto(site + address)
    assert_accessible(page)
    assert page.evaluate(UNREACHABLE) == []


def test_grey_text_a_nameless_control_and_one_without_a_turn_would_be_seen(page: Page, site: str) -> None:
    page.goto(f"{site}/runs")
    page.evaluate("document.querySelector('.count').style.color = '#999999'")
    page.evaluate("document.querySelector('input[name=search]').closest('label').firstChild.remove()")
    page.evaluate("document.querySelector('input[name=search]').placeholder = ''")
    page.evaluate("document.querySelector('select[name=sort]').tabIndex = -1")
    assert sorted(line.split(": ")[0] for line in violations(page)) == ["critical label", "serious color-contrast"]
    assert len(page.evaluate(UNREACHABLE)) == 1


def test_weights_by_layer_are_drawn_and_a_table_has_their_numbers(page: Page, site: str) -> None:
    page.goto(site + TRAINING)
    page.wait_until("!document.getElementById('weights').hidden")
    page.click("#weights summary")
    page.wait_until("document.querySelectorAll('#weights_charts .plot .plot-container').length === 4")
    rows = "[...document.querySelectorAll('#weights_table tbody tr')]"
    rows = f"{rows}.map(row => [...row.cells].map(cell => cell.textContent))"
    page.wait_until(f"{rows}.length === 3")
    table = page.evaluate(rows)
    assert [row[0] for row in table] == ["conv1[0]", "conv1[1]", "ip2[0]"]
    assert {tuple(row[3:]) for row in table} == {("0.15", "0.1", "0.2")}  # mean, worker 0, worker 1
    page.choose("#weights_controls select[name=blob]", "ip2[0]")
    page.wait_until("document.getElementById('weights_charts').innerText.includes('Values of ip2[0]')")
    page.choose("#weights_controls select[name=quantity]", "size")
    page.wait_until("document.getElementById('weights_charts').innerText.includes('Size of the weights')")
    page.goto(f"{site}/runs/deepspark_train/run-b/training")
    page.wait_until(f"{DRAWN} >= 3")
    assert page.evaluate("document.getElementById('weights').hidden") is True
