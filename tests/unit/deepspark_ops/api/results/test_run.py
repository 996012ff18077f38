"""A run's object: numbers against events written by the test, and the card."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import deepspark_ops as ds
from deepspark_ops.api.results.card import Card, CardTable
from deepspark_ops.events import Event, append_event

NAME = '<script>alert("x")</script>'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of two workers, with hostile names."""
    run = tmp_path / "a<b>run"
    run.mkdir()
    (run / "config.json").write_text('{"dataset": "data/<i>", "strategy": "easgd"}')
    started = {"stage": "train", "status": "started", "net": NAME, "n_workers": 2, "strategy": "easgd", "max_iter": 40}
    events = [
        Event("stage", 0, -1, started, 1.0),
        Event("worker_joined", 0, 0, {}, 2.0),
        Event("worker_joined", 0, 1, {}, 2.0),
        Event("worker_devices", 0, 1, {"host": "<h>", "text": "CPU"}, 2.0),
        *(
            Event("loss", 10 * step, worker, {"loss": 4.0 / step + worker, **REPORT}, 2.0 + step)
            for step in (1, 2, 4)
            for worker in (0, 1)
        ),
        Event("evaluation", 20, 0, {"test_net": 0, "accuracy": 0.5, "loss": 1.0}, 4.5),
        Event("evaluation", 40, 0, {"test_net": 0, "accuracy": 0.75, "loss": math.nan}, 6.5),
        Event("stage", 40, -1, {"stage": "train", "status": "finished", "images_per_s": 190.0}, 7.0),
    ]
    for event in events:
        append_event(run / "events.jsonl", event)
    return run


REPORT = {"images_per_s": 100.0, "compute_s": 0.6, "data_s": 0.1, "exchange_s": 0.3}


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tag_names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tag_names.add(tag)
        if tag not in ("img", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("img", "path"):
            assert self.open.pop() == tag


def tags(html: str) -> set[str]:
    parser = _Tags()
    parser.feed(html)
    assert parser.open == []
    return parser.tag_names


def test_numbers_are_those_of_the_events(folder: Path) -> None:
    run = ds.Run(folder)
    assert (run.status, run.clock, run.max_iter) == ("finished", 40, 40)
    assert run.loss == pytest.approx((1.0 + 2.0) / 2)
    assert run.config["strategy"] == "easgd"
    assert Path(run) == folder
    assert run.snapshots == ()
    assert run.bundle is None
    with pytest.raises(ds.ConfigError, match=r"no metrics.json in it: call ds.evaluate\(run\) first"):
        run.metrics  # noqa: B018
    with pytest.raises(AttributeError):
        run.folder = folder  # type: ignore[misc]


def test_history_has_every_event_with_numbers_as_numbers(folder: Path) -> None:
    history = ds.Run(folder).history
    assert len(history) == 13
    assert list(history.columns[:4]) == ["time", "kind", "clock", "worker"]
    losses = history[(history.kind == "loss") & (history.worker == 1)]
    assert losses.loss.tolist() == [5.0, 3.0, 2.0]
    assert losses.clock.tolist() == [10, 20, 40]
    tests = history[history.kind == "evaluation"]
    assert tests.accuracy.tolist() == [0.5, 0.75]
    assert math.isnan(tests.loss.iloc[1])
    assert isinstance(tests.loss.iloc[1], float)
    assert history.time.iloc[0].timestamp() == 1.0


def test_workers_are_a_row_each(folder: Path) -> None:
    workers = ds.Run(folder).workers
    assert workers.index.tolist() == [0, 1]
    assert workers.loc[1, "loss"] == 2.0
    assert workers.loc[1, ["host", "device", "state", "clock"]].tolist() == ["<h>", "CPU", "ended", 40]


def test_workers_of_a_run_that_goes_on_are_training(folder: Path) -> None:
    append_event(folder / "events.jsonl", Event("stage", 40, -1, {"stage": "train", "status": "started"}, 8.0))
    append_event(folder / "events.jsonl", Event("worker_joined", 40, 0, {}, 8.5))
    append_event(folder / "events.jsonl", Event("loss", 41, 0, {"loss": 1.0, **REPORT}, 9.0))
    assert ds.Run(folder).workers.loc[0, "state"] == "training"


def test_print_shows_the_facts_of_the_card_and_repr_the_folder(folder: Path) -> None:
    run = ds.Run(folder)
    assert repr(run) == f"Run({str(folder)!r})"
    lines = str(run).splitlines()
    assert lines[0] == f"Run: {NAME}: easgd, 2 workers (finished)"
    assert lines[1:] == [
        str(folder), "minibatches  40 of 40", "loss         1.5", "images/s     190", "dataset      data/<i>",
    ]  # fmt: skip


def test_text_of_a_card_has_no_control_characters_of_a_name() -> None:
    table = CardTable(["class", "n"], [["a\x1b[31m\nb", 1], ["c", None]])
    card = Card("x\x07", "/f", rows={"a": 1, "left out": None, "long": "y"}, table=table, warnings=["w"])
    assert card.text().splitlines() == ["x", "/f", "a     1", "long  y", "class     n", "a[31mb  1", "c", "w"]


def test_figure_has_the_curves(folder: Path) -> None:
    figure = ds.Run(folder).plot()
    lines = {(trace.legendgroup, trace.name): (list(trace.x), list(trace.y)) for trace in figure.data}
    assert lines["loss", "worker 1"] == ([10, 20, 40], [5.0, 3.0, 2.0])
    assert lines["test_accuracy", "accuracy"] == ([20, 40], [0.5, 0.75])
    shares = {name: y for (chart, name), (_, y) in lines.items() if chart == "time"}
    assert {name: round(y[-1], 6) for name, y in shares.items()} == {
        "computing": 0.6, "waiting for data": 0.1, "exchanging": 0.3,
    }  # fmt: skip


def test_card_escapes_every_name_and_shows_the_curve(folder: Path) -> None:
    html = ds.Run(folder)._repr_html_()
    assert tags(html) <= {"div", "b", "span", "table", "tr", "td", "svg", "g", "path", "text"}
    assert NAME not in html
    assert "&lt;script&gt;" in html
    assert "a&lt;b&gt;run" in html
    assert "data/&lt;i&gt;" in html
    assert "40 of 40" in html
    curves = re.findall(r'<path d="M([^"]*)" fill="none" stroke="#', html)
    assert len(curves) == 2
    loss, accuracy = ([tuple(map(float, point.split())) for point in curve.split("L")] for curve in curves)
    assert len(loss) == 3
    assert loss[0][1] < loss[1][1] < loss[2][1]  # downwards on the page: the loss falls
    assert accuracy[0][1] > accuracy[1][1]


def test_run_that_has_not_begun_has_a_card_and_empty_tables(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    run = ds.Run(tmp_path)
    assert run.status == "running"
    assert (len(run.history), len(run.workers)) == (0, 0)
    assert tags(run._repr_html_()) <= {"div", "b", "span", "table", "tr", "td"}
    with pytest.raises(ds.ConfigError, match="no worker has reported yet"):
        run.plot()
    assert run.dataset is None
