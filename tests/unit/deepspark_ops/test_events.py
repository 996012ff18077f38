"""Lines of events.jsonl that are no events: left out, named by number, never an exception of somebody else's."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from deepspark_ops.events import append_event, make_event, parse_event, read_events

WHOLE = make_event("loss", clock=5, worker=1, loss=0.5)


@pytest.mark.parametrize("key", ["v", "time", "kind", "clock", "worker"])
@pytest.mark.parametrize("value", [None, [], "x", {}])
def test_a_line_without_one_of_its_keys_is_no_event(key: str, value: object) -> None:
    fields = json.loads(WHOLE.to_json())
    assert parse_event(json.dumps(fields)) is not None
    if value is None:
        del fields[key]
    else:
        fields[key] = value
    assert parse_event(json.dumps(fields)) is None


@pytest.mark.parametrize("line", ["", "[]", '"x"', '{"v": 1', "[" * 100_000, "\ud800", '{"v": 1}'])
def test_what_is_no_object_is_no_event(line: str) -> None:
    assert parse_event(line) is None


def test_a_damaged_line_is_left_out_and_named_and_a_torn_last_line_is_not(tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.WARNING)
    path = tmp_path / "events.jsonl"
    append_event(path, WHOLE)
    with path.open("ab") as file:
        file.write(b'{"v": 1, "kind": "loss", "worker": 0}\n\xff\xfe\n')
    append_event(path, WHOLE)
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
