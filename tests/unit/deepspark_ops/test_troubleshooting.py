"""Messages with the listed cause and remedy."""

from __future__ import annotations

import pytest

from deepspark_ops.troubleshooting import explained, message_rows


def test_each_line_without_a_remedy_gets_cause_and_remedy() -> None:
    assert explained('list.txt: line 3 is not "path label"\nnothing known\nthe driver\'s file server a:1: timeout') == (
        'list.txt: line 3 is not "path label"\n'
        "cause: a line of the list has another form\n"
        "remedy: Correct the line; a blank separates path and label\n"
        "nothing known\n"
        "the driver's file server a:1: timeout\n"
        "cause: no answer: the driver has ended, or a firewall closes the port\n"
        "remedy: Open the port after the exchange's ports (`--listen-port`) for the executors"
        " (ports (docs/guides/cluster.md#who-opens-which-port))"
    )


@pytest.mark.parametrize(
    "message", ["", "unknown", 'line 3 is not "path label"; write path, blank, label', "crop_size="]
)
def test_a_message_with_a_remedy_and_an_unknown_message_stay(message: str) -> None:
    assert explained(message) == message


def test_no_row_hides_another() -> None:
    for part, (cause, _) in (row for rows in message_rows().values() for row in rows.items()):
        if "; " not in part and "](" not in cause:
            assert explained(part).splitlines()[1] == f"cause: {cause}"
