"""Lines of events.jsonl that are no events: left out, named by number, never an exception of somebody else's."""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path

import pytest

from deepspark_ops.events import append_event, format_event, make_event, parse_event, read_events

EVENT = make_event("loss", clock=5, worker=1, loss=0.5)


@pytest.mark.parametrize("key", ["v", "time", "kind", "clock", "worker"])
@pytest.mark.parametrize("value", [None, [], "x", {}])
def test_a_line_without_one_of_its_keys_is_no_event(key: str, value: object) -> None:
    fields = json.loads(EVENT.to_json())
    assert parse_event(json.dumps(fields)) is not None
    if value is None:
        del fields[key]
    else:
        fields[key] = value
    assert parse_event(json.dumps(fields)) is None


@pytest.mark.parametrize("time_s", ["1e999", "-1e999", "NaN", "1" + 400 * "0"])
def test_a_time_that_is_no_time_is_no_event(time_s: str) -> None:
    line = re.sub(r'"time": [0-9.]+', '"time": {}', EVENT.to_json())
    assert parse_event(line.replace("{}", "1e9")) is not None
    assert parse_event(line.replace("{}", time_s)) is None


@pytest.mark.parametrize("line", ["", "[]", '"x"', '{"v": 1', "[" * 100_000, "\ud800", '{"v": 1}'])
def test_what_is_no_object_is_no_event(line: str) -> None:
    assert parse_event(line) is None


def test_a_damaged_line_is_left_out_and_named_and_a_torn_last_line_is_not(tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.WARNING)
    path = tmp_path / "events.jsonl"
    append_event(path, EVENT)
    with path.open("ab") as file:
        file.write(b'{"v": 1, "kind": "loss", "worker": 0}\n\xff\xfe\n')
    append_event(path, EVENT)
    with path.open("ab") as file:
        file.write(b'{"v": 1, "ki')
    assert [event.clock for event in read_events(path)] == [5, 5]
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}:{number}: not an event of version 1; the line is left out" for number in (2, 3)
    ]


def test_a_line_that_the_disk_takes_in_part_only_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:10]))
    with pytest.raises(OSError, match="No space left on device"):
        append_event(tmp_path / "events.jsonl", make_event("note", text="x"))


def test_a_report_says_the_important_numbers_first_and_fits_the_log() -> None:
    numbers = {
        "loss": 0.1537160001, "learning_rate": 0.029777, "images_per_s": 1837.7, "compute_s": 1.547, "data_s": 0.021,
        "exchange_s": 0.071, "staleness": 0.734, "distance": 0.660845, "loss_scale": 32768.0,
    }  # fmt: skip
    short = make_event("loss", clock=200, worker=1, **numbers)
    assert format_event(short, max_iter=1000) == (
        "worker 1 loss clock=200/1000 loss=0.153716 lr=0.02978 images/s=1838 comp=1.55s data=0.02s exch=0.07s"
        " stale=0.734"
    )
    long = make_event("loss", clock=2_000_000, worker=9999, **numbers)
    assert format_event(long, max_iter=45_000_000).startswith(
        "worker 9999 loss clock=2000000/45000000 loss=0.153716 lr="
    )
    assert len(format_event(long, max_iter=45_000_000)) <= 120
    assert format_event(make_event("loss", clock=1, worker=0, loss="nan")) == "worker 0 loss clock=1 loss=nan"
    several = make_event("loss", clock=1, worker=0, loss=1.5, outputs={"aux": 0.25, "main": "nan"})
    assert format_event(several) == "worker 0 loss clock=1 loss=1.5 outputs=aux:0.25,main:nan"


def test_a_report_of_the_server_is_short() -> None:
    event = make_event(
        "server", clock=280, exchanges=35, seconds=5.107, exchanges_per_s=6.853, bytes_per_s=23632713, overlaps=0,
        staleness=0.8857, lost_updates=0, deviation=-1.29638e-06, rounding=1.27905e-05,
    )  # fmt: skip
    assert format_event(event) == (
        "driver server clock=280 exchanges/s=6.853 bytes/s=2.36e+07 staleness=0.886 lost_updates=0 overlaps=0"
    )
