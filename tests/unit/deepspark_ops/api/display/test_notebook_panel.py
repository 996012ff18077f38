"""A stage in a notebook: an output that is redrawn, warnings that stay, and everything escaped."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import IPython
import IPython.display
import pytest

from deepspark_ops.api.display import notebook_panel
from deepspark_ops.api.display.stage_display import StageDisplay, TrainDisplay
from deepspark_ops.events import append_event, make_event


class Output:
    """The output of a cell, as IPython's handle for it."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, html: Any) -> None:
        self.shown.append(html.data)

    def text(self) -> str:
        return re.sub(r"<[^>]+>", "", self.shown[-1])


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Output:
    filled = Output()

    def display(html: Any, *, display_id: bool) -> Output:
        assert display_id
        filled.update(html)
        return filled

    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setattr(IPython.display, "display", display)
    monkeypatch.setattr(notebook_panel, "_DRAW_EVERY_S", 0.0)
    return filled


def test_bar_last_line_and_warnings(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    with StageDisplay("ingest") as shown:
        assert "ingest" in output.text()
        shown.line(logging.INFO, "ingest train: shard 3/8 written")
        assert "38%" in output.text()
        shown.line(logging.WARNING, "1 image <b>damaged</b>")
        shown.line(logging.INFO, "ingest train: shard 4/8 written")
        assert "50%" in output.text()
    assert "&lt;b&gt;damaged&lt;/b&gt;" in output.shown[-1]
    assert "shard 4/8" in output.text()
    assert "shard 3/8" not in output.text()
    assert capsys.readouterr() == ("", "")


def test_run_is_drawn_from_its_events(output: Output, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").touch()
    with TrainDisplay(tmp_path, max_iter=40) as shown:
        started = {"stage": "train", "status": "started", "net": "n", "strategy": "easgd", "n_workers": 1}
        append_event(tmp_path / "events.jsonl", make_event("stage", **started, max_iter=40))
        append_event(tmp_path / "events.jsonl", make_event("loss", clock=20, worker=0, loss=0.5, images_per_s=100.0))
        shown.line(logging.INFO, "worker 0 loss clock=20/40 loss=0.5")
        assert "n: easgd, 1 workers" in output.text()
        assert "0.5000" in output.text()
        assert "20 of 40 minibatches" in output.text()


def test_error_lines_that_the_message_does_not_repeat_stay(output: Output) -> None:
    shown = StageDisplay("train")
    shown.__enter__()
    shown.line(logging.ERROR, "a line before")
    shown.line(logging.ERROR, "the message")
    shown.__exit__(ValueError, ValueError("the message"), None)
    assert "a line before" in output.text()
    assert "the message" not in output.text()


def test_nothing_is_shown_without_progress(output: Output) -> None:
    with StageDisplay("train", is_shown=False) as shown:
        shown.line(logging.WARNING, "w")
    assert output.shown == []
