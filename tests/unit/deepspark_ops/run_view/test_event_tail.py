from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from deepspark_ops.events import append_event, make_event, read_events
from deepspark_ops.run_view.event_tail import EventTail
from tests.unit.deepspark_ops.run_view.run_events import RUN, lines, loss


def written(path, text, mode="ab"):
    with path.open(mode) as file:
        file.write(text)


def test_tail_begins_at_the_present_end_and_waits_for_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    append_event(path, make_event("note", text="of an earlier life"))
    tail = EventTail(path)
    line = make_event("note", text="torn").to_json()
    with path.open("a") as file:
        file.write(line[:20])
    assert tail.read() == []
    with path.open("a") as file:
        file.write(line[20:] + "\n")
    assert [event.data["text"] for event in tail.read()] == ["torn"]
    assert tail.read() == []


@given(cuts=st.lists(st.integers(0, len(lines())), max_size=6))
@settings(max_examples=60, deadline=None)
def test_read_in_pieces_cut_anywhere_is_read_as_a_whole(tmp_path_factory, cuts) -> None:
    path = tmp_path_factory.mktemp("cut") / "events.jsonl"
    content, tail, read = lines(), EventTail(path, from_start=True), []
    edges = [0, *sorted(cuts), len(content)]
    for start, end in pairwise(edges):
        written(path, content[start:end])
        events, is_new = tail.read_placed()
        assert not is_new
        read += events
    assert [event for event, _ in read] == list(read_events(path))
    assert len(read) == len(RUN)
    for event, end in read:  # the offset stands behind the event's own line
        assert content[:end].endswith(event.to_json().encode() + b"\n")
    assert tail.position.offset == len(content)


def test_a_damaged_line_is_left_out_and_what_follows_is_read(tmp_path) -> None:
    path = tmp_path / "events.jsonl"
    written(path, lines(RUN[:2]) + b'{"v": 1, "time":\n\xff\n' + lines(RUN[2:4]))
    assert EventTail(path, from_start=True).read() == list(RUN[:4])


def test_a_truncated_and_a_replaced_file_are_read_anew(tmp_path) -> None:
    path = tmp_path / "events.jsonl"
    tail = EventTail(path, from_start=True)
    assert tail.read_placed() == ([], False)  # there is no file yet
    written(path, lines())
    assert len(tail.read()) == len(RUN)
    written(path, lines(RUN[:3]), "wb")
    events, is_new = tail.read_placed()
    assert ([event for event, _ in events], is_new) == (list(RUN[:3]), True)
    other = (loss(5, 1, 2.0), *RUN)  # longer than what was read, and another first line
    written(path, lines(other), "wb")
    events, is_new = tail.read_placed()
    assert ([event for event, _ in events], is_new) == (list(other), True)
    path.unlink()
    assert tail.read_placed() == ([], True)
    assert tail.read_placed() == ([], False)


def test_a_position_has_a_file_and_an_offset(tmp_path) -> None:
    first, two = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    written(first, lines(RUN[:1]))
    written(two, lines(RUN[1:2]))
    tails = [EventTail(path, from_start=True) for path in (first, first, two)]
    for tail in tails:
        tail.read()
    assert tails[0].position.token() == tails[1].position.token() == EventTail(first).position.token()
    assert tails[0].position.token() != tails[2].position.token()
